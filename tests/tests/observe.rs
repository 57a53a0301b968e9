//! What a running server and a running mount show over HTTP, against what `futae top` says of them.

use futae_testkit::nbd::Plain;
use futae_testkit::wait::eventually;
use futae_tests::BLOCK;
use futae_tests::binary::{futae, run, run_json};
use futae_tests::direct::{Buffer, Direct};
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::{has_fuse, text};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The answer to a request for a page, its head and its body.
fn get(mut stream: impl Read + Write, path: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

fn get_unix(socket: &Path, path: &str) -> (String, String) {
    get(UnixStream::connect(socket).expect("it answers"), path)
}

/// The value of a series: of the one whose line begins with the name and has all of the labels.
fn value(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let line = text.lines().find(|line| {
        let is_it = line
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('{'));
        is_it && labels.iter().all(|label| line.contains(label))
    });
    line?.rsplit(' ').next()?.parse().ok()
}

#[test]
fn metrics_of_a_server_are_its_counters() {
    let mut stage = Stage::new(64);
    let socket = stage.path("metrics.sock");
    let address = format!("unix:{},mode=0600", socket.display());
    stage.serve(&[
        "--cache",
        "16blocks",
        "--policy",
        "lru",
        "--metrics",
        &address,
    ]);
    let mut client = Plain::connect(&stage.socket, "disk");
    for block in [1, 2, 1, 3, 1] {
        client.read(block * BLOCK as u64, BLOCK as u32);
    }
    let seen = || {
        let (head, body) = get_unix(&socket, "/metrics");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("application/openmetrics-text"), "{head}");
        body
    };
    let export = ["level=\"lower\"", "export=\"disk\"", "class=\"local\""];
    eventually("the reads are counted", || {
        value(&seen(), "futae_export_requests_total", &export) == Some(5.0)
    });
    let body = seen();
    let status = run_json(&["top", text(&stage.control), "--json"]);
    let cache = &status["engines"][0];
    for (name, key) in [
        ("futae_cache_hits_total", "hits"),
        ("futae_cache_misses_total", "misses"),
        ("futae_cache_store_reads_total", "store_reads"),
        ("futae_cache_read_bytes_total", "bytes_read"),
    ] {
        let shown = value(
            &body,
            name,
            &["level=\"lower\"", "cache=\"disk\"", "policy=\"lru\""],
        );
        assert!(shown.is_some_and(|shown| shown > 0.0), "{name}\n{body}");
        assert_eq!(shown, cache[key].as_f64(), "{name}");
    }
    assert_eq!(value(&body, "futae_connections", &[]), Some(1.0), "{body}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    assert!(get_unix(&socket, "/").0.starts_with("HTTP/1.1 404"));
    drop(client);
    stage.stop_serve();
    assert!(!socket.exists(), "the socket is left");
}

#[test]
fn metrics_are_on_tcp_of_this_machine_only() {
    let stage = Stage::new(4);
    let export = format!("disk={}", stage.image.display());
    let listen = format!("unix:{}", stage.socket.display());
    let serve = [
        "serve", "--json", "--cache", "16blocks", "--export", &export, "--listen", &listen,
    ];
    let mut running = Running::start(
        "futae serve",
        futae(&[&serve[..], &["--metrics", "tcp:localhost:0"]].concat()),
    );
    let ready: Value = serde_json::from_str(&running.line()).expect("JSON");
    let address = ready["metrics"].as_str().expect("an address");
    let address = address.strip_prefix("tcp:").expect("of TCP");
    let (_, body) = get(TcpStream::connect(address).expect("it answers"), "/metrics");
    assert_eq!(
        value(&body, "futae_export_size_bytes", &[]),
        Some(4.0 * BLOCK as f64)
    );
    assert!(running.stop().status.success());
    for (address, code, said) in [
        ("tcp:0.0.0.0:0", 1, "--insecure-tcp"),
        ("vhost-user:/x", 2, "--metrics vhost-user:/x"),
        ("unix:", 2, "--metrics unix:"),
    ] {
        let output = run(&[&serve[..], &["--metrics", address]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(said), "{address}: {errors}");
        assert_eq!(output.status.code(), Some(code), "{errors}");
    }
}

#[test]
fn metrics_of_a_mount_are_those_of_the_upper_cache() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(32);
    let socket = stage.path("metrics.sock");
    let address = format!("unix:{}", socket.display());
    stage.mount_image(&["--cache", "16blocks", "--metrics", &address]);
    let file = Direct::open(&stage.file()).expect("the file opens");
    let mut buffer = Buffer::new(BLOCK);
    for block in [3, 4, 3] {
        file.read(block * BLOCK as u64, &mut buffer).expect("read");
    }
    eventually("a hit is shown", || {
        let (_, body) = get_unix(&socket, "/metrics");
        value(&body, "futae_cache_hits_total", &["level=\"upper\""]) == Some(1.0)
            && value(&body, "futae_export_requests_total", &["export=\"disk\""]) == Some(3.0)
    });
    drop(file);
    stage.stop_mount();
    assert!(!socket.exists(), "the socket is left");
}
