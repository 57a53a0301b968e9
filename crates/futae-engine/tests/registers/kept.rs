//! Caches that take over each other's memory, after a kill or a clean end, with another size, another policy, and a wrong bit
//! now and then. Meanwhile volumes come, go and become longer, and others change the disks between two lives.

mod lives;
mod world;

use crate::disk::SECTOR;
use crate::model::EQUAL_MAX;
use futae_engine::{ClientId, Demotion, IoBuf, Operation};
use std::time::Duration;
use world::{POLICIES, Pending, Run, Seen, What};

impl Run {
    /// A disk that is a volume.
    fn any_disk(&mut self) -> Option<usize> {
        let those = (0..self.disks.len()).filter(|&at| self.disks[at].volume.is_some());
        let those: Vec<_> = those.collect();
        let count = those.len() as u64;
        (count > 0).then(|| those[self.prng.below(count) as usize])
    }

    fn span(&mut self, at: usize) -> (u64, u64) {
        let of_block = self.block_bytes / SECTOR;
        let (all, prng) = (self.disks[at].model.sectors(), &mut self.prng);
        let (first, sectors) = match prng.below(3) {
            0 => (prng.below(all), 1 + prng.below(2 * of_block)),
            1 => (prng.below(all) / of_block * of_block, of_block),
            _ => {
                let first = prng.below(all) / of_block * of_block;
                (first, (1 + prng.below(4)) * of_block)
            }
        };
        (first, sectors.min(all - first))
    }

    fn start(&mut self) {
        let Some(at) = self.any_disk() else { return };
        let (first, sectors) = self.span(at);
        let (offset, length) = (first * SECTOR, sectors * SECTOR);
        let fua = self.prng.below(4) == 0;
        let zero = Some(0);
        let (operation, what, value) = match self.prng.below(24) {
            0 | 1 => (Operation::Flush, What::Flush, None),
            2 => (Operation::Trim { offset, length }, What::Write(false), zero),
            3 => {
                let zeroes = Operation::WriteZeroes {
                    offset,
                    length,
                    fua,
                    no_hole: false,
                };
                (zeroes, What::Write(fua), zero)
            }
            4..=11 => {
                let value = match self.prng.below(3) {
                    0 => 1 + self.prng.below(EQUAL_MAX),
                    _ => EQUAL_MAX + 1 + self.event,
                };
                let data = self.disks[at].model.data(value, first, sectors);
                let data = IoBuf::copy_of(&data);
                let write = Operation::Write { offset, data, fua };
                (write, What::Write(fua), Some(value))
            }
            12 => (Operation::Notice { offset, length }, What::Hint, None),
            13 | 14 => {
                // What the disk has may be what was there before.
                let bytes = self.disks[at].disk.with(|inside| inside.bytes.clone());
                let data = IoBuf::copy_of(&bytes[offset as usize..][..length as usize]);
                let demotion = Demotion::by_agent(offset, data);
                (Operation::Demote(demotion), What::Hint, None)
            }
            _ => (Operation::Read { offset, length }, What::Read, None),
        };
        let (request, answer) = self.request(at, self.client, operation);
        let begun = self.event;
        if let Some(value) = value {
            self.disks[at].model.begin(value, (first, sectors), begun);
        }
        self.pending.push(Pending {
            answer,
            disk: at,
            first,
            sectors,
            begun,
            what,
        });
        self.batch.push(request);
    }

    fn submit(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        match self.prng.below(2) {
            0 => self.engine.submit_batch(&mut batch),
            _ => batch
                .into_iter()
                .for_each(|request| self.engine.submit(request)),
        }
    }

    /// Takes a volume out, or brings one in.
    fn come_or_go(&mut self) {
        let at = self.prng.below(self.disks.len() as u64) as usize;
        let Some(volume) = self.disks[at].volume else {
            return self.add(at);
        };
        self.settle(at);
        // Each attempt is one step.
        let mut taken = self.engine.take_out_volume(volume, Duration::ZERO);
        for _ in 0..200 {
            self.release_one(false);
            if taken.is_ok() {
                break;
            }
            taken = self.engine.take_out_volume(volume, Duration::ZERO);
        }
        taken.expect("it is clean, and nothing is under way");
        self.disks[at].volume = None;
        self.seen.removed += 1;
    }

    /// Somebody makes a disk longer.
    fn lengthen(&mut self) {
        let Some(at) = self.any_disk() else { return };
        let (more, value) = (1 + self.prng.below(20), 1 + self.prng.below(EQUAL_MAX));
        let known = &mut self.disks[at];
        let volume = known.volume.expect("a volume");
        let length = known.disk.with(|inside| inside.bytes.len() as u64);
        if length > 24 * self.block_bytes {
            return;
        }
        let data = known.model.data(value, length / SECTOR, more);
        known.disk.change(|bytes| bytes.extend(data));
        let sizes = self.engine.lengthen_volume(volume, Duration::ZERO);
        let known = &mut self.disks[at];
        if let Ok((_, after)) = sizes {
            let bytes = known.disk.with(|inside| inside.bytes.clone());
            assert_eq!(after, bytes.len() as u64);
            known.model.lengthen(&bytes);
            self.seen.lengthened += 1;
        }
    }

    fn step(&mut self) {
        let begun = self.event;
        match self.prng.below(100) {
            0..45 => {
                for _ in 0..1 + self.prng.below(3) {
                    if self.pending.len() < 16 {
                        self.start();
                    }
                }
                self.submit();
            }
            45..88 => drop(self.release_one(true)),
            88..93 => {
                self.clock.pass([1, 20, 600][self.prng.below(3) as usize]);
                self.engine.tick();
            }
            93 | 94 => {
                let slots = 1 + self.prng.below(24) as u32;
                // Some policies need more.
                if self.engine.resize(slots).is_ok() {
                    self.slots = slots;
                }
            }
            95 => {
                let other = POLICIES[self.prng.below(POLICIES.len() as u64) as usize];
                let other = other.parse().expect("a policy");
                self.engine.change_policy(&other).expect("a change");
            }
            96 => self.lengthen(),
            97 => self.come_or_go(),
            98 if self.prng.below(2) == 0 => self.restart(),
            _ => self.engine.save_memory_order(),
        }
        self.collect();
        self.check(begun);
    }
}

fn run(seed: u64, steps: u64) -> Seen {
    let mut run = Run::new(seed);
    run.client = ClientId(1);
    for _ in 0..steps {
        run.step();
    }
    run.restart();
    for at in 0..run.disks.len() {
        if run.disks[at].volume.is_some() {
            run.settle(at);
        }
    }
    run.engine.audit();
    std::mem::take(&mut run.seen)
}

#[test]
fn what_is_kept_is_what_the_disks_have() {
    let mut all = Seen::default();
    for seed in crate::seeds(24) {
        println!("seed {seed}");
        all.add(&run(seed, 1500));
    }
    let is_rich = all.found.min(all.removed).min(all.lengthened) > 150;
    let is_used = all.verified.min(all.equal_reads) > 50 && all.refused > 0;
    assert!(is_rich && is_used, "too little was tried: {all:?}");
    assert!(all.failed > 100 && all.write_backs > 1000, "{all:?}");
}
