//! Several stores in one cache: near and far ones, and servers that go away, come back, or say
//! nothing.

use futae_nbd::ErrorNumber;
use futae_testkit::nbd::{Outcome as Answer, Plain as Client};
use futae_testkit::wait::eventually;
use futae_tests::BLOCK;
use futae_tests::process::Running;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::{has, text};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

const FAR: &str = "far";
const BLOCKS: u64 = 1024;

fn at(block: u64) -> u64 {
    block * BLOCK as u64
}

fn good<T>(answer: Answer<T>) -> T {
    answer.expect("the connection").expect("a good answer")
}

fn volume(stage: &Stage, name: &str) -> Value {
    let status = stage.status();
    let volumes = status["engines"][0]["volumes"].as_array();
    let found = volumes.and_then(|all| all.iter().find(|volume| volume["name"] == name));
    found.expect("a volume").clone()
}

/// What a far store's operation takes longer: far more than a busy machine needs for one of the near store.
const DELAY_MICROS: f64 = 100_000.0;

/// A server of an image whose every operation takes [`DELAY_MICROS`] longer.
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
    nbdkit.args(["rdelay=100ms", "wdelay=100ms"]);
    let running = Running::start("nbdkit", nbdkit);
    eventually("nbdkit", || socket.exists());
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
    let weight = |class: &str| {
        let status = stage.status();
        let weights = status["engines"][0]["weights"].as_array().cloned();
        let mut weights = weights.expect("weights").into_iter();
        let found = weights.rfind(|weight| weight["class"] == class);
        found
            .and_then(|weight| weight["weight"].as_f64())
            .expect("a weight")
    };
    // One store is known, and writing is taken to cost what reading does: 1 and 1/2, by their mean.
    good(near.read(at(0), BLOCK));
    eventually("weights of one store", || {
        (weight("local-clean") - 2f64.sqrt()).abs() < 0.01
    });
    // And anew, when the other is known.
    for block in 0..15 {
        let expected = good(near.read(at(block), BLOCK));
        assert_eq!(good(distant.read(at(block), BLOCK)), expected);
    }
    good(distant.write(at(40), &[7; BLOCK]));
    eventually("measured weights", || {
        weight("remote-clean") < weight("local-clean") / 2.0
    });
    let (here, there) = (volume(&stage, EXPORT), volume(&stage, FAR));
    assert_eq!(
        (&here["class"], &there["class"]),
        (&"local".into(), &"remote".into())
    );
    for name in ["read_micros", "read_micros_p99", "write_micros"] {
        let micros = there[name].as_f64().expect("measured");
        assert!(micros > DELAY_MICROS, "{name}: {micros}");
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
    let state = above.path("state");
    let state = ["--state-dir", text(&state)];
    let common = ["--export", &far, "--cache", "8MiB", "--policy", "lru"];
    above.serve(&[&common[..], &state, words].concat());
    (above, below)
}

/// Writes go through until the mark is made that the store lacks data.
fn until_kept(stage: &Stage, client: &mut Client) {
    eventually("the mark", || {
        good(client.write(0, &[1; BLOCK]));
        volume(stage, FAR)["unclean_mark"] == true
    });
    good(client.flush());
}

#[test]
fn a_server_that_goes_and_comes_back_takes_what_was_dirty() {
    let late = ["--dirty-max", "100%", "--dirty-age-max", "1h"];
    let back = ["--write-mode", "write-back", "--store-timeout", "60s"];
    let (mut above, mut below) = pair(&[&back[..], &late].concat());
    let mut client = Client::connect(&above.socket, FAR).expect("a connection");
    let run = 16 * BLOCK;
    until_kept(&above, &mut client);
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
    above.stop_serve_that_said("the connection was lost");
    below.stop_serve();
}

#[test]
fn a_server_that_says_nothing_fails_requests_after_a_while() {
    let (mut above, mut below) = pair(&["--store-timeout", "1s"]);
    let mut client = Client::connect(&above.socket, FAR).expect("a connection");
    let expected = good(client.read(at(3), BLOCK));
    below.server().hold_up();
    assert_eq!(good(client.read(at(3), BLOCK)), expected, "it is cached");
    let silent = client.read(at(4), BLOCK).expect("the connection");
    assert_eq!(silent.err(), Some(ErrorNumber::InputOutput));
    below.server().go_on();
    eventually("an answer", || {
        client.read(at(4), BLOCK).expect("the connection").is_ok()
    });
    drop(client);
    above.stop_serve_that_said("has not answered for 1 s");
    below.kill_serve();
}

/// A server that is gone is waited for; then the request fails, and the near store never noticed.
#[test]
fn a_server_that_is_gone_is_waited_for_and_then_requests_fail() {
    let (mut above, mut below) = pair(&["--store-timeout", "1s", "--write-mode", "write-back"]);
    let mut client = Client::connect(&above.socket, FAR).expect("a connection");
    until_kept(&above, &mut client);
    good(client.write(at(9), &[5; BLOCK]));
    below.kill_serve();
    let gone = client.read(at(4), BLOCK).expect("the connection");
    assert_eq!(gone.err(), Some(ErrorNumber::InputOutput));
    let mut near = Client::connect(&above.socket, EXPORT).expect("a connection");
    good(near.read(at(4), BLOCK));
    // What is dirty is not dropped: the flush fails, and once the server is back, another does not.
    assert!(client.flush().expect("the connection").is_err());
    assert_eq!(good(client.read(at(9), BLOCK)), [5; BLOCK]);
    below.serve(&["--cache", "1MiB", "--policy", "lru"]);
    eventually("the server found again", || {
        client.flush().expect("the connection").is_ok()
    });
    let image = fs::read(&below.image).expect("the image");
    assert_eq!(image[at(9) as usize..][..BLOCK], [5; BLOCK]);
    drop((client, near));
    above.stop_serve_that_said("no connection to the server for 1 s");
    below.stop_serve();
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
    let file = format!("a={},class=far away", text(&stage.image));
    refused(&[&file], "local and remote");
    let twice = format!("a={}", text(&stage.image));
    refused(&[&twice, &twice], "two exports");
}

/// Three files: one local, one in a class of its own, one protected.
#[test]
fn classes_have_names_and_protected_blocks_stay() {
    const SLOTS: u64 = 512;
    let mut stage = Stage::new(BLOCKS);
    let others = ["shared", "kept"].map(|name| {
        let image = stage.path(&format!("{name}.img"));
        fs::copy(&stage.image, &image).expect("a copy");
        image
    });
    let shared = format!("shared={},class=nfs", text(&others[0]));
    let kept = format!("kept={},class=remote,protected", text(&others[1]));
    let policy = "directory(cost(lru,weights=local-clean:3,nfs-clean:1))";
    let cache = format!("{SLOTS}blocks");
    stage.serve(&[
        "--export", &shared, "--export", &kept, "--policy", policy, "--cache", &cache,
    ]);
    let connect = |name| Client::connect(&stage.socket, name).expect("a connection");
    let [mut near, mut nfs, mut safe] = [EXPORT, "shared", "kept"].map(connect);
    let hits = |name| volume(&stage, name)["hits"].as_u64().expect("a count");
    let read = |client: &mut Client, blocks: std::ops::Range<u64>| {
        blocks.for_each(|block| drop(good(client.read(at(block), BLOCK))));
    };
    read(&mut safe, 0..100);
    for round in 0..4 {
        read(&mut near, round * 200..(round + 1) * 200);
        read(&mut nfs, round * 200..(round + 1) * 200);
    }
    // Nothing of the others has pushed a protected block out.
    read(&mut safe, 0..100);
    assert_eq!(hits("kept"), 100);
    // Blocks that go three times as fast as their share leave less of the class that has them.
    let left = |client: &mut Client, name| {
        let before = hits(name);
        // From the newest on, so that what is read last has not been pushed out by this.
        (0..800)
            .rev()
            .take(300)
            .for_each(|block| drop(good(client.read(at(block), BLOCK))));
        hits(name) - before
    };
    let of_nfs = left(&mut nfs, "shared");
    let status = stage.status();
    let weights = status["engines"][0]["weights"].as_array().expect("weights");
    let names: Vec<_> = weights
        .iter()
        .filter_map(|of| of["class"].as_str())
        .collect();
    let expected = [
        "local-clean",
        "remote-clean",
        "nfs-clean",
        "local-dirty",
        "remote-dirty",
        "nfs-dirty",
    ];
    assert_eq!(names, expected);
    assert_eq!(volume(&stage, "shared")["class"], "nfs");
    // Of 412 slots that are not protected, near blocks would have half if both weighed the same; where
    // three go for one, lengths settle at one to three.
    assert!((280..=300).contains(&of_nfs), "{of_nfs} of 300");
    drop((near, nfs, safe));
    stage.stop_serve();
}
