//! A configuration: how it is drawn, what it is expected to hit, and what it does hit.

use super::meeting::{Guest, Meeting};
use crate::kernels::guest::{Machine, Measured};
use crate::kernels::model;
use crate::kernels::setup::{Bound, Lists, PAGE, Reads};
use crate::live::process::{Background, futae, status};
use anyhow::{Context, anyhow};
use futae_machine::{Disk, Kernel};
use futae_policy::{
    Access, BlockId, HashIndex, Kind, Level, Outcome, PolicySpec, Prng, RegisteredPolicy, Shape,
    Trait, VolumeId,
};
use futae_sim::forecast::Estimate;
use futae_terminal::failure::Failure;
use futae_trace::WorkloadSpec;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::Path;

/// The server's control socket.
const CONTROL: &str = "control.sock";
/// Bytes of a guest's disk.
const DISK: u64 = 64 << 20;
/// All caches together, by the guest.
const MEMORY: u64 = 32 << 20;
/// What reclaim by rounds leaves free of a group's memory, in the mean.
const FREE_PAGES: u64 = 48;
/// A prediction is the mean of this many simulated runs, each by random numbers of its own.
const RUNS: u64 = 20;
/// What a simulated hit ratio may differ from that of a real guest under the same requests, 95 times of 100: what `futae-lab kernels`
/// holds the models to.
const MODEL_ERROR: f64 = 0.01;

/// Reads of the first guest in a round. Guests wait for each other after each round.
const ROUND: u64 = 500;

/// What the loads of two guests differ by.
const GUEST_SEED: u64 = 1_000_000;

/// What is drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    pub number: u64,
    /// Guests of the server, each with a disk of its own and the same kernel, page cache and load.
    pub guests: u64,
    pub kernel: String,
    /// Whether its page cache is ordered by generations.
    pub generations: bool,
    /// Of each guest's page cache.
    pub upper_pages: u64,
    pub lower_pages: u64,
    pub policy: String,
    pub workload: String,
    /// How often the second guest reads, for each read of the first.
    #[serde(default = "as_often")]
    pub rate: u64,
}

const fn as_often() -> u64 {
    1
}

/// What it is expected to hit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prediction {
    pub configuration: Configuration,
    /// Of each guest.
    pub reads: u64,
    pub warmup: u64,
    /// The hit ratio of the guests' page caches.
    pub upper: Estimate,
    /// The hit ratio of all caches together.
    pub combined: Estimate,
}

impl Configuration {
    /// Draws one by its number.
    pub fn draw(number: u64, seed: u64) -> Self {
        let mut prng = Prng::new(seed.wrapping_mul(1_000_003) + number);
        let mut of = |count: usize| prng.below(count as u64) as usize;
        let kernel = ["6.1", "6.12"][of(2)];
        let generations = [kernel == "6.12", true, false][of(3)];
        let upper_pages = MEMORY / PAGE * [3, 4, 6, 8][of(4)] / 12;
        let advised = Kind::ALL
            .iter()
            .filter(|kind| kind.traits().contains(&Trait::Advised));
        let policies: Vec<Kind> = advised.copied().chain([Kind::inferred]).collect();
        let mut policy = PolicySpec::of(policies[of(policies.len())]);
        policy.keep_served();
        let exponent = 0.6 + 0.1 * of(7) as f64;
        let workload = match of(5) {
            0 => format!("uniform:{DISK}"),
            1 => format!("zipf({exponent:.1}):{DISK}"),
            2 => format!("normal({:.2}):{DISK}", 0.06 + 0.04 * of(6) as f64),
            3 => format!(
                "mix(0.7*zipf({exponent:.1}):{}, 0.3*scan:{})",
                DISK / 4,
                DISK * 3 / 4
            ),
            _ => format!("loop:{}", DISK / 16 * (6 + of(8) as u64)),
        };
        let guests = 1 + of(2) as u64;
        let rate = [1, 2, 4][of(3)];
        Self {
            number,
            guests,
            kernel: kernel.to_owned(),
            generations,
            upper_pages,
            lower_pages: guests * (MEMORY / PAGE - upper_pages),
            policy: policy.to_string(),
            workload,
            rate: if guests > 1 { rate } else { 1 },
        }
    }

    /// How many times as many reads as the first guest this one makes.
    const fn rate_of(&self, guest: u64) -> u64 {
        if guest == 0 { 1 } else { self.rate }
    }

    /// Predicts what it hits.
    pub fn predict(&self, reads: &Reads) -> Result<Prediction, Failure> {
        let runs = (0..RUNS).map(|run| {
            self.simulate(&Reads {
                seed: reads.seed.wrapping_add(run),
                ..*reads
            })
        });
        let runs: Vec<[f64; 2]> = runs.collect::<Result<_, _>>()?;
        let estimate = |at: usize| -> Result<Estimate, Failure> {
            let ratios: Vec<f64> = runs.iter().map(|of| of[at]).collect();
            let estimate = Estimate::of_runs(&ratios).context("too few reads")?;
            Ok(estimate.with_model_error(MODEL_ERROR).within(0.0, 1.0))
        };
        Ok(Prediction {
            configuration: self.clone(),
            reads: reads.reads,
            warmup: reads.warmup,
            upper: estimate(0)?,
            combined: estimate(1)?,
        })
    }

    /// The hit ratios of the guests' caches and of all in one simulated run. In a round each next read is of one guest or another by
    /// lot, as often as guests read.
    fn simulate(&self, reads: &Reads) -> Result<[f64; 2], Failure> {
        let workload: WorkloadSpec = self.workload.parse()?;
        let cache = |policy: &PolicySpec, pages: u64| -> Result<Cache, Failure> {
            let (slots, seed) = (u32::try_from(pages)?, reads.seed);
            let built = futae_policy::build(policy, &Shape { slots, seed })?;
            Ok(Level::new(built, HashIndex::default(), slots))
        };
        let model = model::of(self.kernel(), self.generations, Bound::Group);
        let mut lower = cache(&self.policy.parse()?, self.lower_pages)?;
        let mut guests = Vec::new();
        for guest in 0..self.guests {
            let upper = cache(&model, self.upper_pages - FREE_PAGES)?;
            let requests = workload.generator(PAGE, of_guest(reads, guest).seed)?;
            guests.push((VolumeId(u16::try_from(guest)?), upper, requests));
        }
        let mut hits = [0_u64; 2];
        let mut turns = Prng::new(reads.seed);
        let warmup = rounds(reads.warmup).map(|round| (round, 0));
        for (round, counts) in warmup.chain(rounds(reads.reads).map(|round| (round, 1))) {
            let rounds = (0..self.guests).map(|guest| round * self.rate_of(guest));
            let mut left: Vec<u64> = rounds.collect();
            while let Some(turn) = turn(&mut left, &mut turns) {
                let (volume, upper, requests) = &mut guests[turn];
                let read = Access::read(BlockId::new(*volume, requests.next_block().0));
                let is_upper = matches!(upper.access(&read), Outcome::Hit(_));
                let is_hit = is_upper || below(&mut lower, &read);
                hits[0] += counts * u64::from(is_upper);
                hits[1] += counts * u64::from(is_hit);
            }
        }
        let rates: u64 = (0..self.guests).map(|guest| self.rate_of(guest)).sum();
        Ok(hits.map(|hits| hits as f64 / (rates * reads.reads) as f64))
    }

    /// The hit ratios of the guests' caches and of all.
    pub fn measure(&self, reads: &Reads) -> Result<[f64; 2], Failure> {
        let place = tempfile::Builder::new().prefix("futae-lab-").tempdir()?;
        let (_serve, uris) = self.serve(place.path())?;
        let misses =
            || -> Result<u64, Failure> { Ok(status(&place.path().join(CONTROL))?.counters.misses) };
        let meeting = &Meeting::new(uris.len());
        let counted = std::thread::scope(|scope| {
            // A guest ends with the thread that has booted it.
            let guests = (0..).zip(&uris).map(|(number, uri)| {
                let (reads, rate) = (of_guest(reads, number), self.rate_of(number));
                let misses = &misses;
                scope.spawn(move || {
                    let guest = meeting.guest();
                    let counted = self.count((uri, rate), &reads, &guest, misses);
                    counted.inspect_err(|_| guest.fails())
                })
            });
            let guests: Vec<_> = guests.collect();
            let counted = guests.into_iter().map(|guest| {
                let result = guest.join();
                result.map_err(|_| anyhow!("a guest's thread has panicked"))?
            });
            counted.collect::<Result<Vec<_>, Failure>>()
        })?;
        let (measured, missed): (Vec<Measured>, Vec<u64>) = counted.into_iter().flatten().unzip();
        let before = missed.first().context("no guest was counted")?;
        let missed = misses()? - before;
        let all_reads: u64 = measured.iter().map(|it| it.reads).sum();
        let hits = measured.iter().map(|it| it.hit_ratio * it.reads as f64);
        let upper = hits.sum::<f64>() / all_reads.max(1) as f64;
        Ok([upper, 1.0 - missed as f64 / all_reads.max(1) as f64])
    }

    /// What one guest reads while the others do, too: none begins a round before all have ended the last. With it what the server had
    /// missed before that was counted. None if another guest fails.
    fn count(
        &self,
        (uri, rate): (&str, u64),
        reads: &Reads,
        guest: &Guest<'_>,
        misses: &dyn Fn() -> Result<u64, Failure>,
    ) -> Result<Option<(Measured, u64)>, Failure> {
        let workload: WorkloadSpec = self.workload.parse()?;
        let mut machine = self.boot(uri)?;
        machine.begin(&workload, reads.seed, false)?;
        if !guest.meets() {
            return Ok(None);
        }
        for round in rounds(reads.warmup) {
            machine.read(rate * round)?;
            if !guest.meets() {
                return Ok(None);
            }
        }
        let before = machine.look()?;
        let missed = misses()?;
        for round in rounds(reads.reads) {
            if !guest.meets() {
                return Ok(None);
            }
            machine.read(rate * round)?;
        }
        let measured = machine.end(&before, rate * reads.reads)?;
        Ok(Some((measured, missed)))
    }

    fn kernel(&self) -> Kernel {
        match self.kernel.as_str() {
            "6.1" => Kernel::Debian61,
            _ => Kernel::Debian612,
        }
    }

    fn boot(&self, uri: &str) -> Result<Machine, Failure> {
        let disk = Disk::Nbd {
            uri: uri.to_owned(),
        };
        let upper = self.upper_pages * PAGE;
        let mut machine = Machine::boot_on(self.kernel(), Bound::Group, upper, &disk)?;
        machine.choose(match self.generations {
            true => Lists::Generations,
            false => Lists::Two,
        })?;
        Ok(machine)
    }

    /// Starts a server with an empty disk for each guest; the addresses of the disks.
    fn serve(&self, place: &Path) -> Result<(Background, Vec<String>), Failure> {
        let mut serve = futae(["serve", "--json", "--block", "4KiB"])?;
        let unix = |name: &str| format!("unix:{}", place.join(name).display());
        serve.args(["--policy", &self.policy]);
        serve.args(["--cache", &format!("{}blocks", self.lower_pages)]);
        serve.args(["--listen", &unix("nbd.sock"), "--control", &unix(CONTROL)]);
        for guest in 0..self.guests {
            let image = place.join(format!("disk{guest}.img"));
            File::create(&image)?.set_len(DISK)?;
            serve.args(["--export", &format!("disk{guest}={}", image.display())]);
        }
        let (serve, ready) = Background::start("futae serve", serve)?;
        let exports = ready["exports"].as_array().into_iter().flatten();
        let uris = exports.filter_map(|export| Some(export["uris"][0].as_str()?.to_owned()));
        let uris: Vec<String> = uris.collect();
        if uris.len() as u64 != self.guests {
            return Err(anyhow!("the server does not tell its addresses").into());
        }
        Ok((serve, uris))
    }
}

/// Whose turn it is, by lot among all reads that are left of a round.
fn turn(left: &mut [u64], turns: &mut Prng) -> Option<usize> {
    let all: u64 = left.iter().sum();
    let mut lot = (all > 0).then(|| turns.below(all))?;
    let turn = left.iter().position(|own| {
        let is_it = lot < *own;
        lot = lot.saturating_sub(*own);
        is_it
    })?;
    left[turn] -= 1;
    Some(turn)
}

/// So many reads, by rounds.
fn rounds(reads: u64) -> impl Iterator<Item = u64> {
    let begins = (0..reads).step_by(ROUND as usize);
    begins.map(move |begin| ROUND.min(reads - begin))
}

/// What a guest reads.
fn of_guest(reads: &Reads, guest: u64) -> Reads {
    Reads {
        seed: reads.seed.wrapping_add(GUEST_SEED * guest),
        ..*reads
    }
}

type Cache = Level<Box<dyn RegisteredPolicy>, HashIndex>;

/// A read of the lower cache, and what its policy then asks for.
fn below(lower: &mut Cache, read: &Access) -> bool {
    let is_hit = matches!(lower.access(read), Outcome::Hit(_));
    while let Some(wanted) = lower.review() {
        lower.access(&Access::of(wanted, futae_policy::AccessKind::Preload));
    }
    is_hit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_depends_on_its_number_and_can_be_predicted() {
        let all: Vec<_> = (0..60)
            .map(|number| Configuration::draw(number, 1))
            .collect();
        assert_eq!(all[7], Configuration::draw(7, 1));
        let different = |of: &dyn Fn(&Configuration) -> String| {
            let mut seen: Vec<String> = all.iter().map(of).collect();
            seen.sort();
            seen.dedup();
            seen.len()
        };
        assert_eq!(different(&|it| it.kernel.clone()), 2);
        assert_eq!(different(&|it| it.upper_pages.to_string()), 4);
        assert_eq!(different(&|it| it.guests.to_string()), 2);
        assert_eq!(different(&|it| it.rate.to_string()), 3);
        assert!(all.iter().all(|it| it.guests > 1 || it.rate == 1));
        assert!(different(&|it| it.policy.clone()) >= 6);
        assert!(different(&|it| it.workload.clone()) >= 15);
        let reads = Reads {
            warmup: 2000,
            reads: 2000,
            seed: 1,
        };
        for drawn in all.iter().take(6) {
            let Ok(predicted) = drawn.predict(&reads) else {
                panic!("no valid configuration: {drawn:?}");
            };
            assert!(predicted.combined.mean >= predicted.upper.mean, "{drawn:?}");
        }
    }
}
