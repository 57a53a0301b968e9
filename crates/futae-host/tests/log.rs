//! What an operator reads in the log of a server.

mod common;

use common::{BLOCK, Client, MemoryStore, engine, eventually, export, pattern};
use futae_host::{Export, Listen, Server, ServerOptions};
use futae_nbd::{ClientWish, client};
use std::fmt::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use tempfile::TempDir;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry;

static LINES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

fn lines() -> MutexGuard<'static, Vec<(Level, String)>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps every line for the test.
struct Keep;

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

impl<S: Subscriber> Layer<S> for Keep {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        lines().push((*event.metadata().level(), message.0));
    }
}

/// The lines of a level about `name`.
fn about(name: &str, level: Level) -> Vec<String> {
    let all = lines();
    let those = all
        .iter()
        .filter(|(of, text)| *of == level && text.contains(name));
    those.map(|(_, text)| text.clone()).collect()
}

/// A server of one export of its own name, since all tests of this file share the log.
fn serve(name: &str, connections_max: Option<usize>) -> (Server, Arc<MemoryStore>, TempDir) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let kept = tracing::subscriber::set_global_default(registry().with(Keep));
        kept.expect("no other log");
    });
    let directory = tempfile::tempdir().expect("a directory");
    let store = MemoryStore::new(pattern(1, 64 * BLOCK as usize));
    let disk = Listen::VhostUser(directory.path().join("disk.vhost"));
    let options = ServerOptions {
        listen: vec![Listen::Unix(directory.path().to_owned()), disk],
        ..ServerOptions::default()
    };
    let export = Export {
        connections_max,
        ..export(&engine("lru", 32), name, &store)
    };
    let server = Server::start(options, vec![export]).expect("a server");
    (server, store, directory)
}

fn connect(directory: &TempDir, name: &str) -> Client {
    let socket = directory.path().join("futae.sock");
    Client::unix(&socket, name, &ClientWish::default())
}

#[test]
fn a_store_that_fails_is_one_error_and_a_count() {
    let (server, store, directory) = serve("flaky", None);
    let mut client = connect(&directory, "flaky");
    client.read(0, 4096).expect("it works");
    store.fail_reads(true);
    for block in 1..=100 {
        assert!(client.read(block % 60 * BLOCK + BLOCK, 4096).is_err());
    }
    eventually("the error is in the log", || {
        !about("flaky", Level::ERROR).is_empty()
    });
    drop(client);
    let report = server.stop();
    assert!(report.flush_errors.is_empty());
    eventually("the count is in the log", || {
        !about("flaky", Level::WARN).is_empty()
    });
    let errors = about("flaky", Level::ERROR);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].starts_with("flaky: its store failed: "),
        "{errors:?}"
    );
    let counts = about("flaky", Level::WARN);
    assert_eq!(counts.len(), 1, "{counts:?}");
    assert!(counts[0].contains(" 99 more errors"), "{counts:?}");
}

#[test]
fn connections_are_for_debugging_and_refusals_are_for_everybody() {
    let (server, _store, directory) = serve("narrow", Some(1));
    let client = connect(&directory, "narrow");
    let mut refused = UnixStream::connect(directory.path().join("futae.sock")).expect("a socket");
    let answer = client::negotiate(&mut refused, "narrow", &ClientWish::default());
    assert!(answer.is_err(), "there is room for one");
    eventually("the refusal is in the log", || {
        !about("narrow", Level::INFO).is_empty()
    });
    let refusals = about("narrow", Level::INFO);
    assert!(
        refusals[0].contains("refused: export narrow has 1"),
        "{refusals:?}"
    );
    let me = format!("process {} of user ", std::process::id());
    assert!(refusals[0].contains(&me), "{refusals:?}");
    drop((client, refused));
    let _ = server.stop();
    let steps = about("narrow", Level::DEBUG);
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert!(
        steps[0].contains("opened") && steps[1].contains("left"),
        "{steps:?}"
    );
}

#[test]
fn a_second_virtual_machine_on_a_writable_disk_is_a_warning() {
    let (server, _store, directory) = serve("twice", None);
    let open = || UnixStream::connect(directory.path().join("disk.vhost")).expect("a frontend");
    let warnings = || about("export twice", Level::WARN);
    let first = open();
    eventually("the first is there", || server.status().connections == 1);
    assert_eq!(warnings(), Vec::<String>::new());
    let second = open();
    eventually("it is warned of", || warnings().len() == 1);
    assert!(
        warnings()[0].contains("another client uses") && warnings()[0].contains("connections=1"),
        "{:?}",
        warnings()
    );
    drop((first, second));
}
