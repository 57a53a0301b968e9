//! A running guest goes on in another QEMU.

use crate::error::{GuestError, file, host};
use crate::guest::{Guest, INITRAMFS, MONITOR, escaped};
use crate::monitor::Monitor;
use crate::plan::Plan;
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// The pause between two looks at how far it is.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Times that QEMU asks which pages were written meanwhile, before it may stop the guest.
const ROUNDS: u64 = 5;
/// Bytes that QEMU copies in a second while the guest runs, so that the guest has time to change its memory.
const COPY_BYTES: u64 = 64 << 20;

/// How a guest was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Times that QEMU asked which pages were written meanwhile.
    pub rounds: u64,
    /// Bytes that went over.
    pub bytes: u64,
    /// How long the guest stood still, in milliseconds.
    pub downtime_ms: u64,
}

impl Guest {
    /// Migrates it, while it runs, to another QEMU of the same plan, which must be [`Plan::movable`]; the first is ended
    /// after that. What it is doing goes on.
    ///
    /// # Errors
    ///
    /// The other QEMU does not start, or the first says that the migration failed.
    pub fn migrate(self, plan: &Plan) -> Result<(Self, Moved), GuestError> {
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
        let moved = moved.map_err(|error| {
            let (from, to) = (self.log(), other.log());
            let said = format!("the guest cannot be migrated: {error}\nfrom: {from}\nto: {to}");
            host(said)(error)
        })?;
        other.release_is(self.release());
        Ok((other, moved))
    }
}

fn migrated(monitor: &Path, socket: &Path, deadline: Instant) -> io::Result<Moved> {
    // The other QEMU listens once it has all its devices.
    while !socket.exists() {
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    let uri = format!("unix:{}", escaped(socket));
    let mut monitor = Monitor::open(monitor, deadline)?;
    let limits = |downtime_ms: u64, bytes: u64, monitor: &mut Monitor| {
        let arguments = json!({ "downtime-limit": downtime_ms, "max-bandwidth": bytes });
        monitor.order(&json!({ "execute": "migrate-set-parameters", "arguments": arguments }))
    };
    // A millisecond is too short for what a guest that works has written meanwhile. With none at all QEMU would not ask.
    limits(1, COPY_BYTES, &mut monitor)?;
    monitor.order(&json!({ "execute": "migrate", "arguments": { "uri": uri } }))?;
    let mut may_stop = false;
    loop {
        let told = monitor.order(&json!({ "execute": "query-migrate" }))?;
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let rounds = number(&told["ram"]["dirty-sync-count"]);
        match told["status"].as_str() {
            Some("completed") => {
                return Ok(Moved {
                    rounds,
                    bytes: number(&told["ram"]["transferred"]),
                    downtime_ms: number(&told["downtime"]),
                });
            }
            Some("failed" | "cancelled") => return Err(io::Error::other(told.to_string())),
            _ if Instant::now() > deadline => return Err(io::ErrorKind::TimedOut.into()),
            _ if rounds >= ROUNDS && !may_stop => {
                limits(60_000, 1 << 40, &mut monitor)?;
                may_stop = true;
            }
            _ => std::thread::sleep(LOOK_INTERVAL),
        }
    }
}
