//! Other programs, and what a test does where something is missing.

use std::fs::OpenOptions;
use std::io::{Write, stderr};
use std::path::Path;
use std::process::{Command, Output};

/// Says, past the capturing of tests' output, that a test or a part of it does not run here.
pub fn skip(why: &str) {
    // A message that nobody can read is nobody's loss.
    let _ = writeln!(stderr(), "skipped: {why}");
}

/// Whether a program is installed; says so if it is not.
#[must_use]
pub fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        skip(&format!("{tool} is not installed"));
    }
    found
}

/// Whether this machine and user can mount FUSE file systems; says so if not.
#[must_use]
pub fn has_fuse() -> bool {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &device {
        skip(&format!("no FUSE: /dev/fuse: {error}"));
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
        skip("only root may do this");
    }
    is_root()
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
