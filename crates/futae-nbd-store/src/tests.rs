//! Servers that answer late, in part, or never.

use super::session::NOTICES_MAX;
use super::*;
use futae_nbd::constants::BASE_ALLOCATION_ID;
use futae_nbd::{Capabilities, ExportInfo, RequestHeader, reply};
use futae_testkit::nbd_server;
use futae_testkit::wait::PATIENCE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const BYTES: u64 = 1 << 20;

/// Serves connections one after the other by `serve`, each after its handshake.
fn listen(folder: &TempDir, mut serve: impl FnMut(UnixStream) + Send + 'static) -> PathBuf {
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).expect("a socket");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            welcome(&mut stream);
            serve(stream);
        }
    });
    path
}

fn welcome(stream: &mut UnixStream) {
    let export = ExportInfo {
        name: String::new(),
        description: String::new(),
        size_bytes: BYTES,
        read_only: false,
        preferred_block_bytes: 4096,
        capabilities: Capabilities::all(),
    };
    nbd_server::welcome(stream, vec![export]);
}

/// The next request, which has no payload; `None` when the client is gone.
fn request(stream: &mut UnixStream) -> Option<RequestHeader> {
    let mut bytes = [0; 28];
    stream.read_exact(&mut bytes).ok()?;
    Some(RequestHeader::parse(&bytes).expect("a request"))
}

fn tell_a_hole(stream: &mut UnixStream, header: &RequestHeader) {
    let mut bytes = Vec::new();
    let hole = reply::Extent {
        length_bytes: header.length_bytes,
        state: 3,
    };
    reply::append_block_status(&mut bytes, header.cookie, BASE_ALLOCATION_ID, &[hole], true);
    stream.write_all(&bytes).expect("answered");
}

fn connect(path: &Path, timeout: Duration) -> NbdStore {
    let uri = format!("nbd+unix:///?socket={}", path.display());
    let uri = uri.parse().expect("an address");
    NbdStore::connect_with_timeout(&uri, None, timeout).expect("connected")
}

fn read(store: &NbdStore) -> Result<IoBuf, IoError> {
    let (sender, receiver) = mpsc::channel();
    let read = StoreOperation::Read {
        offset: 0,
        buffer: IoBuf::new(4096),
    };
    store.submit(1, read, Box::new(move |result| drop(sender.send(result))));
    receiver.recv_timeout(PATIENCE).expect("an answer in time")
}

#[test]
fn an_answer_that_comes_too_late_costs_no_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = listen(&folder, |mut stream| {
        let status = request(&mut stream).expect("a question");
        let read = request(&mut stream).expect("a read");
        tell_a_hole(&mut stream, &status);
        let hole = reply::hole(read.cookie, read.offset, read.length_bytes, true);
        stream.write_all(&hole).expect("answered");
        // Until the client leaves.
        assert!(request(&mut stream).is_none_or(|it| it.command == Command::Disconnect));
    });
    let store = connect(&path, Duration::ZERO);
    let late = store.extents_within((0, BYTES), Duration::ZERO);
    late.expect_err("nobody has answered");
    read(&store).expect("it was under way when the late answer came");
    assert_eq!(store.generation(), 1, "the connection stands");
}

#[test]
fn a_question_waits_for_the_next_connection_as_other_requests_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut connections = 0;
    let path = listen(&folder, move |mut stream| {
        connections += 1;
        let status = request(&mut stream).expect("a question");
        if connections > 1 {
            tell_a_hole(&mut stream, &status);
            request(&mut stream);
        }
    });
    let store = connect(&path, PATIENCE);
    let extents = store.extents_within((0, BYTES), PATIENCE);
    let hole = Extent {
        length: BYTES,
        hole: true,
    };
    assert_eq!(extents.expect("asked again"), [hole]);
    assert_eq!(store.generation(), 2);
}

#[test]
fn a_reply_that_stops_in_the_middle_fails_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = listen(&folder, |mut stream| {
        // Of each READ's 4,096 bytes it sends 100, and then nothing more until the client leaves.
        while let Some(read) = request(&mut stream) {
            let head = reply::data(read.cookie, read.offset, read.length_bytes, true);
            let bytes = [&head[..], &[7; 100]].concat();
            stream.write_all(&bytes).expect("sent");
        }
    });
    let store = connect(&path, Duration::from_millis(100));
    let error = read(&store).expect_err("it is not whole");
    let said = error.to_string();
    assert!(said.contains("has not answered for 0.1 s"), "{said}");
}

#[test]
fn notices_that_a_server_never_answers_take_no_more_than_their_part() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = listen(&folder, |mut stream| {
        while let Some(header) = request(&mut stream) {
            if header.command == Command::Read {
                let hole = reply::hole(header.cookie, header.offset, header.length_bytes, true);
                stream.write_all(&hole).expect("answered");
            }
        }
    });
    let store = connect(&path, Duration::ZERO);
    let many = 10 * NOTICES_MAX as u64;
    for sequence in 2..2 + many {
        store.notice(sequence, 0, 4096);
    }
    read(&store).expect("it answers other requests");
    assert_eq!(store.shared.session().in_flight(), NOTICES_MAX);
    assert_eq!(store.hints_dropped(), many - NOTICES_MAX as u64);
}

#[test]
fn a_store_that_is_dropped_keeps_no_connection_to_a_server_that_takes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (gone, is_gone) = mpsc::channel();
    let path = listen(&folder, move |stream| {
        // It receives nothing, and sees the end only.
        let mut end = [PollFd::new(&stream, PollFlags::RDHUP)];
        let patience = Timespec::try_from(PATIENCE).expect("a time");
        let ends = poll(&mut end, Some(&patience)).expect("poll") > 0;
        gone.send(ends).expect("the test waits");
    });
    let store = connect(&path, Duration::from_secs(1));
    let write = StoreOperation::Write {
        offset: 0,
        buffer: IoBuf::zeroed(BYTES as usize),
        fua: false,
    };
    // More than the socket takes.
    store.submit(1, write, Box::new(drop));
    drop(store);
    assert!(is_gone.recv().expect("it has looked"), "it is still there");
}
