//! `--otlp` of `futae serve` and `futae mount`: requests as spans, at a collector of the test's own.

use futae_nbd::client::ClientWish;
use futae_testkit::nbd::Client;
use futae_tests::BLOCK;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::{has_fuse, text};
use futae_tests::tree::Tree;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::thread;

/// An HTTP server that takes spans.
struct Collector {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

impl Collector {
    /// One that serves until the test ends.
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let request = take(&stream.expect("a connection"));
                taken.lock().expect("a lock").push(request);
            }
        });
        Self { address, requests }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The spans that it has.
    fn spans(&self) -> Vec<Span> {
        let requests = self.requests.lock().expect("a lock");
        let scopes = requests.iter().flat_map(|request| {
            let resources = request.resource_spans.iter();
            resources.flat_map(|resource| resource.scope_spans.clone())
        });
        scopes.flat_map(|scope| scope.spans).collect()
    }
}

/// The spans of one POST, which is answered.
fn take(stream: &TcpStream) -> ExportTraceServiceRequest {
    let mut reader = BufReader::new(stream);
    let (mut length, mut kind, mut line) = (0, String::new(), String::new());
    reader.read_line(&mut line).expect("a request");
    assert!(line.starts_with("POST /v1/traces HTTP/1.1"), "{line}");
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a header");
        let header = line.trim().to_ascii_lowercase();
        match header.split_once(": ") {
            Some(("content-length", number)) => length = number.parse().expect("a length"),
            Some(("content-type", of)) => kind = of.to_owned(),
            Some(_) => {}
            None => break,
        }
    }
    assert_eq!(kind, "application/x-protobuf");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the spans");
    let mut stream = stream;
    let answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.write_all(answer).expect("answered");
    ExportTraceServiceRequest::decode(&*body).expect("the protocol of OTLP")
}

/// The attributes of a span, as `name=value`.
fn attributes(span: &Span) -> Vec<String> {
    let shown = span.attributes.iter().map(|attribute| {
        let value = attribute.value.clone().and_then(|value| value.value);
        let value = match value {
            Some(Value::StringValue(text)) => text,
            Some(Value::IntValue(number)) => number.to_string(),
            Some(Value::BoolValue(is)) => is.to_string(),
            other => panic!("{other:?}"),
        };
        let name = attribute.key.strip_prefix("futae.");
        format!("{}={value}", name.unwrap_or(&attribute.key))
    });
    shown.collect()
}

/// A server of the stage that sends spans there.
fn serve(stage: &mut Stage, url: &str, more: &[&str]) {
    let words = ["--cache", "16blocks", "--otlp", url];
    stage.serve(&[&words, more].concat());
}

/// A miss and a hit, a write, a flush, and the demotion of a block.
fn ask(stage: &Stage) {
    let wish = ClientWish {
        demotion_block_bytes: Some(BLOCK as u32),
        ..ClientWish::default()
    };
    let mut client = Client::unix(&stage.socket, EXPORT, &wish);
    let (offset, length) = (BLOCK as u64, BLOCK as u32);
    let first = client.read(offset, length).expect("a miss");
    let again = client.read(offset, length).expect("a hit");
    assert!(first == again);
    let number = client.number();
    client.demote_as(number, offset, &first);
    assert_eq!(client.write(2 * offset, &first), None);
    client.settle();
}

#[test]
fn requests_become_spans_that_a_collector_can_read() {
    let collector = Collector::start();
    let mut stage = Stage::new(64);
    // On a busy machine a write can take longer than what is slow by default.
    let words = ["--otlp-sample", "1", "--otlp-slow", "1h"];
    serve(&mut stage, &collector.url(), &words);
    ask(&stage);
    // The end sends what is left.
    stage.stop_serve();
    let spans = collector.spans();
    let find = |kind: &str, hit: Option<bool>| {
        let mut wanted = vec![
            format!("export={EXPORT}"),
            format!("kind={kind}"),
            "requests=1".to_owned(),
            "slow=false".to_owned(),
        ];
        wanted.extend(hit.map(|hit| format!("hit={hit}")));
        let is_it = |span: &&Span| {
            let has = attributes(span);
            span.name == kind && wanted.iter().all(|one| has.contains(one))
        };
        let found = spans.iter().find(is_it);
        found.unwrap_or_else(|| panic!("{kind} {hit:?}: {spans:#?}"))
    };
    let of_block = format!("bytes={BLOCK}");
    for (kind, hit) in [
        ("read", Some(false)),
        ("read", Some(true)),
        ("write", None),
        ("demotion", None),
    ] {
        let span = find(kind, hit);
        assert!(attributes(span).contains(&of_block), "{span:?}");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(span.parent_span_id.is_empty());
    }
    find("flush", None);
    let requests = collector.requests.lock().expect("a lock");
    let resource = format!("{:?}", requests[0].resource_spans[0].resource);
    assert!(
        resource.contains("service.name") && resource.contains("futae"),
        "{resource}"
    );
}

/// A span of a read has the name of the file, or of the tree, and none says whether it hit.
#[test]
fn requests_of_mounts_become_spans() {
    if !has_fuse() {
        return;
    }
    let collector = Collector::start();
    let words = ["--cache", "1MiB", "--otlp-sample", "1", "--otlp"];
    let url = collector.url();
    let words = [&words[..], &[&url]].concat();
    let mut stage = Stage::new(64);
    stage.mount_image(&words);
    let mut byte = [0; 4096];
    let file = File::open(stage.file()).expect("the file");
    file.read_exact_at(&mut byte, 4096).expect("a read");
    drop(file);
    stage.stop_mount();
    let mut tree = Tree::new();
    std::fs::write(tree.lower("a"), byte).expect("a file");
    tree.mount(&[&words[..], &["--residency", "futae"]].concat());
    std::fs::read(tree.upper("a")).expect("a read");
    tree.stop();
    for export in [EXPORT, text(&tree.source)] {
        let wanted = [
            format!("export={export}"),
            "kind=read".to_owned(),
            "requests=1".to_owned(),
            "bytes=4096".to_owned(),
        ];
        let is_it = |span: &Span| {
            let has = attributes(span);
            span.name == "read" && wanted.iter().all(|one| has.contains(one))
        };
        let spans = collector.spans();
        assert!(spans.iter().any(is_it), "{export}: {spans:#?}");
    }
}

#[test]
fn what_is_neither_slow_nor_sampled_becomes_no_span() {
    let mut stage = Stage::new(64);
    let none = Collector::start();
    let sample = ["--otlp-sample", "0", "--otlp-slow"];
    serve(&mut stage, &none.url(), &[&sample[..], &["1h"]].concat());
    ask(&stage);
    stage.stop_serve();
    assert_eq!(none.spans(), []);
    let slow = Collector::start();
    serve(&mut stage, &slow.url(), &[&sample[..], &["1us"]].concat());
    ask(&stage);
    stage.stop_serve();
    let spans = slow.spans();
    let is_slow = |span: &Span| attributes(span).contains(&"slow=true".to_owned());
    assert!(!spans.is_empty() && spans.iter().all(is_slow), "{spans:#?}");
}

/// Nobody listens, or somebody who never answers: requests are served all the same, and the log says it once.
#[test]
fn a_collector_that_is_dead_costs_nothing_and_is_said_once() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let refused = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address")
    };
    for (address, said) in [(refused, 1), (address, 0)] {
        let mut stage = Stage::new(64);
        serve(
            &mut stage,
            &format!("http://{address}"),
            &["--otlp-sample", "1"],
        );
        let mut client = Client::unix(&stage.socket, EXPORT, &ClientWish::default());
        // More than are queued, in several batches.
        for block in 0..4096 {
            let offset = block % 64 * BLOCK as u64;
            client.read(offset, BLOCK as u32).expect("a read");
        }
        drop(client);
        let errors = stage.stop_serve_that_may_say();
        let count = errors.matches("spans cannot be sent").count();
        // Who never answers is waited for until the server has ended.
        assert!(count >= said && count <= 1, "{errors}");
    }
}
