//! What both readers know of each other, and when a trial ends.

use super::aoki_pace::{MISS_COST, TRIAL_READS};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// How long the last report of a trial may take to arrive.
const ARRIVAL: Duration = Duration::from_millis(100);

/// What a trial is.
#[derive(Clone, Copy, Debug)]
pub enum Trials {
    /// A time by the clock.
    Time(Duration),
    /// What readers have read: this many hits, and a miss counts as several. The reader that is there first waits, so
    /// a machine that is busy makes trials longer and nothing else.
    Reads,
}

/// Both readers.
pub struct Race {
    trials: Trials,
    begin: Instant,
    /// Those who still read.
    reading: AtomicUsize,
    /// Those who wait for the next trial.
    waiting: AtomicUsize,
    /// Trials that have begun.
    begun: AtomicU64,
    is_broken_off: AtomicBool,
}

impl Race {
    /// It begins now.
    pub fn new(trials: Trials) -> Self {
        Self {
            trials,
            begin: Instant::now(),
            reading: AtomicUsize::new(2),
            waiting: AtomicUsize::new(0),
            begun: AtomicU64::new(1),
            is_broken_off: AtomicBool::new(false),
        }
    }

    /// How many trials so much reading took, if a reader's own reading is its clock; by the clock otherwise.
    pub fn elapsed(&self, hits: u64, misses: u64) -> f64 {
        match self.trials {
            Trials::Time(trial) => self.begin.elapsed().as_secs_f64() / trial.as_secs_f64(),
            Trials::Reads => (hits + u64::from(MISS_COST) * misses) as f64 / f64::from(TRIAL_READS),
        }
    }

    /// Whether a reader that has read so much has to wait for the next trial.
    pub fn has_to_wait(&self, hits: u64, misses: u64) -> bool {
        matches!(self.trials, Trials::Reads)
            && self.elapsed(hits, misses) >= self.begun.load(Ordering::SeqCst) as f64
    }

    /// Waits for the next trial; everything of this one was told.
    pub fn wait(&self) -> anyhow::Result<()> {
        let trial = self.begun.load(Ordering::SeqCst);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while self.begun.load(Ordering::SeqCst) == trial {
            self.go_on()?;
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// One has read all that it had to.
    pub fn has_read(&self) {
        self.reading.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether somebody still reads.
    pub fn is_on(&self) -> bool {
        self.reading.load(Ordering::SeqCst) > 0
    }

    /// All shall end early. Whether somebody said so before.
    pub fn break_off(&self) -> bool {
        self.is_broken_off.swap(true, Ordering::SeqCst)
    }

    /// An error if all shall end early.
    pub fn go_on(&self) -> anyhow::Result<()> {
        if self.is_broken_off.load(Ordering::SeqCst) {
            anyhow::bail!("interrupted; everything was taken down");
        }
        Ok(())
    }

    /// Returns when a trial has ended, or all is over.
    pub fn end_of_trial(&self, is_over: impl Fn() -> bool) {
        match self.trials {
            Trials::Time(trial) => {
                // What takes long to tell does not make a trial longer.
                let trials = u32::try_from(self.begun.load(Ordering::SeqCst)).unwrap_or(u32::MAX);
                let next = self.begin + trial.saturating_mul(trials);
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            Trials::Reads => {
                let all_wait = || {
                    let reading = self.reading.load(Ordering::SeqCst);
                    reading > 0 && self.waiting.load(Ordering::SeqCst) == reading
                };
                while !all_wait() && !is_over() && self.go_on().is_ok() {
                    std::thread::sleep(LOOK_INTERVAL);
                }
                std::thread::sleep(ARRIVAL);
            }
        }
    }

    /// Lets those who wait go on.
    pub fn next_trial(&self) {
        self.waiting.store(0, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reader_waits_for_the_others() {
        let race = Race::new(Trials::Reads);
        let reads = u64::from(TRIAL_READS);
        assert!(!race.has_to_wait(reads - 8, 0));
        assert!(race.has_to_wait(reads - 8, 1));
        assert!(race.elapsed(reads, 0) == 1.0);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| race.wait());
            race.has_read();
            race.end_of_trial(|| false);
            assert!(!first.is_finished());
            race.next_trial();
            assert!(first.join().expect("it waits").is_ok());
        });
        assert!(!race.has_to_wait(reads, 0));
        race.break_off();
        assert!(race.wait().is_err());
    }
}
