//! The Python package: its wheel, installed into a clean environment, beside the command line.

use futae_tests::binary::{binary, builder};
use futae_tests::tidy::root;
use futae_tests::tools::{Need, skip};
use std::env;

/// With which `scripts/test-python` says that this machine has not what it needs.
const CANNOT: i32 = 77;

#[test]
fn the_wheel_simulates_as_the_command_line() {
    let mut script = builder(root().join("scripts/test-python"));
    script.env("FUTAE_BINARY", binary());
    // Beside the tests, whose dependencies it shares.
    let target = binary().parent().and_then(|profile| profile.parent());
    if env::var_os("CARGO_TARGET_DIR").is_none()
        && let Some(target) = target
    {
        script.env("CARGO_TARGET_DIR", target);
    }
    let output = script.output().expect("bash starts");
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(CANNOT) => skip(Need::Python, said.trim()),
        status => {
            assert_eq!(status, Some(0), "{said}");
            // How many tests ran: none would be none that failed.
            assert!(
                said.contains("\nRan ") && !said.contains("\nRan 0 "),
                "{said}"
            );
        }
    }
}
