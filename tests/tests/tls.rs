//! TLS: real clients with certificates are served, others are refused with a line in the log, and nobody who is served
//! notices them.

#[path = "tls/authority.rs"]
mod authority;
#[path = "tls/client.rs"]
mod client;
#[path = "tls/psk.rs"]
mod psk;
#[path = "tls/reload.rs"]
mod reload;
#[path = "tls/store.rs"]
mod store;

use authority::Authorities;
use client::{Credentials, OverTls, start_tls};
use futae_testkit::wait::{PATIENCE, eventually, obtain};
use futae_tests::binary::{futae, run as run_futae};
use futae_tests::process::Running;
use futae_tests::tools::{has, run, text};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const MIB: usize = 1 << 20;

/// A server with two exports on TCP and on a unix socket.
struct Server {
    files: Authorities,
    running: Running,
    port: u16,
}

fn image(files: &Authorities, name: &str, seed: u8) -> PathBuf {
    let path = files.path(name);
    let bytes: Vec<u8> = (0..2 * MIB)
        .map(|at| (at / 4096) as u8 ^ (at % 251) as u8 ^ seed)
        .collect();
    fs::write(&path, bytes).expect("an image");
    path
}

impl Server {
    /// None where there is no openssl to make certificates with.
    fn start(options: &str) -> Option<Self> {
        let files = Authorities::new()?;
        image(&files, "one.img", 1);
        image(&files, "two.img", 2);
        let configuration = "cache = \"1MiB\"\njson = true\ncontrol = \"unix:DIR/control.sock\"\n\
             listen = [\"tcp:127.0.0.1:0\", \"unix:DIR/s.sock\"]\nexport = [\"one=DIR/one.img\", \"two=DIR/two.img\"]\n\
             tls-cert = \"DIR/server.pem\"\ntls-key = \"DIR/server.key\"\ntls-client-ca = \"DIR/ca.pem\"\n";
        files.write("serve.toml", &format!("{configuration}{options}"));
        let file = files.path("serve.toml");
        let log = text(&files.path("log")).to_owned();
        let mut shell = Command::new("sh");
        let served = futae(&["serve", "--config", text(&file)]);
        shell.args(["-c", &format!("exec \"$0\" \"$@\" 2>{log}")]);
        shell.arg(served.get_program()).args(served.get_args());
        let mut running = Running::start("futae serve", shell);
        let ready: Value = serde_json::from_str(&running.line()).expect("JSON");
        let uris = &ready["exports"][0]["uris"];
        let uri = uris[0].as_str().expect("an address");
        let port = uri.strip_prefix("nbds://127.0.0.1:").expect(uri);
        let port = port.strip_suffix("/one").expect(uri);
        let unix = uris[1].as_str().expect("an address");
        assert!(unix.starts_with("nbds+unix:///one?socket="), "{unix}");
        Some(Self {
            port: port.parse().expect("a port"),
            files,
            running,
        })
    }

    fn log(&self) -> String {
        fs::read_to_string(self.files.path("log")).expect("a log")
    }

    /// The log has a few lines a minute for each reason, so a server can be asked for a few.
    fn logged(&self, what: &str) {
        let look = || {
            let log = self.log();
            if log.contains(what) { Ok(()) } else { Err(log) }
        };
        obtain(&format!("the log says {what:?}"), look);
    }

    fn tcp(&self, export: &str, client: &str) -> String {
        let certificates = self.files.path(client);
        let (port, certificates) = (self.port, text(&certificates));
        format!("nbds://localhost:{port}/{export}?tls-certificates={certificates}")
    }

    fn unix(&self, export: &str, client: &str) -> String {
        let (socket, certificates) = (self.files.path("s.sock"), self.files.path(client));
        let (socket, certificates) = (text(&socket), text(&certificates));
        format!(
            "nbds+unix:///{export}?socket={socket}&tls-hostname=localhost&tls-certificates={certificates}"
        )
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        let patience = Some(PATIENCE);
        socket.set_read_timeout(patience).expect("a time limit");
        socket
    }

    /// A client of export `one` that is served.
    fn client(&self) -> OverTls {
        let credentials = Credentials::new(&self.files, "ca", Some("vm1"));
        OverTls::open(self.connect(), &credentials, "one").expect("it is served")
    }
}

fn nbdinfo(arguments: &[&str]) -> Output {
    Command::new("nbdinfo")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("nbdinfo")
}

#[test]
fn tools_read_and_write_over_tls() {
    if !has("nbdinfo") || !has("nbdcopy") || !has("qemu-img") {
        return;
    }
    let Some(server) = Server::start("") else {
        return;
    };
    let files = &server.files;
    let (one, copy) = (files.path("one.img"), files.path("copy.img"));
    let same = |what: &str| {
        let (one, copy) = (fs::read(&one).expect("it"), fs::read(&copy).expect("it"));
        assert!(one == copy, "{what}: they differ");
    };
    run("nbdinfo", &[&server.tcp("one", "vm1")]);
    run("nbdcopy", &[&server.tcp("one", "vm1"), text(&copy)]);
    same("read over TCP");
    let other = image(files, "other.img", 77);
    run("nbdcopy", &[text(&other), &server.unix("one", "vm2")]);
    fs::copy(&other, &copy).expect("a copy");
    same("written over a unix socket");
    let credentials = files.path("vm1");
    let credentials = format!(
        "tls-creds-x509,id=t,endpoint=client,dir={}",
        text(&credentials)
    );
    let socket = files.path("s.sock");
    let at_port = format!("host=127.0.0.1,port={}", server.port);
    let at_path = format!("path={},tls-hostname=localhost", text(&socket));
    for address in [at_port, at_path] {
        let options = format!("driver=nbd,{address},export=one,tls-creds=t");
        run(
            "qemu-img",
            &[
                "convert",
                "--object",
                &credentials,
                "--image-opts",
                &options,
                "-O",
                "raw",
                text(&copy),
            ],
        );
        same(&address);
    }
}

/// Each of these is refused while another client is being served.
#[test]
fn others_are_refused_with_a_line_in_the_log() {
    let Some(server) = Server::start("") else {
        return;
    };
    let files = &server.files;
    let mut served = server.client();
    let block = served.read(4096);

    let refused = |credentials: &Credentials| {
        let opened = OverTls::open(server.connect(), credentials, "one");
        opened.map(drop).expect_err("it must be refused");
    };
    refused(&Credentials::new(files, "ca", None));
    server
        .logged("the client showed no certificate that an authority in --tls-client-ca has signed");
    refused(&Credentials::new(files, "ca", Some("stranger")));
    server.logged("the client's certificate is refused: UnknownIssuer");
    refused(&Credentials::new(files, "other", Some("vm1")));
    server.logged("the client gave up and says UnknownCA");
    assert_eq!(served.read(4096), block);
}

#[test]
fn what_is_not_encrypted_is_refused() {
    let Some(server) = Server::start("") else {
        return;
    };
    let mut served = server.client();
    let block = served.read(4096);
    // Half a handshake, which is in nobody's way.
    let mut slow = server.connect();
    start_tls(&mut slow).expect("an answer");
    slow.write_all(&[22, 3, 1]).expect("half a record");

    // An export in the clear, in the old way and in the new one.
    let mut plain = server.connect();
    let (mut greeting, mut rest) = ([0; 18], Vec::new());
    plain.read_exact(&mut greeting).expect("a greeting");
    let old = [
        &3u32.to_be_bytes()[..],
        b"IHAVEOPT",
        &1u32.to_be_bytes(),
        &3u32.to_be_bytes(),
        b"one",
    ];
    plain.write_all(&old.concat()).expect("an option");
    plain.read_to_end(&mut rest).expect("the end");
    assert_eq!(rest, [0; 0], "the export is described in the clear");
    server.logged(
        "refused: it did not begin TLS, which this server requires (--tls-cert, --tls-psk)",
    );
    if has("nbdinfo") {
        let uri = format!("nbd://localhost:{}/one", server.port);
        let said = nbdinfo(&["--list", &uri]);
        assert!(!said.status.success(), "{said:?}");
    }

    // What is sent ahead of TLS could be anybody's.
    let mut ahead = server.connect();
    ahead.read_exact(&mut greeting).expect("a greeting");
    let ask = [
        &3u32.to_be_bytes()[..],
        b"IHAVEOPT",
        &5u32.to_be_bytes(),
        &[0; 4],
    ]
    .concat();
    let list = [&b"IHAVEOPT"[..], &3u32.to_be_bytes(), &[0; 4]].concat();
    ahead.write_all(&[ask, list].concat()).expect("two options");
    let _ = ahead.read_to_end(&mut rest);
    server.logged("it continued without TLS after it had requested TLS");

    let mut garbage = server.connect();
    start_tls(&mut garbage).expect("an answer");
    garbage.write_all(&[0xa5; 4096]).expect("garbage");
    let _ = garbage.read_to_end(&mut rest);
    server.logged("the client sent bytes that are not TLS");
    assert_eq!(served.read(4096), block);

    slow.shutdown(Shutdown::Write).ok();
    drop(slow);
    server.logged("the client left in the middle");
    assert_eq!(served.read(4096), block);
}

#[test]
fn a_flood_of_new_keys_or_handshakes_disturbs_nobody() {
    let Some(server) = Server::start("connections-max = 16\n") else {
        return;
    };
    let mut served = server.client();
    let block = served.read(8192);
    let mut flooding = server.client();
    assert_eq!(flooding.read(8192), block);
    let ended = (0..10_000).find_map(|_| flooding.refresh_keys().err());
    assert!(ended.is_some(), "keys are renewed without end");
    server.logged("TLS failed: peer misbehaved: TooManyKeyUpdateRequests");
    // More than may shake hands at a time: the oldest are ended, newcomers are served.
    let halves = (0..48).map(|_| {
        let mut half = server.connect();
        start_tls(&mut half)
            .and_then(|()| half.write_all(&[22, 3, 1]))
            .expect("half a handshake");
        half
    });
    let halves: Vec<_> = halves.collect();
    assert_eq!(server.client().read(8192), block);
    let control = server.files.path("control.sock");
    let status = futae_tests::binary::run_json(&["top", text(&control), "--json"]);
    assert!(
        status["handshakes"].as_u64().is_some_and(|now| now <= 16),
        "{status}"
    );
    drop(halves);
    assert_eq!(served.read(8192), block);
}

/// As one that stops before TLS.
#[test]
fn a_handshake_that_stops_in_tls_is_ended() {
    let Some(server) = Server::start("") else {
        return;
    };
    let mut slow = server.connect();
    start_tls(&mut slow).expect("an answer");
    slow.write_all(&[22, 3, 1]).expect("half a record");
    let mut rest = Vec::new();
    // The end, or a reset for what the server has not read.
    let ended = slow.read_to_end(&mut rest);
    let is_late = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    assert!(!ended.is_err_and(|error| is_late(&error)), "it goes on");
    server.logged("it did not finish its handshake in 10 s");
}

#[test]
fn a_client_sees_and_opens_what_rules_give_it() {
    if !has("nbdinfo") {
        return;
    }
    let rules = "tls-allow = [\"one=vm1\", \"two=vm2.example\", \"three=x\"]\n";
    let Some(server) = Server::start(rules) else {
        return;
    };
    server.logged("--tls-allow three=x: no export has this name");
    for (client, own, other) in [("vm1", "one", "two"), ("vm2", "two", "one")] {
        let listed = run("nbdinfo", &["--list", "--json", &server.tcp("", client)]);
        let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
        let names = listed["exports"].as_array().expect("a list").iter();
        let names: Vec<_> = names.map(|it| it["export-name"].as_str()).collect();
        assert_eq!(names, [Some(own)], "{client}");
        run("nbdinfo", &[&server.unix(own, client)]);
        let refused = nbdinfo(&[&server.tcp(other, client)]);
        assert!(!refused.status.success(), "{client} opened {other}");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("No such file"), "{said}");
    }
}

#[test]
fn rules_are_doubted_for_the_exports_that_are_there_afterwards() {
    let Some(mut server) = Server::start("tls-allow = [\"one=vm1\", \"two=vm2\"]\n") else {
        return;
    };
    image(&server.files, "three.img", 3);
    let file = server.files.path("serve.toml");
    let before = fs::read_to_string(&file).expect("a file");
    let three = format!(", \"three={}\"]", text(&server.files.path("three.img")));
    let images = before.replace("two.img\"]", &format!("two.img\"{three}"));
    let with_three = images.replace("\"two=vm2\"]", "\"two=vm2\", \"three=vm1\"]");
    fs::write(&file, with_three).expect("a file");
    server.running.signal(Signal::HUP);
    server.logged("read again: 1 exports added");
    fs::write(&file, before).expect("a file");
    server.running.signal(Signal::HUP);
    server.logged("read again: 0 exports added, 1 removed");
    let log = server.log();
    assert!(!log.contains("tls-allow"), "{log}");
    fs::write(&file, images).expect("a file");
    server.running.signal(Signal::HUP);
    server.logged("export three: no --tls-allow gives it to any client");
}

#[test]
fn certificates_are_read_again() {
    let Some(mut server) = Server::start("") else {
        return;
    };
    let mut before = server.client();
    let block = before.read(0);
    let of_old = Credentials::new(&server.files, "ca", Some("vm1"));
    let of_new = Credentials::new(&server.files, "other", Some("vm1"));
    OverTls::open(server.connect(), &of_new, "one").expect_err("the certificate is another's");
    // A file that is no good changes nothing.
    server.files.write("server.key", "");
    server.running.signal(Signal::HUP);
    server.logged("TLS: nothing has changed: ");
    OverTls::open(server.connect(), &of_old, "one").expect("it goes on");
    server.files.copy("server2", "server");
    server.running.signal(Signal::HUP);
    eventually("the new certificate is shown", || {
        OverTls::open(server.connect(), &of_new, "one").is_ok()
    });
    OverTls::open(server.connect(), &of_old, "one").expect_err("the old one is gone");
    assert_eq!(before.read(0), block, "clients keep their connections");

    // Rules change as files do, but who may come at all stays.
    let file = server.files.path("serve.toml");
    let configuration = fs::read_to_string(&file).expect("a file");
    let with_rule = format!("{configuration}tls-allow = \"two=vm1\"\n");
    fs::write(&file, with_rule).expect("a file");
    server.running.signal(Signal::HUP);
    eventually("the rule holds", || {
        OverTls::open(server.connect(), &of_new, "one").is_err()
    });
    OverTls::open(server.connect(), &of_new, "two").expect("the rule gives it");
    let log = server.log();
    assert!(!log.contains("tls-allow has changed"), "{log}");
    let open_to_all: String = configuration
        .lines()
        .filter(|line| !line.starts_with("tls-client-ca"))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(&file, open_to_all).expect("a file");
    server.running.signal(Signal::HUP);
    server.logged("--tls-client-ca cannot be taken away while the server runs");
    let nobody = Credentials::new(&server.files, "other", None);
    OverTls::open(server.connect(), &nobody, "two").expect_err("it needs a certificate");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let Some(files) = Authorities::new() else {
        return;
    };
    image(&files, "one.img", 1);
    File::create(files.path("empty")).expect("a file");
    files.copy_as("server.key", "open.key", 0o644);
    let export = format!("one={}", text(&files.path("one.img")));
    let listen = format!("unix:{}", text(&files.path("s.sock")));
    let told = |listen: &str, options: &[(&str, &str)], words: &str| {
        let mut arguments = vec![
            "serve", "--cache", "1MiB", "--export", &export, "--listen", listen,
        ];
        let values: Vec<_> = options
            .iter()
            .map(|(option, file)| (*option, files.path(file)))
            .collect();
        for (option, value) in &values {
            arguments.extend([*option, text(value)]);
        }
        let output = run_futae(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(words),
            "{options:?}: {said}"
        );
        assert!(!said.contains("panicked"), "{said}");
    };
    let (cert, key, ca) = ("--tls-cert", "--tls-key", "--tls-client-ca");
    told(&listen, &[(cert, "server.pem")], "--tls-key");
    told(
        &listen,
        &[(cert, "none.pem"), (key, "server.key")],
        "none.pem",
    );
    told(
        &listen,
        &[(cert, "empty"), (key, "server.key")],
        "holds no certificate",
    );
    told(
        &listen,
        &[(cert, "server.pem"), (key, "open.key")],
        "may read this private key",
    );
    told(
        &listen,
        &[(cert, "server.pem"), (key, "vm1.key")],
        "cannot be used together",
    );
    told(
        &listen,
        &[(cert, "server.pem"), (key, "server.key"), (ca, "empty")],
        "holds no certificate",
    );
    // Encryption alone does not say who may come.
    told(
        "tcp:0.0.0.0:0",
        &[(cert, "server.pem"), (key, "server.key")],
        "--tls-client-ca",
    );
}
