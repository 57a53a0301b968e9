//! Blocks that clients give up and demote.

use crate::content::{Place, SECTOR, fill, place_at};
use crate::sim::Inside;
use futae_engine::{Demotion, IoBuf, Operation};

impl Inside {
    /// What client number `which` demotes: what it has, now or late; or anything at all where
    /// that is verified.
    pub(super) fn demote(&mut self, which: usize, offset: u64) -> Option<(Operation, u64)> {
        self.cover.demotions += 1;
        if self.config.verifies {
            return Some((self.forge(which, offset), 0));
        }
        let client = &mut self.clients[which];
        let is_late = !client.late.is_empty() && self.prng.below(2) == 0;
        let (sequence, offset, data) = if is_late {
            let which = self.prng.below(client.late.len() as u64) as usize;
            client.late.swap_remove(which)
        } else {
            let next = client.known.range(offset..).next();
            let first = *next.or_else(|| client.known.iter().next())?.0;
            let data = client.known.remove(&first)?;
            client.sequence += 1;
            let given_up = (client.sequence, first, data);
            if self.prng.below(3) == 0 && client.late.len() < 8 {
                client.late.push(given_up);
                return None;
            }
            given_up
        };
        // A part of a block is not to be taken for all of it.
        let sectors = data.len() as u64 / SECTOR;
        let kept = match self.prng.below(6) {
            0 => (1 + self.prng.below(sectors)) * SECTOR,
            _ => sectors * SECTOR,
        };
        let data = IoBuf::copy_of(&data[..kept as usize]);
        Some((Operation::Demote(Demotion::new(offset, data)), sequence))
    }

    /// A block that is true, or of another time, another place, torn, or nobody's.
    fn forge(&mut self, which: usize, offset: u64) -> Operation {
        let volume = self.clients[which].volume;
        let (block_bytes, bytes) = (self.config.block_bytes, self.config.volumes[volume]);
        let length = block_bytes.min(bytes - offset) as usize;
        let disk = self.volumes[volume].disk.bytes();
        let mut data = disk[offset as usize..][..length].to_vec();
        match self.prng.below(6) {
            0 => data[self.prng.below(length as u64) as usize] ^= 1,
            1 => {
                let from = self.prng.below(bytes - length as u64 + 1) as usize;
                data.copy_from_slice(&disk[from..from + length]);
            }
            2 => {
                let place = Place {
                    volume,
                    sector: offset / SECTOR,
                };
                let version = 1 + self.prng.below(self.next_version);
                let half = self.prng.below(length as u64 / SECTOR) * SECTOR;
                fill(&mut data[half as usize..], place_at(place, half), version);
            }
            3 => {
                let late = &mut self.clients[which].late;
                if late.len() > 8 {
                    late.remove(0);
                }
                late.push((0, offset, data.clone()));
            }
            4 => {
                if let Some((_, at, old)) = self.clients[which].late.first()
                    && *at == offset
                {
                    data.copy_from_slice(old);
                }
            }
            _ => {
                if let Some(known) = self.clients[which].known.get(&offset) {
                    data.copy_from_slice(known);
                }
            }
        }
        let data = IoBuf::copy_of(&data);
        match self.prng.below(2) {
            0 => Operation::Demote(Demotion::new(offset, data)),
            _ => Operation::Demote(Demotion::by_agent(offset, data)),
        }
    }
}
