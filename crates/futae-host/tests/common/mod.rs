//! What the tests of the server share: a server on a socket in a directory of its own.
#![allow(
    dead_code,
    unused_imports,
    clippy::allow_attributes,
    reason = "no test uses all of it"
)]

pub use futae_testkit::nbd::{Answer, Client};
pub use futae_testkit::store::{MemoryStore, StoreEvent};
pub use futae_testkit::wait::eventually;

use futae_engine::{Engine, EngineOptions, OnEviction};
use futae_host::{Export, Listen, RateLimits, Server, ServerOptions};
use futae_nbd::ClientWish;
use futae_policy::{Class, PolicySpec};
use std::path::PathBuf;
use std::sync::{Arc, Once};
use std::time::Duration;
use std::{panic, process, thread};
use tempfile::TempDir;

pub const BLOCK: u64 = 4096;

/// A server with one export, `disk`, over one store in memory.
pub struct Rig {
    pub server: Server,
    pub engine: Arc<Engine>,
    pub store: Arc<MemoryStore>,
    pub socket: PathBuf,
    pub directory: TempDir,
}

pub fn engine(policy: &str, capacity_blocks: u32) -> Arc<Engine> {
    engine_of(BLOCK, policy, capacity_blocks)
}

/// A panic on a thread of the server ends the test program: nobody joins these threads and looks.
fn end_with_the_server() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            usual(info);
            let thread = thread::current();
            let of_server = ["connection", "accept", "vhost queue", "ring", "extents"];
            if thread.name().is_some_and(|name| of_server.contains(&name)) {
                process::abort();
            }
        }));
    });
}

/// Blocks of another size.
pub fn engine_of(block_bytes: u64, policy: &str, capacity_blocks: u32) -> Arc<Engine> {
    end_with_the_server();
    let policy: PolicySpec = policy.parse().expect("a policy");
    let options = EngineOptions {
        block_bytes,
        capacity_blocks,
        policy,
        seed: 1,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back: None,
    };
    Engine::new(&options).expect("a cache")
}

pub fn export(engine: &Arc<Engine>, name: &str, store: &Arc<MemoryStore>) -> Export {
    let store = Arc::clone(store) as Arc<dyn futae_engine::Store>;
    let volume = engine
        .add_volume(name, store, Class::NORMAL)
        .expect("a volume");
    let description = format!("the {name} of a test");
    Export {
        name: name.into(),
        description,
        engine: Arc::clone(engine),
        volume,
        read_only: false,
        connections_max: None,
        requests_max: None,
        rates: RateLimits::default(),
    }
}

impl Rig {
    pub fn new(policy: &str, capacity_blocks: u32, content: Vec<u8>) -> Self {
        Self::with(policy, capacity_blocks, content, |_| {})
    }

    pub fn with(
        policy: &str,
        capacity_blocks: u32,
        content: Vec<u8>,
        adjust: impl FnOnce(&mut ServerOptions),
    ) -> Self {
        Self::made(policy, capacity_blocks, content, adjust, |export| {
            vec![export]
        })
    }

    /// With other exports than `disk` as it is.
    pub fn with_exports(
        policy: &str,
        capacity_blocks: u32,
        content: Vec<u8>,
        exports: impl FnOnce(Export) -> Vec<Export>,
    ) -> Self {
        Self::made(policy, capacity_blocks, content, |_| {}, exports)
    }

    /// With other options and other exports.
    pub fn made(
        policy: &str,
        capacity_blocks: u32,
        content: Vec<u8>,
        adjust: impl FnOnce(&mut ServerOptions),
        exports: impl FnOnce(Export) -> Vec<Export>,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, engine) = (MemoryStore::new(content), engine(policy, capacity_blocks));
        let mut options = ServerOptions {
            listen: vec![Listen::Unix(directory.path().to_owned())],
            stop_timeout: Duration::from_secs(5),
            ..ServerOptions::default()
        };
        adjust(&mut options);
        let exports = exports(export(&engine, "disk", &store));
        let server = Server::start(options, exports).expect("a server");
        let socket = directory.path().join("futae.sock");
        Self {
            server,
            engine,
            store,
            socket,
            directory,
        }
    }

    pub fn client(&self, wish: &ClientWish) -> Client {
        Client::unix(&self.socket, "disk", wish)
    }

    /// A client that negotiates nothing.
    pub fn plain(&self) -> Client {
        self.client(&ClientWish::default())
    }

    pub fn structured(&self) -> Client {
        self.client(&ClientWish {
            structured: true,
            base_allocation: true,
            ..Default::default()
        })
    }

    pub fn demoting(&self) -> Client {
        let demotion_block_bytes = Some(BLOCK as u32);
        let client = self.client(&ClientWish {
            demotion_block_bytes,
            ..Default::default()
        });
        assert!(client.export.demotion.is_some(), "demotion is agreed");
        client
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///disk?socket={}", self.socket.display())
    }
}

/// Bytes that differ from block to block and from seed to seed.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}
