//! Chains of descriptors in guest memory. Every descriptor is read once.

use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: u64 = 16;
const F_NEXT: u16 = 1;
const F_WRITE: u16 = 2;
const F_INDIRECT: u16 = 4;
/// The largest number of descriptors in an indirect table, and in a chain.
const CHAIN_MAX: u32 = 1024;

/// A longer list of segments is freed with its request.
const KEPT_SEGMENTS: usize = 64;

/// A piece of guest memory. Its range has been validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) address: GuestAddress,
    pub(crate) length: u32,
}

/// The memory of one request: first the segments that the device reads, then those that it writes.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub(crate) readable: Vec<Segment>,
    pub(crate) writable: Vec<Segment>,
}

/// Why a chain is malformed.
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
    /// Reads the chain that begins at descriptor `head` of a table with `size` entries. Segments
    /// read before an error are kept, so that the status byte may still be found.
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

    /// Bytes of memory that lists of many segments take.
    pub(crate) fn long_bytes(&self) -> u64 {
        let lists = [&self.readable, &self.writable].map(Vec::capacity);
        let long = lists
            .into_iter()
            .filter(|&segments| segments > KEPT_SEGMENTS);
        (long.sum::<usize>() * size_of::<Segment>()) as u64
    }

    /// Frees lists of many segments: each of a queue's descriptors may have been the head of one.
    pub(crate) fn free_long(&mut self) {
        for list in [&mut self.readable, &mut self.writable] {
            if list.capacity() > KEPT_SEGMENTS {
                *list = Vec::new();
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

/// The total length of the segments in bytes.
pub(crate) fn length(segments: &[Segment]) -> u64 {
    segments
        .iter()
        .map(|segment| u64::from(segment.length))
        .sum()
}

/// Copies guest memory, from byte `skip` of the segments on, until `into` is full. Returns whether
/// the segments sufficed.
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

/// Copies `from` to guest memory, from byte `skip` of the segments on. Returns whether all of it
/// fit.
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

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 1 << 16;
    const TABLE: GuestAddress = GuestAddress(0x1000);
    const SIZE: u16 = 8;

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), BYTES)]).expect("memory")
    }

    /// Writes descriptor `at` of a table.
    fn put(
        memory: &GuestMemoryMmap,
        table: GuestAddress,
        at: u16,
        (address, length): (u64, u32),
        flags: u16,
        next: u16,
    ) {
        let raw = u128::from(address)
            | u128::from(length) << 64
            | u128::from(flags) << 96
            | u128::from(next) << 112;
        let to = GuestAddress(table.0 + u64::from(at) * DESCRIPTOR_BYTES);
        memory.write_slice(&raw.to_le_bytes(), to).expect("room");
    }

    fn read(memory: &GuestMemoryMmap, head: u16) -> Result<(usize, usize), ChainError> {
        let mut chain = Chain::default();
        chain.read(memory, TABLE, SIZE, head)?;
        Ok((chain.readable.len(), chain.writable.len()))
    }

    #[test]
    fn a_chain_is_read_in_its_order_and_also_from_an_indirect_table() {
        let memory = memory();
        put(&memory, TABLE, 0, (0x2000, 16), F_NEXT, 3);
        put(&memory, TABLE, 3, (0x3000, 4096), F_NEXT | F_WRITE, 5);
        put(&memory, TABLE, 5, (0x4000, 1), F_WRITE, 0);
        assert_eq!(read(&memory, 0), Ok((1, 2)));
        let indirect = GuestAddress(0x5000);
        put(&memory, TABLE, 1, (indirect.0, 32), F_INDIRECT, 0);
        put(&memory, indirect, 0, (0x2000, 16), F_NEXT, 1);
        put(&memory, indirect, 1, (0x4000, 1), F_WRITE, 0);
        assert_eq!(read(&memory, 1), Ok((1, 1)));
    }

    #[test]
    fn chains_that_a_hostile_guest_makes_are_refused() {
        let memory = memory();
        let end = BYTES as u64;
        let try_one = |place: (u64, u32), flags: u16, next: u16| {
            put(&memory, TABLE, 0, place, flags, next);
            read(&memory, 0)
        };
        assert_eq!(
            try_one((0x2000, 16), F_NEXT, 0),
            Err(ChainError::Long),
            "a loop"
        );
        assert_eq!(try_one((0x2000, 16), F_NEXT, SIZE), Err(ChainError::Number));
        assert_eq!(try_one((end - 8, 16), 0, 0), Err(ChainError::Memory));
        assert_eq!(try_one((u64::MAX - 8, 16), 0, 0), Err(ChainError::Memory));
        assert_eq!(try_one((0, u32::MAX), F_WRITE, 0), Err(ChainError::Memory));
        for (length, flags) in [(0, 0), (8, 0), (24, 0), (32, F_NEXT)] {
            let refused = try_one((0x5000, length), F_INDIRECT | flags, 1);
            assert_eq!(refused, Err(ChainError::Indirect), "{length} bytes");
        }
        let many = (CHAIN_MAX + 1) * DESCRIPTOR_BYTES as u32;
        assert_eq!(
            try_one((0x5000, many), F_INDIRECT, 0),
            Err(ChainError::Long)
        );
        let outside = try_one((end - 8, 32), F_INDIRECT, 0);
        assert_eq!(
            outside,
            Err(ChainError::Memory),
            "a table outside of memory"
        );
        put(
            &memory,
            GuestAddress(0x5000),
            0,
            (0x6000, 32),
            F_INDIRECT,
            0,
        );
        let nested = try_one((0x5000, 32), F_INDIRECT, 0);
        assert_eq!(nested, Err(ChainError::Indirect), "a table in a table");
        put(&memory, TABLE, 1, (0x2000, 16), 0, 0);
        assert_eq!(
            try_one((0x3000, 16), F_NEXT | F_WRITE, 1),
            Err(ChainError::Order)
        );
        let mut chain = Chain::default();
        assert_eq!(
            chain.read(&memory, TABLE, SIZE, SIZE),
            Err(ChainError::Number)
        );
        let beyond = GuestAddress(u64::MAX - 4);
        assert_eq!(
            chain.read(&memory, beyond, SIZE, 1),
            Err(ChainError::Memory)
        );
    }

    #[test]
    fn only_lists_of_many_segments_are_counted_and_freed() {
        let memory = memory();
        let indirect = GuestAddress(0x5000);
        let mut chain = Chain::default();
        for (count, is_long) in [(KEPT_SEGMENTS as u32, false), (CHAIN_MAX, true)] {
            let bytes = count * DESCRIPTOR_BYTES as u32;
            put(&memory, TABLE, 0, (indirect.0, bytes), F_INDIRECT, 0);
            for at in 0..count as u16 {
                let flags = if u32::from(at) + 1 < count { F_NEXT } else { 0 };
                put(&memory, indirect, at, (0x2000, 1), flags, at + 1);
            }
            chain.read(&memory, TABLE, SIZE, 0).expect("a chain");
            assert_eq!(chain.readable.len(), count as usize);
            let list_bytes = u64::from(count) * size_of::<Segment>() as u64;
            assert_eq!(chain.long_bytes() >= list_bytes, is_long);
            chain.free_long();
            assert_eq!(
                (chain.long_bytes(), chain.readable.is_empty()),
                (0, is_long)
            );
        }
    }

    #[test]
    fn data_are_scattered_and_gathered_over_segments_from_any_byte_on() {
        let memory = memory();
        let segment = |address, length| Segment {
            address: GuestAddress(address),
            length,
        };
        let segments = [segment(0x2000, 3), segment(0x3000, 0), segment(0x4000, 5)];
        assert!(scatter(&memory, &segments, 0, b"abcdefgh"));
        assert!(scatter(&memory, &segments, 2, b"XY"));
        let mut back = [0; 8];
        assert!(gather(&memory, &segments, 0, &mut back));
        assert_eq!(&back, b"abXYefgh");
        let mut tail = [0; 4];
        assert!(gather(&memory, &segments, 4, &mut tail));
        assert_eq!(&tail, b"efgh");
        assert!(
            !scatter(&memory, &segments, 1, b"abcdefgh"),
            "one byte too many"
        );
        assert!(!gather(&memory, &segments, 5, &mut tail));
        assert!(!scatter(&memory, &[segment(u64::MAX - 1, 8)], 4, b"abcd"));
        assert_eq!(length(&segments), 8);
    }
}
