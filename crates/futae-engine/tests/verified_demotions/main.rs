//! What is demoted enters the cache only if it is what the cache last served or was last given, however
//! requests overlap and from any client.

#[path = "../common/mod.rs"]
mod common;
mod races;
mod rules;

use common::{BLOCK, Setup, fresh, setup_writing, take};
use futae_engine::{
    ClientId, Demotion, DemotionStatus, IoBuf, OnEviction, OnRefusal, Operation, Verification,
    WriteBackOptions,
};

const PLAIN: Verification = Verification {
    memory_bytes: 1 << 20,
    on_refusal: OnRefusal::Drop,
    compare_with_store: false,
};

/// A cache of 4 slots over 64 blocks that verifies.
fn verifying(how: Verification) -> Setup {
    verifying_and_writing(how, None)
}

fn verifying_and_writing(how: Verification, write_back: Option<WriteBackOptions>) -> Setup {
    let bytes = 64 * BLOCK;
    let setup = setup_writing(BLOCK, "exclusive", 4, bytes, OnEviction::None, write_back);
    setup.engine.verify_demotions(how).expect("verification");
    setup
}

fn hand(setup: &Setup, block: u64, data: &[u8]) {
    let handed = Demotion::by_agent(block * BLOCK, IoBuf::copy_of(data));
    let answer = setup.start(ClientId::NOBODY, 0, Operation::Demote(handed));
    take(&answer).expect("answered at once").expect("taken");
    setup.engine.audit();
}

fn read(setup: &Setup, block: u64) -> Vec<u8> {
    let nobody = ClientId::NOBODY;
    let read = setup
        .engine
        .read_blocking(setup.volume, nobody, block * BLOCK, BLOCK);
    read.expect("a read").as_slice().to_vec()
}

fn status(setup: &Setup) -> DemotionStatus {
    setup.engine.status().demotions
}

/// Verified, unknown, different, busy, resident.
fn counts(setup: &Setup) -> [u64; 5] {
    let status = status(setup);
    [
        status.demotions_verified,
        status.demotions_unknown,
        status.demotions_different,
        status.demotions_busy,
        status.demotions_resident,
    ]
}
