//! What the engine sees of the simulation: its stores, its marks, the time.

use crate::content::SECTOR;
use crate::disk::Part;
use crate::held::Held;
use crate::sim::{Inside, Sim};
use futae_engine::{
    Extent, IoBuf, IoError, IoErrorKind, Store, StoreDone, StoreOperation, UncleanMark, World,
};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A sector of zeroes.
const ZEROES: [u8; SECTOR as usize] = [0; SECTOR as usize];

/// A volume's store.
pub struct Front {
    pub sim: Arc<Sim>,
    pub volume: usize,
    pub incarnation: u64,
    pub bytes: u64,
}

fn range_of(operation: &StoreOperation) -> (Option<(u64, u64)>, bool) {
    match operation {
        StoreOperation::Read { offset, buffer } => (Some((*offset, buffer.len() as u64)), false),
        StoreOperation::Write { offset, buffer, .. } => {
            (Some((*offset, buffer.len() as u64)), true)
        }
        StoreOperation::Trim { offset, length }
        | StoreOperation::WriteZeroes { offset, length, .. } => (Some((*offset, *length)), true),
        StoreOperation::Flush => (None, false),
    }
}

impl Store for Front {
    fn size_bytes(&self) -> u64 {
        self.bytes
    }

    fn describe(&self) -> String {
        "a simulated disk".to_owned()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, sequence: u64, operation: StoreOperation, done: StoreDone) {
        let mut inside = self.sim.lock();
        if !inside.is_of_now(self.incarnation) {
            return;
        }
        let number = self.volume;
        let (range, writes) = range_of(&operation);
        if let Some((offset, length)) = range {
            if offset + length > self.bytes || length == 0 {
                inside.fail(|| format!("{operation:?} is not within volume {number}"));
                return;
            }
            if writes {
                let other = inside.held.iter().find(|held| {
                    let with = held
                        .range
                        .filter(|with| with.0 < offset + length && offset < with.0 + with.1);
                    held.volume == number && held.writes && with.is_some()
                });
                if let Some(range) = other.map(|held| held.range) {
                    inside.fail(|| {
                        format!(
                            "two writes of volume {number} at once overlap: {range:?} and \
                             ({offset}, {length})"
                        )
                    });
                }
                if inside.config.has_lower_cache {
                    inside.volumes[number].lower.write(sequence, offset, length);
                }
            }
        }
        inside.changes += u64::from(!matches!(operation, StoreOperation::Read { .. }));
        let covered = match operation {
            StoreOperation::Flush => inside.volumes[number].disk.begin_flush(),
            _ => Vec::new(),
        };
        inside.trace(|| format!("  store {number} <- {sequence} {operation:?}"));
        inside.held.push(Held {
            volume: number,
            operation: Some(operation),
            result: None,
            done,
            covered,
            number: None,
            range,
            writes,
        });
        drop(inside);
        self.sim.preempt();
    }

    fn together(&self, submit: &mut dyn FnMut()) {
        self.sim.lock().quiet += 1;
        submit();
        self.sim.lock().quiet -= 1;
        self.sim.preempt();
    }

    fn takes_demotions(&self) -> bool {
        true
    }

    fn generation(&self) -> u64 {
        self.sim.lock().volumes[self.volume].generation
    }

    fn demote(&self, sequence: u64, generation: u64, offset: u64, data: IoBuf) {
        let mut inside = self.sim.lock();
        let is_late = generation != inside.volumes[self.volume].generation;
        if !inside.is_of_now(self.incarnation) || is_late {
            return;
        }
        inside.trace(|| format!("  store {} <- demotion {sequence} of {offset}", self.volume));
        let began = inside.action_began;
        inside.check(self.volume, (offset, data.as_slice()), began, "a demotion");
        if inside.config.has_lower_cache {
            let lower = &mut inside.volumes[self.volume].lower;
            lower.demote(sequence, offset, data.as_slice());
        }
    }

    fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, IoError> {
        let inside = self.sim.lock();
        let bytes = inside.volumes[self.volume].disk.bytes();
        let range = &bytes[offset as usize..(offset + length) as usize];
        let sectors = range.chunks(SECTOR as usize);
        let extent = |sector: &[u8]| Extent {
            length: sector.len() as u64,
            hole: *sector == ZEROES,
        };
        Ok(sectors.map(extent).collect())
    }
}

fn broken() -> IoError {
    IoError::new(IoErrorKind::Store, "the simulated disk has failed")
}

impl Sim {
    /// The disk performs operation `which` of those under way, well or badly; it is not answered yet.
    pub fn perform(self: &Arc<Self>, which: usize, fails: bool) {
        let mut inside = self.lock();
        inside.perform(which, fails);
    }

    /// Answers operation `which` of those under way, which the disk performs first if it has not yet.
    pub fn release(self: &Arc<Self>, which: usize, fails: bool) {
        let held = {
            let mut inside = self.lock();
            inside.perform(which, fails);
            let held = inside.held.swap_remove(which);
            if let Some(number) = held.number {
                inside.volumes[held.volume].disk.answered(number);
            }
            inside.trace(|| {
                let is_ok = matches!(held.result, Some(Ok(_)));
                let (volume, range) = (held.volume, held.range);
                format!(
                    "  store {volume} answers {range:?}, write {}: {is_ok}",
                    held.writes
                )
            });
            held
        };
        if let Some(result) = held.result {
            (held.done)(result);
        }
    }

    /// The engine is gone: what it had under way is in part performed, and never answered.
    pub fn abandon(self: &Arc<Self>) {
        let gone = {
            let mut inside = self.lock();
            while inside.held.iter().any(Held::waits) {
                let waiting = inside.held.iter().position(Held::waits);
                if let Some(which) = waiting {
                    let part = Part::draw(&mut inside.prng);
                    inside.perform_part(which, part);
                }
            }
            (
                std::mem::take(&mut inside.held),
                std::mem::take(&mut inside.jobs),
                std::mem::take(&mut inside.letters),
            )
        };
        // Without the lock: they may be the last to hold an engine.
        drop(gone);
    }
}

impl Inside {
    fn perform(&mut self, which: usize, fails: bool) {
        if !self.held[which].waits() {
            return;
        }
        let number = self.held[which].volume;
        if fails || self.volumes[number].is_away {
            let part = Part::draw(&mut self.prng);
            self.cover.failures += 1;
            return self.perform_part(which, part);
        }
        let Inside {
            volumes,
            held,
            config,
            options,
            prng,
            is_calm,
            ..
        } = self;
        let (known, held) = (&mut volumes[number], &mut held[which]);
        let Some(operation) = held.operation.take() else {
            return;
        };
        let empty = || Ok(IoBuf::new(0));
        let result = match operation {
            StoreOperation::Read { offset, mut buffer } => {
                let from = offset as usize;
                let bytes = buffer.as_mut_slice();
                bytes.copy_from_slice(&known.disk.bytes()[from..from + bytes.len()]);
                if config.has_lower_cache {
                    known.lower.serve(offset, bytes);
                }
                // Of a read that went well all the same too little may come.
                let odds = config.fails * 4;
                if odds > 0 && !*is_calm && prng.below(odds) == 0 {
                    let less = prng.below(buffer.len() as u64) as usize;
                    Ok(IoBuf::copy_of(&buffer.as_slice()[..less]))
                } else {
                    Ok(buffer)
                }
            }
            StoreOperation::Write {
                offset,
                buffer,
                fua,
            } => {
                held.number = Some(known.disk.write(offset, buffer.as_slice(), fua));
                Ok(buffer)
            }
            StoreOperation::Flush => {
                if !options.lies {
                    known.disk.end_flush(&held.covered);
                }
                empty()
            }
            StoreOperation::Trim { offset, length } => {
                let zeroes = vec![0; length as usize];
                held.number = Some(known.disk.write(offset, &zeroes, false));
                empty()
            }
            StoreOperation::WriteZeroes {
                offset,
                length,
                fua,
                ..
            } => {
                let zeroes = vec![0; length as usize];
                held.number = Some(known.disk.write(offset, &zeroes, fua));
                empty()
            }
        };
        if let (Some((offset, length)), true) = (held.range, held.writes && config.has_lower_cache)
        {
            known.lower.written(offset, length, true);
        }
        held.result = Some(result);
        self.changes += u64::from(!self.held[which].is_read());
    }

    /// The operation fails with `part` of it done.
    fn perform_part(&mut self, which: usize, part: Part) {
        let Inside {
            volumes,
            held,
            config,
            prng,
            ..
        } = self;
        let held = &mut held[which];
        let known = &mut volumes[held.volume];
        match held.operation.take() {
            Some(StoreOperation::Write { offset, buffer, .. }) => {
                known.disk.write_part(offset, buffer.as_slice(), part, prng);
            }
            Some(
                StoreOperation::Trim { offset, length }
                | StoreOperation::WriteZeroes { offset, length, .. },
            ) => {
                let zeroes = vec![0; length as usize];
                known.disk.write_part(offset, &zeroes, part, prng);
            }
            Some(StoreOperation::Flush) if part == Part::All => known.disk.end_flush(&held.covered),
            Some(StoreOperation::Read { .. } | StoreOperation::Flush) | None => {}
        }
        if let (Some((offset, length)), true) = (held.range, held.writes && config.has_lower_cache)
        {
            known.lower.written(offset, length, false);
        }
        held.result = Some(Err(broken()));
        self.changes += 1;
    }
}

/// The memory of the simulated machine: enough for every cache.
const MEMORY_BYTES: u64 = 1 << 40;

/// What an engine has around it.
pub struct Around {
    pub sim: Arc<Sim>,
    pub incarnation: u64,
}

impl World for Around {
    fn now(&self) -> Instant {
        static BASE: OnceLock<Instant> = OnceLock::new();
        *BASE.get_or_init(Instant::now) + self.sim.lock().clock
    }

    fn apart(&self, _name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let mut inside = self.sim.lock();
        if inside.incarnation == self.incarnation && inside.crashing.is_none() {
            inside.jobs.push(work);
        }
        Ok(())
    }

    fn has_clock_threads(&self) -> bool {
        false
    }

    fn memory_bytes(&self) -> u64 {
        MEMORY_BYTES
    }

    fn has_many_caches(&self) -> bool {
        true
    }

    fn between_steps(&self) {
        self.sim.preempt();
    }
}

/// A volume's unclean mark.
pub struct Mark {
    pub sim: Arc<Sim>,
    pub volume: usize,
    pub incarnation: u64,
}

impl Mark {
    fn change(&self, is_there: bool) -> io::Result<()> {
        let mut inside = self.sim.lock();
        if inside.incarnation != self.incarnation {
            return Err(io::ErrorKind::Other.into());
        }
        let odds = inside.config.fails;
        if odds > 0 && !inside.is_calm && inside.prng.below(odds) == 0 {
            if inside.prng.below(2) == 0 {
                inside.volumes[self.volume].is_marked = is_there;
            }
            return Err(io::ErrorKind::Other.into());
        }
        inside.volumes[self.volume].is_marked = is_there;
        Ok(())
    }
}

impl UncleanMark for Mark {
    fn set(&self) -> io::Result<()> {
        self.change(true)
    }

    fn clear(&self) -> io::Result<()> {
        self.change(false)
    }
}
