//! A server in the test itself, which agrees to demotion, stalls and lies on command.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use futae_engine::{IoBuf, IoErrorKind, Store, StoreOperation};
use futae_nbd::{
    Capabilities, Command, DemotionOffer, DemotionTerms, ExportDirectory, ExportInfo,
    RequestHeader, VolumeIdentity, reply,
};
use futae_nbd_store::NbdStore;
use futae_testkit::nbd_server;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tempfile::TempDir;

use crate::common::{begin, connect, finish, recovers, uri};

/// One export, the number of its volume, and that of the server's run.
struct Shelf(Capabilities, u8, u64);

impl ExportDirectory for Shelf {
    fn list(&self) -> Vec<ExportInfo> {
        vec![ExportInfo {
            name: "volume".into(),
            description: String::new(),
            size_bytes: 1 << 30,
            read_only: false,
            preferred_block_bytes: 4096,
            capabilities: self.0,
        }]
    }

    fn demotion(&self) -> DemotionOffer {
        DemotionTerms::new(4096).map_or(DemotionOffer::Unknown, DemotionOffer::Terms)
    }

    fn identity(&self, _name: &str) -> Option<VolumeIdentity> {
        Some(VolumeIdentity {
            volume: [self.1; 16],
            run: self.2,
        })
    }
}

/// Takes a client into transmission.
pub(crate) fn welcome(stream: &mut UnixStream, capabilities: Capabilities) {
    welcome_in_run(stream, capabilities, 0);
}

/// Takes a client into transmission, as a server that has been started `run` times.
pub(crate) fn welcome_in_run(stream: &mut UnixStream, capabilities: Capabilities, run: u64) {
    nbd_server::welcome(stream, Shelf(capabilities, 0, run));
}

/// A request and its payload; `None` when the client is gone.
pub(crate) fn request(stream: &mut UnixStream) -> Option<(RequestHeader, Vec<u8>)> {
    let mut bytes = [0; 28];
    stream.read_exact(&mut bytes).ok()?;
    let header = RequestHeader::parse(&bytes).expect("a request");
    let mut payload = vec![0; header.payload_bytes() as usize];
    stream.read_exact(&mut payload).ok()?;
    Some((header, payload))
}

/// Serves each connection by `serve`, one after the other, on a socket in `folder`.
pub(crate) fn listen(folder: &TempDir, serve: impl FnMut(UnixStream) + Send + 'static) -> PathBuf {
    listen_with(folder, Capabilities::all(), serve)
}

fn listen_with(
    folder: &TempDir,
    capabilities: Capabilities,
    mut serve: impl FnMut(UnixStream) + Send + 'static,
) -> PathBuf {
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).expect("a socket");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            welcome(&mut stream, capabilities);
            serve(stream);
        }
    });
    path
}

fn read(offset: u64, length: usize) -> StoreOperation {
    StoreOperation::Read {
        offset,
        buffer: IoBuf::new(length),
    }
}

#[test]
fn demotions_and_requests_arrive_in_order_with_their_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    let (heard, hears): (_, Receiver<(RequestHeader, Vec<u8>)>) = mpsc::channel();
    let path = listen(&folder, move |mut stream| {
        while let Some((header, payload)) = request(&mut stream) {
            if header.command == Command::Read {
                let mut answer = reply::data(header.cookie, header.offset, 4096, true).to_vec();
                answer.extend_from_slice(&[9; 4096]);
                stream.write_all(&answer).expect("answered");
            } else if header.command == Command::Cache {
                stream
                    .write_all(&reply::simple(header.cookie, None))
                    .expect("answered");
            }
            heard.send((header, payload)).expect("the test listens");
        }
    });
    let store = connect(&path);
    assert!(store.takes_demotions());
    store.demote(1, store.generation(), 8192, IoBuf::copy_of(&[3; 4096]));
    let answer = finish(&begin(&store, 2, read(0, 4096))).expect("read");
    assert!(answer.as_slice() == [9; 4096]);
    // Alone, a hint leaves within moments; one that the terms do not allow never does.
    store.demote(3, store.generation(), 100, IoBuf::copy_of(&[4; 4096]));
    store.demote(4, store.generation(), 4096, IoBuf::copy_of(&[5; 4096]));
    store.notice(5, 0, 4096);
    let heard: Vec<_> = (0..4)
        .map(|_| {
            hears
                .recv_timeout(Duration::from_secs(10))
                .expect("it arrives")
        })
        .map(|(header, payload)| {
            (
                header.command,
                header.cookie >> 16,
                payload.first().copied(),
            )
        })
        .collect();
    let wanted = [
        (Command::Demote, 1, Some(3)),
        (Command::Read, 2, None),
        (Command::Demote, 4, Some(5)),
        (Command::Cache, 5, None),
    ];
    assert_eq!(heard, wanted);
    drop(store);
    let last = hears
        .recv_timeout(Duration::from_secs(10))
        .expect("a polite end");
    assert_eq!(last.0.command, Command::Disconnect);
}

#[test]
fn a_server_that_stops_reading_holds_up_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let (go, wait) = mpsc::channel::<()>();
    let path = listen(&folder, move |mut stream| {
        wait.recv().expect("the test says when");
        while let Some((header, _)) = request(&mut stream) {
            if header.command == Command::Write {
                stream
                    .write_all(&reply::simple(header.cookie, None))
                    .expect("answered");
            }
        }
    });
    let store = connect(&path);
    let mut writes = Vec::new();
    for at in 0..100u64 {
        let buffer = IoBuf::zeroed(1 << 20);
        let write = StoreOperation::Write {
            offset: at << 20,
            buffer,
            fua: false,
        };
        writes.push(begin(&store, 3 * at + 1, write));
        store.demote(
            3 * at + 2,
            store.generation(),
            at << 20,
            IoBuf::zeroed(1 << 20),
        );
        store.demote(
            3 * at + 3,
            store.generation(),
            at << 20,
            IoBuf::zeroed(1 << 20),
        );
    }
    // Nothing of this waited for the server, which goes on only now.
    assert!(store.hints_dropped() > 0, "hints do not fill memory");
    go.send(()).expect("the server waits");
    for write in &writes {
        finish(write).expect("written");
    }
}

#[test]
fn a_server_that_breaks_the_protocol_is_left_and_found_again() {
    // What the first connection answers a read of 4 KiB at 8192 with.
    let lies: [fn(u64) -> Vec<u8>; 6] = [
        |_| b"no reply magic at all".to_vec(),
        |cookie| reply::done(cookie + 77).to_vec(),
        |cookie| reply::simple(cookie, None).to_vec(),
        |cookie| reply::hole(cookie, 0, 4096, true).to_vec(),
        |cookie| reply::data(cookie, 8192, 8192, true).to_vec(),
        |cookie| reply::data(cookie, 8192, 4096, true).to_vec(), // then it hangs up
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = true;
        let path = listen(&folder, move |mut stream| {
            while let Some((header, _)) = request(&mut stream) {
                if header.command != Command::Read {
                    return;
                }
                if std::mem::take(&mut first) {
                    stream.write_all(&lie(header.cookie)).expect("answered");
                    return;
                }
                let hole = reply::hole(header.cookie, header.offset, header.length_bytes, true);
                stream.write_all(&hole).expect("answered");
            }
        });
        let store = connect(&path);
        let error = finish(&begin(&store, 1, read(8192, 4096))).expect_err("no answer");
        println!("lie {number}: {error}");
        let sequence = recovers(&store, 1);
        let zeroes = finish(&begin(&store, sequence + 1, read(8192, 4096))).expect("zeroes");
        assert!(zeroes.as_slice() == [0; 4096]);
    }
}

/// A server that is there and takes nobody in is tried ever more seldom.
#[test]
fn attempts_to_connect_are_further_and_further_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).expect("a socket");
    let (came, comes) = mpsc::channel();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.expect("a client");
            if number == 0 {
                welcome(&mut stream, Capabilities::all());
            }
            // And it hangs up.
            drop(stream);
            if came.send(Instant::now()).is_err() {
                return;
            }
        }
    });
    let _store = connect(&path);
    let times: Vec<_> = comes.iter().take(11).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // A clock never rings early, but each time is noted a little late.
    let whole = times[10] - times[0];
    let least = (0..10).map(|at| Duration::from_millis(10).mul_f64(1.5_f64.powi(at)));
    let least: Duration = least.sum();
    assert!(whole > least.mul_f64(0.9), "{gaps:?}");
}

#[test]
fn a_short_answer_fails_one_read_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = listen(&folder, |mut stream| {
        while let Some((header, _)) = request(&mut stream) {
            let short = reply::hole(header.cookie, header.offset, 512, true);
            if header.command == Command::Read {
                stream.write_all(&short).expect("answered");
            }
        }
    });
    let store = connect(&path);
    let error = finish(&begin(&store, 1, read(0, 4096))).expect_err("too short");
    assert!(error.to_string().contains("512 of 4096"), "{error}");
    finish(&begin(&store, 2, read(0, 512))).expect("the connection is still good");
}

/// Another client may have written while there was no connection.
#[test]
fn what_came_over_an_earlier_connection_is_not_demoted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (heard, hears) = mpsc::channel();
    let mut first = true;
    let path = listen(&folder, move |mut stream| {
        while let Some((header, payload)) = request(&mut stream) {
            heard
                .send((header.command, payload.first().copied()))
                .expect("the test listens");
            if header.command == Command::Read {
                if std::mem::take(&mut first) {
                    return;
                }
                let hole = reply::hole(header.cookie, header.offset, header.length_bytes, true);
                stream.write_all(&hole).expect("answered");
            }
        }
    });
    let store = connect(&path);
    let earlier = store.generation();
    finish(&begin(&store, 1, read(0, 4096))).expect_err("the server hangs up");
    let sequence = recovers(&store, 1);
    assert_ne!(store.generation(), earlier);
    store.demote(sequence + 1, earlier, 0, IoBuf::copy_of(&[3; 4096]));
    store.demote(
        sequence + 2,
        store.generation(),
        0,
        IoBuf::copy_of(&[4; 4096]),
    );
    drop(store);
    let demoted: Vec<_> = hears
        .iter()
        .take_while(|(command, _)| *command != Command::Disconnect)
        .filter(|(command, _)| *command == Command::Demote)
        .collect();
    assert_eq!(demoted, [(Command::Demote, Some(4))]);
}

/// What a recycled buffer held before must never be taken for what the server sent.
#[test]
fn a_half_that_is_sent_twice_does_not_stand_for_the_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = true;
    let path = listen(&folder, move |mut stream| {
        while let Some((header, _)) = request(&mut stream) {
            if header.command != Command::Read {
                return;
            }
            let half = header.length_bytes / 2;
            let again = if std::mem::take(&mut first) { 0 } else { half };
            let mut answer = Vec::new();
            for (start, last) in [(0, false), (again, true)] {
                let at = header.offset + u64::from(start);
                answer.extend_from_slice(&reply::data(header.cookie, at, half, last));
                answer.extend(std::iter::repeat_n(7, half as usize));
            }
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    });
    let store = connect(&path);
    let error = finish(&begin(&store, 1, read(8192, 4096))).expect_err("half of it is missing");
    assert!(error.to_string().contains("overlap"), "{error}");
    let sequence = recovers(&store, 1);
    let whole = finish(&begin(&store, sequence + 1, read(8192, 4096))).expect("both halves");
    assert!(whole.as_slice() == [7; 4096]);
}

#[test]
fn forced_writes_are_flushed_where_the_server_cannot_force() {
    let folder = tempfile::tempdir().expect("a folder");
    let (heard, hears) = mpsc::channel();
    let plain = Capabilities {
        flush: true,
        ..Capabilities::default()
    };
    let path = listen_with(&folder, plain, move |mut stream| {
        while let Some((header, payload)) = request(&mut stream) {
            heard
                .send((header.command, header.length_bytes))
                .expect("the test listens");
            if header.command != Command::Disconnect {
                stream
                    .write_all(&reply::simple(header.cookie, None))
                    .expect("answered");
            }
            assert!(payload.iter().all(|&byte| byte == 0));
        }
    });
    let store = connect(&path);
    let (offset, length) = (10, 3 << 20);
    let zeroes = StoreOperation::WriteZeroes {
        offset,
        length,
        fua: true,
        no_hole: false,
    };
    finish(&begin(&store, 1, zeroes)).expect("written");
    let heard: Vec<_> = hears.try_iter().collect();
    let (piece, flush) = ((Command::Write, 1 << 20), (Command::Flush, 0));
    assert_eq!(heard, [piece, piece, piece, flush]);
    let trim = finish(&begin(&store, 2, StoreOperation::Trim { offset, length }));
    assert_eq!(
        trim.expect_err("not offered").kind,
        IoErrorKind::Unsupported
    );
    assert!(!store.takes_trims());
}

/// What is dirty in a cache above must not be written over another image of the same size.
#[test]
fn another_volume_under_the_same_address_gets_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (heard, hears) = mpsc::channel();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).expect("a socket");
    thread::spawn(move || {
        let mut is_first = true;
        for (volume, stream) in [1, 2, 1].into_iter().zip(listener.incoming()) {
            let mut stream = stream.expect("a client");
            nbd_server::welcome(&mut stream, Shelf(Capabilities::all(), volume, 0));
            let mut requests = 0;
            while let Some((header, _)) = request(&mut stream) {
                requests += 1;
                // The first connection is lost before its request is answered.
                if header.command == Command::Disconnect || std::mem::take(&mut is_first) {
                    break;
                }
                let answer = reply::simple(header.cookie, None);
                stream.write_all(&answer).expect("answered");
            }
            heard.send((volume, requests)).expect("the test listens");
        }
    });
    let store = NbdStore::connect_with_timeout(&uri(&path), None, Duration::from_secs(60));
    let store = store.expect("the first volume");
    let write = StoreOperation::Write {
        offset: 0,
        buffer: IoBuf::copy_of(&[1; 4096]),
        fua: false,
    };
    finish(&begin(&store, 1, write)).expect("written to the volume that is back");
    drop(store);
    let heard: Vec<_> = hears.iter().collect();
    assert_eq!(
        heard,
        [(1, 1), (2, 0), (1, 2)],
        "volume, requests of each connection"
    );
}

#[test]
fn a_server_that_says_nothing_is_given_up_as_soon_as_a_request_would_be() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("silent");
    let address = SocketAddrUnix::new(&path).expect("an address");
    let flags = SocketFlags::CLOEXEC;
    let listener = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let listener = listener.expect("a socket");
    net::bind(&listener, &address).expect("bound");
    // With room for one that is never accepted.
    net::listen(&listener, 0).expect("it listens");
    let timeout = Duration::from_millis(20);
    // The first is connected and greeted by nobody; it stays in the queue when it is gone.
    for wanted in ["while negotiating", "cannot connect: no answer within 20ms"] {
        let store = NbdStore::connect_with_timeout(&uri(&path), None, timeout);
        let error = store.err().expect("it is silent").to_string();
        assert!(
            error.contains(wanted) && error.contains("no answer within 20ms"),
            "{error}"
        );
    }
}
