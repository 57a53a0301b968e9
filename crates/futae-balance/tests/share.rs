//! Against a server whose shares are moved, and which is stopped.

use futae_balance::{Config, Controller, Report};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const MIB: u64 = 1 << 20;

/// A server with one share.
struct Server {
    is_stopped: Arc<AtomicBool>,
    /// The sizes that it was told.
    told: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(path: &Path, name: &'static str) -> Self {
        let listener = UnixListener::bind(path).expect("a socket");
        let server = Self {
            is_stopped: Arc::default(),
            told: Arc::default(),
        };
        let (is_stopped, told) = (Arc::clone(&server.is_stopped), Arc::clone(&server.told));
        std::thread::spawn(move || {
            let mut unanswered = Vec::new();
            let requests = AtomicU64::new(0);
            for stream in listener.incoming().flatten() {
                if is_stopped.load(Ordering::SeqCst) {
                    unanswered.push(stream);
                    continue;
                }
                let status = || {
                    let requests = requests.fetch_add(100, Ordering::SeqCst);
                    json!({ "engines": [{
                        "exports": [name], "capacity_blocks": 4 * MIB / 4096, "block_bytes": 4096,
                        "requests": requests, "hits": requests / 2,
                    }] })
                };
                // Who asks may have gone.
                let _ = answer(stream, &status, &told);
            }
        });
        server
    }
}

fn answer(
    mut stream: UnixStream,
    status: &dyn Fn() -> Value,
    told: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let order: Value = serde_json::from_str(&line)?;
    let said = match order["command"].as_str() {
        Some("resize") => {
            told.lock()
                .expect("a lock")
                .push(order["cache"].to_string());
            json!({ "capacity_blocks": 4 * MIB / 4096 })
        }
        _ => status(),
    };
    stream.write_all(format!("{said}\n").as_bytes())
}

#[test]
fn a_server_that_is_stopped_is_late_and_its_share_stays() {
    let place = tempfile::tempdir().expect("a directory");
    let at = |name: &str| place.path().join(name);
    let (_a, b) = (Server::start(&at("a"), "a"), Server::start(&at("b"), "b"));
    let guest = |name: &str| {
        format!(
            "[[guest]]\nname = \"{name}\"\nminimum = \"1MiB\"\nmaximum = \"7MiB\"\n\
             actuator = {{ kind = \"share\", control = {:?}, export = \"{name}\" }}\n",
            at(name)
        )
    };
    let text = format!(
        "total = \"8MiB\"\nperiod = 0.2\nevaluator = \"paper\"\n[paper]\nmove_when = \"always\"\nstep = \"1MiB\"\n{}{}",
        guest("a"),
        guest("b")
    );
    let config = Config::parse(&text).expect("a good configuration");
    let mut controller = Controller::new(&config, false).expect("starts");
    let report = controller.period();
    assert_eq!(report.problems, Vec::<String>::new());
    b.is_stopped.store(true, Ordering::SeqCst);
    let (before, told) = (
        controller.targets()[1],
        b.told.lock().expect("a lock").clone(),
    );
    let report = controller.period();
    let wanted = format!(
        "b: {}: the cache has not answered within 2s",
        at("b").display()
    );
    assert!(report.problems.contains(&wanted), "{:?}", report.problems);
    let of_b = |report: &Report| {
        (
            report.decision.guests[1].achieved,
            report.decision.guests[1].target,
        )
    };
    assert_eq!(of_b(&report), (None, before));
    assert_eq!(*b.told.lock().expect("a lock"), told);
    b.is_stopped.store(false, Ordering::SeqCst);
    let report = controller.period();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(report.decision.guests[1].achieved, Some(4 * MIB));
}
