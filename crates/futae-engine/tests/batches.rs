//! Requests that are handed over together are answered as they would be one by one.

use futae_engine::{
    Engine, EngineOptions, FileStore, IoBuf, IoError, IoErrorKind, OnEviction, Operation, Request,
};
use futae_policy::Class;
use std::sync::{Arc, mpsc};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 64;

fn expected(offset: u64, length: u64) -> Vec<u8> {
    (offset..offset + length)
        .map(|at| (at / 512 + at % 251) as u8)
        .collect()
}

#[test]
fn a_batch_of_hits_misses_writes_and_impossible_reads() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), expected(0, BLOCKS * BLOCK)).expect("an image");
    let engine = Engine::new(&EngineOptions {
        block_bytes: BLOCK,
        capacity_blocks: 32,
        policy: "lru".parse().expect("a policy"),
        seed: 1,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back: None,
    })
    .expect("an engine");
    let store = Arc::new(FileStore::open(file.path(), false).expect("a store"));
    let volume = engine
        .add_volume("v", store, Class::NORMAL)
        .expect("a volume");
    let client = engine.join(volume);
    engine
        .read_blocking(volume, client, 0, 16 * BLOCK)
        .expect("to have some hits");
    let read = |offset, length| Operation::Read { offset, length };
    let write = Operation::Write {
        offset: 3 * BLOCK,
        data: IoBuf::copy_of(&[0xEE; BLOCK as usize]),
        fua: false,
    };
    let operations = [
        read(5 * BLOCK, BLOCK),
        read(5 * BLOCK + 4095, 1),
        read(2 * BLOCK + 100, 3000),
        read(14 * BLOCK, 4 * BLOCK),
        read(40 * BLOCK, BLOCK),
        read(0, 0),
        read(BLOCKS * BLOCK - 1, 2),
        read(1 << 61, BLOCK),
        read(u64::MAX, u64::MAX),
        read(u64::MAX - BLOCK + 1, BLOCK),
        write,
        read(3 * BLOCK, BLOCK),
    ];
    let wanted: Vec<Option<Vec<u8>>> = operations
        .iter()
        .map(|operation| match *operation {
            Operation::Read { offset, .. } if offset == 3 * BLOCK => {
                Some(vec![0xEE; BLOCK as usize])
            }
            Operation::Read { offset, length } => {
                let fits = offset
                    .checked_add(length)
                    .is_some_and(|end| end <= BLOCKS * BLOCK);
                fits.then(|| expected(offset, length))
            }
            _ => Some(Vec::new()),
        })
        .collect();
    let (sender, results) = mpsc::channel::<(usize, Result<IoBuf, IoError>)>();
    let mut batch: Vec<Request> = operations
        .into_iter()
        .enumerate()
        .map(|(at, operation)| {
            let sender = sender.clone();
            Request {
                volume,
                client,
                sequence: 0,
                operation,
                done: Box::new(move |result| sender.send((at, result)).expect("a receiver")),
            }
        })
        .collect();
    engine.submit_batch(&mut batch);
    assert!(batch.is_empty());
    drop((batch, sender));
    let mut answered = 0;
    for (at, result) in results {
        answered += 1;
        match (result, &wanted[at]) {
            (Ok(data), Some(wanted)) => assert!(data.as_slice() == wanted, "request {at}"),
            (Err(error), None) => assert_eq!(error.kind, IoErrorKind::OutOfRange, "request {at}"),
            (result, _) => panic!("request {at}: {result:?}"),
        }
    }
    assert_eq!(answered, wanted.len());
    engine.audit();
}
