//! A monitor of QEMU that answers, stalls, breaks off or babbles.
#![expect(dead_code, reason = "each test uses a part of it")]

use futae_testkit::wait::PATIENCE;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const MIB: u64 = 1 << 20;

/// How a monitor behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Manner {
    /// Answers, with events in between.
    Good,
    /// Answers after a while.
    Slow,
    /// Takes connections and says nothing.
    Stalls,
    /// Ends every connection.
    Gone,
    /// Sends bytes that are not JSON.
    Babbles,
    /// Sends events for ever.
    Floods,
}

/// What a guest has when it had `.0` and is told `.1`.
type Balloon = Arc<dyn Fn(u64, u64) -> u64 + Send + Sync>;

pub struct Monitor {
    pub actual: Arc<AtomicU64>,
    manner: Arc<Mutex<Manner>>,
}

impl Monitor {
    /// A guest that has what it is told at once.
    pub fn start(path: &Path, bytes: u64) -> Self {
        Self::with(path, bytes, Arc::new(|_, told| told))
    }

    pub fn with(path: &Path, bytes: u64, balloon: Balloon) -> Self {
        let listener = UnixListener::bind(path).expect("a socket");
        let actual = Arc::new(AtomicU64::new(bytes));
        let manner = Arc::new(Mutex::new(Manner::Good));
        let (its_actual, its_manner) = (Arc::clone(&actual), Arc::clone(&manner));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (actual, balloon) = (Arc::clone(&its_actual), Arc::clone(&balloon));
                let manner = *its_manner.lock().expect("a lock");
                std::thread::spawn(move || drop(serve(stream, &actual, &balloon, manner)));
            }
        });
        Self { actual, manner }
    }

    pub fn is(&self, manner: Manner) {
        *self.manner.lock().expect("a lock") = manner;
    }

    pub fn mib(&self) -> u64 {
        self.actual.load(Ordering::SeqCst) / MIB
    }
}

fn serve(
    mut stream: UnixStream,
    actual: &AtomicU64,
    balloon: &Balloon,
    manner: Manner,
) -> std::io::Result<()> {
    match manner {
        Manner::Gone => return Ok(()),
        Manner::Stalls => {
            std::thread::sleep(2 * PATIENCE);
            return Ok(());
        }
        Manner::Babbles => return stream.write_all(b"what?\n{\"return\"\n\xff\xff\n"),
        Manner::Floods => loop {
            stream.write_all(b"{\"event\":\"RTC_CHANGE\"}\n")?;
        },
        Manner::Slow => std::thread::sleep(Duration::from_millis(50)),
        Manner::Good => {}
    }
    stream.write_all(b"{\"QMP\":{\"version\":{}}}\n")?;
    for line in BufReader::new(stream.try_clone()?).lines() {
        let order: serde_json::Value = serde_json::from_str(&line?)?;
        stream.write_all(b"{\"event\":\"BALLOON_CHANGE\",\"data\":{}}\n")?;
        let answer = match order["execute"].as_str() {
            Some("query-balloon") => {
                serde_json::json!({ "return": { "actual": actual.load(Ordering::SeqCst) } })
            }
            Some("balloon") => {
                let value = order["arguments"]["value"].as_u64().expect("a size");
                let has = balloon(actual.load(Ordering::SeqCst), value);
                actual.store(has, Ordering::SeqCst);
                serde_json::json!({ "return": {} })
            }
            _ => serde_json::json!({ "return": {} }),
        };
        stream.write_all(format!("{answer}\n").as_bytes())?;
    }
    Ok(())
}
