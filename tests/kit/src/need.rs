//! What a test needs of the machine that it runs on, and what it does where that is missing.
//!
//! A test that cannot run prints `skipped:` and the reason, and passes. `FUTAE_REQUIRE` names what this machine
//! must have, separated by commas, such as `fuse,root,qemu`; `all` names everything but `python`, `traces` and `vsock`. A test that is
//! skipped because something that is named there is missing fails.

use std::fmt;
use std::io::{Write, stderr};

/// The environment variable that declares what must be there.
pub const REQUIRE: &str = "FUTAE_REQUIRE";

/// What a test may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// `/dev/fuse`, and `fusermount3` for users who are not root.
    Fuse,
    /// The rights of root: mounts, mount namespaces, `chattr +i`.
    Root,
    /// FUSE over io_uring: a kernel that has it, and the right to switch it on.
    Rings,
    /// A Debian with its systemd in namespaces of its own: root, control groups of the second version, and Debian's packages.
    Systemd,
    /// Guests in QEMU: the program, and Debian's packages of their kernels.
    Qemu,
    /// The programs that `scripts/install-deps test` installs: fio, nbdkit, chromium, nginx and others.
    Tools,
    /// Loop devices.
    Loop,
    /// Memory control groups that can be made.
    Cgroup,
    /// A kernel that takes the agent's eBPF programs.
    Ebpf,
    /// `O_DIRECT` in the directory for temporary files.
    Direct,
    /// Huge pages of 2 MiB, which root can have the kernel set aside.
    HugePages,
    /// Maps of files that are opened past the page cache: Linux 6.6.
    DirectMaps,
    /// Reading and writing Parquet, a feature of `futae-trace` that the whole workspace switches on.
    Parquet,
    /// Python with its `venv`, and a package index that has what `python/requirements-test.txt` names.
    /// `all` does not name it: the index is of the network, not of the machine.
    Python,
    /// Sockets between a guest and its host. `all` does not name them: a test boots a guest that has them.
    Vsock,
    /// Traces that are not in this repository (`FUTAE_TRACES`). `all` does not name them: no package has them.
    Traces,
}

/// What `all` does not name.
const NOT_OF_ALL: [Need; 3] = [Need::Python, Need::Traces, Need::Vsock];

impl Need {
    /// Everything that can be declared.
    pub const ALL: [Self; 16] = [
        Self::Fuse,
        Self::Root,
        Self::Rings,
        Self::Systemd,
        Self::Qemu,
        Self::Tools,
        Self::Loop,
        Self::Cgroup,
        Self::Ebpf,
        Self::Direct,
        Self::HugePages,
        Self::DirectMaps,
        Self::Parquet,
        Self::Python,
        Self::Vsock,
        Self::Traces,
    ];

    /// The name in `FUTAE_REQUIRE`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fuse => "fuse",
            Self::Root => "root",
            Self::Rings => "rings",
            Self::Systemd => "systemd",
            Self::Qemu => "qemu",
            Self::Tools => "tools",
            Self::Loop => "loop",
            Self::Cgroup => "cgroup",
            Self::Ebpf => "ebpf",
            Self::Direct => "direct",
            Self::HugePages => "huge-pages",
            Self::DirectMaps => "direct-maps",
            Self::Parquet => "parquet",
            Self::Python => "python",
            Self::Vsock => "vsock",
            Self::Traces => "traces",
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Prints that a test, or a part of it, does not run here because `need` is missing.
///
/// # Panics
///
/// If `FUTAE_REQUIRE` names it, or names something unknown.
pub fn skip(need: Need, why: &str) {
    let declared = std::env::var(REQUIRE).unwrap_or_default();
    if let Err(problem) = judge(need, why, &declared) {
        panic!("{problem}");
    }
    // Past the capturing of tests' output. A message that nobody can read is nobody's loss.
    let _ = writeln!(stderr(), "skipped: {why}");
}

/// Whether a skip is permitted where `declared` must be there.
fn judge(need: Need, why: &str, declared: &str) -> Result<(), String> {
    let names = declared.split(',').map(str::trim);
    for name in names.filter(|name| !name.is_empty()) {
        if name != "all" && !Need::ALL.iter().any(|need| need.name() == name) {
            let known = Need::ALL.map(Need::name).join(", ");
            return Err(format!(
                "{REQUIRE} names {name}, which is none of {known}, all"
            ));
        }
        let is_of_all = name == "all" && !NOT_OF_ALL.contains(&need);
        if is_of_all || name == need.name() {
            return Err(format!(
                "{why}; {REQUIRE} names {need}, so this test must run"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_for_want_of_what_is_declared_is_a_failure() {
        let judged = judge(Need::Fuse, "no /dev/fuse", "root, fuse,qemu");
        let problem = judged.expect_err("fuse is declared");
        assert!(problem.contains("no /dev/fuse"), "{problem}");
        assert!(problem.contains("FUTAE_REQUIRE names fuse"), "{problem}");
        for need in Need::ALL {
            let by_all = judge(need, "why", "all").is_err();
            assert_eq!(by_all, !NOT_OF_ALL.contains(&need), "{need}");
            assert!(judge(need, "why", need.name()).is_err(), "{need}");
        }
    }

    #[test]
    fn a_skip_for_want_of_what_is_not_declared_is_none() {
        for declared in ["", " ", "root", "root,,qemu"] {
            assert_eq!(judge(Need::Fuse, "why", declared), Ok(()), "{declared:?}");
        }
    }

    #[test]
    fn an_unknown_name_is_a_failure_and_not_passed_over() {
        let problem = judge(Need::Fuse, "why", "root,fuze").expect_err("a slip");
        assert!(problem.contains("fuze"), "{problem}");
        assert!(problem.contains("fuse, root, rings"), "{problem}");
    }
}
