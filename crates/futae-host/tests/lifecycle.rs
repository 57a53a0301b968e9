//! Starting, being asked, resizing and stopping.

mod common;

use common::{BLOCK, Client, MemoryStore, Rig, StoreEvent, engine, eventually, export, pattern};
use futae_host::{HostError, Listen, Server, ServerOptions, ServerStatus};
use futae_nbd::ClientWish;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const SIZE: usize = 1 << 20;

fn options(path: &Path) -> ServerOptions {
    ServerOptions {
        listen: vec![Listen::Unix(path.to_owned())],
        ..ServerOptions::default()
    }
}

#[test]
fn a_socket_in_use_is_an_error_and_leaves_no_other_behind() {
    let rig = Rig::new("lru", 64, pattern(1, SIZE));
    let directory = tempfile::tempdir().expect("a directory");
    let first = directory.path().join("first.sock");
    let mut both = options(&first);
    both.listen.push(Listen::Unix(rig.socket.clone()));
    let cache = engine("lru", 8);
    let exports = vec![export(&cache, "disk", &MemoryStore::new(pattern(1, SIZE)))];
    let error = Server::start(both, exports).map(drop).expect_err("in use");
    assert!(matches!(error, HostError::InUse { .. }), "{error}");
    assert!(!first.exists(), "the socket made before is gone");
    assert!(rig.socket.exists());
    assert!(
        rig.plain().read(0, 10).is_ok(),
        "the server that was there goes on"
    );
}

#[test]
fn what_cannot_be_served_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("s");
    let cache = engine("lru", 8);
    let store = MemoryStore::new(pattern(1, SIZE));
    let twice = vec![export(&cache, "a", &store), export(&cache, "a", &store)];
    let error = Server::start(options(&path), twice)
        .map(drop)
        .expect_err("two of a name");
    assert!(
        matches!(error, HostError::DuplicateExport { .. }),
        "{error}"
    );
    assert!(Server::start(options(&path), vec![]).is_err());
    let one = || vec![export(&cache, "b", &store)];
    assert!(Server::start(ServerOptions::default(), one()).is_err());
    let mut tcp_control = options(&path);
    tcp_control.control = Some("tcp:127.0.0.1:0".parse().expect("an address"));
    assert!(Server::start(tcp_control, one()).is_err());
    assert!(!path.exists());
}

#[test]
fn a_stop_answers_what_is_in_flight_flushes_and_removes_the_sockets() {
    let content = pattern(2, SIZE);
    let rig = Rig::with("lru", 64, content.clone(), |options| {
        options.control = Some(options.listen[0].clone());
    });
    let mut client = rig.plain();
    assert_eq!(client.write(0, &[5; 100]), None);
    rig.store.hold_reads(0..SIZE as u64);
    let cookie = client.send_read(40 * BLOCK, 4096);
    let idle = rig.plain();
    eventually("the read is in flight", || rig.store.held() == 1);
    let control = rig.directory.path().join("control.sock");
    assert!(control.exists());
    let (server, store) = (rig.server, rig.store.clone());
    let stopping = std::thread::spawn(move || server.stop());
    eventually("no new connections", || {
        UnixStream::connect(&rig.socket).is_err()
    });
    store.release();
    let answer = client.receive();
    assert_eq!(answer.cookie, cookie);
    assert!(answer.data == content[40 * 4096..41 * 4096]);
    assert!(client.try_receive().is_err(), "then the connection ends");
    let report = stopping.join().expect("stop");
    assert_eq!(
        (report.abandoned_connections, report.flush_errors.len()),
        (0, 0)
    );
    assert_eq!(store.events().last(), Some(&StoreEvent::Flush));
    assert!(!rig.socket.exists() && !control.exists());
    drop(idle);
}

#[test]
fn a_stalled_store_cannot_hold_up_a_stop() {
    let rig = Rig::with("lru", 64, pattern(3, SIZE), |options| {
        options.stop_timeout = Duration::from_millis(300);
    });
    let mut client = rig.plain();
    rig.store.hold_writes();
    client.send_write(0, &[1; 4096]);
    eventually("the write is held", || rig.store.held() == 1);
    let server = rig.server;
    let stop = std::thread::spawn(move || server.stop());
    eventually("the server has stopped", || stop.is_finished());
    let report = stop.join().expect("a report");
    assert_eq!(report.abandoned_connections, 1);
    assert!(!rig.socket.exists());
    rig.store.release();
}

fn order(path: &Path, line: &str) -> Value {
    let stream = UnixStream::connect(path).expect("connect");
    (&stream)
        .write_all(format!("{line}\n").as_bytes())
        .expect("send");
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .expect("an answer");
    serde_json::from_str(&answer).expect("JSON")
}

#[test]
fn the_control_socket_reports_and_resizes() {
    let rig = Rig::with("lru", 64, pattern(4, SIZE), |options| {
        options.control = Some(options.listen[0].clone());
    });
    let control = rig.directory.path().join("control.sock");
    let mut client = rig.demoting();
    client.read(0, 16_384).expect("read");
    let status = order(&control, r#"{"command":"status"}"#);
    let parsed: ServerStatus = serde_json::from_value(status.clone()).expect("a status");
    assert_eq!(
        (
            parsed.connections,
            parsed.demotion_clients,
            parsed.handshakes
        ),
        (1, 1, 0)
    );
    assert_eq!(parsed.exports[0].connections, 1);
    assert_eq!(parsed.engines[0].engine.counters.misses, 4);
    assert_eq!(status["engines"][0]["capacity_blocks"], 64);
    assert_eq!(status["engines"][0]["exports"][0], "disk");

    let resized = order(&control, r#"{"command":"resize","cache":"32KiB"}"#);
    assert_eq!(resized["capacity_blocks"], 8);
    assert_eq!(rig.engine.status().capacity_blocks, 8);
    let named = order(
        &control,
        r#"{"command":"resize","cache":"100blocks","export":"disk"}"#,
    );
    assert_eq!(named["capacity_blocks"], 100);
    assert_eq!(
        client.read(0, 4096).expect("read"),
        pattern(4, SIZE)[..4096]
    );

    for bad in [
        "",
        "{}",
        "no json",
        r#"{"command":"explode"}"#,
        r#"{"command":"status","x":1}"#,
        r#"{"command":"resize"}"#,
        r#"{"command":"resize","cache":"5000"}"#,
        r#"{"command":"resize","cache":"0blocks"}"#,
        r#"{"command":"resize","cache":"8000TiB"}"#,
        r#"{"command":"resize","cache":"1MiB","export":"none"}"#,
        &"x".repeat(70_000),
    ] {
        let answer = order(&control, bad);
        assert!(answer["error"].is_string(), "{bad:.40}: {answer}");
    }
    assert_eq!(rig.engine.status().capacity_blocks, 100);
}

#[test]
fn caches_of_their_own_are_resized_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut options = options(directory.path());
    options.control = Some(Listen::Unix(directory.path().join("orders")));
    let (a, b) = (engine("lru", 16), engine("lru", 32));
    let store = MemoryStore::new(pattern(1, SIZE));
    let exports = vec![export(&a, "a", &store), export(&b, "b", &store)];
    let server = Server::start(options, exports).expect("a server");
    let control = directory.path().join("orders");
    assert!(order(&control, r#"{"command":"resize","cache":"48blocks"}"#)["error"].is_string());
    order(
        &control,
        r#"{"command":"resize","cache":"48blocks","export":"b"}"#,
    );
    let sizes: Vec<u64> = server
        .status()
        .engines
        .iter()
        .map(|report| report.engine.capacity_blocks)
        .collect();
    assert_eq!(sizes, [16, 48]);
    let mut client = Client::unix(
        &directory.path().join("futae.sock"),
        "b",
        &ClientWish::default(),
    );
    assert!(client.read(0, 4096).is_ok());
}

#[test]
fn replies_at_depth_leave_in_batches() {
    let rig = Rig::new("lru", 256, pattern(5, SIZE));
    let mut client = rig.plain();
    client.read(0, SIZE as u32).expect("warm");
    eventually("the long reply is counted", || {
        rig.server.status().traffic.replies == 1
    });
    let before = rig.server.status().traffic;
    let requests: Vec<u8> = (0..64u64)
        .flat_map(|i| {
            futae_nbd::RequestHeader::new(futae_nbd::Command::Read, 1000 + i, i * BLOCK, 512)
                .encode()
        })
        .collect();
    client.send_raw(&requests).expect("send");
    let mut left = 64 * (16 + 512);
    while left > 0 {
        left -= client.receive_raw(left);
    }
    let mut after = rig.server.status().traffic;
    eventually("all are counted", || {
        after = rig.server.status().traffic;
        after.replies == before.replies + 64
    });
    assert!(
        after.sends - before.sends <= 4,
        "{} calls for 64 replies",
        after.sends - before.sends
    );
}

#[test]
fn a_flush_at_the_end_does_not_wait_for_peers() {
    const LONG: usize = 24 << 20;
    let rig = Rig::with("lru", 64, pattern(6, LONG), |options| {
        options.stop_timeout = Duration::from_secs(3600);
    });
    let mut client = rig.plain();
    // More than a socket holds, so that it stays in the server while nobody receives it.
    client.send_read(0, LONG as u32);
    eventually("it is read", || rig.store.reads() > 0);
    let (server, store) = (rig.server, rig.store);
    let stopping = std::thread::spawn(move || server.stop());
    eventually("the flush arrives", || {
        store.events().contains(&StoreEvent::Flush)
    });
    assert!(!stopping.is_finished(), "the client is still waited for");
    drop(client);
    let report = stopping.join().expect("stop");
    assert_eq!(report.flush_errors, []);
    assert_eq!(store.events().last(), Some(&StoreEvent::Flush));
}
