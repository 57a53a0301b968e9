//! A store of `futae serve` behind TLS.

use super::{MIB, Server};
use futae_nbd::Command;
use futae_nbd::client::ClientWish;
use futae_testkit::nbd::Client;
use futae_tests::binary::{futae, run};
use futae_tests::process::Running;
use futae_tests::tools::text;
use std::fs;

#[test]
fn a_store_behind_tls_is_read_and_written() {
    let Some(server) = Server::start("") else {
        return;
    };
    let files = &server.files;
    // No certificate of its own; an authority that did not sign the server's.
    for (directory, authority) in [("nobody", "ca.pem"), ("elsewhere", "other.pem")] {
        fs::create_dir(files.path(directory)).expect("a directory");
        let there = files.path(directory).join("ca-cert.pem");
        fs::copy(files.path(authority), there).expect("a copy");
    }
    let socket = files.path("second.sock");
    let listen = format!("unix:{}", text(&socket));
    let serve = [
        "serve", "--cache", "256KiB", "--policy", "lru", "--listen", &listen,
    ];
    let here = server.tcp("one", "vm1");
    for (uri, code, words) in [
        (
            format!("nbds://127.0.0.1:{}/one", server.port),
            2,
            "add tls-certificates=DIRECTORY",
        ),
        (server.tcp("one", "nobody"), 1, "CertificateRequired"),
        (
            server.tcp("one", "elsewhere"),
            1,
            "the server's certificate is refused",
        ),
        (
            format!("{here}&tls-hostname=vm2.example"),
            1,
            "be for vm2.example",
        ),
        (server.tcp("three", "vm1"), 1, "three"),
        (
            format!("nbd://127.0.0.1:{}/one", server.port),
            1,
            "it wants TLS; use an address that begins with nbds",
        ),
        (server.tcp("one", "missing"), 1, "ca-cert.pem"),
    ] {
        let output = run(&[&serve[..], &["--export", &format!("one={uri}")]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(words), "{uri}: {errors}");
        assert_eq!(output.status.code(), Some(code), "{uri}: {errors}");
    }
    for uri in [here, server.unix("one", "vm2")] {
        let export = format!("one={uri}");
        let words = [&serve[..], &["--json", "--export", &export]].concat();
        let mut second = Running::start("futae serve", futae(&words));
        second.line();
        let mut client = Client::unix(&socket, "one", &ClientWish::default());
        let image = fs::read(files.path("one.img")).expect("the image");
        let mut read = Vec::new();
        for at in (0..2 * MIB).step_by(MIB / 4) {
            read.extend(client.read(at as u64, (MIB / 4) as u32).expect("a read"));
        }
        assert!(read == image, "{uri}: other bytes");
        // Long and short, so that the encrypted stream is cut anywhere.
        for (at, length) in [(4096, 700_000), (MIB, 4096), (MIB + 8192, 512)] {
            let bytes: Vec<u8> = (0..length).map(|byte| (byte * 7 % 253) as u8).collect();
            assert_eq!(client.write(at as u64, &bytes), None, "{uri}");
            let flushed = client.simple(Command::Flush, 0, 0);
            assert_eq!(flushed.error, None, "{uri}");
            let image = fs::read(files.path("one.img")).expect("the image");
            assert!(image[at..at + length] == bytes, "{uri}: not written");
        }
        drop(client);
        assert!(second.stop().status.success());
    }
    // A server that is gone is an error, as in the clear, and nobody waits for it.
    let export = format!("one={}", server.tcp("one", "vm1"));
    let mut second = Running::start("futae serve", {
        futae(&[&serve[..], &["--json", "--export", &export]].concat())
    });
    second.line();
    let mut client = Client::unix(&socket, "one", &ClientWish::default());
    client.read(0, 4096).expect("a read");
    drop(server);
    assert!(client.read(1 << 20, 4096).is_err());
    client.read(0, 4096).expect("it is in the cache");
    drop(client);
    second.kill();
}
