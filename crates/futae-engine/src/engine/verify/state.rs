//! When an entry is made, when it is removed, and what data is held against it.

use super::mac::{Keys, Mac, Place};
use super::macs::Macs;
use super::options::Verification;
use super::table::{Table, Verdict};
use super::tally::HandedDownStatus;
use super::verifier::Verifier;
use crate::engine::effects::Ticket;
use crate::engine::flights::Span;
use crate::engine::front::Engine;
use crate::engine::state::State;
use crate::{IoBuf, IoError, SetupError, Store, StoreOperation};
use futae_policy::{BlockId, VolumeId};
use std::sync::atomic::Ordering;

/// The entries of a range of no more blocks are removed one by one; of a longer one, all of its volume.
const FORGOTTEN_BLOCKS_MAX: u64 = 1024;

impl Engine {
    /// From now on data that is handed down ([`crate::Operation::HandDown`], and
    /// [`crate::Operation::Demote`], too) enters the cache only if it is what the cache last served or was
    /// last given for its block. Then it does not matter who hands it down and when, and a volume may have
    /// several clients. Call it before the first request; later calls change nothing.
    ///
    /// # Errors
    ///
    /// Blocks are loaded in pieces (they are larger than 1 MiB), the operating system draws no key, or there
    /// is no memory for the hashes.
    pub fn verify_hand_downs(&self, options: Verification) -> Result<(), SetupError> {
        let mut state = self.lock();
        if state.verifier.is_some() {
            return Ok(());
        }
        if state.in_pieces() {
            let bytes = self.block_bytes;
            let message = format!(
                "blocks of {bytes} bytes are loaded in pieces, and what is handed down cannot be \
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
        // The state is locked: nobody else sets them. They are those of the memory file if there is one.
        let _ = self.keys.set(keys);
        self.verifies.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether data that is handed down is verified.
    pub(in crate::engine) fn verifies_hand_downs(&self) -> bool {
        self.verifies.load(Ordering::Acquire)
    }

    /// Whether most of the data that was lately handed down for a volume was refused as different: its
    /// sender may as well stop (the guest's blocks are not the volume's, as under dm-crypt).
    pub fn keeps_differing(&self, volume: VolumeId) -> bool {
        let state = self.lock();
        let known = state.volumes.get(usize::from(volume.0));
        known.is_some_and(|known| known.handed_down.keeps_differing())
    }

    /// What has to be known of a store operation before it begins, where it is hashed when it is over.
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

    /// The hashes of what a store operation brought or took, made before the lock is taken.
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
    /// A read from a store is about to be over: what it brought is what its blocks hold, since no write of
    /// them has begun. A read of parts of blocks keeps no write away, and says nothing.
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

    /// A write that the store has is over for `block`, or a write-back after which it is clean: `span` is
    /// what was written.
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

    /// Nobody knows what a block holds, or the store does not have it yet.
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

    /// Nobody knows what is in these blocks.
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

    /// The hash of what a block holds, if it is known and nothing is being written there.
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

    /// Holds the hash of data that was handed down against what is known of its block.
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

    /// What became of data that was handed down, and what the hashes take.
    pub fn handed_down_status(&self) -> HandedDownStatus {
        let mut status = self.handed_down.status();
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
