//! Another program changes an image while no client has it open: the next client reads what is there then.

use futae_engine::{
    Engine, EngineOptions, FileStore, IoBuf, JoinedClient, OnEviction, Operation, Request, Store,
};
use futae_policy::{Class, Prng, VolumeId};
use futae_testkit::wait::eventually;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, mpsc};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 64;

struct Served {
    engine: Arc<Engine>,
    volume: VolumeId,
    image: File,
}

impl Served {
    fn new() -> Self {
        // Of a file system that notes each write, as those of images do.
        let image = tempfile::NamedTempFile::new().expect("a file");
        image.as_file().set_len(BLOCKS * BLOCK).expect("room");
        let store: Arc<dyn Store> =
            Arc::new(FileStore::open(image.path(), false).expect("a store"));
        let engine = Engine::new(&EngineOptions {
            block_bytes: BLOCK,
            capacity_blocks: BLOCKS as u32,
            policy: "lru".parse().expect("a policy"),
            seed: 1,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back: None,
        });
        let engine = engine.expect("an engine");
        let volume = engine.add_volume("disk", store, Class::NORMAL);
        Self {
            volume: volume.expect("a volume"),
            engine,
            image: image.into_file(),
        }
    }

    fn client(&self) -> JoinedClient {
        JoinedClient::join(&self.engine, self.volume)
    }

    fn read(&self, client: &JoinedClient, block: u64) -> u8 {
        let read = self
            .engine
            .read_blocking(self.volume, client.id(), block * BLOCK, BLOCK);
        read.expect("a read").as_slice()[0]
    }

    fn write(&self, client: &JoinedClient, block: u64, byte: u8) {
        let (sender, answer) = mpsc::channel();
        self.engine.submit(Request {
            volume: self.volume,
            client: client.id(),
            sequence: 0,
            operation: Operation::Write {
                offset: block * BLOCK,
                data: IoBuf::copy_of(&[byte; BLOCK as usize]),
                fua: false,
            },
            done: Box::new(move |result| {
                let _ = sender.send(result.map(drop));
            }),
        });
        answer.recv().expect("an answer").expect("a write");
    }

    /// As another program does it.
    fn restore(&self, block: u64, byte: u8) {
        let written = self
            .image
            .write_all_at(&[byte; BLOCK as usize], block * BLOCK);
        written.expect("a write");
    }

    fn store_reads(&self) -> u64 {
        self.engine.status().store_reads
    }
}

#[test]
fn what_is_restored_while_no_client_is_there_is_what_the_next_one_reads() {
    let served = Served::new();
    let client = served.client();
    served.write(&client, 3, 1);
    assert_eq!(served.read(&client, 3), 1);
    drop(client);
    for byte in 2..5 {
        // A change in the same moment as the last write cannot be told from it.
        eventually("the image is at rest", || {
            served.engine.tick();
            served.engine.sees_changes(served.volume)
        });
        served.restore(3, byte);
        let client = served.client();
        assert_eq!(served.read(&client, 3), byte);
        assert_eq!(served.read(&client, 3), byte);
    }
    served.engine.audit();
}

#[test]
fn what_clients_wrote_themselves_stays_in_the_cache() {
    let served = Served::new();
    let mut prng = Prng::new(1);
    let client = served.client();
    (0..BLOCKS).for_each(|block| assert_eq!(served.read(&client, block), 0));
    drop(client);
    let before = served.store_reads();
    let mut bytes = [0; BLOCKS as usize];
    for _ in 0..300 {
        let client = served.client();
        for _ in 0..prng.below(4) {
            let block = prng.below(BLOCKS);
            bytes[block as usize] = prng.below(256) as u8;
            served.write(&client, block, bytes[block as usize]);
        }
        let block = prng.below(BLOCKS);
        assert_eq!(served.read(&client, block), bytes[block as usize]);
        drop(client);
        served.engine.tick();
    }
    assert_eq!(served.store_reads(), before, "blocks were dropped");
}
