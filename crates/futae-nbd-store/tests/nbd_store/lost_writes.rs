//! Writes that a server answered and may not have after it was started anew: which FLUSHes fail.
//! And what a server does not answer without costing its connection.

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use futae_engine::{IoBuf, IoError, Store, StoreOperation};
use futae_nbd::{Capabilities, Command, RequestHeader, reply};
use futae_nbd_store::NbdStore;
use futae_testkit::wait::{PATIENCE, eventually};
use tempfile::TempDir;

use crate::common::{begin, finish, uri};
use crate::own_server::{request, welcome_in_run};

/// What a server does with a request.
enum Answer {
    Success,
    /// None: it takes the next request.
    Silence,
    /// It ends the connection.
    HangUp,
}

/// Serves connections one after the other. `runs`: the number of times that the server of each connection has been
/// started. `answer` is told the number of the connection, from 1, and the request.
fn serve(
    folder: &TempDir,
    capabilities: Capabilities,
    runs: &[u64],
    mut answer: impl FnMut(usize, &RequestHeader) -> Answer + Send + 'static,
) -> PathBuf {
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).expect("a socket");
    let runs = runs.to_vec();
    thread::spawn(move || {
        for ((number, run), stream) in (1..).zip(runs).zip(listener.incoming()) {
            let mut stream = stream.expect("a client");
            welcome_in_run(&mut stream, capabilities, run);
            while let Some((header, _)) = request(&mut stream) {
                if header.command == Command::Disconnect {
                    break;
                }
                match answer(number, &header) {
                    Answer::Success if header.command == Command::Read => {
                        let length = header.length_bytes;
                        let hole = reply::hole(header.cookie, header.offset, length, true);
                        stream.write_all(&hole).expect("answered");
                    }
                    Answer::Success => {
                        let success = reply::simple(header.cookie, None);
                        stream.write_all(&success).expect("answered");
                    }
                    Answer::Silence => {}
                    Answer::HangUp => break,
                }
            }
        }
    });
    path
}

/// A store whose requests wait for the next connection.
fn patient(path: &Path) -> NbdStore {
    NbdStore::connect_with_timeout(&uri(path), None, PATIENCE).expect("connected")
}

fn write(fua: bool) -> StoreOperation {
    StoreOperation::Write {
        offset: 0,
        buffer: IoBuf::copy_of(&[1; 4096]),
        fua,
    }
}

fn read() -> StoreOperation {
    StoreOperation::Read {
        offset: 0,
        buffer: IoBuf::new(4096),
    }
}

fn flush(store: &NbdStore, sequence: u64) -> Result<IoBuf, IoError> {
    finish(&begin(store, sequence, StoreOperation::Flush))
}

fn assert_tells_the_loss(result: Result<IoBuf, IoError>, what: &str) {
    let error = result.expect_err(what).to_string();
    assert!(
        error.contains("before they were flushed"),
        "{what}: {error}"
    );
}

/// Only the first connection's server answered a write. Every other connection but the last breaks before a FLUSH.
#[test]
fn a_loss_is_told_once_however_often_the_connection_breaks_before_the_flush() {
    let cases: [(&[u64], bool); 7] = [
        (&[1, 1], false),
        (&[1, 1, 1], false),
        (&[1, 2], true),
        (&[1, 2, 2], true),
        (&[1, 2, 3], true),
        (&[1, 1, 2], true),
        (&[1, 2, 2, 2], true),
    ];
    for (runs, is_lost) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let last = runs.len();
        let path = serve(
            &folder,
            Capabilities::all(),
            runs,
            move |number, header| match header.command {
                Command::Read if number < last => Answer::HangUp,
                _ => Answer::Success,
            },
        );
        let store = patient(&path);
        finish(&begin(&store, 1, write(false))).expect("written");
        finish(&begin(&store, 2, read())).expect("read over the last connection");
        assert_eq!(store.generation(), last as u64);
        let first = flush(&store, 3);
        if is_lost {
            assert_tells_the_loss(first, &format!("a FLUSH after runs {runs:?}"));
        } else {
            first.unwrap_or_else(|error| panic!("the run is still that of the write: {error}"));
        }
        flush(&store, 4).expect("it is told once");
    }
}

/// Several clients wait for their FLUSHes: each of them was promised that its own writes are stable.
#[test]
fn every_flush_that_was_under_way_at_a_loss_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut flushes = 0;
    let path = serve(
        &folder,
        Capabilities::all(),
        &[1, 2],
        move |number, header| {
            if number > 1 || header.command != Command::Flush {
                return Answer::Success;
            }
            flushes += 1;
            if flushes < 3 {
                Answer::Silence
            } else {
                Answer::HangUp
            }
        },
    );
    let store = patient(&path);
    finish(&begin(&store, 1, write(false))).expect("written");
    let flushes = [2, 3, 4].map(|sequence| begin(&store, sequence, StoreOperation::Flush));
    for (number, flush) in flushes.iter().enumerate() {
        assert_tells_the_loss(finish(flush), &format!("FLUSH {number}"));
    }
    flush(&store, 5).expect("it was asked for after the loss was told");
}

/// A store without a connection, one of whose writes was answered; the server takes the store in again, in the run
/// `run`, once it is told to.
fn cut_off(folder: &TempDir, capabilities: Capabilities, run: u64) -> (NbdStore, Sender<()>) {
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).expect("a socket");
    let (tell_returned, returned) = mpsc::channel();
    let (welcome_it, is_to_welcome) = mpsc::channel::<()>();
    thread::spawn(move || {
        for (number, run) in [(1, 1), (2, run)] {
            let (mut stream, _) = listener.accept().expect("a client");
            if number == 2 {
                tell_returned.send(()).expect("the test listens");
                is_to_welcome.recv().expect("the test says when");
            }
            welcome_in_run(&mut stream, capabilities, run);
            while let Some((header, _)) = request(&mut stream) {
                if header.command == Command::Disconnect {
                    return;
                }
                let success = reply::simple(header.cookie, None);
                stream.write_all(&success).expect("answered");
                if number == 1 {
                    break; // It has answered the write.
                }
            }
        }
    });
    let store = patient(&path);
    finish(&begin(&store, 1, write(false))).expect("written");
    returned.recv_timeout(PATIENCE).expect("it connects again");
    (store, welcome_it)
}

/// Whether writes were lost is known only when the server is back: a FLUSH waits for that.
#[test]
fn a_flush_without_a_connection_waits_to_learn_whether_writes_were_lost() {
    for (run, is_lost) in [(1, false), (2, true)] {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, welcome_it) = cut_off(&folder, Capabilities::all(), run);
        let waiting = begin(&store, 2, StoreOperation::Flush);
        welcome_it.send(()).expect("the server waits");
        if is_lost {
            assert_tells_the_loss(finish(&waiting), "the server was started anew");
        } else {
            finish(&waiting).expect("the server was there all the time");
        }
        flush(&store, 3).expect("it is told once");
    }
}

/// No FLUSH can be sent to such a server, so none waits until the server is back.
#[test]
fn a_flush_for_a_server_without_flushes_promises_nothing_while_there_is_no_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, welcome_it) = cut_off(&folder, Capabilities::default(), 1);
    assert_tells_the_loss(flush(&store, 2), "the server may have been started anew");
    welcome_it.send(()).expect("the server waits");
    eventually("it is connected", || store.generation() == 2);
    flush(&store, 3).expect("the server was there all the time");
}

/// The FLUSH of a forced write tells only its own client.
#[test]
fn a_forced_write_that_is_lost_fails_and_leaves_the_loss_to_the_next_flush() {
    let folder = tempfile::tempdir().expect("a folder");
    let cannot_force = Capabilities {
        flush: true,
        ..Capabilities::default()
    };
    let path = serve(&folder, cannot_force, &[1, 2], |number, header| {
        if number == 1 && header.command == Command::Flush {
            Answer::HangUp
        } else {
            Answer::Success
        }
    });
    let store = patient(&path);
    finish(&begin(&store, 1, write(false))).expect("written");
    assert_tells_the_loss(finish(&begin(&store, 2, write(true))), "the forced write");
    assert_tells_the_loss(flush(&store, 3), "the FLUSH, for the other write");
    flush(&store, 4).expect("it is told once");
    finish(&begin(&store, 5, write(true))).expect("forced over the new connection");
}

/// A server may carry a hint out before it answers it. Nobody waits for that answer.
#[test]
fn a_hint_that_is_not_answered_costs_no_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let (tell, told) = mpsc::channel();
    let path = serve(
        &folder,
        Capabilities::all(),
        &[1, 1],
        move |number, header| {
            tell.send((number, header.command))
                .expect("the test listens");
            Answer::Silence
        },
    );
    // Connecting has that time, too.
    let timeout = Duration::from_secs(1);
    let store = NbdStore::connect_with_timeout(&uri(&path), None, timeout).expect("connected");
    for sequence in [1, 3] {
        store.notice(sequence, 0, 4096);
        let heard = told.recv_timeout(PATIENCE).expect("the hint arrives");
        assert_eq!(heard, (1, Command::Cache));
        let overdue = told.recv_timeout(2 * timeout);
        assert_eq!(overdue, Err(mpsc::RecvTimeoutError::Timeout));
        // The store's thread answers a read of nothing itself, and looks for silence before.
        let nothing = StoreOperation::Read {
            offset: 0,
            buffer: IoBuf::new(0),
        };
        finish(&begin(&store, sequence + 1, nothing)).expect("nothing is read");
    }
    assert_eq!(store.generation(), 1, "the connection stands");
}
