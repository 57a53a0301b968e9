//! A cache above that outlives the server below: what it read before is never demoted after.

mod common;

use common::{BLOCK, Client, MemoryStore, engine, eventually, export, pattern};
use futae_engine::{
    ClientId, Engine, EngineOptions, FileStore, IoBuf, IoError, OnEviction, Operation, Request,
    Store, WriteBackOptions,
};
use futae_host::{Export, Listen, RateLimits, Server, ServerOptions};
use futae_nbd::{ClientWish, NbdUri};
use futae_nbd_store::NbdStore;
use futae_policy::{Class, VolumeId};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

const SLOTS: u64 = 64;
const SIZE: usize = 1 << 20;

/// A server with an empty cache, as after a start.
fn start(folder: &Path, store: &Arc<MemoryStore>) -> (Server, Arc<Engine>) {
    let lower = engine("exclusive", 256);
    let disk = export(&lower, "disk", store);
    (start_with(folder, disk), lower)
}

fn start_with(folder: &Path, disk: Export) -> Server {
    let options = ServerOptions {
        listen: vec![Listen::Unix(folder.to_owned())],
        ..ServerOptions::default()
    };
    Server::start(options, vec![disk]).expect("a server")
}

/// A cache over the server's export.
struct Upper {
    engine: Arc<Engine>,
    volume: VolumeId,
    client: ClientId,
}

impl Upper {
    fn new(socket: &Path, write_back: Option<WriteBackOptions>) -> Self {
        let uri = format!("nbd+unix:///disk?socket={}", socket.display());
        let uri: NbdUri = uri.parse().expect("an address");
        let store = NbdStore::connect(&uri, Some(BLOCK as u32)).expect("connected");
        assert!(store.takes_demotions());
        let options = EngineOptions {
            block_bytes: BLOCK,
            capacity_blocks: SLOTS as u32,
            policy: "lru".parse().expect("a policy"),
            seed: 1,
            on_eviction: OnEviction::Demote,
            decision_log: None,
            write_back,
        };
        let engine = Engine::new(&options).expect("a cache");
        let volume = engine.add_volume("disk", Arc::new(store), Class::NORMAL);
        let volume = volume.expect("a volume");
        let client = engine.join(volume);
        Self {
            engine,
            volume,
            client,
        }
    }

    fn read(&self, block: u64) -> bool {
        let at = block * BLOCK;
        let read = self
            .engine
            .read_blocking(self.volume, self.client, at, BLOCK);
        read.is_ok()
    }

    /// Returns when the server has taken in all that was sent.
    fn settle(&self) {
        self.run(Operation::Flush).expect("flushed");
    }

    fn run(&self, operation: Operation) -> Result<IoBuf, IoError> {
        let (sender, answer) = mpsc::channel();
        self.engine.submit(Request {
            volume: self.volume,
            client: self.client,
            sequence: 0,
            operation,
            done: Box::new(move |result| drop(sender.send(result))),
        });
        answer.recv().expect("an answer")
    }
}

#[test]
fn blocks_of_an_earlier_connection_are_not_demoted() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("futae.sock");
    let store = MemoryStore::new(pattern(1, SIZE));
    let (server, _) = start(folder.path(), &store);
    let upper = Upper::new(&socket, None);
    assert!((0..SLOTS).all(|block| upper.read(block)));
    drop(server);
    // Another client writes, where the cache above cannot come in between.
    let aside = tempfile::tempdir().expect("a folder");
    let (server, _) = start(aside.path(), &store);
    let aside = aside.path().join("futae.sock");
    let mut other = Client::unix(&aside, "disk", &ClientWish::default());
    let new = vec![0xCC; (SLOTS * BLOCK) as usize];
    assert_eq!(other.write(0, &new), None);
    drop((other, server));
    let (server, lower) = start(folder.path(), &store);
    // The cache above connects again, and evicts all that it held.
    while !upper.read(100) {
        std::thread::yield_now();
    }
    assert!((101..101 + SLOTS).all(|block| upper.read(block)));
    upper.settle();
    let mut reader = Client::unix(&socket, "disk", &ClientWish::default());
    let block = |at: u64| (at * BLOCK, BLOCK as u32);
    let stale = (0..SLOTS)
        .map(block)
        .filter(|&(offset, length)| reader.read(offset, length).expect("read") != new[..4096])
        .count();
    assert_eq!(stale, 0, "old blocks of {SLOTS} were read");
    drop(reader);
    // While there were two clients, nothing that either demotes was believed.
    eventually("the reader leaves", || server.status().connections == 1);
    // What came over this connection is demoted over it.
    let before = lower.status().counters.demotions_in;
    assert!((101..101 + SLOTS).all(|block| upper.read(block + 64)));
    upper.settle();
    let demoted = lower.status().counters.demotions_in - before;
    assert!(demoted >= SLOTS, "{demoted} of {SLOTS}");
    drop(server);
}

/// A server of the image at `path`.
fn start_image(folder: &Path, path: &Path) -> Server {
    let lower = engine("exclusive", 256);
    let store = FileStore::open(path, false).expect("an image");
    let volume = lower.add_volume("disk", Arc::new(store), Class::NORMAL);
    let disk = Export {
        name: "disk".into(),
        description: String::new(),
        engine: lower,
        volume: volume.expect("a volume"),
        read_only: false,
        connections_max: None,
        requests_max: None,
        rates: RateLimits::default(),
    };
    start_with(folder, disk)
}

#[test]
fn what_is_dirty_of_one_image_is_never_written_to_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("futae.sock");
    let image = |name: &str, seed| {
        let path = folder.path().join(name);
        std::fs::write(&path, pattern(seed, SIZE)).expect("an image");
        path
    };
    let (first, second) = (image("a.img", 1), image("b.img", 2));
    let server = start_image(folder.path(), &first);
    let upper = Upper::new(
        &socket,
        Some(WriteBackOptions {
            dirty_max: 1.0,
            dirty_age_max: Duration::from_secs(3600),
        }),
    );
    let dirty = vec![0xDD; 8 * BLOCK as usize];
    let write = Operation::Write {
        offset: 0,
        data: IoBuf::copy_of(&dirty),
        fua: false,
    };
    upper.run(write).expect("kept");
    assert_eq!(upper.engine.dirty_blocks(), 8);
    drop(server);
    let server = start_image(folder.path(), &second);
    let refusal = loop {
        match upper.run(Operation::Flush) {
            Ok(_) => panic!("flushed to another image"),
            Err(error) if error.to_string().contains("another volume") => break error,
            Err(_) => std::thread::yield_now(),
        }
    };
    assert!(refusal.to_string().contains("disk?socket="), "{refusal}");
    drop(server);
    assert!(std::fs::read(&second).expect("readable") == pattern(2, SIZE));
    // The first image is known again, and gets what is its own.
    let server = start_image(folder.path(), &first);
    while upper.run(Operation::Flush).is_err() {
        std::thread::yield_now();
    }
    drop(server);
    let content = std::fs::read(&first).expect("readable");
    assert!(content[..dirty.len()] == dirty[..]);
}
