//! Many connections of one peer keep nobody else out, and an export has no more than its quota. The crowd is
//! a process of its own, since peers are told apart by their processes.

mod common;

use common::{Client, Rig, eventually, pattern};
use futae_host::ServerOptions;
use futae_nbd::{ClientWish, client};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SIZE: usize = 1 << 20;
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
    use common::{MemoryStore, engine, export};
    use futae_host::{Listen, Server};
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
