//! Volumes of more blocks than have numbers: the number of one beyond would be that of another volume's block.

mod common;

use common::{BLOCK, setup, take};
use futae_engine::{
    ClientId, IoBuf, IoErrorKind, OnEviction, Operation, Request, Store, StoreDone, StoreOperation,
};
use futae_policy::{BlockId, Class, VolumeId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const CLIENT: ClientId = ClientId(0);
const REACH: u64 = BlockId::INDEX_LIMIT * BLOCK;

/// Zeroes, of which there are more and more.
struct Zeroes(AtomicU64);

impl Store for Zeroes {
    fn size_bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn look_again(&self) -> Result<u64, futae_engine::IoError> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn describe(&self) -> String {
        "zeroes".to_owned()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, _sequence: u64, operation: StoreOperation, done: StoreDone) {
        done(Ok(match operation {
            StoreOperation::Read { buffer, .. } => IoBuf::zeroed(buffer.len()),
            StoreOperation::Write { buffer, .. } => buffer,
            _ => IoBuf::new(0),
        }));
    }
}

#[test]
fn a_volume_ends_where_the_numbers_of_its_blocks_do() {
    let setup = setup("lru", 8, 64, OnEviction::None);
    let add = |bytes| {
        let store = Arc::new(Zeroes(AtomicU64::new(bytes)));
        setup.engine.add_volume("long", store, Class::NORMAL)
    };
    let refused = add(REACH + 1).expect_err("too long").to_string();
    assert!(refused.contains("choose a larger --block"), "{refused}");
    let long = add(REACH).expect("as long as can be");
    let last = setup
        .engine
        .read_blocking(long, CLIENT, REACH - BLOCK, BLOCK);
    assert_eq!(last.expect("read").as_slice(), [0; BLOCK as usize]);
    let longer = setup.engine.lengthen_volume(long, Duration::ZERO);
    let refused = longer.expect_err("too long").to_string();
    assert!(refused.contains("more than"), "{refused}");
    assert_eq!(setup.engine.volume_bytes(long), REACH);
    setup.engine.audit();
}

#[test]
fn a_file_is_read_as_far_as_the_numbers_of_its_blocks_go() {
    let setup = setup("lru", 8, 64, OnEviction::None);
    let store = Arc::new(Zeroes(AtomicU64::new(REACH + 100)));
    let file = setup
        .engine
        .add_growing_volume("a file", store, Class::NORMAL);
    let file = file.expect("a volume");
    let read = |offset| ask(&setup, file, Operation::Read { offset, length: 1 });
    assert_eq!(read(REACH - 1).expect("read"), [0]);
    let refused = read(REACH).expect_err("too far");
    assert_eq!(refused.kind, IoErrorKind::OutOfRange);
    assert_eq!(read(REACH + 100).expect("behind its end"), []);
    let longer = setup.engine.change_size(file, REACH + 200, || ());
    longer.expect("longer");
    setup.engine.audit();
}

fn ask(
    setup: &common::Setup,
    volume: VolumeId,
    operation: Operation,
) -> Result<Vec<u8>, futae_engine::IoError> {
    let answer = common::Answer::default();
    let slot = Arc::clone(&answer);
    setup.engine.submit(Request {
        volume,
        client: CLIENT,
        sequence: 0,
        operation,
        done: Box::new(move |result| {
            let result = result.map(|data| data.as_slice().to_vec());
            *slot.lock().expect("answer") = Some(result);
        }),
    });
    take(&answer).expect("answered")
}
