//! The `futae` binary under test, and the laboratory's beside it.

use crate::rings::TRANSPORT;
use serde_json::Value;
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// Where a binary to test is, if it is not to be built: for trying the tests on a broken one.
const OVERRIDE: &str = "FUTAE_BINARY";

/// Has every `futae serve` of a test forbid itself the system calls that it should not need.
const SECCOMP: &str = "FUTAE_TEST_SECCOMP";

/// The binary, built from this workspace in the profile of the test, with `futae-lab` beside it.
pub fn binary() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| env::var_os(OVERRIDE).map_or_else(build, PathBuf::from))
}

/// Cargo, to build in the target directory of the tests.
#[must_use]
pub fn cargo() -> Command {
    builder(env!("CARGO"))
}

/// A program that calls Cargo, without what the cargo that runs this test said of its package. Build scripts that look at
/// that would run anew, and their crates be built anew, at each change between the two: ring's does, and so would all that
/// reads traces.
pub fn builder(program: impl AsRef<OsStr>) -> Command {
    let mut builder = Command::new(program);
    let kinds = [
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_CRATE_",
        "CARGO_BIN_",
    ];
    for (name, _) in env::vars_os() {
        let is_of_package = |name: &str| kinds.iter().any(|kind| name.starts_with(kind));
        if name.to_str().is_some_and(is_of_package) {
            builder.env_remove(name);
        }
    }
    builder
}

fn build() -> PathBuf {
    let mut cargo = cargo();
    // Of all default members, so that crates have the features that the tests were built with, and are not built anew.
    cargo.arg("build");
    cargo.args(["--bin", "futae", "--bin", "futae-lab"]);
    cargo.arg("--message-format=json-render-diagnostics");
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    cargo.current_dir(crate::tidy::root());
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "the futae binary does not build");
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut executables = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it =
            message["target"]["name"] == "futae" && message["reason"] == "compiler-artifact";
        let path = message["executable"].as_str().filter(|_| is_it)?;
        Some(PathBuf::from(path))
    });
    let last = executables.next_back();
    last.expect("cargo says where the binary is")
}

/// `futae` with arguments, ready to start.
#[must_use]
pub fn futae(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null());
    let transport = env::var(TRANSPORT).ok();
    if let (Some("mount"), Some(transport)) = (arguments.first().copied(), transport) {
        command.arg(format!("--transport={transport}"));
    }
    if arguments.first() == Some(&"serve") && env::var_os(SECCOMP).is_some() {
        command.arg("--seccomp");
    }
    command
}

/// Runs `futae` to its end.
#[must_use]
pub fn run(arguments: &[&str]) -> Output {
    futae(arguments).output().expect("futae starts")
}

/// Runs `futae`, which must succeed, and reads what it printed as JSON.
#[must_use]
pub fn run_json(arguments: &[&str]) -> Value {
    let output = run(arguments);
    assert!(
        output.status.success(),
        "futae {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("futae --json prints JSON")
}
