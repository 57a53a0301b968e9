//! A system call that a signal interrupts is made again.

use futae_testkit::nbd::Plain as Client;
use futae_tests::BLOCK;
use futae_tests::binary::futae;
use futae_tests::process::Running;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::{Need, has, skip, text};
use std::process::Command;

#[test]
fn a_signal_is_not_taken_for_a_lack_of_memory() {
    if !has("strace") {
        return;
    }
    let traced = Command::new("strace").args(["-qq", "true"]).output();
    if !traced.is_ok_and(|traced| traced.status.success()) {
        return skip(Need::Tools, "no process can be traced here");
    }
    let stage = Stage::new(64);
    let place = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let memory = place.path().join("cache");
    let server = futae(&["serve", "--json", "--cache", "16MiB"]);
    let mut command = Command::new("strace");
    // As a debugger's child it would survive this test. Every other call is interrupted, so each has to be made twice.
    command.args(["-D", "-f", "-qq", "-e", "trace=fallocate"]);
    command.args(["-e", "inject=fallocate:error=EINTR:when=1+2"]);
    command.args(["-o", "/dev/null"]);
    command.arg(server.get_program()).args(server.get_args());
    command.args(["--memory-file", text(&memory)]);
    command.args(["--export", &format!("{EXPORT}={}", stage.image.display())]);
    command.args(["--listen", &format!("unix:{}", stage.socket.display())]);
    let mut running = Running::start("futae serve", command);
    assert!(running.line().contains("exports"));
    let mut client = Client::connect(&stage.socket, EXPORT).expect("a connection");
    let read = client.read(0, BLOCK).expect("connected");
    assert_eq!(read.expect("read").len(), BLOCK);
}
