//! A server with three disks: one that the test asks, one that an honest client has, one that nobody may write.

use crate::common::{self, MemoryStore};
use crate::ring::{RingClient, Wish};
use futae_engine::Engine;
use futae_host::{Clock, Gate, Listen, Server, ServerOptions};
use futae_testkit::wait::eventually;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub const IN: u32 = 0;
pub const OUT: u32 = 1;
pub const FLUSH: u32 = 4;
pub const GET_ID: u32 = 8;
pub const DISCARD: u32 = 11;
pub const WRITE_ZEROES: u32 = 13;

pub const DONE: u8 = 0;
pub const BAD: u8 = 1;
pub const UNKNOWN: u8 = 2;

pub const SECTOR: usize = 512;
pub const SIZE: usize = 1 << 20;
/// Fewer blocks than a disk has.
const SLOTS: u32 = 96;

/// What a disk holds at first: bytes that tell where they are.
pub fn stamped(offset: u64, bytes: usize) -> Vec<u8> {
    let positions = offset / 8..(offset + bytes as u64) / 8;
    positions
        .flat_map(|position| (position.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_le_bytes())
        .collect()
}

/// One disk.
pub struct Disk {
    pub store: Arc<MemoryStore>,
    pub socket: PathBuf,
}

pub struct Rig {
    pub server: Server,
    pub engine: Arc<Engine>,
    pub open: Disk,
    pub honest: Disk,
    pub fixed: Disk,
    pub _directory: TempDir,
}

impl Rig {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let engine = common::engine("lru", SLOTS);
        let disk = |name: &str| {
            let content = stamped(0, SIZE);
            let store = match name {
                "fixed" => MemoryStore::read_only(content),
                _ => MemoryStore::new(content),
            };
            let mut export = common::export(&engine, name, &store);
            export.read_only = name == "fixed";
            let socket = directory.path().join(name);
            (export, Disk { store, socket })
        };
        let disks = ["open", "honest", "fixed"].map(disk);
        let gates = disks.iter().map(|(export, disk)| Gate {
            export: Some(export.name.clone()),
            ..Listen::VhostUser(disk.socket.clone()).into()
        });
        let options = ServerOptions {
            gates: gates.collect(),
            // For limits a second, of which nothing is ever paid.
            clock: Clock::new(|| Duration::from_secs(10)),
            ..ServerOptions::default()
        };
        let exports = disks.iter().map(|(export, _)| export.clone()).collect();
        let server = Server::start(options, exports).expect("a server");
        let [open, honest, fixed] = disks.map(|(_, disk)| disk);
        Self {
            server,
            engine,
            open,
            honest,
            fixed,
            _directory: directory,
        }
    }

    pub fn client(&self, wish: Wish) -> RingClient {
        RingClient::connect(&self.open.socket, wish).expect("a disk")
    }

    /// Ends a client, and finds nothing left of it.
    pub fn finish(self, client: RingClient) {
        drop(client);
        eventually("every connection is gone", || {
            self.server.status().connections == 0
        });
        self.engine.audit();
        let report = self.server.stop();
        assert_eq!(report.abandoned_connections, 0);
        assert_eq!(report.flush_errors, []);
    }
}
