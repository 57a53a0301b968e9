//! Several stores in one cache: near and far ones, and servers that go away, come back, or say
//! nothing.

use futae_tests::BLOCK;
use futae_tests::nbd::{Answer, Client};
use futae_tests::process::Running;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::{has, text};
use futae_wire::ErrorNumber;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const FAR: &str = "far";
const BLOCKS: u64 = 1024;

fn at(block: u64) -> u64 {
    block * BLOCK as u64
}

fn good<T>(answer: Answer<T>) -> T {
    answer.expect("the connection").expect("a good answer")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < patience, "{what}: not in 30 s");
        thread::sleep(Duration::from_millis(20));
    }
}

fn volume(stage: &Stage, name: &str) -> Value {
    let status = stage.status();
    let volumes = status["engines"][0]["volumes"].as_array();
    let found = volumes.and_then(|all| all.iter().find(|volume| volume["name"] == name));
    found.expect("a volume").clone()
}

/// A server of an image whose every operation takes 20 ms longer.
fn delayed(image: &Path, socket: &Path) -> Running {
    let mut nbdkit = Command::new("nbdkit");
    nbdkit.args([
        "-f",
        "-U",
        text(socket),
        "--filter=delay",
        "file",
        text(image),
    ]);
    nbdkit.args(["rdelay=20ms", "wdelay=20ms"]);
    let running = Running::start("nbdkit", nbdkit);
    wait_until("nbdkit", || socket.exists());
    running
}

#[test]
fn costs_are_measured_by_store_and_become_weights() {
    if !has("nbdkit") {
        return;
    }
    let mut stage = Stage::new(BLOCKS);
    let (image, socket) = (stage.path("far.img"), stage.path("far.sock"));
    fs::copy(&stage.image, &image).expect("a copy");
    let nbdkit = delayed(&image, &socket);
    let far = format!("{FAR}=nbd+unix:///?socket={}", text(&socket));
    let policy = ["--policy", "cost(weights=measured)", "--cache", "8MiB"];
    stage.serve(&[&["--export", &far], &policy[..]].concat());
    let mut near = Client::connect(&stage.socket, EXPORT).expect("a connection");
    let mut distant = Client::connect(&stage.socket, FAR).expect("a connection");
    for block in 0..30 {
        let expected = good(near.read(at(block), BLOCK));
        assert_eq!(good(distant.read(at(block), BLOCK)), expected);
    }
    good(distant.write(at(40), &[7; BLOCK]));
    let weight = |class: &str| {
        let status = stage.status();
        let weights = status["engines"][0]["weights"].as_array().cloned();
        let mut weights = weights.expect("weights").into_iter();
        let found = weights.rfind(|weight| weight["class"] == class);
        found
            .and_then(|weight| weight["weight"].as_f64())
            .expect("a weight")
    };
    wait_until("measured weights", || {
        weight("remote-clean") < weight("local-clean") / 2.0
    });
    let (here, there) = (volume(&stage, EXPORT), volume(&stage, FAR));
    assert_eq!(
        (&here["class"], &there["class"]),
        (&"local".into(), &"remote".into())
    );
    for name in ["read_micros", "read_micros_p99", "write_micros"] {
        let micros = there[name].as_f64().expect("measured");
        assert!(micros > 20_000.0, "{name}: {micros}");
    }
    assert!(here["write_micros"].is_null(), "nothing was written there");
    let control = format!("unix:{}", text(&stage.control));
    let top = futae_tests::binary::run(&["top", &control, "--once"]);
    let top = String::from_utf8_lossy(&top.stdout).into_owned();
    assert!(
        top.contains("remote") && top.contains("weights: local-clean"),
        "{top}"
    );
    drop((near, distant));
    stage.stop_serve();
    nbdkit.kill();
}

/// A server, and before it one that caches it as a far store beside a near one.
fn pair(words: &[&str]) -> (Stage, Stage) {
    let mut below = Stage::new(BLOCKS);
    below.serve(&["--cache", "1MiB", "--policy", "lru"]);
    let mut above = Stage::new(BLOCKS);
    let far = format!("{FAR}={}", below.uri());
    let common = ["--export", &far, "--cache", "8MiB", "--policy", "lru"];
    above.serve(&[&common[..], words].concat());
    (above, below)
}

#[test]
fn a_server_that_goes_and_comes_back_takes_what_was_dirty() {
    let late = ["--dirty-max", "100%", "--dirty-age-max", "1h"];
    let back = ["--write-mode", "write-back", "--store-timeout", "60s"];
    let (mut above, mut below) = pair(&[&back[..], &late].concat());
    let mut client = Client::connect(&above.socket, FAR).expect("a connection");
    let run = 16 * BLOCK;
    for at in 0..20 {
        good(client.write(at * run as u64, &vec![at as u8 + 1; run]));
    }
    below.kill_serve();
    let dirty = volume(&above, FAR)["dirty_blocks"].clone();
    assert_eq!(dirty, 320, "nothing has been written yet");
    let flushed = thread::spawn(move || good(client.flush()));
    // The near store goes on.
    let mut near = Client::connect(&above.socket, EXPORT).expect("a connection");
    good(near.write(at(5), &[9; BLOCK]));
    good(near.flush());
    assert!(!flushed.is_finished(), "nobody has taken the dirty blocks");
    below.serve(&["--cache", "1MiB", "--policy", "lru"]);
    flushed.join().expect("the flush waits for the server");
    let image = fs::read(&below.image).expect("the image");
    for (at, bytes) in image.chunks(run).take(20).enumerate() {
        assert!(
            bytes.iter().all(|&byte| usize::from(byte) == at + 1),
            "run {at}"
        );
    }
    assert_eq!(volume(&above, FAR)["dirty_blocks"], 0);
    drop(near);
    above.stop_serve();
    below.stop_serve();
}

#[test]
fn a_server_that_says_nothing_fails_requests_after_a_while() {
    let (mut above, mut below) = pair(&["--store-timeout", "1s"]);
    let mut client = Client::connect(&above.socket, FAR).expect("a connection");
    let expected = good(client.read(at(3), BLOCK));
    below.signal_serve(Signal::STOP);
    assert_eq!(good(client.read(at(3), BLOCK)), expected, "it is cached");
    let silent = client.read(at(4), BLOCK).expect("the connection");
    assert_eq!(silent.err(), Some(ErrorNumber::InputOutput));
    below.signal_serve(Signal::CONT);
    wait_until("an answer", || {
        client.read(at(4), BLOCK).expect("the connection").is_ok()
    });
    drop(client);
    above.stop_serve();
    below.kill_serve();
}

#[test]
fn one_store_twice_and_unknown_classes_are_refused() {
    let stage = Stage::new(16);
    let listen = format!("unix:{}", text(&stage.socket));
    let refused = |exports: &[&str], word: &str| {
        let mut words = vec!["serve", "--listen", &listen, "--cache", "8MiB"];
        for export in exports {
            words.extend(["--export", export]);
        }
        let output = futae_tests::binary::run(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(word), "{said}");
    };
    let uri = "nbd+unix:///x?socket=/nowhere";
    refused(
        &[&format!("a={uri}"), &format!("b={uri}")],
        "same file or server",
    );
    let file = format!("a={},class=far", text(&stage.image));
    refused(&[&file], "local and remote");
}
