//! Other programs, and what a test does where something is missing.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Output};

pub use futae_testkit::need::{Need, skip};

/// Whether a program is installed; says so if it is not.
#[must_use]
pub fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        skip(Need::Tools, &format!("{tool} is not installed"));
    }
    found
}

/// Whether this machine and user can mount FUSE file systems; says so if not.
#[must_use]
pub fn has_fuse() -> bool {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &device {
        skip(Need::Fuse, &format!("no FUSE: /dev/fuse: {error}"));
    } else if !is_root() && !has("fusermount3") {
        return false;
    }
    device.is_ok()
}

/// Whether the test runs as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether the test runs as root; says so if it does not.
#[must_use]
pub fn has_root() -> bool {
    if !is_root() {
        skip(Need::Root, "only root may do this");
    }
    is_root()
}

/// Shell commands for the start of a mount namespace: they remove the mounts of other tests, which would otherwise not end before
/// the namespace does, although their tests unmount them.
pub const WITHOUT_OTHERS_MOUNTS: &str = "while read -r _ point type _; do case $type in fuse|fuse.*) umount -l \"$point\" || :;; esac; done </proc/mounts 2>/dev/null";

/// A command that runs the program and arguments added to it where there is no FUSE device: in a
/// mount namespace with an empty `/dev`. None, and it says why, where that cannot be had.
#[must_use]
pub fn without_fuse() -> Option<Command> {
    if !has_root() || !has("unshare") {
        return None;
    }
    let command = || {
        let script = format!("{WITHOUT_OTHERS_MOUNTS}; mount -t tmpfs none /dev && exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            &script,
            "sh",
        ]);
        command
    };
    let tried = command().arg("true").output().expect("unshare starts");
    if !tried.status.success() {
        let why = String::from_utf8_lossy(&tried.stderr);
        skip(
            Need::Root,
            &format!("no mount namespaces here: {}", why.trim()),
        );
        return None;
    }
    Some(command())
}

/// Runs a program that must succeed.
pub fn run(tool: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(tool);
    let output = command.args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{tool}: {error}"));
    assert!(
        output.status.success(),
        "{tool} {arguments:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A path as text.
#[must_use]
pub fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are UTF-8")
}
