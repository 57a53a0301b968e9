//! The lives of the caches of a run: how each begins and ends.

use super::world::{Known, POLICIES, Run};
use crate::asked::Alone;
use crate::disk::{Clock, SECTOR};
use crate::model::EQUAL_MAX;
use futae_engine::{
    Engine, EngineOptions, MemoryFile, MemoryTrust, OnEviction, OnRefusal, Verification,
    WriteBackOptions,
};
use futae_policy::Prng;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

impl Run {
    pub fn options(prng: &mut Prng, block_bytes: u64) -> EngineOptions {
        let writes_back = prng.below(3) > 0;
        let policy = POLICIES[prng.below(POLICIES.len() as u64) as usize];
        EngineOptions {
            block_bytes,
            capacity_blocks: 1 + prng.below(20) as u32,
            policy: policy.parse().expect("a policy"),
            seed: 1,
            on_eviction: match prng.below(3) {
                0 => OnEviction::Demote,
                _ => OnEviction::None,
            },
            decision_log: None,
            write_back: writes_back.then(|| WriteBackOptions {
                dirty_max: [0.2, 0.6, 1.0][prng.below(3) as usize],
                dirty_age_max: Duration::from_millis([0, 40, 5000][prng.below(3) as usize]),
            }),
        }
    }

    pub fn engine(
        options: &EngineOptions,
        clock: &Arc<Clock>,
        disks: &[Known],
        prng: &mut Prng,
    ) -> Arc<Engine> {
        let all = disks.iter().map(|it| Arc::clone(&it.disk)).collect();
        let world = Alone::new(clock, all, Prng::new(prng.bits()));
        Engine::in_world(options, Arc::new(world)).expect("a cache")
    }

    fn memory(&self) -> PathBuf {
        self.folder.path().join(format!("memory-{}", self.life))
    }

    /// Gives a new cache its memory and its volumes.
    pub fn fill(&mut self) {
        let memory = MemoryFile::open(&self.memory(), self.block_bytes, self.slots, None);
        let trust = match self.has_stamps {
            true => MemoryTrust::Files,
            false => MemoryTrust::Devices,
        };
        let engine = &self.engine;
        let memory = memory.expect("memory");
        engine.keep_memory(memory, trust).expect("kept");
        self.shares = self.prng.below(2) == 0;
        if self.shares || self.prng.below(2) == 0 {
            let how = Verification {
                memory_bytes: 20 * 16 * (1 + self.prng.below(8)),
                on_refusal: OnRefusal::Notice,
                compare_with_store: false,
            };
            engine.verify_demotions(how).expect("keys");
        }
        if self.shares {
            engine.share_equal().expect("hints");
        }
        if self.prng.below(2) == 0 {
            engine.set_step_blocks(1 + self.prng.below(3));
        }
        for at in 0..self.disks.len() {
            if self.prng.below(5) > 0 || at == 0 {
                self.add(at);
            }
        }
        self.seen.found += self.engine.recall_memory();
        self.dirty_before = 0;
    }

    /// The cache ends, well or by a kill, and another one takes over.
    pub fn restart(&mut self) {
        let is_kill = self.prng.below(2) == 0;
        let before = self.memory();
        if !is_kill {
            for at in 0..self.disks.len() {
                if self.disks[at].volume.is_some() {
                    self.settle(at);
                }
            }
            self.drain();
            self.clock.pass(30);
            self.engine.leave_memory();
            assert_eq!(
                self.engine.buffer_bytes(),
                0,
                "buffers are never given back"
            );
        }
        let status = self.engine.status();
        self.seen.write_backs += status.write_back_blocks;
        self.seen.equal_reads += status.demotions.equal_reads;
        let memory = self.engine.memory_status();
        self.seen.verified += memory.memory_verified_blocks;
        self.seen.refused += memory.memory_refused_blocks;
        // What the old one does from here on does not reach the copy.
        self.life += 1;
        fs::copy(&before, self.memory()).expect("a copy");
        for known in &self.disks {
            known.disk.abandon(&mut self.prng);
        }
        self.pending.clear();
        fs::remove_file(before).expect("the old one");
        if self.prng.below(4) == 0 {
            self.flip();
        }
        self.clock.pass(30);
        let options = Self::options(&mut self.prng, self.block_bytes);
        (self.slots, self.how) = (options.capacity_blocks, options.write_back);
        self.engine = Self::engine(&options, &self.clock, &self.disks, &mut self.prng);
        for known in &mut self.disks {
            known.volume = None;
            // What crashes leave was checked all along; what was under way is on the disk or is not.
            let bytes = known.disk.with(|inside| {
                inside.demoted.clear();
                inside.bytes.clone()
            });
            known.model.settle(&bytes);
        }
        if self.has_stamps && self.prng.below(3) == 0 {
            self.change_a_disk();
        }
        self.fill();
    }

    /// Another program writes to a disk while no server runs.
    fn change_a_disk(&mut self) {
        let at = self.prng.below(self.disks.len() as u64) as usize;
        let value = EQUAL_MAX + 1 + self.now();
        let known = &self.disks[at];
        let all = known.model.sectors();
        let first = self.prng.below(all);
        let data = known.model.data(value, first, all - first);
        known.disk.change(|bytes| {
            bytes[(first * SECTOR) as usize..][..data.len()].copy_from_slice(&data);
        });
    }

    /// A bit of the memory is wrong, behind the head of the file.
    fn flip(&mut self) {
        let path = self.memory();
        let mut bytes = fs::read(&path).expect("memory");
        let frames = u64::from(self.slots) * self.block_bytes;
        let end = bytes.len() as u64;
        // Within the frames or the entries of the first slots.
        let from = end - frames.min(end / 2);
        let at = match self.prng.below(3) {
            0 => 4096 + 1024 * 16 * 8 + self.prng.below(u64::from(self.slots) * 32),
            _ => from + self.prng.below(end - from),
        };
        bytes[at as usize] ^= 1 << self.prng.below(8);
        fs::write(&path, bytes).expect("memory");
    }
}
