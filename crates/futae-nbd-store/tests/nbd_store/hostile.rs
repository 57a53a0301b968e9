//! A server whose replies to READ are wrong: no byte of an answer comes from the buffer as it was
//! before. And one whose handshake has no end.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futae_engine::{IoBuf, StoreOperation};
use futae_nbd::{Command, ErrorNumber, RequestHeader, greeting, reply};
use futae_nbd_store::NbdStore;

use crate::common::{begin, connect, finish, recovers, uri};
use crate::own_server::{listen, request};

/// What the buffers of reads hold before; the server never sends it.
const POISON: u8 = 0xDB;
const LENGTH: u32 = 4096;
const READS_AT_A_TIME: usize = 32;
/// Faulty replies, unless `FUTAE_FAULTY_REPLIES` says how many.
const FAULTY_REPLIES: u32 = 100_000;

fn poisoned() -> StoreOperation {
    let mut buffer = IoBuf::new(LENGTH as usize);
    buffer.as_mut_slice().fill(POISON);
    StoreOperation::Read { offset: 0, buffer }
}

/// A chunk of a reply to a read of 4 KiB at 0.
fn data(cookie: u64, start: u32, end: u32, last: bool) -> Vec<u8> {
    let mut chunk = reply::data(cookie, start.into(), end - start, last).to_vec();
    chunk.resize(chunk.len() + (end - start) as usize, 7);
    chunk
}

fn hole(cookie: u64, start: u32, end: u32, last: bool) -> Vec<u8> {
    reply::hole(cookie, start.into(), end - start, last).to_vec()
}

#[test]
fn chunks_that_overlap_are_no_answer() {
    let lies: [fn(u64) -> Vec<u8>; 4] = [
        |cookie| [data(cookie, 0, 2048, false), data(cookie, 0, 2048, true)].concat(),
        |cookie| {
            [
                hole(cookie, 2048, 4096, false),
                hole(cookie, 2048, 4096, true),
            ]
            .concat()
        },
        |cookie| [data(cookie, 0, 2048, false), hole(cookie, 512, 2560, true)].concat(),
        |cookie| [data(cookie, 1024, 3072, false), hole(cookie, 0, 2048, true)].concat(),
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = true;
        let path = listen(&folder, move |mut stream| {
            while let Some((header, _)) = request(&mut stream) {
                let answer = if std::mem::take(&mut first) {
                    lie(header.cookie)
                } else {
                    hole(header.cookie, 0, header.length_bytes, true)
                };
                if stream.write_all(&answer).is_err() {
                    return;
                }
            }
        });
        let store = connect(&path);
        let error = finish(&begin(&store, 1, poisoned())).err();
        let error = error.unwrap_or_else(|| panic!("lie {number} was taken for an answer"));
        assert!(
            error.to_string().contains("overlap"),
            "lie {number}: {error}"
        );
        recovers(&store, 1);
    }
}

/// A reply made up of chunks that leave gaps, overlap, fail, or belong to nobody; now and then a
/// whole one.
fn faulty(header: &RequestHeader, random: &mut impl FnMut(u32) -> u32) -> Vec<u8> {
    let (cookie, length) = (header.cookie, header.length_bytes);
    let breaks = random(16) == 0;
    let mut out = Vec::new();
    let mut at = 0;
    while at < length && random(12) > 0 {
        let end = (at + (1 + random(8)) * 512).min(length);
        let start = if breaks { random(length) } else { at };
        match random(8) {
            0 => {} // A gap.
            1..=3 => out.extend(hole(cookie, start, end.max(start + 1), false)),
            4 if random(4) == 0 => {
                let error = ErrorNumber::InputOutput;
                reply::append_error_at(&mut out, cookie, error, "no", start.into(), false);
            }
            5 if breaks => {
                let stranger = cookie ^ (1 << 40);
                out.extend(data(stranger, start, end.max(start), false));
            }
            _ => out.extend(data(cookie, start, end.max(start + 1), false)),
        }
        at = end;
    }
    out.extend(reply::done(cookie));
    out
}

/// Answers reads by faulty replies until the client leaves.
fn lie(stream: &mut UnixStream, random: &mut impl FnMut(u32) -> u32) {
    while let Some((header, _)) = request(stream) {
        let is_read = header.command == Command::Read;
        if is_read && stream.write_all(&faulty(&header, random)).is_err() {
            return;
        }
    }
}

#[test]
fn nothing_in_an_answer_was_in_its_buffer_before() {
    let wanted = std::env::var("FUTAE_FAULTY_REPLIES").ok();
    let wanted = wanted.map_or(FAULTY_REPLIES, |count| count.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a folder");
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: u32| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        ((seed >> 8) % u64::from(below)) as u32
    };
    let path = listen(&folder, move |mut stream| lie(&mut stream, &mut random));
    let (mut asked, mut answered, mut leaked, mut sequence) = (0, 0, 0, 0);
    let mut store = connect(&path);
    while asked < wanted {
        let under_way: Vec<_> = (0..READS_AT_A_TIME)
            .map(|_| {
                sequence += 1;
                begin(&store, sequence, poisoned())
            })
            .collect();
        let mut is_lost = false;
        for read in &under_way {
            match finish(read) {
                Ok(answer) => {
                    answered += 1;
                    leaked += u32::from(answer.as_slice().contains(&POISON));
                }
                Err(error) => is_lost |= error.to_string().contains("connecting again"),
            }
            asked += 1;
        }
        if is_lost {
            // The server serves one connection at a time, which the old store would take again.
            drop(store);
            store = connect(&path);
        }
    }
    println!("{asked} reads, {answered} answered");
    assert!(answered > 0, "no reply was whole");
    assert_eq!(leaked, 0, "of {answered} answers to {asked} reads");
}

#[test]
fn a_handshake_byte_by_byte_has_the_time_of_a_whole_one() {
    const TIMEOUT: Duration = Duration::from_millis(800);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).expect("a socket");
    let (end, ended) = mpsc::channel::<()>();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        // Each byte comes soon, and all of them late. The client may leave before.
        for byte in greeting() {
            if stream.write_all(&[byte]).is_err() || ended.recv_timeout(TIMEOUT / 6).is_ok() {
                return;
            }
        }
    });
    let connected = NbdStore::connect_with_timeout(&uri(&path), None, TIMEOUT);
    let error = connected.map(drop).expect_err("it never ends").to_string();
    assert!(error.contains("no answer within 800ms"), "{error}");
    // It may have ended.
    let _ = end.send(());
    server.join().expect("the server");
}
