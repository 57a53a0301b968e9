//! The threads of a load.

use super::files::Files;
use super::pace::Paced;
use super::plan::{LoadPlan, Operation, Until};
use super::report::{Report, Tally};
use super::stamp;
use anyhow::{Context, anyhow};
use futae_engine::IoBuf;
use futae_policy::VolumeId;
use futae_terminal::failure::Failure;
use futae_trace::{Generator, Request, RequestKind, TraceWriter, View, WriteOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Does what a plan asks for. `progress` is given the fraction that is done.
pub fn work(
    plan: &LoadPlan,
    files: &Files,
    stopped: &AtomicBool,
    progress: &mut dyn FnMut(f64),
) -> Result<Report, Failure> {
    let load = Load::new(plan, files, stopped)?;
    let tallies = thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads)
            .map(|_| scope.spawn(|| load.thread()))
            .collect();
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            progress(load.fraction());
            thread::sleep(LOOK_INTERVAL.min(load.left()));
        }
        let results = threads.into_iter().map(|thread| {
            let failed = |_| Err(anyhow!("a thread of the load panicked"));
            thread.join().unwrap_or_else(failed)
        });
        results.collect::<Result<Vec<Tally>, _>>()
    })?;
    let seconds = load.begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    if plan.writes > 0.0 {
        files.sync()?;
    }
    let sync_seconds = begin.elapsed().as_secs_f64();
    load.finish()?;
    Ok(Report::new(
        plan,
        &files.layout,
        tallies,
        seconds,
        sync_seconds,
    ))
}

/// Operations in the order in which they are drawn, by any thread.
struct Draws {
    generator: Generator,
    next: u64,
    record: Option<TraceWriter>,
}

struct Load<'a> {
    plan: &'a LoadPlan,
    files: &'a Files,
    stopped: &'a AtomicBool,
    draws: Mutex<Draws>,
    names: Vec<String>,
    /// The version that each place was last written with, 0 before. A thread that reads or writes a place
    /// holds its lock, so that it is known what must be there. Empty where nothing is written.
    versions: Vec<RwLock<u64>>,
    first_version: u64,
    /// Some thread has failed.
    failed: AtomicBool,
    begin: Instant,
}

impl<'a> Load<'a> {
    fn new(plan: &'a LoadPlan, files: &'a Files, stopped: &'a AtomicBool) -> Result<Self, Failure> {
        let layout = &files.layout;
        let record = plan.record.as_deref().map(|path| {
            let options = WriteOptions::of_name(path, None, View::Start);
            let options = options.map_err(Failure::usage)?;
            TraceWriter::create(path, &options).map_err(Failure::from)
        });
        let draws = Draws {
            generator: layout.draws(plan)?,
            next: 0,
            record: record.transpose()?,
        };
        let kept = if plan.writes > 0.0 {
            layout.places()
        } else {
            0
        };
        // Different from those of every run before.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let first_version = now.map_or(1, |now| now.as_nanos() as u64);
        Ok(Self {
            plan,
            files,
            stopped,
            draws: Mutex::new(draws),
            names: files.names(),
            versions: (0..kept).map(|_| RwLock::new(0)).collect(),
            first_version,
            failed: AtomicBool::new(false),
            begin: Instant::now(),
        })
    }

    fn draws(&self) -> MutexGuard<'_, Draws> {
        // Nothing is left half done in it by a panic.
        self.draws.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much is done.
    fn fraction(&self) -> f64 {
        match self.plan.until {
            Until::Operations(all) => self.draws().next as f64 / all as f64,
            Until::Time(all) => self.begin.elapsed().as_secs_f64() / all.as_secs_f64(),
        }
    }

    /// How long it goes on at most, if that is known; a moment at the least.
    fn left(&self) -> Duration {
        let left = match self.plan.until {
            Until::Operations(_) => LOOK_INTERVAL,
            Until::Time(all) => all.saturating_sub(self.begin.elapsed()),
        };
        left.max(Duration::from_millis(1))
    }

    /// The next operation, until there are no more.
    fn next(&self) -> anyhow::Result<Option<Operation>> {
        let is_over = |next| match self.plan.until {
            Until::Operations(all) => next >= all,
            Until::Time(all) => self.begin.elapsed() >= all,
        };
        let mut draws = self.draws();
        let ends = self.stopped.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed);
        if ends || is_over(draws.next) {
            return Ok(None);
        }
        let Some(request) = draws.generator.next() else {
            return Ok(None);
        };
        let operation = Operation::new(draws.next, request, &self.files.layout);
        draws.next += 1;
        if let Some(record) = &mut draws.record {
            let kind = match operation.is_write {
                true => RequestKind::Write,
                false => RequestKind::Read,
            };
            let request = Request {
                guest: 0,
                volume: VolumeId(operation.file as u16),
                offset_bytes: operation.offset,
                length_bytes: self.plan.operation_bytes,
                kind,
                time_us: Some(self.begin.elapsed().as_micros() as u64),
            };
            record.write(&request, &self.names)?;
        }
        Ok(Some(operation))
    }

    fn thread(&self) -> anyhow::Result<Tally> {
        let done = self.operations();
        if done.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        done
    }

    fn operations(&self) -> anyhow::Result<Tally> {
        let mut tally = Tally::new();
        let mut buffer = IoBuf::zeroed(self.plan.operation_bytes as usize);
        let paced = |pace| Paced::new(pace, self.plan.operation_bytes);
        let mut paced = self.plan.pace.map(paced).transpose()?;
        while let Some(operation) = self.next()? {
            if operation.is_write {
                self.write(operation, &mut buffer, &mut tally)?;
            } else {
                self.read(operation, &mut buffer, &mut tally)?;
            }
            if let Some(paced) = &mut paced {
                paced.after_one()?;
            }
        }
        if let Some(paced) = paced {
            paced.end()?;
        }
        Ok(tally)
    }

    fn context(&self, what: &str, operation: Operation) -> String {
        let (path, at) = (self.files.path(operation.file).display(), operation.offset);
        let length = self.plan.operation_bytes;
        format!("{path}: {what} of {length} bytes at {at} failed")
    }

    fn read(
        &self,
        operation: Operation,
        buffer: &mut IoBuf,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let lock = self.versions.get(operation.place as usize);
        let lock = lock.filter(|_| self.plan.verify);
        let held = lock.map(|lock| lock.read().unwrap_or_else(PoisonError::into_inner));
        let begin = Instant::now();
        for _ in 0..1 + u8::from(self.plan.read_twice) {
            self.files
                .read(operation.file, operation.offset, buffer.as_mut_slice())
                .with_context(|| self.context("a read", operation))?;
        }
        tally.read(begin.elapsed());
        if self.plan.verify {
            let version = held.map(|version| *version).filter(|version| *version > 0);
            let (number, offset) = (operation.file, operation.offset);
            if let Err((at, fault)) = stamp::check(buffer.as_slice(), number, offset, version) {
                let path = self.files.path(number).display();
                tally.wrong(|| format!("{path}: at {at}: {fault}"));
            }
        }
        Ok(())
    }

    fn write(
        &self,
        operation: Operation,
        buffer: &mut IoBuf,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        let lock = self.versions.get(operation.place as usize);
        let held = lock.map(|lock| lock.write().unwrap_or_else(PoisonError::into_inner));
        let version = self.first_version + operation.number;
        let (number, offset) = (operation.file, operation.offset);
        stamp::fill(buffer.as_mut_slice(), number, offset, version);
        let file = self.files.get(number);
        let begin = Instant::now();
        file.write_all_at(buffer.as_slice(), offset)
            .with_context(|| self.context("a write", operation))?;
        tally.written(begin.elapsed());
        if let Some(mut held) = held {
            *held = version;
        }
        Ok(())
    }

    /// Completes the record.
    fn finish(self) -> Result<(), Failure> {
        let draws = self.draws.into_inner();
        let draws = draws.unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = draws.record {
            record.finish()?;
        }
        Ok(())
    }
}
