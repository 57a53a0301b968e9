//! Two thousand connections of one client, which finishes no handshake, sends the longest requests and reads no reply: another client is
//! served all the same, and the server's memory stays within what it was given.

use futae_nbd::{ClientWish, Command, RequestHeader, client};
use futae_testkit::nbd::Plain as Client;
use futae_testkit::wait::{PATIENCE, eventually};
use futae_tests::BLOCK;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::text;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

const CONNECTIONS: usize = 2000;
const LONGEST: u32 = 32 << 20;
const MIB: u64 = 1 << 20;
const CACHE: u64 = 8 * MIB;
const BUFFERS: u64 = 192 * MIB;
/// A connection of the crowd.
fn misbehave(socket: &Path, number: usize) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let header = |command| RequestHeader::new(command, 1, 0, LONGEST).encode();
    if number.is_multiple_of(16) {
        // Says that it is a client, and no more. More of them would be ended in favour of those that go on.
        stream.write_all(&[0, 0, 0, 3])?;
        return Ok(stream);
    }
    client::negotiate(&mut stream, "hostile", &ClientWish::default())
        .map_err(std::io::Error::other)?;
    stream.set_nonblocking(true)?;
    let sent = match number % 3 {
        0 => stream.write_all(&header(Command::Read).repeat(64)),
        1 => stream.write_all(&[&header(Command::Write)[..], &[0; 4096]].concat()),
        _ => stream.write_all(&header(Command::Read)[..14]),
    };
    // A server that does not read on has what it wants of this connection.
    let _ = sent;
    Ok(stream)
}

/// The most memory that a process has had, in bytes.
fn peak(process: u64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.expect("a peak").trim().trim_end_matches(" kB");
    kib.parse::<u64>().expect("a number") << 10
}

#[test]
fn a_crowd_neither_keeps_others_out_nor_takes_more_than_the_server_was_given() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
    let mut stage = Stage::new(256);
    let hostile = stage.path("hostile.img");
    File::create(&hostile)
        .and_then(|file| file.set_len(1 << 30))
        .expect("an image");
    let (cache, buffers) = (CACHE.to_string(), BUFFERS.to_string());
    let export = format!("hostile={}", text(&hostile));
    stage.serve(&[
        "--policy",
        "lru",
        "--cache",
        &cache,
        "--buffer-memory",
        &buffers,
        "--connections-max",
        "2100",
        "--export",
        &export,
    ]);
    let mut honest = Client::connect(&stage.socket, EXPORT).expect("connected");
    let mut read = |block: u64| {
        let data = honest.read(block % 256 * BLOCK as u64, BLOCK);
        assert_eq!(data.expect("connected").expect("read").len(), BLOCK);
    };
    let mut crowd = Vec::new();
    for number in 0..CONNECTIONS {
        crowd.push(misbehave(&stage.socket, number).expect("taken"));
        read(number as u64);
    }
    let status = stage.status();
    assert!(
        status["connections"].as_u64() >= Some(CONNECTIONS as u64),
        "{status}"
    );
    eventually("the memory for requests is used up", || {
        stage.status()["buffer_waiters"].as_u64() > Some(100)
    });
    (0..5000).for_each(&mut read);
    let mut newcomer = Client::connect(&stage.socket, EXPORT).expect("connected");
    assert!(newcomer.read(0, BLOCK).expect("connected").is_ok());
    // As docs/how-to/secure-a-server.md says it: the threads of this many connections are in it, too.
    let most = CACHE + CACHE / 10 + BUFFERS;
    let taken = peak(u64::from(stage.serve_id()));
    assert!(
        taken <= most,
        "{} MiB, more than {} MiB",
        taken / MIB,
        most / MIB
    );
    drop(crowd);
    eventually("they are gone", || {
        stage.status()["connections"].as_u64() <= Some(3)
    });
    read(0);
    stage.stop_serve();
}
