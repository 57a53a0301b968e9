//! Clients that connect as often as they can, ask and never read: the server keeps within its descriptors, and an
//! honest client is served meanwhile.

use futae_testkit::nbd::Plain;
use futae_tests::binary::futae;
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::{has, run, text};
use std::fs::{File, read_dir};
use std::process::Command;

/// Descriptors that the server may have, and how many of them it may use.
const LIMIT: usize = 1024;
const USED_MAX: usize = LIMIT * 8 / 10;
/// Connections of the hostile client.
const HOSTILE: usize = 700;
const READS: u64 = 4;
const SIZE: u64 = 64 << 20;

fn descriptors(process: u32) -> usize {
    read_dir(format!("/proc/{process}/fd"))
        .expect("procfs")
        .count()
}

#[test]
fn connections_that_read_nothing_leave_the_server_a_fifth_of_its_descriptors() {
    if !has("nbdinfo") {
        return;
    }
    let stage = Stage::bare();
    let image = File::create(&stage.image).expect("an image");
    image.set_len(SIZE).expect("room");
    let export = format!("disk={}", text(&stage.image));
    let listen = format!("unix:{}", text(&stage.socket));
    let serve = futae(&[
        "serve", "--json", "--cache", "8MiB", "--export", &export, "--listen", &listen,
    ]);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {LIMIT} && exec \"$@\""), "sh"]);
    command.arg(serve.get_program()).args(serve.get_args());
    let mut server = Running::start("futae serve", command);
    server.line();
    let mut hostile = Vec::new();
    let mut most = 0;
    for number in 0..HOSTILE {
        // One that is turned away, or loses its place to the next, is no loss.
        if let Ok(mut client) = Plain::connect(&stage.socket, "disk") {
            let asked = (0..READS).try_for_each(|at| client.ask_in_vain(at << 20, 1 << 20));
            hostile.extend(asked.is_ok().then_some(client));
        }
        if number % 50 == 0 {
            most = most.max(descriptors(server.id()));
        }
    }
    most = most.max(descriptors(server.id()));
    assert!(
        hostile.len() > LIMIT / 4,
        "{} connections were made",
        hostile.len()
    );
    assert!(most <= USED_MAX, "{most} of {LIMIT} descriptors are used");
    // Another process: places are shared out among processes.
    let uri = format!("nbd+unix:///disk?socket={}", text(&stage.socket));
    let said = run("nbdinfo", &["--size", &uri]);
    assert_eq!(
        String::from_utf8_lossy(&said.stdout).trim(),
        SIZE.to_string()
    );
    drop(hostile);
    let ended = server.stop();
    assert!(
        !ended.errors.contains("Too many open files"),
        "{}",
        ended.errors
    );
}
