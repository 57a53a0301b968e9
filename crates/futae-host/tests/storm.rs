//! A thousand connections that misbehave leave the server serving, and nothing behind. A test
//! program of its own, since it counts the threads and descriptors of the process.

mod common;

use common::{BLOCK, Rig, eventually, pattern};
use futae_nbd::{ClientWish, Command, RequestHeader, client};
use futae_policy::Prng;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Duration;

const SIZE: usize = 4 << 20;

/// One test at a time, or each would count the other's threads.
static ALONE: Mutex<()> = Mutex::new(());

fn entries(path: &str) -> usize {
    fs::read_dir(path).expect("procfs").count()
}

fn threads_and_descriptors() -> (usize, usize) {
    (entries("/proc/self/task"), entries("/proc/self/fd"))
}

/// One bad client; what it returns is kept open for a while.
fn misbehave(rig: &Rig, prng: &mut Prng) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(&rig.socket).ok()?;
    let kind = prng.below(8);
    if kind < 5 {
        let wish = ClientWish {
            structured: kind.is_multiple_of(2),
            ..ClientWish::default()
        };
        // The server may be dismissing half-open connections at this moment.
        client::negotiate(&mut stream, "disk", &wish).ok()?;
    }
    let write = RequestHeader::new(Command::Write, 1, 0, 65_536).encode();
    let sent = match kind {
        // A whole and polite one.
        0 => {
            let read = RequestHeader::new(Command::Read, 1, 0, 4096).encode();
            let bye = RequestHeader::new(Command::Disconnect, 2, 0, 0).encode();
            stream.write_all(&[read, bye].concat())
        }
        // Gone with requests in flight, and none of the replies read.
        1 => {
            let reads = (0..200u64).flat_map(|i| {
                let offset = i * 7 % (SIZE as u64 / BLOCK) * BLOCK;
                RequestHeader::new(Command::Read, i, offset, 4096).encode()
            });
            stream.write_all(&reads.collect::<Vec<u8>>())
        }
        // Gone in the middle of a header, of a payload.
        2 => stream.write_all(&write[..13]),
        3 => stream.write_all(&[&write[..], &[0; 1000]].concat()),
        // Garbage for requests, garbage for a handshake, half a handshake, nothing.
        4 => stream.write_all(&pattern(prng.below(1 << 40), 3000)),
        5 => stream.write_all(&pattern(prng.below(1 << 40), 300)),
        6 => stream.write_all(&[0, 0, 0, 3, b'I', b'H', b'A']),
        _ => Ok(()),
    };
    let _ = sent;
    if prng.below(2) == 0 {
        let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
        let _ = stream.read(&mut [0; 100]);
    }
    (prng.below(3) == 0).then_some(stream)
}

#[test]
fn a_thousand_bad_clients_leave_the_server_serving() {
    let _alone = ALONE.lock();
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
    let content = pattern(1, SIZE);
    let rig = Rig::with("lru", 256, content.clone(), |options| {
        options.connections_max = 300;
        options.handshake_timeout = Duration::from_secs(2);
    });
    let mut steady = rig.plain();
    steady.read(0, 4096).expect("read");
    let before = threads_and_descriptors();
    let mut prng = Prng::new(11);
    let mut open = Vec::new();
    for round in 0..1000u64 {
        open.extend(misbehave(&rig, &mut prng));
        if round % 10 == 0 {
            let offset = round % 1000 * BLOCK;
            let data = steady
                .read(offset, 4096)
                .expect("the steady client is served");
            assert!(data == content[offset as usize..][..4096]);
        }
        assert!(
            rig.server.status().connections <= 300 + 128,
            "the limit holds"
        );
    }
    drop(open);
    eventually("the storm is over", || rig.server.status().connections == 1);
    eventually("no thread and no descriptor is left", || {
        let now = threads_and_descriptors();
        now.0 <= before.0 && now.1 <= before.1
    });
    let status = rig.server.status();
    assert!(status.protocol_errors > 50, "{status:?}");
    assert_eq!(
        steady.read(8192, 4096).expect("read"),
        content[8192..12_288]
    );
    assert!(
        rig.structured().read(0, 100).is_ok(),
        "a newcomer is served"
    );
}

#[test]
fn half_open_connections_neither_stay_nor_keep_others_out() {
    let _alone = ALONE.lock();
    let rig = Rig::with("lru", 16, pattern(1, SIZE), |options| {
        options.connections_max = 20;
        options.handshake_timeout = Duration::from_millis(700);
    });
    let idle: Vec<_> = (0..60)
        .map(|_| UnixStream::connect(&rig.socket).expect("connect"))
        .collect();
    let mut newcomer = rig.plain();
    assert!(
        newcomer.read(0, 10).is_ok(),
        "though twenty others have not said a word"
    );
    eventually("they time out", || rig.server.status().connections == 1);
    drop(idle);
    assert!(newcomer.read(0, 10).is_ok());
}
