//! A socket for one export serves that and tells nothing of the others.

mod common;

use common::{Client, MemoryStore, engine, export, pattern};
use futae_host::{Access, Gate, HostError, Listen, Server, ServerOptions};
use futae_nbd::ClientWish;
use futae_nbd::constants::{OPT_ABORT, OPT_GO, OPT_INFO, OPT_LIST, OPTION_MAGIC};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

const SIZE: usize = 1 << 20;

fn serve(directory: &Path) -> Server {
    let cache = engine("lru", 16);
    let stores = [1, 2].map(|seed| MemoryStore::new(pattern(seed, SIZE * seed as usize)));
    let gate = |name: &str| Gate {
        address: Listen::Unix(directory.join(format!("{name}.sock"))),
        export: Some(name.to_owned()),
        in_the_clear: false,
        access: Access {
            mode: 0o660,
            ..Access::default()
        },
    };
    let options = ServerOptions {
        listen: vec![Listen::Unix(directory.join("all.sock"))],
        gates: vec![gate("a"), gate("b")],
        control: Some(Listen::Unix(directory.join("control.sock"))),
        ..ServerOptions::default()
    };
    let exports = vec![
        export(&cache, "a", &stores[0]),
        export(&cache, "b", &stores[1]),
    ];
    Server::start(options, exports).expect("a server")
}

/// All that a server says to these options.
fn told(socket: &Path, options: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).expect("connect");
    let mut message = vec![0, 0, 0, 3];
    for (option, data) in options.iter().chain([&(OPT_ABORT, vec![])]) {
        message.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        message.extend_from_slice(&option.to_be_bytes());
        message.extend_from_slice(&(data.len() as u32).to_be_bytes());
        message.extend_from_slice(data);
    }
    stream.write_all(&message).expect("sent");
    let mut said = Vec::new();
    stream.read_to_end(&mut said).expect("it hangs up");
    said
}

fn asking_for(name: &str) -> Vec<u8> {
    let length = (name.len() as u32).to_be_bytes();
    [&length[..], name.as_bytes(), &[0, 0]].concat()
}

#[test]
fn a_tenant_sees_and_opens_its_own_export_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = serve(directory.path());
    let socket = directory.path().join("b.sock");
    for name in ["b", ""] {
        let client = Client::unix(&socket, name, &ClientWish::default());
        assert_eq!(client.export.size_bytes, 2 * SIZE as u64);
    }
    let own = told(&socket, &[(OPT_LIST, vec![])]);
    let contains = |said: &[u8], what: &[u8]| said.windows(what.len()).any(|part| part == what);
    assert!(contains(&own, b"the b of a test") && !contains(&own, b"the a of a test"));
    let unknown = |name| {
        let asked = [(OPT_INFO, asking_for(name)), (OPT_GO, asking_for(name))];
        told(&socket, &asked)
    };
    let said_of = |name| String::from_utf8_lossy(&unknown(name)).into_owned();
    assert_eq!(said_of("a"), said_of("c"), "as if it were not there");
    let mut all = Client::unix(
        &directory.path().join("all.sock"),
        "a",
        &ClientWish::default(),
    );
    assert!(all.read(0, 100).is_ok());
    let of_a: Vec<_> = server
        .addresses_of("a")
        .iter()
        .map(|a| a.to_string())
        .collect();
    assert_eq!(of_a.len(), 2);
    assert!(of_a.iter().all(|address| !address.contains("b.sock")));
}

#[test]
fn sockets_have_the_modes_that_were_asked_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let _server = serve(directory.path());
    for (name, wanted) in [("a", 0o660), ("all", 0o600), ("control", 0o600)] {
        let socket = directory.path().join(format!("{name}.sock"));
        let mode = socket.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, wanted, "{name}");
    }
}

#[test]
fn what_others_could_reach_is_refused_unless_it_is_wanted() {
    let start = |host: &str, insecure_tcp| {
        let cache = engine("lru", 16);
        let exports = vec![export(&cache, "a", &MemoryStore::new(pattern(1, SIZE)))];
        let (host, port) = (host.to_owned(), 0);
        let options = ServerOptions {
            listen: vec![Listen::Tcp { host, port }],
            insecure_tcp,
            ..ServerOptions::default()
        };
        Server::start(options, exports).map(drop)
    };
    for host in ["0.0.0.0", "::"] {
        let error = start(host, false).expect_err("refused");
        assert!(matches!(error, HostError::InsecureTcp { .. }), "{error}");
    }
    assert!(start("0.0.0.0", true).is_ok());
    assert!(start("127.0.0.1", false).is_ok());
    let gate = Gate {
        export: Some("x".into()),
        ..Gate::from(Listen::Unix("/nowhere".into()))
    };
    let options = ServerOptions {
        gates: vec![gate],
        ..ServerOptions::default()
    };
    let cache = engine("lru", 16);
    let exports = vec![export(&cache, "a", &MemoryStore::new(pattern(1, SIZE)))];
    let error = Server::start(options, exports)
        .map(drop)
        .expect_err("no such export");
    assert!(
        error.to_string().contains("no export has this name"),
        "{error}"
    );
}
