//! When an entry is made, when it is removed, and which data is compared with it.

use super::mac::{Keys, Mac, Place};
use super::macs::Macs;
use super::options::Verification;
use super::table::{Table, Verdict};
use super::tally::DemotionStatus;
use super::verifier::Verifier;
use crate::engine::flights::Span;
use crate::engine::front::Engine;
use crate::engine::state::State;
use crate::engine::ticket::Ticket;
use crate::{IoBuf, IoError, SetupError, Store, StoreOperation};
use futae_policy::{BlockId, VolumeId};
use std::sync::atomic::Ordering;

/// The entries of a range of up to this many blocks are removed one by one; for a longer range, all
/// entries of its volume are.
const FORGOTTEN_BLOCKS_MAX: u64 = 1024;

impl Engine {
    /// Enables verification: demoted data ([`crate::Operation::Demote`]) enters the cache only if
    /// it is what the cache last served or last received for its block. It then does not matter
    /// which client demotes it or when, and a volume may have several clients. Call it before the
    /// first request; later calls have no effect.
    ///
    /// # Errors
    ///
    /// Blocks are loaded in pieces (they are larger than 1 MiB), the operating system provides no
    /// random key, or there is no memory for the hashes.
    pub fn verify_demotions(&self, options: Verification) -> Result<(), SetupError> {
        let mut state = self.lock();
        if state.verifier.is_some() {
            return Ok(());
        }
        if state.in_pieces() {
            let bytes = self.block_bytes;
            let message = format!(
                "blocks of {bytes} bytes are loaded in pieces, and what is demoted cannot be \
                 verified; choose blocks of 1MiB at most"
            );
            return Err(SetupError::Size(message));
        }
        let keys = match self.keys.get() {
            Some(keys) => keys.clone(),
            None => Keys::draw()?,
        };
        let table = Table::new(keys.clone(), options.memory_bytes)?;
        state.verifier = Some(Box::new(Verifier {
            table,
            options,
            sharing: None,
        }));
        // The state is locked: no other thread sets the keys. If there is a memory file, its keys
        // are used.
        let _ = self.keys.set(keys);
        self.verifies.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether demotions are verified.
    pub(in crate::engine) fn verifies_demotions(&self) -> bool {
        self.verifies.load(Ordering::Acquire)
    }

    /// Whether most of the data recently demoted for a volume was refused as different. Its sender
    /// may then stop demoting (the guest's blocks are not the volume's, as under dm-crypt).
    pub fn keeps_differing(&self, volume: VolumeId) -> bool {
        let state = self.lock();
        let known = state.volumes.get(usize::from(volume.0));
        known.is_some_and(|known| known.demotions.keeps_differing())
    }

    /// Records what is needed of a store operation before it begins, if its data is hashed when it
    /// ends.
    pub(in crate::engine) fn begun(
        &self,
        ticket: Ticket,
        store: &dyn Store,
        operation: &StoreOperation,
    ) -> Option<Begun> {
        self.keys.get()?;
        let (StoreOperation::Read { offset, .. } | StoreOperation::Write { offset, .. }) =
            operation
        else {
            return None;
        };
        let is_of_blocks = matches!(
            ticket,
            Ticket::Flight(_) | Ticket::Write(_) | Ticket::Run(_)
        );
        is_of_blocks.then(|| Begun {
            offset: *offset,
            generation: store.generation(),
        })
    }

    /// The hashes of the data that a store operation carried, computed before the lock is taken.
    pub(in crate::engine) fn macs(
        &self,
        begun: Option<Begun>,
        result: &Result<IoBuf, IoError>,
    ) -> Macs {
        let (Some(keys), Some(begun), Ok(data)) = (self.keys.get(), begun, result) else {
            return Macs::default();
        };
        let mut macs = Macs::make(keys, self.block_bytes, begun.offset, data.as_slice());
        macs.generation = begun.generation;
        macs
    }
}

/// A store operation that has begun.
pub(in crate::engine) struct Begun {
    offset: u64,
    generation: u64,
}

impl State {
    /// A read from a store is about to end: the data it returned is the content of its blocks,
    /// since no write of them has begun. A read of partial blocks does not exclude writes, and is
    /// ignored.
    pub fn note_read(&mut self, key: usize, result: &Result<IoBuf, IoError>, macs: &Macs) {
        let Some(verifier) = &self.verifier else {
            return;
        };
        let flight = &self.under_way.flights[key];
        let (Some(span), Ok(data), true) = (flight.span, result, flight.whole) else {
            return;
        };
        if data.len() as u64 != span.length {
            return;
        }
        if verifier.options.compare_with_store {
            self.compare(key, span, data);
        }
        let (first, end) = self.block_range(&span);
        for index in first..end {
            self.know(BlockId::new(span.volume, index), &span, macs);
        }
    }

    /// A write has ended for `block` and the store has it, or a write-back after which the block is
    /// clean. `span` is the range that was written.
    pub fn know(&mut self, block: BlockId, span: &Span, macs: &Macs) {
        if self.verifier.is_none() {
            return;
        }
        let of = self.block_span(block);
        let mac = macs
            .of(block.index())
            .filter(|_| of.overlap(span) == Some(of));
        let is_fixed = !self.volumes[usize::from(block.volume().0)].grows;
        let (Some(mac), true) = (mac, is_fixed) else {
            return self.forget_block(block);
        };
        let of = |keys: &Keys, era| place(keys, block, macs.generation, era);
        self.with_table(block.volume(), |table, era| {
            let place = of(table.keys(), era);
            table.set(&place, mac);
        });
        self.hold_once(block, mac);
    }

    /// The content of a block is unknown, or the store does not have it yet.
    pub fn forget_block(&mut self, block: BlockId) {
        if self.verifier.is_none() {
            return;
        }
        let generation = self.store_generation(block.volume());
        self.with_table(block.volume(), |table, era| {
            let place = place(table.keys(), block, generation, era);
            table.remove(&place);
        });
    }

    /// The content of these blocks is unknown.
    pub fn forget_contents(&mut self, blocks: &Span) {
        if self.verifier.is_none() {
            return;
        }
        let (first, end) = self.block_range(blocks);
        if end - first > FORGOTTEN_BLOCKS_MAX {
            self.volumes[usize::from(blocks.volume.0)].era += 1;
            return;
        }
        for index in first..end {
            self.forget_block(BlockId::new(blocks.volume, index));
        }
    }

    /// The hash of a block's content, if it is known and no write to the block is under way.
    pub fn known(&mut self, block: BlockId) -> Option<Mac> {
        if self.under_way.write_over(&self.block_span(block)).is_some() {
            return None;
        }
        let generation = self.store_generation(block.volume());
        self.with_table(block.volume(), |table, era| {
            let place = place(table.keys(), block, generation, era);
            table.get(&place)
        })?
    }

    /// Compares the hash of demoted data with the known hash of its block.
    pub fn check(&mut self, block: BlockId, mac: Option<Mac>) -> Verdict {
        let generation = self.store_generation(block.volume());
        let Some(mac) = mac else {
            return Verdict::Unknown;
        };
        let verdict = self.with_table(block.volume(), |table, era| {
            let place = place(table.keys(), block, generation, era);
            table.check(&place, mac)
        });
        verdict.unwrap_or(Verdict::Unknown)
    }

    /// Counts of verified and refused demotions, and the memory of the hashes.
    pub fn demotion_status(&self) -> DemotionStatus {
        let mut status = self.demotions.status();
        if let Some(Verifier { table, sharing, .. }) = self.verifier.as_deref() {
            status.hash_entries = table.entries();
            status.hash_entries_max = table.room();
            status.hash_bytes = table.bytes();
            if let Some(sharing) = sharing {
                status.hash_bytes += sharing.bytes();
                status.equal_reads = sharing.equal_reads;
                status.equal_dropped = sharing.equal_dropped;
            }
        }
        status
    }

    fn store_generation(&self, volume: VolumeId) -> u64 {
        self.volumes[usize::from(volume.0)].store.generation()
    }

    fn with_table<T>(
        &mut self,
        volume: VolumeId,
        work: impl FnOnce(&mut Table, u64) -> T,
    ) -> Option<T> {
        let era = self.volumes[usize::from(volume.0)].era;
        let verifier = self.verifier.as_mut()?;
        Some(work(&mut verifier.table, era))
    }
}

fn place(keys: &Keys, block: BlockId, generation: u64, era: u64) -> Place {
    keys.place(block.volume().0, block.index(), generation, era)
}
