//! Ends of an engine: crashes, clean restarts, and the end of the run.

use crate::content::{Place, SECTOR, version_of};
use crate::lower::Lower;
use crate::sim::{Crash, Inside, Sim};
use futae_engine::{ClientId, Engine, Operation, Request};
use futae_policy::VolumeId;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Rounds after which whatever is still under way counts as never answered.
const ROUNDS_MAX: u32 = 2000;

impl Sim {
    /// The engine dies; what is left is judged, and another one starts.
    pub fn crash(self: &Arc<Self>, crash: Crash) {
        let engines = {
            let mut inside = self.lock();
            (inside.engine.take(), inside.below.take())
        };
        self.abandon();
        drop(engines);
        {
            let mut inside = self.lock();
            inside.pending.clear();
            inside.clients.clear();
            inside.crashing = None;
            match crash {
                Crash::Process => inside.cover.process_crashes += 1,
                Crash::Power => inside.cover.power_losses += 1,
            }
            for number in 0..inside.volumes.len() {
                inside.judge(number, crash);
            }
        }
        if let Err(error) = self.start() {
            self.lock().fail(|| error);
        }
    }

    /// Everything under way ends, and nothing fails any more.
    fn drain(self: &Arc<Self>) {
        {
            let mut inside = self.lock();
            inside.is_calm = true;
            for known in &mut inside.volumes {
                known.is_away = false;
            }
        }
        for _ in 0..ROUNDS_MAX {
            let (held, jobs, pending, letters) = {
                let inside = self.lock();
                let letters = inside.letters.len();
                (
                    inside.held.len(),
                    inside.jobs.len(),
                    inside.pending.len(),
                    letters,
                )
            };
            if held + jobs + pending + letters == 0 {
                break;
            }
            if letters > 0 {
                self.deliver();
            } else if held > 0 {
                self.release(0, false);
            } else if jobs > 0 {
                self.work();
            } else {
                self.tick();
            }
        }
        let mut inside = self.lock();
        if let Some(pending) = inside.pending.values().next() {
            let (kind, invoked) = (pending.kind, pending.invoked);
            let (held, jobs) = (inside.held.len(), inside.jobs.len());
            inside.fail(|| {
                format!("{kind:?} from {invoked} is never answered; {held} held, {jobs} jobs")
            });
        }
        inside.is_calm = false;
    }

    /// Flushes on behalf of a client, or of nobody, and ends everything until there is an answer.
    fn flush(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        volume: usize,
        client: ClientId,
    ) -> Result<(), String> {
        let answer = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&answer);
        engine.submit(Request {
            volume: VolumeId(volume as u16),
            client,
            sequence: 0,
            operation: Operation::Flush,
            done: Box::new(move |result| {
                if let Ok(mut slot) = slot.lock() {
                    *slot = Some(result.map(drop).map_err(|error| error.to_string()));
                }
            }),
        });
        self.drain();
        let answer = answer.lock().ok().and_then(|mut answer| answer.take());
        answer.unwrap_or_else(|| Err("the last FLUSH is never answered".to_owned()))
    }

    /// Everything is brought to the disks, as before a clean end.
    fn finish(self: &Arc<Self>, engine: &Arc<Engine>) -> Result<(), String> {
        self.drain();
        let volumes = self.lock().volumes.len();
        for number in 0..volumes {
            // One FLUSH may have to tell of a failure of before.
            let settle = || self.flush(engine, number, ClientId::NOBODY);
            let first = settle();
            if let Err(error) = &first
                && !self.lock().config.is_faulty()
            {
                return Err(format!("the last FLUSH over a good disk: {error}"));
            }
            first.or_else(|_| settle())?;
            let owes_loss = self.lock().volumes[number].owes_loss;
            let is_marked_at_end = || {
                let ended = engine.end_clean(VolumeId(number as u16));
                ended.is_ok() && self.lock().volumes[number].is_marked
            };
            if is_marked_at_end() && !owes_loss {
                // The mark stays if a flush has failed that no client had asked for, until one learns of it.
                let client = engine.join(VolumeId(number as u16));
                let is_told = self.flush(engine, number, client).is_err();
                let may_be_told = self.lock().config.is_faulty();
                if !is_told || !may_be_told || is_marked_at_end() {
                    return Err(format!("volume {number} is clean and has its unclean mark"));
                }
            }
        }
        let engines = self.engines();
        let dirty: u64 = engines.iter().map(|engine| engine.dirty_blocks()).sum();
        if dirty > 0 {
            return Err(format!("{dirty} blocks are dirty after the last FLUSH"));
        }
        let held: u64 = engines.iter().map(|engine| engine.buffer_bytes()).sum();
        if held > 0 && self.lock().held.is_empty() {
            return Err(format!("{held} bytes of buffers are never given back"));
        }
        let mut inside = self.lock();
        for number in 0..inside.volumes.len() {
            let began = inside.event();
            let bytes = inside.volumes[number].disk.take_bytes();
            inside.check(number, (0, &bytes), began, "the disk at the end");
            inside.volumes[number].disk.put_bytes(bytes);
        }
        Ok(())
    }

    /// A clean end, and another engine, which may take up what the last one remembered.
    pub fn restart(self: &Arc<Self>) {
        let Some(engine) = self.engine() else { return };
        {
            let mut inside = self.lock();
            inside.cover.restarts += 1;
            inside.depth = 0;
        }
        if let Err(error) = self.finish(&engine) {
            return self.lock().fail(|| error);
        }
        let warm = engine.warm_state();
        let below = self.lock().below.take();
        drop(below);
        {
            let mut inside = self.lock();
            inside.engine = None;
            inside.clients.clear();
            for known in &mut inside.volumes {
                known.lower = Lower::default();
            }
        }
        drop(engine);
        if let Err(error) = self.start() {
            return self.lock().fail(|| error);
        }
        let recalls = self.lock().pages.is_none() && self.lock().prng.below(3) > 0;
        if recalls && let Some(engine) = self.engine() {
            engine.recall(&warm);
        }
    }

    /// The end of the run: everything is read once more.
    ///
    /// # Errors
    ///
    /// What is wrong then.
    pub fn end(self: &Arc<Self>) -> Result<(), String> {
        let Some(engine) = self.engine() else {
            return Ok(());
        };
        self.finish(&engine)?;
        self.settle_pages();
        for engine in self.engines() {
            engine.audit();
            let equal_reads = engine.status().demotions.equal_reads;
            self.lock().cover.equal_reads += equal_reads;
        }
        {
            let mut inside = self.lock();
            inside.clock += Duration::from_secs(60);
            inside.depth = 0;
        }
        let volumes = self.lock().config.volumes.clone();
        for (number, length) in volumes.into_iter().enumerate() {
            let began = self.lock().event();
            let answer = Arc::new(Mutex::new(None));
            let slot = Arc::clone(&answer);
            engine.submit(Request {
                volume: VolumeId(number as u16),
                client: ClientId::NOBODY,
                sequence: 0,
                operation: Operation::Read { offset: 0, length },
                done: Box::new(move |result| {
                    if let Ok(mut slot) = slot.lock() {
                        *slot = Some(result);
                    }
                }),
            });
            self.drain();
            let read = answer.lock().ok().and_then(|mut answer| answer.take());
            match read {
                Some(Ok(data)) => {
                    let mut inside = self.lock();
                    inside.check(number, (0, data.as_slice()), began, "the last read");
                }
                Some(Err(error)) => return Err(format!("the last read: {error}")),
                None => return Err("the last read is never answered".to_owned()),
            }
        }
        let mut inside = self.lock();
        let engines = (inside.engine.take(), inside.below.take());
        drop(inside);
        drop(engines);
        Ok(())
    }
}

impl Inside {
    /// What a crash has left of a volume.
    fn judge(&mut self, number: usize, crash: Crash) {
        let now = self.event();
        let is_power = crash == Crash::Power;
        if is_power {
            let Inside { volumes, prng, .. } = self;
            volumes[number].disk.lose_power(prng);
        }
        let writes_back = self.config.writes_back();
        let has_marks = self.config.has_marks;
        let known = &mut self.volumes[number];
        known.lower = Lower::default();
        known.is_away = false;
        known.disk.owes_nothing();
        let mut problem = None;
        for (at, register) in known.registers.iter_mut().enumerate() {
            let place = Place {
                volume: number,
                sector: at as u64,
            };
            let from = at * SECTOR as usize;
            let sector = &known.disk.bytes()[from..from + SECTOR as usize];
            let found = version_of(sector, place);
            let judged = found.clone().and_then(|version| {
                register.survived(version)?;
                if is_power || register.is_current(version, now) {
                    return Ok(());
                }
                if !writes_back {
                    return Err("a write that went through is lost with the process".to_owned());
                }
                if has_marks && !known.is_marked {
                    return Err("a write is lost, and there is no unclean mark".to_owned());
                }
                Ok(())
            });
            if let Err(why) = judged {
                let found = found
                    .clone()
                    .map_or_else(|_| "?".to_owned(), |v| v.to_string());
                problem.get_or_insert_with(|| {
                    format!(
                        "after a crash ({crash:?}) at {now} sector {at} of volume {number} has write \
                         {found}: {why} ({})",
                        register.describe()
                    )
                });
            }
            register.settle(found.unwrap_or_default(), now, is_power);
        }
        if let Some(problem) = problem {
            self.fail(|| problem);
        }
    }
}
