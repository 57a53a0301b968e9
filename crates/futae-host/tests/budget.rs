//! Peers that ask for much and receive nothing hold no more than the budget, and keep nobody from being
//! served. A test program of its own, since it counts the memory of the process.

mod common;

use common::{BLOCK, Rig, eventually, pattern};
use futae_host::ServerOptions;
use futae_nbd::{Command, RequestHeader};
use std::fs;
use std::sync::Mutex;
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
        listen: vec![futae_host::Listen::Unix(directory.path().to_owned())],
        ..ServerOptions::default()
    };
    let server = futae_host::Server::start(options, exports.collect()).expect("a server");
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
