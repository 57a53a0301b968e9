//! `--keep-clients`: connections that outlive the server, in the hands of systemd. The test plays it.

use futae_nbd::{ClientWish, Command as NbdCommand, RequestHeader};
use futae_testkit::nbd::{Client as NbdClient, Plain as Client};
use futae_testkit::wait::eventually;
use futae_tests::binary::futae;
use futae_tests::process::Running;
use futae_tests::systemd::Systemd;
use futae_tests::tools::text;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A server whose clients keep their connections, with these lines in its configuration, and how to start it again.
fn start_keeping_clients(systemd: &Systemd, more: &str) -> (Running, Command) {
    let file = systemd.configuration("");
    let all = fs::read_to_string(&file).expect("a file");
    fs::write(&file, format!("keep-clients = true\n{more}{all}")).expect("written");
    let service = futae(&["serve", "--config", text(&file)]);
    let server = systemd.start(&service, &[]);
    assert!(systemd.forgets_until_ready().is_empty());
    (server, service)
}

/// A client of the export of [`Systemd::configuration`].
fn connect_to(systemd: &Systemd) -> NbdClient {
    NbdClient::unix(&systemd.path("a.sock"), "a", &ClientWish::default())
}

/// The server before has ended; the next one is started with what it has left, and is ready.
fn goes_on(systemd: &Systemd, server: Running, service: &Command) -> Running {
    goes_on_with(systemd, server, service, |_| ())
}

/// As [`goes_on`]; meanwhile, `meanwhile` happens to what is kept.
fn goes_on_with(
    systemd: &Systemd,
    mut server: Running,
    service: &Command,
    meanwhile: impl FnOnce(&mut BTreeMap<String, OwnedFd>),
) -> Running {
    server.signal(Signal::TERM);
    let mut kept = systemd.keeps_until_the_barrier();
    meanwhile(&mut kept);
    starts_with(systemd, server, service, &kept)
}

/// The server before ends; the next one is started with what systemd has kept, and is ready.
fn starts_with(
    systemd: &Systemd,
    mut server: Running,
    service: &Command,
    kept: &BTreeMap<String, OwnedFd>,
) -> Running {
    let ended = server.wait();
    assert!(ended.status.success(), "{ended:?}");
    let passed: Vec<_> = kept
        .iter()
        .map(|(name, kept)| (name.as_str(), kept.as_fd()))
        .collect();
    let next = systemd.start(service, &passed);
    assert_eq!(
        systemd.forgets_until_ready(),
        kept.keys().cloned().collect(),
        "systemd closes what the server has taken"
    );
    next
}

/// Writes and reads blocks of its own part of the volume, several at a time, until it is told to stop; returns how many.
fn work(mut client: NbdClient, first: u64, is_over: &AtomicBool) -> u64 {
    let mut rounds = 0;
    while !is_over.load(Ordering::Relaxed) {
        let fill = rounds as u8;
        for block in first..first + 16 {
            client.send_write(block * 4096, &[fill; 4096]);
        }
        for _ in 0..16 {
            assert_eq!(client.try_receive().expect("it goes on").error, None);
        }
        for block in first..first + 16 {
            client.send_read(block * 4096, 4096);
        }
        for _ in 0..16 {
            let answer = client.try_receive().expect("it goes on");
            assert!(
                answer.error.is_none() && answer.data == [fill; 4096],
                "round {rounds}"
            );
        }
        rounds += 1;
    }
    rounds
}

#[test]
fn clients_keep_their_connections_while_the_server_is_started_anew() {
    let systemd = Systemd::begin();
    let (mut server, service) = start_keeping_clients(&systemd, "seccomp = true\n");
    let connect = || connect_to(&systemd);
    let (mut idle, mut halfway, mut short) = (connect(), connect(), connect());
    assert_eq!(idle.write(0, &[1; 4096]), None);
    // A request that arrives in pieces: half its data before the first restart, more before the second, the rest after it.
    let header = RequestHeader::new(NbdCommand::Write, 77, 128 * 4096, 8192);
    let message = [&header.encode()[..], &[9; 8192]].concat();
    halfway.send_raw(&message[..3000]).expect("sent");
    // And one of which not even the header is there.
    let read = RequestHeader::new(NbdCommand::Flush, 78, 0, 0);
    short.send_raw(&read.encode()[..11]).expect("sent");
    let is_over = AtomicBool::new(false);
    server = thread::scope(|scope| {
        let workers = [150, 200].map(|first| {
            let (client, is_over) = (connect(), &is_over);
            scope.spawn(move || work(client, first, is_over))
        });
        server = goes_on(&systemd, server, &service);
        halfway.send_raw(&message[3000..5000]).expect("sent");
        server = goes_on(&systemd, server, &service);
        halfway.send_raw(&message[5000..]).expect("sent");
        let answer = halfway.receive();
        assert_eq!((answer.cookie, answer.error), (77, None));
        for _ in 0..3 {
            server = goes_on(&systemd, server, &service);
        }
        is_over.store(true, Ordering::Relaxed);
        for worker in workers {
            assert!(worker.join().expect("it goes on") > 0);
        }
        server
    });
    short.send_raw(&read.encode()[11..]).expect("sent");
    assert_eq!(short.receive().cookie, 78);
    assert_eq!(idle.read(0, 4096).expect("read"), vec![1; 4096]);
    assert_eq!(idle.read(128 * 4096, 8192).expect("read"), vec![9; 8192]);
    // A client that finds another volume than it was told of is not served as if nothing had happened: another image of the
    // same size, then a longer one.
    let before = connect();
    fs::rename(systemd.path("a.img"), systemd.path("old.img")).expect("renamed");
    fs::write(systemd.path("a.img"), vec![8; 1 << 20]).expect("another image");
    server = goes_on(&systemd, server, &service);
    for mut client in [before, idle, halfway, short] {
        let error = client.try_receive().expect_err("its connection has ended");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
    }
    let mut idle = connect();
    let mut server = goes_on_with(&systemd, server, &service, |_| {
        let image = fs::OpenOptions::new()
            .write(true)
            .open(systemd.path("a.img"));
        image
            .and_then(|image| image.set_len(2 << 20))
            .expect("it grows");
    });
    let error = idle.try_receive().expect_err("its connection has ended");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
    let newcomer = connect();
    server.signal(Signal::TERM);
    assert_eq!(
        systemd.keeps_until_the_barrier().len(),
        2,
        "the newcomer and the records"
    );
    drop(newcomer);
    let ended = server.wait();
    let said = "export a had 1048576 bytes and has 2097152";
    assert!(ended.errors.contains(said), "{}", ended.errors);
}

/// systemd closes what it keeps of a client that has gone.
#[test]
fn clients_go_while_no_server_runs_and_the_others_keep_their_connections() {
    let systemd = Systemd::begin();
    let (server, service) = start_keeping_clients(&systemd, "");
    let mut clients: Vec<_> = (0..4).map(|_| connect_to(&systemd)).collect();
    for client in &mut clients {
        assert_eq!(client.read(0, 4096).expect("read"), vec![7; 4096]);
    }
    let mut staying = clients.split_off(2);
    let server = goes_on_with(&systemd, server, &service, |kept| {
        assert_eq!(kept.len(), 5, "four clients and their records");
        drop(clients);
        // A process that another test starts may hold their ends for a moment.
        eventually("two have gone", || {
            kept.retain(|_, descriptor| {
                let mut polled = [PollFd::new(descriptor, PollFlags::empty())];
                poll(&mut polled, Some(&Timespec::default())).expect("polled") == 0
            });
            kept.len() == 3
        });
    });
    for client in &mut staying {
        assert_eq!(client.read(4096, 4096).expect("read"), vec![7; 4096]);
    }
    // Without the records nobody can go on with them, and they see that.
    let server = goes_on_with(&systemd, server, &service, |kept| {
        drop(kept.remove("futae-clients").expect("the records"));
    });
    for mut client in staying {
        let error = client.try_receive().expect_err("its connection has ended");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
    }
    drop(server);
}

/// Ends what goes on until something is over.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A server that stops keeps a client as soon as it has told it that the handshake is over.
#[test]
fn clients_that_have_just_connected_keep_their_connections() {
    let systemd = Systemd::begin();
    let (mut server, service) = start_keeping_clients(&systemd, "");
    let socket = systemd.path("a.sock");
    // A server without clients hands nothing over.
    let mut idle = connect_to(&systemd);
    let is_over = &AtomicBool::new(false);
    server = thread::scope(|scope| {
        let connecting = || {
            let mut connected = 0;
            while !is_over.load(Ordering::Relaxed) {
                // Before that, and between two servers, it has to try again.
                let Ok(mut client) = Client::connect(&socket, "a") else {
                    thread::yield_now();
                    continue;
                };
                let read = client.read(0, 4096).expect("it is kept");
                assert_eq!(read.expect("read"), vec![7; 4096]);
                connected += 1;
            }
            connected
        };
        // Also if something is wrong here.
        let over = Over(is_over);
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(connecting)).collect();
        for _ in 0..10 {
            server = goes_on(&systemd, server, &service);
        }
        drop(over);
        for client in clients {
            assert!(client.join().expect("it goes on") > 0);
        }
        server
    });
    assert_eq!(idle.read(0, 4096).expect("read"), vec![7; 4096]);
    drop(server);
}

/// With a unit whose FileDescriptorStoreMax= is too small, clients lose their connections that are one too many, and only they.
#[test]
fn of_more_clients_than_systemd_keeps_the_others_keep_their_connections() {
    let systemd = Systemd::begin();
    let (mut server, service) = start_keeping_clients(&systemd, "");
    let mut clients: Vec<_> = (0..4).map(|_| connect_to(&systemd)).collect();
    for client in &mut clients {
        assert_eq!(client.read(0, 4096).expect("read"), vec![7; 4096]);
    }
    server.signal(Signal::TERM);
    let kept = systemd.keeps_no_more_than(3);
    let server = starts_with(&systemd, server, &service, &kept);
    drop(kept);
    let (mut going_on, mut gone) = (0, 0);
    for client in &mut clients {
        // A flush: its answer has no data of which the client would have to know how much.
        let flush = RequestHeader::new(NbdCommand::Flush, 7, 0, 0);
        // One that is gone may see it here or there.
        let _ = client.send_raw(&flush.encode());
        match client.try_receive() {
            Ok(answer) => {
                assert_eq!((answer.cookie, answer.error), (7, None));
                going_on += 1;
            }
            Err(error) => {
                let is_end = matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                );
                assert!(is_end, "{error}");
                gone += 1;
            }
        }
    }
    assert_eq!((going_on, gone), (2, 2));
    drop(server);
}
