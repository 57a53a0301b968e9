//! A store that is dropped while it connects again.

use std::fs;
use std::os::unix::net::UnixListener;
use std::sync::mpsc::channel;
use std::thread;

use futae_engine::{IoBuf, Store, StoreOperation};
use futae_nbd::{Capabilities, Command};
use futae_testkit::wait::{PATIENCE, eventually};

use crate::common::connect;
use crate::own_server::{request, welcome};

/// The thread on which a store connects.
const CONNECTING: &str = "futae-nbd-open";

fn is_connecting() -> bool {
    let threads = fs::read_dir("/proc/self/task").expect("threads");
    let mut names =
        threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.any(|name| name.trim_end() == CONNECTING)
}

/// The new connection was made before the store was dropped, and is taken up after that: it ends, too.
#[test]
fn a_connection_that_comes_after_the_end_ends_as_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).expect("a socket");
    let (lose, is_to_lose) = channel::<()>();
    let (tell_asked, asked) = channel();
    let (welcome_it, is_to_welcome) = channel::<()>();
    let (tell_ended, ended) = channel();
    let server = thread::spawn(move || {
        let (mut first, _) = listener.accept().expect("a client");
        welcome(&mut first, Capabilities::all());
        is_to_lose.recv().expect("told");
        drop(first);
        let (mut second, _) = listener.accept().expect("the client again");
        tell_asked.send(()).expect("heard");
        is_to_welcome.recv().expect("told");
        welcome(&mut second, Capabilities::all());
        while request(&mut second).is_some_and(|(header, _)| header.command != Command::Disconnect)
        {
        }
        tell_ended.send(()).expect("heard");
    });
    let store = connect(&path);
    lose.send(()).expect("heard");
    asked.recv().expect("it connects again");
    // A request fails meanwhile, on the store's own thread, which is held up there.
    let (tell_held, held) = channel();
    let (let_go, is_to_go) = channel::<()>();
    let read = StoreOperation::Read {
        offset: 0,
        buffer: IoBuf::new(4096),
    };
    let done = move |result: Result<IoBuf, _>| {
        assert!(result.is_err());
        tell_held.send(()).expect("heard");
        is_to_go.recv().expect("told");
    };
    store.submit(1, read, Box::new(done));
    held.recv().expect("it has failed");
    welcome_it.send(()).expect("heard");
    eventually("it is connected", || !is_connecting());
    drop(store);
    let_go.send(()).expect("heard");
    ended.recv_timeout(PATIENCE).expect("the connection ends");
    server.join().expect("no panic");
}
