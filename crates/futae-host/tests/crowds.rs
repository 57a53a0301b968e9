//! Many connections of one peer keep nobody else out, and an export has no more than its quota. The crowd is
//! a process of its own, since peers are told apart by their processes.

mod common;

use common::{Client, MemoryStore, Rig, engine, eventually, export, pattern};
use futae_host::{Export, Listen, Server, ServerOptions};
use futae_nbd::{ClientWish, Command as NbdCommand, RequestHeader, client};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const SIZE: usize = 1 << 20;
/// The longest request.
const LONGEST: usize = 32 << 20;
const SOCKET: &str = "FUTAE_CROWD_SOCKET";
const SILENT: &str = "FUTAE_CROWD_SILENT";

/// The crowd, when this program is started by [`crowd`]: forty connections that idle until it is killed.
#[test]
fn is_a_crowd() {
    let Ok(socket) = std::env::var(SOCKET) else {
        return;
    };
    let silent = std::env::var(SILENT).is_ok();
    let connections: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = UnixStream::connect(&socket).expect("connect");
            if !silent {
                let _ = client::negotiate(&mut stream, "disk", &ClientWish::default());
            }
            stream
        })
        .collect();
    println!("crowded");
    // Until the pipe closes.
    let _ = std::io::stdin().lines().next();
    drop(connections);
}

struct Crowd(Child);

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn crowd(socket: &Path, silent: bool) -> Crowd {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "is_a_crowd", "--nocapture"])
        .env(SOCKET, socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if silent {
        command.env(SILENT, "1");
    }
    let mut child = command.spawn().expect("a process");
    let out = child.stdout.take().expect("its output");
    let mut lines = BufReader::new(out).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("crowded")));
    Crowd(child)
}

fn rig(adjust: impl FnOnce(&mut ServerOptions)) -> Rig {
    Rig::with("lru", 16, pattern(1, SIZE), |options| {
        options.connections_max = 20;
        adjust(options);
    })
}

#[test]
fn idle_connections_of_one_peer_lock_nobody_out() {
    let rig = rig(|_| {});
    let _crowd = crowd(&rig.socket, false);
    eventually("it is full", || {
        rig.server.status().exports[0].connections == 20
    });
    let mut newcomers: Vec<_> = (0..10).map(|_| rig.plain()).collect();
    for newcomer in &mut newcomers {
        assert!(newcomer.read(0, 4096).is_ok());
    }
    assert_eq!(rig.server.status().exports[0].connections, 20);
    assert_eq!(rig.server.status().dismissed, 10);
}

#[test]
fn a_flood_of_silent_connects_fails_no_newcomer() {
    let rig = rig(|_| {});
    let crowds: Vec<_> = (0..3).map(|_| crowd(&rig.socket, true)).collect();
    for _ in 0..40 {
        assert!(rig.plain().read(0, 10).is_ok());
    }
    drop(crowds);
}

#[test]
fn an_export_has_no_more_connections_and_requests_than_its_quota() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = engine("lru", 16);
    let store = MemoryStore::new(pattern(1, SIZE));
    let mut few = export(&cache, "few", &store);
    (few.connections_max, few.requests_max) = (Some(2), Some(3));
    let many = export(&cache, "many", &MemoryStore::new(pattern(2, SIZE)));
    let options = ServerOptions {
        listen: vec![Listen::Unix(directory.path().to_owned())],
        ..ServerOptions::default()
    };
    let _server = Server::start(options, vec![few, many]).expect("a server");
    let socket = directory.path().join("futae.sock");
    let join = |name| Client::unix(&socket, name, &ClientWish::default());
    let (mut one, mut two) = (join("few"), join("few"));
    let mut third = UnixStream::connect(&socket).expect("connect");
    assert!(client::negotiate(&mut third, "few", &ClientWish::default()).is_err());
    let mut other = join("many");
    store.hold_reads(0..SIZE as u64);
    for at in 0..8 {
        one.send_read(at * 65_536, 4096);
        two.send_read(at * 65_536 + 32_768, 4096);
    }
    eventually("three are under way", || store.held() == 3);
    assert!(
        other.read(0, 4096).is_ok(),
        "another export is not concerned"
    );
    assert_eq!(store.held(), 3);
    store.release();
    for _ in 0..8 {
        assert_eq!(one.receive().error, None);
        assert_eq!(two.receive().error, None);
    }
}

/// Sends the header of a WRITE and a part of its data.
fn send_half(client: &mut Client, bytes: u32) {
    let header = RequestHeader::new(NbdCommand::Write, 1, 0, bytes);
    let half = [&header.encode()[..], &[5; 100]].concat();
    client.send_raw(&half).expect("sent");
}

#[test]
fn clients_that_leave_within_a_write_leave_their_places() {
    for places_of_server in [false, true] {
        let rig = FewPlaces::few(places_of_server);
        for _ in 0..5 {
            let mut leaves = rig.join("a");
            send_half(&mut leaves, 4096);
            drop(leaves);
            eventually("it is gone", || rig.server.status().connections == 0);
        }
        let is_answered = rig.join("a").read(0, 4096).is_ok();
        assert!(is_answered, "places of the server: {places_of_server}");
    }
}

#[test]
fn clients_that_never_finish_their_writes_keep_nobody_from_being_served() {
    for places_of_server in [false, true] {
        let rig = FewPlaces::few(places_of_server);
        let buffered = || rig.server.status().buffer_bytes;
        let mut idle: Vec<_> = (0..4).map(|_| rig.join("a")).collect();
        let before = buffered();
        for client in &mut idle {
            send_half(client, 1 << 20);
        }
        // The data does not fit into what each connection has of its own.
        eventually("the data of each is expected", || {
            buffered() >= before + 4 * (768 << 10)
        });
        for export in ["a", "b"] {
            let is_answered = rig.join(export).read(0, 4096).is_ok();
            assert!(is_answered, "{export}, of the server: {places_of_server}");
        }
        for client in &mut idle {
            client.send_raw(&[5; (1 << 20) - 100]).expect("sent");
            assert_eq!(client.receive().error, None);
        }
    }
}

/// A write that has arrived waits for a place, and others for the memory that it holds: that is no fault of its client.
#[test]
fn a_write_that_waits_for_a_place_is_not_ended_as_stalled() {
    let rig = FewPlaces::new(|options| {
        options.requests_together = Some(1);
        options.buffer_memory_bytes = futae_host::BUFFER_MEMORY_MIN;
        options.stall_timeout = Duration::ZERO;
    });
    let (mut one, mut two, mut three) = (rig.join("a"), rig.join("a"), rig.join("b"));
    rig.store.hold_reads(0..SIZE as u64);
    one.send_read(0, 4096);
    eventually("one is under way", || rig.store.held() == 1);
    two.send_write(0, &vec![7; LONGEST]);
    let status = || rig.server.status();
    eventually("it waits for a place", || {
        status().exports[0].rates.held_requests == 1
    });
    let header = RequestHeader::new(NbdCommand::Write, 1, 0, LONGEST as u32);
    three.send_raw(&header.encode()).expect("sent");
    eventually("another waits for memory", || status().buffer_waiters == 1);
    // Connections look once a millisecond.
    for _ in 0..20 {
        drop(rig.join("b"));
    }
    rig.store.release();
    for client in [&mut one, &mut two] {
        assert_eq!(client.receive().error, None);
    }
    three.send_raw(&vec![8; LONGEST]).expect("sent");
    assert_eq!(three.receive().error, None);
    assert_eq!(status().stalled_connections, 0);
}

/// A server of `a` and `b`.
struct FewPlaces {
    server: Server,
    /// The store of `a`.
    store: Arc<MemoryStore>,
    directory: TempDir,
}

impl FewPlaces {
    fn new(adjust: impl FnOnce(&mut ServerOptions)) -> Self {
        Self::with(adjust, None)
    }

    /// With four places for requests of each export, or of both together.
    fn few(of_server: bool) -> Self {
        if of_server {
            Self::new(|options| options.requests_together = Some(4))
        } else {
            Self::with(|_| {}, Some(4))
        }
    }

    fn with(adjust: impl FnOnce(&mut ServerOptions), requests_max: Option<usize>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let cache = engine("lru", 16);
        let stores = [1, 2].map(|seed| MemoryStore::new(pattern(seed, LONGEST)));
        let exports = ["a", "b"].iter().zip(&stores).map(|(name, store)| Export {
            requests_max,
            ..export(&cache, name, store)
        });
        let mut options = ServerOptions {
            listen: vec![Listen::Unix(directory.path().to_owned())],
            ..ServerOptions::default()
        };
        adjust(&mut options);
        let server = Server::start(options, exports.collect()).expect("a server");
        let [store, _] = stores;
        Self {
            server,
            store,
            directory,
        }
    }

    fn join(&self, export: &str) -> Client {
        let socket = self.directory.path().join("futae.sock");
        Client::unix(&socket, export, &ClientWish::default())
    }
}
