//! Peers that ask for much and receive nothing hold no more than the budget, and keep nobody from being
//! served. A test program of its own, since it counts the memory of the process.

mod common;

use common::{BLOCK, Client, Rig, eventually, pattern};
use futae_host::{Export, Listen, Server, ServerOptions};
use futae_nbd::{ClientWish, Command, RequestHeader};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const LONGEST: u64 = 32 * MIB;
const PEERS: u64 = 44;

/// One test at a time, or each would count the other's memory.
static ALONE: Mutex<()> = Mutex::new(());

/// Bytes of this process in memory.
fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages = statm.split(' ').nth(1).expect("a second field");
    4096 * pages.parse::<u64>().expect("a number")
}

fn rig(adjust: impl FnOnce(&mut ServerOptions)) -> Rig {
    Rig::with("lru", 64, pattern(1, LONGEST as usize), |options| {
        options.buffer_memory_bytes = 128 * MIB;
        options.stall_timeout = Duration::from_secs(3600);
        adjust(options);
    })
}

#[test]
fn replies_that_nobody_reads_stay_within_the_budget() {
    let _alone = ALONE.lock();
    let rig = rig(|_| {});
    let mut other = rig.plain();
    let before = resident_bytes();
    let mut peers: Vec<_> = (0..PEERS).map(|_| rig.plain()).collect();
    for peer in &mut peers {
        for _ in 0..2 {
            peer.send_read(0, LONGEST as u32);
        }
        for at in 0..32 {
            peer.send_read(at * MIB, MIB as u32);
        }
    }
    eventually("every one of them waits", || {
        rig.server.status().buffer_waiters == PEERS
    });
    let status = rig.server.status();
    assert_eq!(status.buffer_memory_bytes, 128 * MIB);
    assert!(status.buffer_bytes > 32 * MIB, "{}", status.buffer_bytes);
    assert!(status.buffer_bytes_peak <= 128 * MIB);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 192 * MIB, "{} MiB in memory", grown / MIB);
    for at in 0..100 {
        assert!(other.read(at * BLOCK, 4096).is_ok(), "another is served");
    }
    drop(peers);
    eventually("all is given back", || rig.server.status().connections == 1);
    assert!(other.read(0, LONGEST as u32).is_ok());
}

#[test]
fn payloads_that_never_arrive_stay_within_it_and_give_way() {
    let _alone = ALONE.lock();
    let rig = rig(|options| options.stall_timeout = Duration::from_millis(50));
    let mut peers: Vec<_> = (0..PEERS).map(|_| rig.plain()).collect();
    for peer in &mut peers {
        let header = RequestHeader::new(Command::Write, 1, 0, LONGEST as u32);
        peer.send_raw(&header.encode()).expect("sent");
    }
    // Its turn comes though they are before it and never leave by themselves.
    let mut other = rig.plain();
    assert_eq!(other.write(0, &vec![5; LONGEST as usize]), None);
    let status = rig.server.status();
    assert!(status.stalled_connections > 0);
    assert!(status.buffer_bytes_peak <= 128 * MIB);
    drop(peers);
}

#[test]
fn short_replies_that_nobody_reads_stay_within_the_budget() {
    let _alone = ALONE.lock();
    let rig = rig(|options| options.buffer_memory_bytes = futae_host::BUFFER_MEMORY_MIN);
    let before = resident_bytes();
    let mut peers: Vec<_> = (0..300).map(|_| rig.plain()).collect();
    for peer in &mut peers {
        let read = |number| RequestHeader::new(Command::Read, number, 0, 512).encode();
        let many: Vec<_> = (0..4000).map(read).collect();
        peer.send_raw(&many.concat()).expect("sent");
    }
    eventually("most of them wait", || {
        rig.server.status().buffer_waiters > 200
    });
    let grown = resident_bytes().saturating_sub(before);
    // The state of each request is in it, too.
    assert!(grown < 128 * MIB, "{} MiB in memory", grown / MIB);
    drop(peers);
}

#[test]
fn short_reads_of_large_blocks_stay_within_the_budget() {
    let _alone = ALONE.lock();
    let (block, blocks, peers) = (256 << 10, 512, 8);
    let engine = common::engine_of(block, "lru", 64);
    let store = common::MemoryStore::new(vec![0; (block * blocks) as usize]);
    let directory = tempfile::tempdir().expect("a directory");
    let options = ServerOptions {
        listen: vec![Listen::Unix(directory.path().to_owned())],
        buffer_memory_bytes: futae_host::BUFFER_MEMORY_MIN,
        stall_timeout: Duration::from_secs(3600),
        ..ServerOptions::default()
    };
    let export = common::export(&engine, "disk", &store);
    let server = Server::start(options, vec![export]).expect("a server");
    store.hold_reads(0..block * blocks);
    let socket = directory.path().join("futae.sock");
    let clients = (0..peers).map(|_| Client::unix(&socket, "disk", &ClientWish::default()));
    let mut clients: Vec<_> = clients.collect();
    for number in 0..blocks {
        let client = &mut clients[(number % peers) as usize];
        client.send_read(number * block, 512);
    }
    eventually("all are with the store, or wait", || {
        server.status().buffer_waiters >= peers - 1 || store.held() as u64 == blocks
    });
    let held = engine.status().buffer_bytes;
    assert!(held <= 64 * MIB, "{} MiB", held / MIB);
    store.release();
    for number in 0..blocks {
        let answer = clients[(number % peers) as usize].receive();
        assert_eq!((answer.error, answer.data.len()), (None, 512));
    }
}

/// A server of `a`, whose store is silent, and of `b`. Somebody has the memory for the longest request, and one of `a` and one of `b`
/// wait for it in this order.
struct Behind {
    _server: Server,
    _directory: tempfile::TempDir,
    store: Arc<common::MemoryStore>,
    holder: Client,
    of_a: Option<Client>,
    also_of_a: Option<Client>,
    of_b: Client,
}

impl Behind {
    fn new(requests_max: Option<usize>) -> Self {
        let engine = common::engine("lru", 64);
        let store = |seed| common::MemoryStore::new(pattern(seed, LONGEST as usize));
        let (silent, other) = (store(1), store(2));
        silent.hold_reads(0..LONGEST);
        let directory = tempfile::tempdir().expect("a directory");
        let options = ServerOptions {
            listen: vec![Listen::Unix(directory.path().to_owned())],
            buffer_memory_bytes: futae_host::BUFFER_MEMORY_MIN,
            stall_timeout: Duration::from_secs(3600),
            ..ServerOptions::default()
        };
        let a = Export {
            requests_max,
            ..common::export(&engine, "a", &silent)
        };
        let exports = vec![a, common::export(&engine, "b", &other)];
        let server = Server::start(options, exports).expect("a server");
        let socket = directory.path().join("futae.sock");
        let client = |export| Client::unix(&socket, export, &ClientWish::default());
        let waiters = |wanted| {
            eventually("they wait", || server.status().buffer_waiters == wanted);
        };
        let (mut holder, mut of_a, mut of_b) = (client("b"), client("a"), client("b"));
        holder.send_read(0, LONGEST as u32);
        eventually("it has the memory", || {
            server.status().buffer_bytes > LONGEST
        });
        let mut also_of_a = None;
        if requests_max.is_none() {
            of_a.send_read(0, 4096);
            eventually("it is with the store", || silent.held() == 1);
        }
        of_a.send_read(0, LONGEST as u32);
        waiters(1);
        if requests_max.is_some() {
            let mut client = client("a");
            client.send_read(0, 4096);
            eventually("it is with the store", || silent.held() == 1);
            also_of_a = Some(client);
        }
        of_b.send_read(0, LONGEST as u32);
        waiters(2);
        Self {
            _server: server,
            _directory: directory,
            store: silent,
            holder,
            of_a: Some(of_a),
            also_of_a,
            of_b,
        }
    }

    /// The memory becomes free, and goes to the client of `b`.
    fn goes_on(&mut self) {
        assert!(self.holder.receive().error.is_none());
        assert!(self.of_b.receive().error.is_none());
        self.store.release();
    }
}

#[test]
fn one_who_has_left_is_not_waited_for_while_its_store_is_silent() {
    let _alone = ALONE.lock();
    let mut behind = Behind::new(None);
    drop(behind.of_a.take());
    behind.goes_on();
}

#[test]
fn one_who_waits_for_its_export_lets_others_have_the_memory() {
    let _alone = ALONE.lock();
    let mut behind = Behind::new(Some(1));
    behind.goes_on();
    let both = [behind.also_of_a.take(), behind.of_a.take()];
    for mut client in both.into_iter().flatten() {
        assert!(client.receive().error.is_none());
    }
}

#[test]
fn idle_clients_keep_no_memory_of_their_requests() {
    let _alone = ALONE.lock();
    let rig = rig(|_| {});
    let mut peers: Vec<_> = (0..100).map(|_| rig.plain()).collect();
    let before = resident_bytes();
    for peer in &mut peers {
        let read = |number| RequestHeader::new(Command::Read, number, 0, 4096).encode();
        let many: Vec<_> = (1..=128).map(read).collect();
        peer.send_raw(&many.concat()).expect("sent");
        let mut left = 128 * (16 + 4096);
        while left > 0 {
            left -= peer.receive_raw(left);
        }
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 32 * MIB, "{} MiB in memory", grown / MIB);
}

#[test]
fn the_longest_requests_of_many_all_end_under_the_smallest_budget() {
    let _alone = ALONE.lock();
    let rig = rig(|options| options.buffer_memory_bytes = futae_host::BUFFER_MEMORY_MIN);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            let mut client = rig.plain();
            scope.spawn(move || {
                for _ in 0..3 {
                    assert!(client.read(0, LONGEST as u32).is_ok());
                    assert_eq!(client.write(0, &[7; 1 << 20]), None);
                }
            });
        }
    });
    let status = rig.server.status();
    assert!(status.buffer_bytes_peak <= futae_host::BUFFER_MEMORY_MIN);
    assert_eq!(status.stalled_connections, 0);
}

#[test]
fn the_answers_to_many_options_are_never_in_memory_together() {
    let _alone = ALONE.lock();
    use futae_nbd::constants::{OPT_LIST, OPTION_MAGIC};
    use std::io::{Read, Write};
    let directory = tempfile::tempdir().expect("a directory");
    let cache = common::engine("lru", 8);
    let store = common::MemoryStore::new(pattern(1, 1 << 16));
    let exports = (0..64).map(|number| {
        let mut export = common::export(&cache, &format!("disk{number}"), &store);
        export.description = "x".repeat(4000);
        export
    });
    let options = ServerOptions {
        listen: vec![Listen::Unix(directory.path().to_owned())],
        ..ServerOptions::default()
    };
    let server = Server::start(options, exports.collect()).expect("a server");
    let before = resident_bytes();
    let lists = |count| {
        let header = |_| {
            [
                &OPTION_MAGIC.to_be_bytes()[..],
                &OPT_LIST.to_be_bytes(),
                &[0; 4],
            ]
            .concat()
        };
        [vec![0, 0, 0, 3], (0..count).flat_map(header).collect()].concat()
    };
    let peers = (0..10).map(|_| {
        let socket = directory.path().join("futae.sock");
        let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("connect");
        stream.write_all(&lists(250)).expect("sent");
        stream
            .read_exact(&mut [0; 5000])
            .expect("the first answers");
        stream
    });
    let peers: Vec<_> = peers.collect();
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 * MIB, "{} MiB in memory", grown / MIB);
    drop((peers, server));
}
