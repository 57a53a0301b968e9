//! Pre-shared keys: clients by GnuTLS (libnbd, QEMU) and OpenSSL.

use super::client::{Credentials, OverTls, start_tls};
use super::{MIB, authority::Authorities, nbdinfo};
use futae_testkit::wait::{PATIENCE, eventually, obtain};
use futae_tests::binary::{futae, run as run_futae};
use futae_tests::process::Running;
use futae_tests::tools::{has, run, text};
use openssl::ssl::{Ssl, SslContextBuilder, SslMethod, SslStream, SslVersion};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// For TLS 1.2, as QEMU's `priority=` has it.
const OLD: &str = "NORMAL:-VERS-ALL:+VERS-TLS1.2";
/// Suites of TLS 1.2 without an exchange of Diffie and Hellman.
const PLAIN: &str = "PSK-AES128-GCM-SHA256:PSK-AES256-GCM-SHA384:PSK-CHACHA20-POLY1305";
/// Suites of clients that have all.
const ALL: &str = "ALL:PSK";

/// A server whose clients `alice` and `bob` have keys.
struct Server {
    place: TempDir,
    running: Running,
    port: u16,
}

/// Has psktool make a key.
fn add_key(file: &Path, name: &str) {
    run("psktool", &["-u", name, "-p", text(file)]);
}

impl Server {
    /// None where there is no psktool.
    fn start(options: &str) -> Option<Self> {
        if !has("psktool") {
            return None;
        }
        let place = tempfile::tempdir().expect("a directory");
        let path = |name: &str| place.path().join(name);
        for (name, seed) in [("one.img", 1), ("two.img", 2)] {
            let bytes: Vec<u8> = (0..2 * MIB)
                .map(|at| (at / 4096) as u8 ^ (at % 251) as u8 ^ seed)
                .collect();
            fs::write(path(name), bytes).expect("an image");
        }
        for name in ["alice", "bob"] {
            add_key(&path("keys.psk"), name);
        }
        let configuration = "cache = \"1MiB\"\njson = true\ncontrol = \"unix:DIR/control.sock\"\n\
             listen = [\"tcp:0.0.0.0:0\", \"unix:DIR/s.sock\"]\nexport = [\"one=DIR/one.img\", \"two=DIR/two.img\"]\n\
             tls-psk = \"DIR/keys.psk\"\n";
        let configuration = format!("{configuration}{options}");
        let configuration = configuration.replace("DIR", text(place.path()));
        fs::write(path("serve.toml"), configuration).expect("a file");
        let mut shell = Command::new("sh");
        let served = futae(&["serve", "--config", text(&path("serve.toml"))]);
        shell.args([
            "-c",
            &format!("exec \"$0\" \"$@\" 2>{}", text(&path("log"))),
        ]);
        shell.arg(served.get_program()).args(served.get_args());
        shell.env("RUST_LOG", "debug");
        let mut running = Running::start("futae serve", shell);
        let ready: Value = serde_json::from_str(&running.line()).expect("JSON");
        let uri = ready["exports"][0]["uris"][0].as_str().expect("an address");
        let port = uri
            .rsplit_once(':')
            .and_then(|(_, end)| end.strip_suffix("/one"));
        Some(Self {
            port: port.and_then(|port| port.parse().ok()).expect(uri),
            place,
            running,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).expect("a log")
    }

    fn logged(&self, what: &str) {
        let look = || {
            let log = self.log();
            if log.contains(what) { Ok(()) } else { Err(log) }
        };
        obtain(&format!("the log says {what:?}"), look);
    }

    fn tcp(&self, export: &str, name: &str) -> String {
        let (port, keys) = (self.port, self.path("keys.psk"));
        format!(
            "nbds://{name}@127.0.0.1:{port}/{export}?tls-psk-file={}",
            text(&keys)
        )
    }

    fn unix(&self, export: &str, name: &str, keys: &Path) -> String {
        let (socket, keys) = (self.path("s.sock"), text(keys));
        format!(
            "nbds+unix://{name}@/{export}?socket={}&tls-psk-file={keys}",
            text(&socket)
        )
    }

    /// QEMU's client, which copies export `one`.
    fn qemu(&self, name: &str, priority: &str, to: &Path) -> Output {
        let socket = self.path("s.sock");
        let mut credentials = format!(
            "tls-creds-psk,id=t,endpoint=client,dir={},username={name}",
            text(self.place.path())
        );
        if !priority.is_empty() {
            credentials.push_str(",priority=");
            credentials.push_str(priority);
        }
        let image = format!("driver=nbd,path={},export=one,tls-creds=t", text(&socket));
        Command::new("qemu-img")
            .args(["convert", "--object", &credentials, "--image-opts", &image])
            .args(["-O", "raw", text(to)])
            .stdin(Stdio::null())
            .output()
            .expect("qemu-img")
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        socket
            .set_read_timeout(Some(PATIENCE))
            .expect("a time limit");
        socket
    }

    /// A client with a key of the file.
    fn client(&self, name: &str, export: &str) -> io::Result<OverTls<SslStream<TcpStream>>> {
        self.client_with(name, self.key(name), (SslVersion::TLS1_3, ALL), export)
    }

    /// The key of a client.
    fn key(&self, name: &str) -> Vec<u8> {
        let keys = fs::read_to_string(self.path("keys.psk")).expect("keys");
        let mut lines = keys.lines();
        let key = lines.find_map(|line| line.strip_prefix(&format!("{name}:")));
        bytes(key.expect("a key"))
    }

    fn client_with(
        &self,
        name: &str,
        key: Vec<u8>,
        (version, suites): (SslVersion, &str),
        export: &str,
    ) -> io::Result<OverTls<SslStream<TcpStream>>> {
        let mut context = SslContextBuilder::new(SslMethod::tls_client())?;
        context.set_min_proto_version(Some(version))?;
        context.set_max_proto_version(Some(version))?;
        context.set_cipher_list(suites)?;
        let name = format!("{name}\0");
        context.set_psk_client_callback(move |_, _, place, key_place| {
            place[..name.len()].copy_from_slice(name.as_bytes());
            key_place[..key.len()].copy_from_slice(&key);
            Ok(key.len())
        });
        let mut socket = self.connect();
        start_tls(&mut socket)?;
        let mut stream = SslStream::new(Ssl::new(&context.build())?, socket)?;
        stream.connect().map_err(io::Error::other)?;
        OverTls::greet(stream, export)
    }
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len() / 2).map(|at| &digits[2 * at..2 * at + 2]);
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal"))
        .collect()
}

#[test]
fn tools_read_and_write_with_their_keys() {
    if !has("nbdinfo") || !has("nbdcopy") || !has("qemu-img") {
        return;
    }
    let Some(server) = Server::start("") else {
        return;
    };
    let (one, copy, keys) = (
        server.path("one.img"),
        server.path("copy.img"),
        server.path("keys.psk"),
    );
    let same = |what: &str| {
        let (one, copy) = (fs::read(&one).expect("it"), fs::read(&copy).expect("it"));
        assert!(one == copy, "{what}: they differ");
    };
    run("nbdinfo", &[&server.tcp("one", "alice")]);
    run("nbdcopy", &[&server.tcp("one", "alice"), text(&copy)]);
    same("read over TCP");
    let other: Vec<u8> = (0..2 * MIB)
        .map(|at| (at / 512) as u8 ^ (at % 241) as u8)
        .collect();
    fs::write(&copy, other).expect("an image");
    run("nbdcopy", &[text(&copy), &server.unix("one", "bob", &keys)]);
    same("written over a unix socket");
    server.logged("opened export one as \"alice\"");
    server.logged("opened export one as \"bob\"");
    for (priority, what) in [("", "QEMU"), (OLD, "QEMU with TLS 1.2")] {
        fs::remove_file(&copy).expect("a copy");
        let said = server.qemu("alice", priority, &copy);
        assert!(said.status.success(), "{what}: {said:?}");
        same(what);
    }
    let old = |suites| {
        let version = SslVersion::TLS1_2;
        server.client_with("alice", server.key("alice"), (version, suites), "one")
    };
    old(ALL).expect("it is served");
    let plain = old(PLAIN);
    plain
        .map(drop)
        .expect_err("it is served without an exchange");
}

#[test]
fn who_has_no_key_is_refused_and_learns_no_name() {
    if !has("nbdinfo") {
        return;
    }
    let rules = "tls-allow = [\"one=alice\", \"two=bob\"]\n";
    let Some(server) = Server::start(rules) else {
        return;
    };
    let mut served = server.client("alice", "one").expect("it is served");
    let block = served.read(4096);
    assert_eq!(
        block,
        fs::read(server.path("one.img")).expect("it")[4096..8192]
    );
    let mut slow = server.connect();
    start_tls(&mut slow).expect("an answer");
    slow.write_all(&[22, 3, 1]).expect("half a record");

    // The log has a few lines a minute for each reason, so this comes first.
    let plain = nbdinfo(&[&format!("nbd://127.0.0.1:{}/one", server.port)]);
    assert!(!plain.status.success(), "{plain:?}");
    server.logged(
        "refused: it did not begin TLS, which this server requires (--tls-cert, --tls-psk)",
    );

    // The right name with another's key, and a name that there is not.
    let other_keys = server.path("other.psk");
    add_key(&other_keys, "alice");
    add_key(&other_keys, "mallory");
    let told = ["alice", "mallory"].map(|name| {
        let said = nbdinfo(&[&server.unix("one", name, &other_keys)]);
        assert!(!said.status.success(), "{name} is served");
        String::from_utf8_lossy(&said.stderr).into_owned()
    });
    assert_eq!(told[0], told[1]);
    server.logged("the client says that it is \"alice\", and fails with its key");
    server.logged("the client says that it is \"mallory\", which has no key in --tls-psk");
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let told = ["alice", "mallory"].map(|name| {
            let client = server.client_with(name, vec![7; 32], (version, ALL), "one");
            client.map(drop).expect_err(name).to_string()
        });
        assert_eq!(told[0], told[1]);
    }

    // Another's export neither opens nor is listed.
    let refused = nbdinfo(&[&server.tcp("two", "alice")]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("No such file"),
        "{said}"
    );
    let listed = run("nbdinfo", &["--list", "--json", &server.tcp("", "bob")]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let names = listed["exports"].as_array().expect("a list").iter();
    let names: Vec<_> = names.map(|it| it["export-name"].as_str()).collect();
    assert_eq!(names, [Some("two")]);
    assert_eq!(served.read(4096), block);
    let mut rest = Vec::new();
    // The end, or a reset for what the server has not read.
    let ended = slow.read_to_end(&mut rest);
    let is_late = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    assert!(!ended.is_err_and(|error| is_late(&error)), "it goes on");
    server.logged("it did not finish its handshake in 10 s");
    assert_eq!(served.read(4096), block);
}

#[test]
fn what_is_no_handshake_with_a_key_is_refused() {
    let Some(server) = Server::start("") else {
        return;
    };
    let Some(files) = Authorities::new() else {
        return;
    };
    let mut served = server.client("bob", "one").expect("it is served");
    let block = served.read(4096);
    let with_certificate = Credentials::new(&files, "ca", Some("vm1"));
    OverTls::open(server.connect(), &with_certificate, "one").expect_err("it has no key");
    server.logged("the client named no key of --tls-psk: ");
    let mut garbage = server.connect();
    start_tls(&mut garbage).expect("an answer");
    garbage.write_all(&[0xa5; 4096]).expect("garbage");
    let _ = garbage.read_to_end(&mut Vec::new());
    server.logged("the client named no key of --tls-psk: wrong version number");
    let mut left = server.connect();
    start_tls(&mut left).expect("an answer");
    left.write_all(&[22, 3, 1]).expect("half a record");
    drop(left);
    server.logged("TLS failed: the client left in the middle");
    assert_eq!(served.read(4096), block);
}

#[test]
fn keys_are_read_again() {
    let Some(mut server) = Server::start("") else {
        return;
    };
    let keys = server.path("keys.psk");
    let mut before = server.client("bob", "one").expect("it is served");
    let block = before.read(0);
    let of_bob = server.key("bob");

    // A file that is no good changes nothing.
    let good = fs::read_to_string(&keys).expect("keys");
    fs::write(&keys, format!("{good}\ncarol\n")).expect("a file");
    server.running.signal(Signal::HUP);
    server.logged("TLS: nothing has changed: TLS: ");
    fs::write(&keys, &good).expect("a file");
    server.client("bob", "one").expect("it goes on");

    fs::remove_file(&keys).expect("a file");
    add_key(&keys, "carol");
    server.running.signal(Signal::HUP);
    eventually("the new key is taken", || {
        server.client("carol", "one").is_ok()
    });
    let gone = server.client_with("bob", of_bob, (SslVersion::TLS1_3, ALL), "one");
    gone.map(drop).expect_err("its key is gone");
    assert_eq!(before.read(0), block, "clients keep their connections");
    let log = server.log();
    assert!(!log.contains("tls-psk has changed"), "{log}");

    // Who may come at all stays.
    let file = server.path("serve.toml");
    let configuration = fs::read_to_string(&file).expect("a file");
    let files = Authorities::new().expect("openssl");
    let lines = configuration
        .lines()
        .filter(|line| !line.starts_with("tls-psk"));
    let open_to_all: String = lines.map(|line| format!("{line}\n")).collect();
    let (pem, key) = (files.path("server.pem"), files.path("server.key"));
    let open_to_all = format!(
        "{open_to_all}tls-cert = \"{}\"\ntls-key = \"{}\"\ninsecure-tcp = true\n",
        text(&pem),
        text(&key)
    );
    fs::write(&file, open_to_all).expect("a file");
    server.running.signal(Signal::HUP);
    server.logged("nor --tls-psk without putting it in its place");
    server.client("carol", "one").expect("it goes on");
}

#[test]
fn files_of_keys_that_cannot_be_used_are_named() {
    let place = tempfile::tempdir().expect("a directory");
    let path = |name: &str| text(&place.path().join(name)).to_owned();
    fs::write(path("one.img"), vec![0; MIB]).expect("an image");
    let key = "00".repeat(32);
    for (name, content, mode) in [
        ("open", format!("alice:{key}\n"), 0o604),
        ("empty", "\n".to_owned(), 0o600),
        ("short", format!("alice:{key}\nbob:0011\n"), 0o600),
        ("good", format!("alice:{key}\n"), 0o640),
    ] {
        fs::write(path(name), content).expect("a file");
        fs::set_permissions(path(name), Permissions::from_mode(mode)).expect("a mode");
    }
    let (export, listen) = (
        format!("one={}", path("one.img")),
        format!("unix:{}", path("s.sock")),
    );
    let told = |options: &[&str], words: &str| {
        let serve = [
            "serve", "--cache", "1MiB", "--export", &export, "--listen", &listen,
        ];
        let output = run_futae(&[&serve, options].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(words),
            "{options:?}: {said}"
        );
        assert!(!said.contains("panicked") && !said.contains(&key), "{said}");
    };
    let psk = "--tls-psk";
    told(&[psk, &path("none")], "none: No such file");
    told(&[psk, &path("open")], "may read this file of keys");
    told(&[psk, &path("empty")], "holds no key");
    told(
        &[psk, &path("short")],
        "short: line 2: the key of \"bob\" must be 16 to 256 bytes",
    );
    told(
        &[psk, &path("good"), "--tls-cert", "x", "--tls-key", "y"],
        "cannot be used with",
    );
    told(&["--tls-allow", "one=alice"], "--tls-psk");
}
