//! Chains of descriptors in guest memory. Every descriptor is read once.

use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: u64 = 16;
const F_NEXT: u16 = 1;
const F_WRITE: u16 = 2;
const F_INDIRECT: u16 = 4;
/// Descriptors that an indirect table may have; one chain may have no more.
const CHAIN_MAX: u32 = 1024;

/// A piece of guest memory. Its range was checked to be memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) address: GuestAddress,
    pub(crate) length: u32,
}

/// The memory of one request: first what the device reads, then what it writes.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub(crate) readable: Vec<Segment>,
    pub(crate) writable: Vec<Segment>,
}

/// Why a chain cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChainError {
    #[error("a descriptor's number is beyond its table")]
    Number,
    #[error("a descriptor or its buffer is outside of the guest's memory")]
    Memory,
    #[error("a chain is longer than its table, or a loop")]
    Long,
    #[error("a buffer to read comes after a buffer to write")]
    Order,
    #[error("an indirect table is empty, has a part of a descriptor, or is in an indirect table")]
    Indirect,
}

impl Chain {
    /// Reads the chain that begins at descriptor `head` of a table with `size` entries. What was read up to an
    /// error is kept, so that its status byte may still be found.
    pub(crate) fn read(
        &mut self,
        memory: &GuestMemoryMmap,
        table: GuestAddress,
        size: u16,
        head: u16,
    ) -> Result<(), ChainError> {
        self.readable.clear();
        self.writable.clear();
        let (mut table, mut entries, mut is_indirect) = (table, u32::from(size), false);
        let (mut next, mut left) = (head, u32::from(size));
        loop {
            if u32::from(next) >= entries {
                return Err(ChainError::Number);
            }
            if left == 0 {
                return Err(ChainError::Long);
            }
            left -= 1;
            let at = table.checked_add(u64::from(next) * DESCRIPTOR_BYTES);
            let mut bytes = [0; DESCRIPTOR_BYTES as usize];
            let read = memory.read_slice(&mut bytes, at.ok_or(ChainError::Memory)?);
            read.map_err(|_| ChainError::Memory)?;
            let raw = u128::from_le_bytes(bytes);
            let address = GuestAddress(raw as u64);
            let (length, flags) = ((raw >> 64) as u32, (raw >> 96) as u16);
            next = (raw >> 112) as u16;
            if flags & F_INDIRECT != 0 {
                let count = length / DESCRIPTOR_BYTES as u32;
                let is_whole = length.is_multiple_of(DESCRIPTOR_BYTES as u32);
                if is_indirect || !is_whole || count == 0 || flags & F_NEXT != 0 {
                    return Err(ChainError::Indirect);
                }
                if count > CHAIN_MAX {
                    return Err(ChainError::Long);
                }
                (table, entries, left, next, is_indirect) = (address, count, count, 0, true);
                continue;
            }
            self.add(memory, Segment { address, length }, flags & F_WRITE != 0)?;
            if flags & F_NEXT == 0 {
                return Ok(());
            }
        }
    }

    fn add(
        &mut self,
        memory: &GuestMemoryMmap,
        segment: Segment,
        is_writable: bool,
    ) -> Result<(), ChainError> {
        if !memory.check_range(segment.address, segment.length as usize) {
            return Err(ChainError::Memory);
        }
        if is_writable {
            self.writable.push(segment);
        } else if self.writable.is_empty() {
            self.readable.push(segment);
        } else {
            return Err(ChainError::Order);
        }
        Ok(())
    }
}

/// Bytes of segments together.
pub(crate) fn length(segments: &[Segment]) -> u64 {
    segments
        .iter()
        .map(|segment| u64::from(segment.length))
        .sum()
}

/// Copies guest memory, from byte `skip` of the segments on, until `into` is full. Whether there was enough.
pub(crate) fn gather(
    memory: &GuestMemoryMmap,
    segments: &[Segment],
    skip: u64,
    mut into: &mut [u8],
) -> bool {
    let mut skip = skip;
    for segment in segments {
        let whole = u64::from(segment.length);
        if skip >= whole {
            skip -= whole;
            continue;
        }
        let length = ((whole - skip) as usize).min(into.len());
        let (now, rest) = into.split_at_mut(length);
        let at = GuestAddress(segment.address.0.saturating_add(skip));
        if length > 0 && memory.read_slice(now, at).is_err() {
            return false;
        }
        (into, skip) = (rest, 0);
    }
    into.is_empty()
}

/// Copies `from` to guest memory, from byte `skip` of the segments on; whether there was room for all of it.
pub(crate) fn scatter(
    memory: &GuestMemoryMmap,
    segments: &[Segment],
    mut skip: u64,
    mut from: &[u8],
) -> bool {
    for segment in segments {
        let whole = u64::from(segment.length);
        if skip >= whole {
            skip -= whole;
            continue;
        }
        let length = ((whole - skip) as usize).min(from.len());
        let (now, rest) = from.split_at(length);
        let at = GuestAddress(segment.address.0.saturating_add(skip));
        if length > 0 && memory.write_slice(now, at).is_err() {
            return false;
        }
        (from, skip) = (rest, 0);
    }
    from.is_empty()
}
