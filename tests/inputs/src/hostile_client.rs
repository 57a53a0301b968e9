//! Clients that do as the input says, several at a time, against a real server. Whatever they
//! send: an honest client's volume and a read-only one keep their content, nothing of either
//! appears elsewhere, the cache's books are in order, and nothing of the clients is left.

use crate::common::{BLOCK, Client, MemoryStore};
use crate::hostile::attacker::Attackers;
pub use crate::hostile::attacker::seeds;
use crate::hostile::{Script, eventually, sockets, stamp, stamped};
use futae_engine::Engine;
use futae_host::{Listen, Server, ServerOptions};
use futae_nbd::ClientWish;
use futae_testkit::wait::PATIENCE;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use tempfile::TempDir;

/// Not whole blocks, so that the last one is short.
const SIZE: usize = (256 << 10) + 512;
const SLOTS: u32 = 24;

/// The exports by their owner's number: what the attackers may write, the honest client's, and
/// what nobody may write.
const NAMES: [&str; 3] = ["open", "honest", "fixed"];
const OPEN: u8 = 0;
const HONEST: u8 = 1;
const FIXED: u8 = 2;

/// One input.
pub fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let rig = Rig::new(script.byte());
    let mut honest = rig.client(HONEST);
    let mut attackers = Attackers::new(&rig.socket, SIZE as u64, BLOCK);
    let mut steps = 0u64;
    while !script.is_over() && steps < 200 {
        attackers.step(&mut script);
        steps += 1;
        if steps.is_multiple_of(8) {
            check(&mut honest, HONEST, steps * 7 % 60 * BLOCK, 2 * BLOCK);
        }
    }
    drop(attackers);
    check(&mut honest, HONEST, 0, SIZE as u64);
    drop(honest);
    rig.check_and_stop();
}

struct Rig {
    server: Server,
    engine: Arc<Engine>,
    stores: [Arc<MemoryStore>; 3],
    socket: PathBuf,
    _directory: TempDir,
}

impl Rig {
    fn new(shape: u8) -> Self {
        let policy = ["exclusive(keep_served=true)", "lru", "exclusive", "arc"];
        let engine = crate::common::engine(policy[usize::from(shape % 4)], SLOTS);
        let stores = [OPEN, HONEST, FIXED].map(|owner| {
            let content = stamped(owner, 0, SIZE);
            match owner {
                FIXED => MemoryStore::read_only(content),
                _ => MemoryStore::new(content),
            }
        });
        let export = |(name, store): (&str, &Arc<MemoryStore>)| {
            let mut export = crate::common::export(&engine, name, store);
            export.read_only = name == NAMES[usize::from(FIXED)];
            export
        };
        let exports = NAMES.into_iter().zip(&stores).map(export).collect();
        let directory = sockets();
        let socket = directory.path().join("nbd.sock");
        let options = ServerOptions {
            listen: vec![Listen::Unix(socket.clone())],
            handshake_timeout: PATIENCE,
            ..ServerOptions::default()
        };
        let server = Server::start(options, exports).expect("a server");
        Self {
            server,
            engine,
            stores,
            socket,
            _directory: directory,
        }
    }

    fn client(&self, owner: u8) -> Client {
        let name = NAMES[usize::from(owner)];
        Client::unix(&self.socket, name, &ClientWish::default())
    }

    /// Holds everything that attackers may not change against what it was.
    fn check_and_stop(self) {
        eventually("every connection is gone", || {
            self.server.status().connections == 0
        });
        for owner in [HONEST, FIXED, OPEN] {
            let mut newcomer = self.client(owner);
            check(&mut newcomer, owner, 0, SIZE as u64);
        }
        eventually("the newcomers are gone", || {
            self.server.status().connections == 0
        });
        eventually("no read is under way", || {
            self.engine.reads_under_way() == 0
        });
        eventually("nothing is held for anybody", || {
            held_bytes(&self.server) == 0
        });
        self.engine.audit();
        let status = self.engine.status();
        assert!(
            status.resident_blocks <= status.capacity_blocks,
            "{status:?}"
        );
        for owner in [HONEST, FIXED] {
            let store = &self.stores[usize::from(owner)];
            assert!(
                store.content() == stamped(owner, 0, SIZE),
                "a store has changed"
            );
        }
        let report = self.server.stop();
        assert_eq!(report.abandoned_connections, 0);
        assert_eq!(report.flush_errors, []);
        self.engine.audit();
    }
}

/// What the server says that it holds for peers, by whatever counters its status has for that.
fn held_bytes(server: &Server) -> u64 {
    fn sum(value: &serde_json::Value) -> u64 {
        match value {
            serde_json::Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| match name.as_str() {
                    "buffer_bytes" | "buffered_bytes" | "held_bytes" => {
                        value.as_u64().unwrap_or_else(|| sum(value))
                    }
                    _ => sum(value),
                })
                .sum(),
            serde_json::Value::Array(values) => values.iter().map(sum).sum(),
            _ => 0,
        }
    }
    sum(&serde_json::to_value(server.status()).expect("a status is JSON"))
}

/// This many bytes in a row are nobody's by chance. They are looked for at each multiple of this length, so that twice as many are found
/// wherever they are.
const WINDOW: usize = 24;

/// Every run of this many bytes of the exports that attackers may not read.
static FOREIGN: LazyLock<HashSet<Vec<u8>>> = LazyLock::new(|| {
    let volumes = [HONEST, FIXED].map(|owner| stamped(owner, 0, SIZE));
    let windows = volumes.iter().flat_map(|volume| volume.windows(WINDOW));
    windows.map(<[u8]>::to_vec).collect()
});

/// Reads a range, and holds it against what its owner may hold.
fn check(client: &mut Client, owner: u8, offset: u64, length: u64) {
    let data = client.read(offset, length as u32);
    let data = data.unwrap_or_else(|error| panic!("export {owner} answers {error:?}"));
    assert_eq!(data.len() as u64, length);
    if owner == OPEN {
        // Attackers write to it whatever they like, but nothing of the others' may get there.
        let mut windows = data.chunks_exact(WINDOW);
        let foreign = windows.any(|window| FOREIGN.contains(window));
        return assert!(!foreign, "export open holds another's data");
    }
    if data == stamped(owner, offset, data.len()) {
        return;
    }
    for (position, &byte) in (offset..).zip(&data) {
        assert!(
            byte == stamp(owner, position),
            "export {} holds {byte:#x} at {position}",
            NAMES[usize::from(owner)]
        );
    }
}
