//! What a running server and a running mount show over HTTP, against what `futae top` says of them.

mod page;
mod prometheus;
mod queries;
mod tree;

use futae_nbd::client::ClientWish;
use futae_testkit::nbd::Client;
use futae_testkit::wait::eventually;
use futae_tests::BLOCK;
use futae_tests::binary::{futae, run, run_json};
use futae_tests::direct::{Buffer, Direct};
use futae_tests::process::Running;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::{has_fuse, text};
use serde_json::Value;
use std::fs;
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

fn connect(stage: &Stage) -> Client {
    Client::unix(&stage.socket, EXPORT, &ClientWish::default())
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
    let mut client = connect(&stage);
    for block in [1, 2, 1, 3, 1] {
        client
            .read(block * BLOCK as u64, BLOCK as u32)
            .expect("a read");
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
    // How long they took: every request is in one step, and every read of the store.
    let of_reads = ["export=\"disk\"", "operation=\"read\""];
    let endless = [&of_reads[..], &["le=\"+Inf\""]].concat();
    for (of, count) in [("request", 5.0), ("store", 3.0)] {
        let name = |end: &str| format!("futae_export_{of}_duration_seconds_{end}");
        let counted = value(&body, &name("count"), &of_reads);
        assert_eq!(counted, Some(count), "{of}\n{body}");
        assert_eq!(value(&body, &name("bucket"), &endless), Some(count));
        let sum = value(&body, &name("sum"), &of_reads);
        assert!(sum.is_some_and(|seconds| seconds > 0.0), "{body}");
    }
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
    let file = stage.path("serve.toml");
    fs::write(&file, "metrics = \"tcp:localhost:0\"\n").expect("a file");
    let from_file = futae(&[&serve[..], &["--config", text(&file)]].concat());
    let mut running = Running::start("futae serve", from_file);
    let ready: Value = serde_json::from_str(&running.line()).expect("JSON");
    let address = ready["metrics"].as_str().expect("an address");
    let address = address.strip_prefix("tcp:").expect("of TCP");
    let stream = || TcpStream::connect(address).expect("it answers");
    let (_, body) = get(stream(), "/metrics");
    let (mut named, mut refused) = (stream(), String::new());
    let by_name = named.write_all(b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    by_name.expect("it is sent");
    named.read_to_string(&mut refused).expect("an answer");
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    assert_eq!(
        value(&body, "futae_export_size_bytes", &[]),
        Some(4.0 * BLOCK as f64)
    );
    assert!(running.stop().status.success());
    for (address, said) in [
        ("tcp:0.0.0.0:0", "--insecure-tcp"),
        ("vhost-user:/x", "--metrics vhost-user:/x"),
        ("unix:", "--metrics unix:"),
    ] {
        let output = run(&[&serve[..], &["--metrics", address]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(said), "{address}: {errors}");
        assert_eq!(output.status.code(), Some(2), "{errors}");
    }
}

/// Threads of a server that answer pages.
fn answering(server: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{server}/task")).expect("it runs");
    let names = threads.filter_map(|thread| {
        let thread = thread.expect("a thread").path();
        // It may have ended since.
        fs::read_to_string(thread.join("comm")).ok()
    });
    names.filter(|name| name.trim() == "http-client").count()
}

/// Descriptors of a server.
fn descriptors(server: u32) -> usize {
    let entries = fs::read_dir(format!("/proc/{server}/fd")).expect("it runs");
    entries.count()
}

#[test]
fn clients_that_mean_ill_hold_a_few_threads_and_nobody_up() {
    let mut stage = Stage::new(64);
    let socket = stage.path("metrics.sock");
    let address = format!("unix:{}", socket.display());
    stage.serve(&["--cache", "16blocks", "--metrics", &address]);
    let server = stage.serve_id();
    let mut client = connect(&stage);
    client.read(0, BLOCK as u32).expect("a read");
    let files = descriptors(server);
    let ask = || UnixStream::connect(&socket).expect("it answers");
    let mut held = Vec::new();
    for round in 0..300 {
        let mut stream = ask();
        // It has said no before it was sent all of the second, and never answers the first.
        let _ = match round % 3 {
            0 => stream.write_all(b"GET /metr"),
            1 => stream.write_all(&vec![b'a'; 1 << 17]),
            _ => stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n"),
        };
        held.push(stream);
        if round % 50 == 0 {
            client.read(0, BLOCK as u32).expect("a read");
            // Beside 16 with a place some may be about to end.
            assert!(answering(server) <= 32, "threads");
            assert!(descriptors(server) <= files + 34, "descriptors");
        }
    }
    let (head, _) = get_unix(&socket, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut long = ask();
    let long_path = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 14));
    let _ = long.write_all(long_path.as_bytes());
    let mut answer = [0; 12];
    if long.read_exact(&mut answer).is_ok() {
        assert_eq!(&answer, b"HTTP/1.1 431");
    }
    drop(held);
    eventually("they have left", || {
        answering(server) == 0 && descriptors(server) <= files
    });
    client.read(0, BLOCK as u32).expect("a read");
    drop(client);
    stage.stop_serve();
}

#[test]
fn every_series_of_a_live_server_is_in_the_reference() {
    let mut stage = Stage::new(64);
    let socket = stage.path("metrics.sock");
    let address = format!("unix:{}", socket.display());
    let feed = format!("unix:{}", stage.path("feed.sock").display());
    stage.serve(&[
        "--cache",
        "16blocks",
        "--metrics",
        &address,
        "--feed",
        &feed,
    ]);
    let mut client = connect(&stage);
    client.read(0, BLOCK as u32).expect("a read");
    assert_eq!(client.write(0, &[7; BLOCK]), None);
    let metrics = queries::metrics();
    let (_, body) = get_unix(&socket, "/metrics");
    let series: Vec<_> = body.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(series.len() > 50, "{body}");
    for line in series {
        let (name, rest) = line.split_once('{').expect("labels");
        let labels = metrics.get(name);
        let labels = labels.unwrap_or_else(|| panic!("{name} is in no table"));
        let labels = labels.iter().filter(|_| name != "futae_build_info");
        for label in labels {
            assert!(rest.contains(&format!("{label}=\"")), "{label}: {line}");
        }
    }
    assert_eq!(
        value(&body, "futae_agent_connected", &["export=\"disk\""]),
        Some(0.0)
    );
    let full = value(&body, "futae_export_resident_bytes", &["export=\"disk\""]);
    let cache = value(&body, "futae_cache_resident_bytes", &["cache=\"disk\""]);
    assert_eq!(
        (full, full.map(|bytes| bytes > 0.0)),
        (cache, Some(true)),
        "{body}"
    );
    let twice = value(&body, "futae_double_cached_bytes", &["export=\"disk\""]);
    assert_eq!(
        twice,
        stage.status()["engines"][0]["double_cached_bytes"].as_f64()
    );
    drop(client);
    stage.stop_serve();
}

/// The value in a cell of the page, as the status has it.
fn cell(page: &str, table: &str, row: &str, key: &str) -> Option<String> {
    let (_, rest) = page.split_once(&format!("<table id=\"{table}\">"))?;
    let (table, _) = rest.split_once("</table>")?;
    let (_, rest) = table.split_once(&format!("<tr data-name=\"{row}\">"))?;
    let (row, _) = rest.split_once("</tr>")?;
    let (_, rest) = row.split_once(&format!("data-key=\"{key}\" data-value=\""))?;
    Some(rest.split_once('"')?.0.to_owned())
}

#[test]
fn metrics_of_a_mount_are_those_of_the_upper_cache() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(32);
    let socket = stage.path("metrics.sock");
    let address = format!("unix:{}", socket.display());
    let web = stage.path("web.sock");
    let page = format!("unix:{}", web.display());
    stage.mount_image(&["--cache", "16blocks", "--metrics", &address, "--web", &page]);
    let file = Direct::open(&stage.file()).expect("the file opens");
    let mut buffer = Buffer::new(BLOCK);
    for block in [3, 4, 3] {
        file.read(block * BLOCK as u64, &mut buffer).expect("read");
    }
    eventually("a hit is shown", || {
        let (_, body) = get_unix(&socket, "/metrics");
        value(&body, "futae_cache_hits_total", &["level=\"upper\""]) == Some(1.0)
            && value(&body, "futae_export_requests_total", &["export=\"disk\""]) == Some(3.0)
            && value(
                &body,
                "futae_export_request_duration_seconds_count",
                &["\"read\""],
            ) == Some(3.0)
    });
    let (_, body) = get_unix(&web, "/");
    assert_eq!(
        cell(&body, "hits", EXPORT, "hits").as_deref(),
        Some("1"),
        "{body}"
    );
    assert!(body.contains("<svg "), "{body}");
    drop(file);
    stage.stop_mount();
    assert!(!socket.exists(), "the socket is left");
}
