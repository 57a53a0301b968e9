//! Volumes whose image another program makes longer.

mod common;

use common::{BLOCK, NEVER, kept_up_to, setup_of, take, write};
use futae_engine::{
    ClientId, Demotion, Engine, EngineOptions, FileStore, IoBuf, OnEviction, OnRefusal, Operation,
    Store, Verification, WriteBackOptions,
};
use futae_policy::{Class, VolumeId};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const CLIENT: ClientId = ClientId(0);
/// Two blocks and a half.
const BEFORE: u64 = 2 * BLOCK + BLOCK / 2;

struct Image {
    directory: TempDir,
    engine: Arc<Engine>,
    volume: VolumeId,
}

impl Image {
    fn new(policy: &str, write_back: Option<WriteBackOptions>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("disk.img");
        fs::write(&path, vec![1; BEFORE as usize]).expect("an image");
        let options = EngineOptions {
            block_bytes: BLOCK,
            capacity_blocks: 16,
            policy: policy.parse().expect("a policy"),
            seed: 1,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back,
        };
        let engine = Engine::new(&options).expect("an engine");
        let how = Verification {
            memory_bytes: 1 << 20,
            on_refusal: OnRefusal::Notice,
            compare_with_store: false,
        };
        engine.verify_demotions(how).expect("verification");
        let store: Arc<dyn Store> = Arc::new(FileStore::open(&path, false).expect("a store"));
        let volume = engine.add_volume("disk", store, Class::NORMAL);
        let volume = volume.expect("a volume");
        Self {
            directory,
            engine,
            volume,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("disk.img")
    }

    fn append(&self, data: &[u8]) {
        let file = OpenOptions::new().append(true).open(self.path());
        file.expect("the image").write_all(data).expect("room");
    }

    fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let read = self
            .engine
            .read_blocking(self.volume, CLIENT, offset, length);
        read.expect("a read").as_slice().to_vec()
    }

    fn demote(&self, block: u64, data: &[u8]) {
        let demotion = Demotion::new(block * BLOCK, IoBuf::copy_of(data));
        let done = self
            .engine
            .wait(self.volume, CLIENT, Operation::Demote(demotion));
        done.expect("a hint");
    }
}

#[test]
fn what_was_appended_is_read_and_what_the_cache_had_of_the_last_block_is_not() {
    let image = Image::new("lru", None);
    assert_eq!(image.read(0, BEFORE), [1; BEFORE as usize]);
    image.append(&[2; BLOCK as usize]);
    let sizes = image.engine.lengthen_volume(image.volume, NEVER);
    assert_eq!(sizes.expect("longer"), (BEFORE, BEFORE + BLOCK));
    assert_eq!(image.engine.volume_bytes(image.volume), BEFORE + BLOCK);
    let wanted = [vec![1; BEFORE as usize], vec![2; BLOCK as usize]].concat();
    assert_eq!(image.read(0, BEFORE + BLOCK), wanted);
    let sizes = image.engine.lengthen_volume(image.volume, NEVER);
    assert_eq!(sizes.expect("as it was"), (BEFORE + BLOCK, BEFORE + BLOCK));
    image.engine.audit();
}

#[test]
fn of_the_last_block_alone_no_page_is_believed_any_more() {
    let image = Image::new("exclusive", None);
    image.read(0, BEFORE);
    image.append(&[2; BLOCK as usize]);
    image
        .engine
        .lengthen_volume(image.volume, NEVER)
        .expect("longer");
    image.demote(2, &[1; BLOCK as usize / 2]);
    let whole = [[1; BLOCK as usize / 2], [2; BLOCK as usize / 2]].concat();
    image.demote(2, &whole);
    let status = image.engine.status().demotions;
    assert_eq!(status.demotions_verified, 0, "{status:?}");
    for block in [0, 1] {
        image.demote(block, &[1; BLOCK as usize]);
    }
    let status = image.engine.status().demotions;
    assert_eq!(status.demotions_verified, 2, "{status:?}");
}

#[test]
fn an_image_that_became_shorter_is_refused_and_keeps_its_size() {
    let image = Image::new("lru", None);
    let file = OpenOptions::new().write(true).open(image.path());
    file.expect("the image").set_len(BLOCK).expect("shorter");
    let refused = image.engine.lengthen_volume(image.volume, NEVER);
    let message = refused.expect_err("it is shorter").to_string();
    assert!(
        message.contains("disk.img") && message.contains("fewer"),
        "{message}"
    );
    assert_eq!(image.engine.volume_bytes(image.volume), BEFORE);
}

#[test]
fn what_is_dirty_in_the_last_block_is_not_lost() {
    let image = Image::new("lru", Some(kept_up_to(1.0)));
    let data = IoBuf::copy_of(&[7; 100]);
    let offset = BEFORE - 100;
    let fua = false;
    image.read(0, BEFORE);
    let write = Operation::Write { offset, data, fua };
    image
        .engine
        .wait(image.volume, CLIENT, write)
        .expect("kept");
    assert_eq!(image.engine.status().dirty_blocks, 1);
    image.append(&[2; 100]);
    image
        .engine
        .lengthen_volume(image.volume, NEVER)
        .expect("longer");
    let wanted = [[7; 100], [2; 100]].concat();
    assert_eq!(image.read(offset, 200), wanted);
    let stored = fs::read(image.path()).expect("the image");
    assert_eq!(stored[offset as usize..], wanted);
}

#[test]
fn a_store_that_is_silent_is_not_waited_for_without_end() {
    let setup = setup_of(2 * BLOCK, "lru", 8, 3 * BLOCK, OnEviction::None);
    setup.store.hold(true);
    let read = setup.start(CLIENT, 0, setup.read(2, 1));
    let lengthen = || {
        let sizes = setup.engine.lengthen_volume(setup.volume, Duration::ZERO);
        sizes.expect_err("it does not become longer").to_string()
    };
    assert_eq!(lengthen(), "its store does not answer");
    // What was given up does not keep others away once the store answers.
    setup.store.hold(false);
    setup.store.release_all();
    take(&read).expect("answered").expect("read");
    let written = setup.start(CLIENT, 1, write(2 * BLOCK, &[2; 100]));
    take(&written).expect("answered").expect("written");
    let problem = lengthen();
    assert!(problem.contains("until it is opened again"), "{problem}");
    setup.engine.audit();
}
