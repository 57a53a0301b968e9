//! Where the blocks of a trace lie, for runs to which neighbours matter.

use crate::TraceErrorKind;
use futae_policy::VolumeId;

/// The places of a trace's blocks: 8 bytes a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// The blocks, by their volumes and their places there.
    blocks: Vec<Placed>,
    /// Where each volume begins among them.
    volumes: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placed {
    /// Its number in the order of first accesses.
    id: u32,
    /// How many blocks that are never accessed lie before it on its volume, after the last one that is; at most `u32::MAX`.
    left_out: u32,
}

/// Numbers in the order of places.
pub(super) struct Numbers {
    /// The new number of each block, by its old one.
    pub of: Vec<u32>,
    /// How many numbers there are.
    pub count: u32,
    /// The number at which each volume begins.
    pub volumes: Vec<u32>,
}

impl Places {
    /// The places of blocks, which are in the order of their numbers.
    pub fn of(blocks: Vec<(VolumeId, u64)>) -> Self {
        let mut blocks: Vec<_> = blocks.into_iter().zip(0_u32..).collect();
        blocks.sort_unstable();
        let mut places = Self::default();
        let mut before: Option<(VolumeId, u64)> = None;
        for ((volume, block), id) in blocks {
            let left_out = match before {
                Some((same, before)) if same == volume => block - before - 1,
                _ => {
                    places.volumes.push(places.blocks.len() as u32);
                    block
                }
            };
            let left_out = u32::try_from(left_out).unwrap_or(u32::MAX);
            places.blocks.push(Placed { id, left_out });
            before = Some((volume, block));
        }
        places
    }

    /// Numbers for the blocks, and for those that are never accessed: at most `gap` in each place between two others and at the begin
    /// of a volume, and `gap` at the end of each.
    pub fn numbers(&self, gap: u32) -> Result<Numbers, TraceErrorKind> {
        let mut numbers = Numbers {
            of: vec![0; self.blocks.len()],
            count: 0,
            volumes: Vec::with_capacity(self.volumes.len()),
        };
        let mut begins = self.volumes.iter().peekable();
        let mut next = 0_u32;
        let after = |number: u32, more: u32| {
            number
                .checked_add(more)
                .ok_or(TraceErrorKind::TooManyBlocks)
        };
        for (at, block) in (0..).zip(&self.blocks) {
            if begins.next_if_eq(&&at).is_some() {
                if at > 0 {
                    next = after(next, gap)?;
                }
                numbers.volumes.push(next);
            }
            let number = after(next, block.left_out.min(gap))?;
            numbers.of[block.id as usize] = number;
            next = after(number, 1)?;
        }
        numbers.count = after(next, gap)?;
        Ok(numbers)
    }
}
