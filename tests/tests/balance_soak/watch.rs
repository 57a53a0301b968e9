//! What QEMU says of balloons, asked by nobody's code but this.

use crate::GUESTS;
use crate::ledger::Ledger;
use crate::machine::Place;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// From one look to the next.
const INTERVAL: Duration = Duration::from_millis(150);
/// A guest that takes longer is stopped.
const PATIENCE: Duration = Duration::from_secs(1);

/// Looks at all guests until it is over.
pub fn watch(places: &[Place; GUESTS], ledger: &Mutex<Ledger>, is_over: &AtomicBool) {
    let look = || places.each_ref().map(|place| has(&place.watch).ok());
    let mut before = look();
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(INTERVAL);
        let now = look();
        let mut ledger = ledger.lock().expect("a lock");
        ledger.look(before, now);
        before = now;
    }
}

/// What a guest has in fact.
pub fn has(monitor: &Path) -> io::Result<u64> {
    let stream = UnixStream::connect(monitor)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    // The greeting.
    stream.read_line(&mut line)?;
    ask(&mut stream, "qmp_capabilities")?;
    let answer = ask(&mut stream, "query-balloon")?;
    let actual = answer["return"]["actual"].as_u64();
    actual.ok_or_else(|| io::Error::other(answer.to_string()))
}

fn ask(stream: &mut BufReader<UnixStream>, what: &str) -> io::Result<Value> {
    writeln!(stream.get_mut(), "{{\"execute\":\"{what}\"}}")?;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let answer: Value = serde_json::from_str(&line)?;
        // What comes in between are events.
        if answer.get("event").is_none() {
            return Ok(answer);
        }
    }
}
