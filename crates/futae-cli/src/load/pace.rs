//! Readers that are no faster than they are told, so that what they do does not depend on the machine.

use anyhow::{Context, anyhow};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

/// Nobody is woken to the microsecond: so long is rested at a time, at least.
const SHORTEST: Duration = Duration::from_millis(1);
/// What the kernel tells of the thread that asks.
const IO: &str = "/proc/thread-self/io";

/// How long operations take, in the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// One that does not have to wait for the disk.
    pub hit: Duration,
    /// One that does.
    pub miss: Duration,
}

impl Pace {
    /// How long all operations take together.
    fn time(self, operations: u64, misses: u64) -> Duration {
        let ns = |each: Duration, count: u64| each.as_nanos().saturating_mul(count.into());
        let misses = misses.min(operations);
        let all = ns(self.hit, operations - misses).saturating_add(ns(self.miss, misses));
        Duration::from_nanos(u64::try_from(all).unwrap_or(u64::MAX))
    }
}

/// One thread that keeps to a pace. A thread that was faster rests; one that was slower catches up.
pub struct Paced {
    pace: Pace,
    begin: Instant,
    operation_bytes: u64,
    /// What the kernel tells of this thread, and what it had read from disks at the beginning.
    io: File,
    read_before: u64,
    operations: u64,
    /// Look again after this many.
    next: u64,
}

impl Paced {
    /// For the thread that asks, from now on.
    pub fn new(pace: Pace, operation_bytes: u64) -> anyhow::Result<Self> {
        let io = File::open(IO).with_context(|| format!("{IO}: who waited is not known"))?;
        Ok(Self {
            pace,
            begin: Instant::now(),
            operation_bytes,
            read_before: read_bytes(&io)?,
            io,
            operations: 0,
            next: 0,
        })
    }

    /// An operation was done: rests, if it was too fast.
    pub fn after_one(&mut self) -> anyhow::Result<()> {
        self.operations += 1;
        if self.operations < self.next {
            return Ok(());
        }
        let ahead = self.ahead()?;
        if ahead >= SHORTEST {
            thread::sleep(ahead);
        }
        let several = SHORTEST.as_nanos() / self.pace.hit.as_nanos().max(1);
        self.next = self.operations + u64::try_from(several).unwrap_or(1).clamp(1, 1000);
        Ok(())
    }

    /// All was done: rests for the last time.
    pub fn end(self) -> anyhow::Result<()> {
        thread::sleep(self.ahead()?);
        Ok(())
    }

    /// By how much it was too fast until now.
    fn ahead(&self) -> anyhow::Result<Duration> {
        let read = read_bytes(&self.io)?.saturating_sub(self.read_before);
        let time = self.pace.time(self.operations, read / self.operation_bytes);
        Ok(time.saturating_sub(self.begin.elapsed()))
    }
}

/// Bytes that a thread has had read from disks, by its file.
fn read_bytes(io: &File) -> anyhow::Result<u64> {
    let mut text = [0; 512];
    let length = io.read_at(&mut text, 0).context(IO)?;
    let text = std::str::from_utf8(&text[..length]).context(IO)?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("read_bytes: "));
    let number = line.and_then(|number| number.parse().ok());
    number.ok_or_else(|| anyhow!("{IO}: no read_bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_take_longer_and_are_not_more_than_operations() {
        let us = Duration::from_micros;
        let pace = Pace {
            hit: us(10),
            miss: us(80),
        };
        assert_eq!(pace.time(100, 0), us(1000));
        assert_eq!(pace.time(100, 30), us(700 + 2400));
        assert_eq!(pace.time(100, 300), us(8000));
    }
}
