//! A running guest goes on in another QEMU.

use crate::error::{GuestError, file, host};
use crate::guest::{Guest, INITRAMFS, MONITOR, escaped};
use crate::plan::Plan;
use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The pause between two looks at how far it is.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

impl Guest {
    /// Migrates it, while it runs, to another QEMU of the same plan, which must be [`Plan::movable`]; the first is ended
    /// after that. What it is doing goes on.
    ///
    /// # Errors
    ///
    /// The other QEMU does not start, or the first says that the migration failed.
    pub fn migrate(self, plan: &Plan) -> Result<Self, GuestError> {
        let directory = tempfile::Builder::new().prefix("futae-guest-").tempdir();
        let directory = directory.map_err(host("no temporary directory"))?;
        // The other one wants the same files, though it never boots from them.
        let (from, to) = (
            self.directory().join(INITRAMFS),
            directory.path().join(INITRAMFS),
        );
        fs::copy(&from, to).map_err(file(from))?;
        let socket = directory.path().join("migration.sock");
        let uri = format!("unix:{}", escaped(&socket));
        let deadline = Instant::now() + plan.limit;
        let mut other = Self::start(plan, directory, deadline, &["-incoming", &uri])?;
        let moved = migrated(&self.directory().join(MONITOR), &socket, deadline);
        moved.map_err(|error| {
            let (from, to) = (self.log(), other.log());
            let said = format!("the guest cannot be migrated: {error}\nfrom: {from}\nto: {to}");
            host(said)(error)
        })?;
        other.release_is(self.release());
        Ok(other)
    }
}

fn migrated(monitor: &Path, socket: &Path, deadline: Instant) -> io::Result<()> {
    // The other QEMU listens once it has all its devices.
    while !socket.exists() {
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    let uri = format!("unix:{}", escaped(socket));
    let mut monitor = Monitor::open(monitor, deadline)?;
    // The guest runs while the first of its memory is copied, and stops for the last 128 MiB: so it ends, also of a guest
    // that changes its memory faster than QEMU copies it.
    let parameters = json!({ "downtime-limit": 4000, "max-bandwidth": 32u64 << 20 });
    monitor.order(&json!({ "execute": "migrate-set-parameters", "arguments": parameters }))?;
    monitor.order(&json!({ "execute": "migrate", "arguments": { "uri": uri } }))?;
    loop {
        let told = monitor.order(&json!({ "execute": "query-migrate" }))?;
        match told["status"].as_str() {
            Some("completed") => return Ok(()),
            Some("failed" | "cancelled") => return Err(io::Error::other(told.to_string())),
            _ if Instant::now() > deadline => return Err(io::ErrorKind::TimedOut.into()),
            _ => std::thread::sleep(LOOK_INTERVAL),
        }
    }
}

/// QEMU's machine protocol.
struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    fn open(path: &Path, deadline: Instant) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(LOOK_INTERVAL)))?;
        let mut monitor = Self {
            stream: BufReader::new(stream),
        };
        monitor.line()?;
        monitor.order(&json!({ "execute": "qmp_capabilities" }))?;
        Ok(monitor)
    }

    fn line(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// Gives an order; what it returns. Events in between are nobody's concern.
    fn order(&mut self, order: &Value) -> io::Result<Value> {
        let stream = self.stream.get_mut();
        stream.write_all(format!("{order}\n").as_bytes())?;
        loop {
            let mut told = self.line()?;
            if told.get("error").is_some() {
                return Err(io::Error::other(told["error"].to_string()));
            }
            if told.get("return").is_some() {
                return Ok(told["return"].take());
            }
        }
    }
}
