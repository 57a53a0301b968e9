//! A volume whose guest comes by live migration from another server, which writes to the store until then: nothing that was
//! read or told before the guest's first write here is in the cache afterwards.

use futae_engine::{
    ClientId, Demotion, Engine, EngineOptions, FileStore, IoBuf, IoError, OnEviction, OnRefusal,
    Operation, Request, Store, Verification,
};
use futae_policy::{Class, VolumeId};
use futae_testkit::wait::eventually;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, mpsc};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 16;

struct Destination {
    engine: Arc<Engine>,
    volume: VolumeId,
    /// What the other server writes to.
    image: File,
    client: ClientId,
}

impl Destination {
    fn new(policy: &str, is_incoming: bool) -> Self {
        let image = tempfile::NamedTempFile::new().expect("a file");
        image.as_file().set_len(BLOCKS * BLOCK).expect("room");
        let store = match is_incoming {
            true => FileStore::open_incoming(image.path()),
            false => FileStore::open(image.path(), false),
        };
        let store: Arc<dyn Store> = Arc::new(store.expect("a store"));
        let engine = Engine::new(&EngineOptions {
            block_bytes: BLOCK,
            capacity_blocks: BLOCKS as u32,
            policy: policy.parse().expect("a policy"),
            seed: 1,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back: None,
        });
        let engine = engine.expect("an engine");
        let how = Verification {
            memory_bytes: 1 << 20,
            on_refusal: OnRefusal::Notice,
            compare_with_store: false,
        };
        engine.verify_demotions(how).expect("verification");
        let volume = engine.add_volume("disk", store, Class::NORMAL);
        Self {
            client: ClientId(7),
            volume: volume.expect("a volume"),
            engine,
            image: image.into_file(),
        }
    }

    fn run(&self, operation: Operation) -> Result<IoBuf, IoError> {
        let (sender, answer) = mpsc::channel();
        self.engine.submit(Request {
            volume: self.volume,
            client: self.client,
            sequence: 0,
            operation,
            done: Box::new(move |result| {
                // The test has ended.
                let _ = sender.send(result);
            }),
        });
        answer.recv().expect("an answer")
    }

    fn read(&self, block: u64) -> u8 {
        let (offset, length) = (block * BLOCK, BLOCK);
        let read = self.run(Operation::Read { offset, length });
        read.expect("a read").as_slice()[0]
    }

    fn write(&self, block: u64, byte: u8) {
        let write = Operation::Write {
            offset: block * BLOCK,
            data: IoBuf::copy_of(&[byte; BLOCK as usize]),
            fua: false,
        };
        self.run(write).expect("a write");
    }

    fn elsewhere(&self, block: u64, byte: u8) {
        let written = self
            .image
            .write_all_at(&[byte; BLOCK as usize], block * BLOCK);
        written.expect("a write");
    }

    fn hand(&self, block: u64, byte: u8) {
        let data = IoBuf::copy_of(&[byte; BLOCK as usize]);
        let handed = Demotion::by_agent(block * BLOCK, data);
        self.run(Operation::Demote(handed)).expect("answered");
    }

    /// What the guest reads of block 0 that QEMU has read before it came, and of block 1 that somebody was told of.
    fn after_the_move(&self) -> (u8, u8) {
        self.elsewhere(0, 1);
        self.elsewhere(1, 1);
        assert_eq!(self.read(0), 1);
        let (offset, length) = (BLOCK, BLOCK);
        self.run(Operation::Notice { offset, length })
            .expect("a hint");
        self.hand(0, 1);
        // Its last writes there.
        self.elsewhere(0, 2);
        self.elsewhere(1, 2);
        // It has come, and has not written yet.
        let _ = self.read(0);
        self.write(5, 9);
        // A page that was evicted there before the last write.
        self.hand(0, 1);
        (self.read(0), self.read(1))
    }
}

#[test]
fn what_was_read_before_the_guest_came_is_not_kept() {
    for policy in ["lru", "exclusive", "exclusive(keep_served=true)"] {
        let incoming = Destination::new(policy, true);
        assert_eq!(incoming.after_the_move(), (2, 2), "{policy}");
        // From now on it is a volume as others are.
        incoming.read(0);
        incoming.elsewhere(0, 3);
        incoming.hand(0, 2);
        assert_eq!(incoming.read(0), 2, "{policy}: it is in the cache");
        incoming.engine.audit();
    }
}

#[test]
fn an_ordinary_volume_does_keep_it() {
    assert_eq!(Destination::new("lru", false).after_the_move().0, 1);
}

/// A policy may want blocks that nobody asks for: the first of the volume, or those of an earlier volume with the same number.
#[test]
fn what_a_policy_wants_by_itself_is_not_read_before_the_guest_came() {
    let incoming = Destination::new("lfu-history(prefill=true)", true);
    incoming.elsewhere(0, 1);
    assert_eq!(incoming.read(9), 0);
    eventually("what is loaded is there", || !incoming.engine.is_loading());
    incoming.elsewhere(0, 2);
    incoming.write(5, 9);
    assert_eq!(incoming.read(0), 2);
    assert_eq!(incoming.engine.status().preload_reads, 0);
    incoming.engine.audit();
}
