//! Services as systemd sees them: what they say on `NOTIFY_SOCKET`, and sockets that they are passed. The test plays systemd.

use futae_testkit::nbd::Plain as Client;
use futae_tests::binary::{binary, futae};
use futae_tests::live::said;
use futae_tests::systemd::Systemd;
use futae_tests::tools::{has_root, text};
use rustix::fs::{Uid, fchown, fstat};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

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
    let systemd = Systemd::begin();
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
    let systemd = Systemd::begin();
    let file = systemd.configuration("");
    fs::remove_file(systemd.path("a.img")).expect("removed");
    let mut server = systemd.start(&futae(&["serve", "--config", text(&file)]), &[]);
    assert!(!server.wait().status.success());
    systemd.socket.set_nonblocking(true).expect("no waiting");
    assert!(systemd.socket.recv(&mut [0; 64]).is_err());
}

#[test]
fn a_server_listens_on_the_sockets_that_it_is_passed() {
    let systemd = Systemd::begin();
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
    let systemd = Systemd::begin();
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

#[test]
fn a_server_has_systemd_keep_its_memory_and_goes_on_with_it_after_a_kill() {
    let systemd = Systemd::begin();
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

/// A server with two exports that have caches of their own, beside one without; its control socket.
fn with_shares(systemd: &Systemd, names: [&str; 2]) -> (Command, String) {
    let place = text(systemd.place.path()).to_owned();
    let control = format!("{place}/control");
    let mut all =
        format!("memory-file = \"systemd\"\npolicy = \"lru\"\ncontrol = \"unix:{control}\"\n");
    all += &fs::read_to_string(systemd.configuration("")).expect("a file");
    for (at, name) in names.into_iter().enumerate() {
        fs::copy(systemd.path("a.img"), systemd.path(&format!("{at}.img"))).expect("a copy");
        all += &format!(
            "[[export]]\nname = \"{name}\"\nsource = \"{place}/{at}.img\"\nshare = \"1MiB\"\n"
        );
    }
    fs::write(systemd.path("serve.toml"), all).expect("written");
    let file = systemd.path("serve.toml");
    (futae(&["serve", "--config", text(&file)]), control)
}

#[test]
fn no_two_caches_have_one_name_with_systemd() {
    let systemd = Systemd::begin();
    let (service, _) = with_shares(&systemd, ["b c", "b_c"]);
    let server = systemd.start(&service, &[]);
    let names = [(); 3].map(|()| systemd.keeps().0);
    assert!(names[0] != names[1] && names[1] != names[2], "{names:?}");
    let own = "FDSTORE=1\nFDNAME=futae-memory.";
    assert_eq!(names[2], format!("{own}b_c"), "as before");
    assert_eq!(systemd.hears(), "READY=1\nSTATUS=serving 3 exports\n");
    drop(server);
}

#[test]
fn systemd_keeps_no_memory_that_no_cache_has() {
    let systemd = Systemd::begin();
    let (service, control) = with_shares(&systemd, ["b", "c"]);
    let mut server = systemd.start(&service, &[]);
    let [common, _b, c] = [(); 3].map(|()| systemd.keeps().1);
    assert_eq!(systemd.hears(), "READY=1\nSTATUS=serving 3 exports\n");
    let (ok, said_so) = said(&["export", "remove", &control, "b"]);
    assert!(ok, "{said_so}");
    let forgotten = "FDSTOREREMOVE=1\nFDNAME=futae-memory";
    assert_eq!(systemd.hears(), format!("{forgotten}.b"));
    let again = format!("b={},share=1MiB", text(&systemd.path("0.img")));
    let (ok, said_so) = said(&["export", "add", &control, &again]);
    assert!(ok, "{said_so}");
    let (stored, b) = systemd.keeps();
    assert_eq!(stored, "FDSTORE=1\nFDNAME=futae-memory.b");
    server.signal(Signal::TERM);
    assert_eq!(systemd.hears(), "STOPPING=1\n");
    assert!(server.wait().status.success());

    // The next one has no export c, and two memories are kept for the exports without a share.
    let file = fs::read_to_string(systemd.path("serve.toml")).expect("a file");
    let at = file.find("[[export]]\nname = \"c\"").expect("an export");
    fs::write(systemd.path("serve.toml"), &file[..at]).expect("written");
    let older = common.try_clone().expect("a copy");
    let passed = [
        ("futae-memory.c", c.as_fd()),
        ("futae-memory", common.as_fd()),
        ("futae-memory.b", b.as_fd()),
        ("futae-memory", older.as_fd()),
    ];
    let server = systemd.start(&service, &passed);
    assert_eq!(systemd.hears(), forgotten);
    assert_eq!(systemd.keeps().0, "FDSTORE=1\nFDNAME=futae-memory");
    assert_eq!(systemd.hears(), format!("{forgotten}.c"));
    assert_eq!(systemd.hears(), "READY=1\nSTATUS=serving 2 exports\n");
    drop(server);
}

/// `User=` of a unit has changed: nobody is to have what the server gives out.
#[test]
fn memory_of_a_server_that_ran_as_another_user_is_given_up() {
    if !has_root() {
        return;
    }
    let systemd = Systemd::begin();
    let file = systemd.configuration("");
    let all = fs::read_to_string(&file).expect("a file");
    fs::write(&file, format!("memory-file = \"systemd\"\n{all}")).expect("written");
    let service = futae(&["serve", "--config", text(&file)]);
    let first = systemd.start(&service, &[]);
    let (_, memory) = systemd.keeps();
    assert_eq!(systemd.hears(), "READY=1\nSTATUS=serving 1 export\n");
    first.kill();
    let other = Uid::from_raw(65534);
    fchown(&memory, Some(other), None).expect("given away");
    let second = systemd.start(&service, &[("futae-memory", memory.as_fd())]);
    let forgotten = "FDSTOREREMOVE=1\nFDNAME=futae-memory";
    assert_eq!(systemd.hears(), forgotten);
    let (said, new) = systemd.keeps();
    assert_eq!(said, "FDSTORE=1\nFDNAME=futae-memory");
    assert_eq!(systemd.hears(), "READY=1\nSTATUS=serving 1 export\n");
    assert_ne!(fstat(&new).expect("memory").st_uid, other.as_raw());
    drop(second);
}

#[test]
fn a_server_that_does_not_start_leaves_systemd_what_it_had() {
    let systemd = Systemd::begin();
    let (service, _) = with_shares(&systemd, ["b", "c"]);
    let first = systemd.start(&service, &[]);
    let [kept, ..] = [(); 3].map(|()| systemd.keeps().1);
    assert_eq!(systemd.hears(), "READY=1\nSTATUS=serving 3 exports\n");
    first.kill();
    let file = systemd.path("serve.toml");
    let before = fs::read_to_string(&file).expect("a file");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = format!("tcp:{}", taken.local_addr().expect("an address"));
    let metrics = format!("metrics = \"{address}\"\n");
    fs::write(&file, metrics + &before).expect("written");
    let mut server = systemd.start(&service, &[("futae-memory", kept.as_fd())]);
    let ended = server.wait();
    assert!(
        !ended.status.success() && ended.errors.contains(&address),
        "{}",
        ended.errors
    );
    let said: Vec<String> = (0..4).map(|_| systemd.hears()).collect();
    let names = |what: &str| {
        let said = said.iter().filter_map(|one| one.strip_prefix(what));
        said.collect::<BTreeSet<_>>()
    };
    let new = BTreeSet::from(["futae-memory.b", "futae-memory.c"]);
    assert_eq!(names("FDSTORE=1\nFDNAME="), new);
    assert_eq!(
        names("FDSTOREREMOVE=1\nFDNAME="),
        new,
        "and not what was there"
    );
}
