//! How fast readers read: as in the simulation, whatever the machine. That is measured at the start, and readers
//! are slowed down.
//!
//! The paper's threshold is in page reads a MiB and trial, so it means what it meant only if a guest that
//! always hits reads as many pages a trial for each MiB of memory as the paper's did: 50 reads of 2 GB
//! in 11 trials are 2.4 million a trial, and with a sixteenth of the memory 150,000. And how many of them it
//! reads in fact depends on what a miss takes beside a hit, which is read as 8 (`futae_papers`). A reader that only
//! reads hits too fast for that on most machines, and what else the machine does would decide who has the most hits
//! a trial. So an operation takes longer than it must (`futae load --hit-us --miss-us`), and what was late is
//! caught up on.

use anyhow::Context;
use serde_json::Value;
use std::time::Duration;

/// Page reads of a guest that always hits, in a trial: a sixteenth of the paper's.
pub const TRIAL_READS: u32 = 150_000;
/// What a miss shall take, in hits.
pub const MISS_COST: u32 = 8;
/// Reads of a file that no page cache holds: most of them miss.
const MISSES: &[&str] = &["--choice", "uniform", "--operations", "4096"];
/// As many before that, of other places: what has never been done takes longer, above all in a guest whose code is
/// translated.
const FIRST: &[&str] = &["--choice", "uniform", "--operations", "4096", "--seed", "2"];
/// Reads that bring the next ones into the page cache, and those.
const WARM: &[&str] = &[
    "--choice",
    "loop",
    "--file-size",
    "4MiB",
    "--operations",
    "1024",
];
const HITS: &[&str] = &[
    "--choice",
    "loop",
    "--file-size",
    "4MiB",
    "--operations",
    "131072",
];

/// Has `futae load --json` read a guest's large file, which no page cache holds at first, with these options.
pub type Probe<'a> = Box<dyn FnMut(&[&str]) -> anyhow::Result<Value> + Send + 'a>;

/// How much longer than measured an operation takes, so that there is something to catch up with. A quarter was too
/// little for a guest that is short of memory for long: its misses take longer than those measured at the start.
const SLACK: f64 = 1.5;
/// No faster than so: trials shall be long enough to move memory in, and a busy machine to be caught up with.
const LEAST: Duration = Duration::from_micros(18);

/// How long a read takes, and what follows of it.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// As measured.
    found: [Duration; 2],
    /// How long a hit is made to take; a miss [`MISS_COST`] times as long.
    hit: Duration,
    /// How long a trial is.
    pub trial: Duration,
}

impl Pace {
    /// Measures both guests at once, as they will read.
    pub fn measure(probes: [Probe<'_>; 2]) -> anyhow::Result<Self> {
        let each = std::thread::scope(|scope| {
            let threads = probes.map(|mut probe| {
                scope.spawn(move || -> anyhow::Result<[Duration; 2]> {
                    probe(FIRST)?;
                    let miss = of_one(&probe(MISSES)?)?;
                    probe(WARM)?;
                    Ok([of_one(&probe(HITS)?)?, miss])
                })
            });
            threads.map(|thread| {
                let broken = |_| Err(anyhow::anyhow!("a measuring thread broke off"));
                thread.join().unwrap_or_else(broken)
            })
        });
        let [one, other] = each;
        let ([hit, miss], [other_hit, other_miss]) = (one?, other?);
        Ok(Self::new((hit + other_hit) / 2, (miss + other_miss) / 2))
    }

    fn new(hit: Duration, miss: Duration) -> Self {
        let found = [hit, miss];
        let hit = hit.max(miss / MISS_COST).mul_f64(SLACK).max(LEAST);
        Self {
            found,
            hit,
            trial: hit * TRIAL_READS,
        }
    }

    /// Options of `futae load`.
    pub fn options(&self) -> String {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let (hit, miss) = (us(self.hit), us(self.hit * MISS_COST));
        format!("--hit-us {hit:.3} --miss-us {miss:.3}")
    }

    /// For people.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let us = |time: Duration| format!("{:.1} µs", time.as_secs_f64() * 1e6);
        let [hit, miss] = self.found.map(us);
        vec![
            (
                "pace",
                format!(
                    "a hit took {hit}, a miss {miss}; they are made to take {} and {MISS_COST} times as much",
                    us(self.hit)
                ),
            ),
            (
                "trial",
                format!(
                    "{:.2} s: {TRIAL_READS} page reads if all hit",
                    self.trial.as_secs_f64()
                ),
            ),
        ]
    }
}

/// How long an operation of a load took.
fn of_one(load: &Value) -> anyhow::Result<Duration> {
    let number = |name: &str| load[name].as_f64().filter(|number| *number > 0.0);
    let (seconds, operations) = (number("seconds"), number("operations"));
    let time = seconds.zip(operations).map(|(all, count)| all / count);
    Ok(Duration::from_secs_f64(
        time.context("a load does not tell how long it took")?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_takes_eight_hits_and_both_longer_than_they_must() {
        let us = Duration::from_micros;
        let pace = Pace::new(us(1), us(160));
        assert_eq!(pace.trial, us(30) * TRIAL_READS);
        assert_eq!(pace.options(), "--hit-us 30.000 --miss-us 240.000");
        let of_memory = Pace::new(us(20), us(80));
        assert_eq!(of_memory.options(), "--hit-us 30.000 --miss-us 240.000");
        assert_eq!(Pace::new(us(1), us(2)).trial, LEAST * TRIAL_READS);
    }
}
