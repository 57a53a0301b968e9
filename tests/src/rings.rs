//! FUSE over io_uring, which root switches on and off for the whole machine.

use crate::tools::Need;
use crate::tools::skip;
use rustix::fs::{FlockOperation, flock};
use std::env;
use std::fs::{self, File};
use std::process::Command;

/// The kernel's switch.
pub const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// How the mounts of a test get their requests, where it does not say itself.
pub const TRANSPORT: &str = "FUTAE_TEST_TRANSPORT";

/// The switch as a test wants it, until it is dropped. One test at a time has it.
pub struct Switched {
    before: String,
    _turn: File,
}

impl Switched {
    /// None, and it says why, where it cannot be switched.
    #[must_use]
    pub fn to(on: bool) -> Option<Self> {
        let wanted = if on { "Y" } else { "N" };
        let turn = File::create(env::temp_dir().join("futae-rings.lock")).expect("a lock");
        flock(&turn, FlockOperation::LockExclusive).expect("a turn");
        let before = match fs::read_to_string(SWITCH) {
            Ok(before) => before,
            Err(error) => {
                skip(
                    Need::Rings,
                    &format!("no FUSE over io_uring: {SWITCH}: {error}"),
                );
                return None;
            }
        };
        if let Err(error) = fs::write(SWITCH, wanted) {
            skip(Need::Rings, &format!("{SWITCH}: {error}; run as root"));
            return None;
        }
        Some(Self {
            before,
            _turn: turn,
        })
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        // It could be written before.
        let _ = fs::write(SWITCH, &self.before);
    }
}

/// Runs tests of the program that calls once more, all their mounts by rings: those whose names contain
/// one of `names`.
pub fn again(names: &[&str]) {
    let Some(_on) = Switched::to(true) else {
        return;
    };
    let program = env::current_exe().expect("the test's own program");
    let mut again = Command::new(program);
    again.args(names).args(["--skip", "by_ring", "--nocapture"]);
    let output = again.env(TRANSPORT, "ring").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let ran = said.matches("... ok").count() + said.matches("\nok").count();
    assert!(output.status.success(), "{said}\n{errors}");
    assert!(ran >= names.len(), "none has run:\n{said}");
}
