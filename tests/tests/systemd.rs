//! Services as systemd sees them: what they say on `NOTIFY_SOCKET`, and sockets that they are passed. The test plays systemd.

use futae_nbd::{ClientWish, Command as NbdCommand, RequestHeader};
use futae_testkit::nbd::{Client as NbdClient, Plain as Client};
use futae_testkit::wait::PATIENCE;
use futae_tests::binary::{binary, futae};
use futae_tests::process::Running;
use futae_tests::tools::text;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tempfile::TempDir;

/// A directory with an image, and the socket on which a service says how it is.
struct Systemd {
    place: TempDir,
    socket: UnixDatagram,
}

impl Systemd {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        fs::write(place.path().join("a.img"), vec![7; 1 << 20]).expect("an image");
        let socket = UnixDatagram::bind(place.path().join("notify")).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
        Self { place, socket }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Starts a service with a watchdog of 200 ms, by bash, which knows its process number before it becomes it.
    fn start(&self, service: &Command, passed: &[(&str, BorrowedFd<'_>)]) -> Running {
        let mut script = String::new();
        for (at, (_, socket)) in passed.iter().enumerate() {
            // Under another number first: those from 3 on may be some of them.
            let number = socket.as_raw_fd();
            script.push_str(&format!("exec {}<&{number} {number}<&-\n", 100 + at));
            fcntl_setfd(socket, FdFlags::empty()).expect("inherited");
        }
        for at in 0..passed.len() {
            script.push_str(&format!("exec {}<&{} {1}<&-\n", 3 + at, 100 + at));
        }
        if !passed.is_empty() {
            let names: Vec<&str> = passed.iter().map(|(name, _)| *name).collect();
            let (count, names) = (passed.len(), names.join(":"));
            script.push_str(&format!(
                "export LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES={names}\n"
            ));
        }
        script.push_str("export WATCHDOG_PID=$$ WATCHDOG_USEC=200000\nexec \"$0\" \"$@\"");
        let mut bash = Command::new("bash");
        bash.arg("-c").arg(script);
        bash.arg(service.get_program()).args(service.get_args());
        bash.env("NOTIFY_SOCKET", self.path("notify"));
        Running::start("the service", bash)
    }

    /// What it says next, but for what the watchdog hears.
    fn hears(&self) -> String {
        loop {
            let said = self.next();
            if said != "WATCHDOG=1\n" {
                return said;
            }
        }
    }

    fn next(&self) -> String {
        let mut said = [0; 512];
        let length = self.socket.recv(&mut said).expect("it says something");
        String::from_utf8_lossy(&said[..length]).into_owned()
    }

    /// Waits until the watchdog has heard of it several times.
    fn hears_a_pulse(&self) {
        for _ in 0..4 {
            while self.next() != "WATCHDOG=1\n" {}
        }
    }

    /// A configuration of a server with one export, which listens on `a.sock` here and at `more`.
    fn configuration(&self, more: &str) -> PathBuf {
        let file = self.path("serve.toml");
        let place = text(self.place.path()).to_owned();
        let configuration = format!(
            "cache = \"4MiB\"\nlisten = [\"unix:{place}/a.sock\"{more}]\n\
             [[export]]\nname = \"a\"\nsource = \"{place}/a.img\"\n"
        );
        fs::write(&file, configuration).expect("a file");
        file
    }

    /// A server whose clients keep their connections, with these lines in its configuration, and how to start it again.
    fn start_keeping_clients(&self, more: &str) -> (Running, Command) {
        let file = self.configuration("");
        let all = fs::read_to_string(&file).expect("a file");
        fs::write(&file, format!("keep-clients = true\n{more}{all}")).expect("written");
        let service = futae(&["serve", "--config", text(&file)]);
        let server = self.start(&service, &[]);
        assert!(self.forgets_until_ready().is_empty());
        (server, service)
    }

    /// A client of the export of [`Self::configuration`].
    fn connect(&self) -> NbdClient {
        NbdClient::unix(&self.path("a.sock"), "a", &ClientWish::default())
    }
}

/// A server greets its clients with eight letters.
fn greets(mut client: impl Read) -> bool {
    let mut greeting = [0; 8];
    client.read_exact(&mut greeting).is_ok() && &greeting == b"NBDMAGIC"
}

fn is_socket(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

#[test]
fn a_server_says_that_it_is_ready_reloads_stops_and_is_alive() {
    let systemd = Systemd::new();
    let file = systemd.configuration("");
    let mut server = systemd.start(&futae(&["serve", "--config", text(&file)]), &[]);
    assert_eq!(systemd.hears(), "READY=1\nSTATUS=serving 1 export\n");
    assert!(is_socket(&systemd.path("a.sock")));
    systemd.hears_a_pulse();
    server.signal(Signal::HUP);
    assert_eq!(systemd.hears(), "RELOADING=1\n");
    assert_eq!(systemd.hears(), "READY=1\nSTATUS=serving 1 export\n");
    systemd.hears_a_pulse();
    server.signal(Signal::TERM);
    assert_eq!(systemd.hears(), "STOPPING=1\n");
    assert!(server.wait().status.success());
}

#[test]
fn a_server_that_cannot_start_is_never_ready() {
    let systemd = Systemd::new();
    let file = systemd.configuration("");
    fs::remove_file(systemd.path("a.img")).expect("removed");
    let mut server = systemd.start(&futae(&["serve", "--config", text(&file)]), &[]);
    assert!(!server.wait().status.success());
    systemd.socket.set_nonblocking(true).expect("no waiting");
    assert!(systemd.socket.recv(&mut [0; 64]).is_err());
}

#[test]
fn a_server_listens_on_the_sockets_that_it_is_passed() {
    let systemd = Systemd::new();
    let unix = UnixListener::bind(systemd.path("a.sock")).expect("a socket");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let unwanted = UnixListener::bind(systemd.path("unwanted.sock")).expect("a socket");
    let address = tcp.local_addr().expect("an address");
    // Clients that come before the server wait for it.
    let early = UnixStream::connect(systemd.path("a.sock")).expect("connected");
    let early_by_tcp = TcpStream::connect(address).expect("connected");
    let file = systemd.configuration(&format!(", \"tcp:{address}\""));
    let service = futae(&["serve", "--config", text(&file)]);
    let passed = [
        ("nbd", unix.as_fd()),
        ("other", unwanted.as_fd()),
        ("tcp", tcp.as_fd()),
    ];
    let server = systemd.start(&service, &passed);
    assert_eq!(systemd.hears(), "READY=1\nSTATUS=serving 1 export\n");
    assert!(greets(early) && greets(early_by_tcp));
    let ended = server.stop();
    assert!(ended.status.success(), "{ended:?}");
    let other = text(&systemd.path("unwanted.sock")).to_owned();
    let warned = ended.errors.contains(&format!("other (unix:{other})"));
    assert!(warned, "{}", ended.errors);
    // It is systemd that listens, now and later.
    assert!(is_socket(&systemd.path("a.sock")));
}

#[test]
fn a_balancer_and_an_agent_are_ready_and_alive() {
    let systemd = Systemd::new();
    let file = systemd.path("balance.toml");
    let text_of = "total = \"64MiB\"\nperiod = 1\n[[guest]]\nname = \"a\"\nminimum = \"16MiB\"\nmaximum = \"48MiB\"\n\
                   start = \"32MiB\"\nactuator = { kind = \"cgroup1\", path = \"/none\" }\n";
    fs::write(&file, text_of).expect("a file");
    let service = futae(&["balance", "--dry-run", "--config", text(&file)]);
    let mut balancer = systemd.start(&service, &[]);
    assert_eq!(systemd.hears(), "READY=1\nSTATUS=balancing\n");
    systemd.hears_a_pulse();
    balancer.signal(Signal::TERM);
    assert_eq!(systemd.hears(), "STOPPING=1\n");
    balancer.wait();
    let mut agent = Command::new(binary());
    agent.args(["agent", "--no-bpf", "--report", "/dev/null"]);
    let agent = systemd.start(&agent, &[]);
    assert!(systemd.hears().starts_with("READY=1\nSTATUS=counting"));
    systemd.hears_a_pulse();
    agent.stop();
}

impl Systemd {
    /// What a service says next, and the descriptor that comes with it.
    fn next_with_descriptor(&self) -> (String, Option<OwnedFd>) {
        let mut said = [0; 512];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut said)];
        let got = recvmsg(
            &self.socket,
            &mut parts,
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        );
        let length = got.expect("it says something").bytes;
        let said = String::from_utf8_lossy(&said[..length]).into_owned();
        let mut descriptors = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        let descriptor = descriptors.next().and_then(|mut rights| rights.next());
        (said, descriptor)
    }

    /// What a service has systemd keep: its name, and the descriptor.
    fn keeps(&self) -> (String, OwnedFd) {
        let (said, descriptor) = self.next_with_descriptor();
        (said, descriptor.expect("a descriptor"))
    }

    /// All that a service has systemd keep as it ends, until it waits for that to be done.
    fn keeps_until_the_barrier(&self) -> BTreeMap<String, OwnedFd> {
        self.keeps_no_more_than(usize::MAX)
    }

    /// As [`Self::keeps_until_the_barrier`], with FileDescriptorStoreMax=: what comes when so many are kept is closed.
    fn keeps_no_more_than(&self, most: usize) -> BTreeMap<String, OwnedFd> {
        let mut kept = BTreeMap::new();
        loop {
            match self.next_with_descriptor() {
                (said, Some(_)) if said == "BARRIER=1" => return kept,
                (said, Some(descriptor)) => {
                    let name = said.strip_prefix("FDSTORE=1\nFDNAME=");
                    let name = name.expect("it is to be kept").to_owned();
                    if kept.len() < most {
                        kept.insert(name, descriptor);
                    }
                }
                (said, None) => {
                    assert!(said == "STOPPING=1\n" || said == "WATCHDOG=1\n", "{said:?}");
                }
            }
        }
    }

    /// What a service that starts has systemd close, until it is ready.
    fn forgets_until_ready(&self) -> BTreeSet<String> {
        let mut forgotten = BTreeSet::new();
        loop {
            let said = self.hears();
            if said.starts_with("READY=1") {
                return forgotten;
            }
            let name = said.strip_prefix("FDSTOREREMOVE=1\nFDNAME=");
            forgotten.insert(name.unwrap_or_else(|| panic!("{said:?}")).to_owned());
        }
    }
}

#[test]
fn a_server_has_systemd_keep_its_memory_and_goes_on_with_it_after_a_kill() {
    let systemd = Systemd::new();
    let file = systemd.configuration("");
    let place = text(systemd.place.path()).to_owned();
    let more = format!(
        "memory-file = \"systemd\"\npolicy = \"lru\"\ncontrol = \"unix:{place}/control\"\n"
    );
    let all = more + &fs::read_to_string(&file).expect("a file");
    fs::write(&file, all).expect("written");
    let service = futae(&["serve", "--config", text(&file)]);
    let first = systemd.start(&service, &[]);
    let (said, memory) = systemd.keeps();
    assert_eq!(said, "FDSTORE=1\nFDNAME=futae-memory");
    assert_eq!(systemd.hears(), "READY=1\nSTATUS=serving 1 export\n");
    let read_all = || {
        let mut client = Client::connect(&systemd.path("a.sock"), "a").expect("connected");
        for block in 0..256 {
            let data = client
                .read(block * 4096, 4096)
                .expect("connected")
                .expect("read");
            assert!(data.iter().all(|&byte| byte == 7));
        }
    };
    read_all();
    first.kill();
    let second = systemd.start(&service, &[("futae-memory", memory.as_fd())]);
    assert_eq!(
        systemd.hears(),
        "READY=1\nSTATUS=serving 1 export\n",
        "it is kept already"
    );
    read_all();
    let control = UnixStream::connect(systemd.path("control")).expect("connected");
    (&control)
        .write_all(b"{\"command\":\"status\"}\n")
        .expect("sent");
    let mut status = String::new();
    BufReader::new(&control)
        .read_line(&mut status)
        .expect("an answer");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let cache = &status["engines"][0];
    assert_eq!(
        (&cache["memory_found_blocks"], &cache["hits"]),
        (&256.into(), &256.into())
    );
    drop(second);
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
    let systemd = Systemd::new();
    let (mut server, service) = systemd.start_keeping_clients("seccomp = true\n");
    let connect = || systemd.connect();
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
    let systemd = Systemd::new();
    let (server, service) = systemd.start_keeping_clients("");
    let mut clients: Vec<_> = (0..4).map(|_| systemd.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.read(0, 4096).expect("read"), vec![7; 4096]);
    }
    let mut staying = clients.split_off(2);
    let server = goes_on_with(&systemd, server, &service, |kept| {
        assert_eq!(kept.len(), 5, "four clients and their records");
        drop(clients);
        kept.retain(|_, descriptor| {
            let mut polled = [PollFd::new(descriptor, PollFlags::empty())];
            poll(&mut polled, Some(&Timespec::default())).expect("polled") == 0
        });
        assert_eq!(kept.len(), 3, "two have gone");
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
    let systemd = Systemd::new();
    let (mut server, service) = systemd.start_keeping_clients("");
    let socket = systemd.path("a.sock");
    // A server without clients hands nothing over.
    let mut idle = systemd.connect();
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
    let systemd = Systemd::new();
    let (mut server, service) = systemd.start_keeping_clients("");
    let mut clients: Vec<_> = (0..4).map(|_| systemd.connect()).collect();
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
