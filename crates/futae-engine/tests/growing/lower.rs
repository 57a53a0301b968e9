//! An engine over files in memory.

use crate::common::{self, BLOCK, ManualStore, take};
use futae_engine::{
    ClientId, Engine, EngineOptions, IoBuf, IoError, OnEviction, Operation, Request, Store,
    WriteBackOptions,
};
use futae_policy::{Class, Prng, VolumeId};
use futae_testkit::manual_store::Inside;
use std::sync::Arc;
use std::time::Duration;

pub const CLIENT: ClientId = ClientId(0);

pub fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

pub fn engine(policy: &str, slots: u32) -> Arc<Engine> {
    engine_that(policy, slots, None)
}

/// One that keeps written blocks: up to half of the cache, and for so long.
pub fn writing_back(policy: &str, slots: u32, dirty_age_max: Duration) -> Arc<Engine> {
    let how = WriteBackOptions {
        dirty_max: 0.5,
        dirty_age_max,
    };
    engine_that(policy, slots, Some(how))
}

pub fn engine_that(policy: &str, slots: u32, write_back: Option<WriteBackOptions>) -> Arc<Engine> {
    let options = EngineOptions {
        block_bytes: BLOCK,
        capacity_blocks: slots,
        policy: policy.parse().expect("a policy"),
        seed: 1,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back,
    };
    Engine::new(&options).expect("an engine")
}

pub fn add(engine: &Engine, lower: &Arc<ManualStore>) -> VolumeId {
    let below = Arc::clone(lower) as Arc<dyn Store>;
    let volume = engine.add_growing_volume("a file", below, Class::NORMAL);
    volume.expect("a volume")
}

pub fn start(engine: &Arc<Engine>, volume: VolumeId, operation: Operation) -> common::Answer {
    let answer = common::Answer::default();
    let slot = Arc::clone(&answer);
    engine.submit(Request {
        volume,
        client: CLIENT,
        sequence: 0,
        operation,
        done: Box::new(move |result: Result<IoBuf, IoError>| {
            let result = result.map(|data| data.as_slice().to_vec());
            let before = slot.lock().expect("the answer").replace(result);
            assert!(before.is_none(), "answered twice");
        }),
    });
    answer
}

pub fn read(offset: u64, length: u64) -> Operation {
    Operation::Read { offset, length }
}

pub fn append(data: &[u8]) -> Operation {
    let data = IoBuf::copy_of(data);
    Operation::Append { data, fua: false }
}

/// The result of what nothing holds up.
pub fn now(engine: &Arc<Engine>, volume: VolumeId, operation: Operation) -> Vec<u8> {
    let answer = take(&start(engine, volume, operation));
    answer.expect("answered").expect("well")
}

/// One random operation on the cache and on a plain array of bytes.
pub fn step(
    engine: &Arc<Engine>,
    lower: &ManualStore,
    volume: VolumeId,
    model: &mut Vec<u8>,
    dice: &mut Prng,
) {
    let offset = dice.below(6 * BLOCK);
    let length = dice.below(3 * BLOCK);
    let data: Vec<u8> = (0..length).map(|_| dice.bits() as u8).collect();
    let wait = |operation| engine.wait(volume, CLIENT, operation).expect("well");
    let resize = |bytes: u64| {
        let work = || lower.set(|inside| inside.bytes.resize(bytes as usize, 0));
        engine.change_size(volume, bytes, work).expect("changed");
    };
    match dice.below(12) {
        0 => {
            resize(offset);
            model.resize(offset as usize, 0);
        }
        // Somebody else has been at it.
        1 => {
            let work = |inside: &mut Inside| put(&mut inside.bytes, offset as usize, &data);
            let done = engine.change(volume, 0, u64::MAX, || lower.set(work));
            done.expect("changed");
            put(model, offset as usize, &data);
        }
        2 => {
            wait(append(&data));
            model.extend(&data);
        }
        3..=6 if !data.is_empty() => {
            wait(common::write(offset, &data));
            put(model, offset as usize, &data);
        }
        _ => {
            let end = model.len().min((offset + length) as usize);
            let wanted = model.get(offset as usize..end).unwrap_or_default();
            assert!(
                wait(read(offset, length)).as_slice() == wanted,
                "{offset}+{length}"
            );
        }
    }
    if model.len() > 20 * BLOCK as usize {
        resize(0);
        model.clear();
    }
}
