//! `futae-lab drawn`: configurations drawn by lot, predicted first and measured then.

use crate::kernels::guest::Machine;
use crate::kernels::{Bound, Lists, PAGE, Reads, model};
use crate::live::guests::look_for_qemu;
use crate::live::process::{Background, futae, status};
use anyhow::{Context, anyhow};
use futae_machine::{Disk, Kernel};
use futae_policy::{
    Access, BlockId, HashIndex, Kind, Level, Outcome, PolicySpec, Prng, RegisteredPolicy, Shape,
    Trait,
};
use futae_sim::forecast::Estimate;
use futae_terminal::failure::Failure;
use futae_trace::WorkloadSpec;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Draw configurations by lot, predict what they hit, and measure them with guests
///
/// A configuration is a guest's kernel, a split of memory between its page cache and a server's cache, the server's policy,
/// and a load. All predictions are written to --predictions before the first guest boots, from other random numbers than
/// the guests get: the mean of 20 simulated runs, with bounds for one more run and a point for the error of the models. Exits
/// with 1 if fewer than 95 of 100 hit ratios are within what was predicted.
#[derive(clap::Args)]
pub struct Args {
    /// The first configuration, from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 60)]
    count: u64,
    /// Where the predictions go; they are kept if they are there already
    #[arg(long, value_name = "FILE", default_value = "predictions.json")]
    predictions: PathBuf,
    /// Only predict
    #[arg(long)]
    predict: bool,
    #[command(flatten)]
    reads: Reads,
}

const DISK: u64 = 64 << 20;
/// Both caches together.
const MEMORY: u64 = 32 << 20;
/// What reclaim by rounds leaves free of a group's memory, in the mean.
const FREE_PAGES: u64 = 48;
const SHARE: f64 = 0.95;
/// A prediction is the mean of so many simulated runs, each by random numbers of its own.
const RUNS: u64 = 20;
/// What a simulated hit ratio may differ from that of a real guest under the same requests, 95 times of 100: what `futae-lab kernels`
/// holds the models to.
const MODEL_ERROR: f64 = 0.01;
/// What the loads of guests differ from those of predictions by.
const OTHER_SEED: u64 = 1000;

/// What is drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Configuration {
    number: u64,
    kernel: String,
    generations: bool,
    upper_pages: u64,
    lower_pages: u64,
    policy: String,
    workload: String,
}

/// What it is expected to hit.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Prediction {
    configuration: Configuration,
    reads: u64,
    warmup: u64,
    upper: Estimate,
    combined: Estimate,
}

impl Configuration {
    fn draw(number: u64, seed: u64) -> Self {
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
        Self {
            number,
            kernel: kernel.to_owned(),
            generations,
            upper_pages,
            lower_pages: MEMORY / PAGE - upper_pages,
            policy: policy.to_string(),
            workload,
        }
    }

    fn predict(&self, reads: &Reads) -> Result<Prediction, Failure> {
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

    /// The hit ratios of the guest's cache and of both in one simulated run.
    fn simulate(&self, reads: &Reads) -> Result<[f64; 2], Failure> {
        let workload: WorkloadSpec = self.workload.parse()?;
        let cache = |policy: &PolicySpec, pages: u64| -> Result<Cache, Failure> {
            let (slots, seed) = (u32::try_from(pages)?, reads.seed);
            let built = futae_policy::build(policy, &Shape { slots, seed })?;
            Ok(Level::new(built, HashIndex::default(), slots))
        };
        let upper = model::of(self.generations, Bound::Group)?;
        let mut upper = cache(&upper, self.upper_pages - FREE_PAGES)?;
        let mut lower = cache(&self.policy.parse()?, self.lower_pages)?;
        let mut requests = workload.generator(PAGE, reads.seed)?;
        let mut hits = [0_u64; 2];
        for number in 0..reads.warmup + reads.reads {
            let read = Access::read(BlockId::on_first(requests.next_block().0));
            let is_upper = matches!(upper.access(&read), Outcome::Hit(_));
            let is_hit = is_upper || below(&mut lower, &read);
            if number >= reads.warmup {
                hits[0] += u64::from(is_upper);
                hits[1] += u64::from(is_hit);
            }
        }
        Ok(hits.map(|hits| hits as f64 / reads.reads as f64))
    }

    /// The hit ratios of the guest's cache and of both.
    fn measure(&self, reads: &Reads) -> Result<[f64; 2], Failure> {
        let kernel = match self.kernel.as_str() {
            "6.1" => Kernel::Debian61,
            _ => Kernel::Debian612,
        };
        let place = tempfile::Builder::new().prefix("futae-lab-").tempdir()?;
        let image = place.path().join("disk.img");
        File::create(&image)?.set_len(DISK)?;
        let (_serve, uri) = self.serve(&image, place.path())?;
        let upper = self.upper_pages * PAGE;
        let disk = Disk::Nbd { uri };
        let mut machine = Machine::boot_on(kernel, Bound::Group, upper, &disk)?;
        machine.choose(match self.generations {
            true => Lists::Generations,
            false => Lists::Two,
        })?;
        let control = place.path().join("control.sock");
        let mut missed = Vec::new();
        let measured = machine.measure(&self.workload.parse()?, reads, &mut || {
            missed.push(status(&control)?.counters.misses);
            Ok(())
        })?;
        let &[before, after] = missed.as_slice() else {
            return Err(anyhow!("the server was not asked twice").into());
        };
        let combined = 1.0 - (after - before) as f64 / reads.reads as f64;
        Ok([measured.hit_ratio, combined])
    }

    fn serve(&self, image: &Path, place: &Path) -> Result<(Background, String), Failure> {
        let mut serve = futae([
            "serve",
            "--json",
            "--block",
            "4KiB",
            "--policy",
            &self.policy,
        ])?;
        let listen = format!("unix:{}", place.join("nbd.sock").display());
        let control = format!("unix:{}", place.join("control.sock").display());
        serve.args(["--cache", &format!("{}blocks", self.lower_pages)]);
        serve.args(["--export", &format!("disk={}", image.display())]);
        serve.args(["--listen", &listen, "--control", &control]);
        let (serve, ready) = Background::start("futae serve", serve)?;
        let uri = ready["exports"][0]["uris"][0].as_str();
        let uri = uri.context("the server does not tell its address")?;
        Ok((serve, uri.to_owned()))
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

/// Predicts, then measures, and prints a row for each.
pub fn run(args: &Args) -> Result<(), Failure> {
    let numbers = args.from..args.from + args.count;
    let predictions = predictions(args, numbers)?;
    let mut out = std::io::stdout().lock();
    if !args.predict {
        look_for_qemu("drawn")?;
    }
    writeln!(
        out,
        "number | kernel | lists | above | below | policy | load | of | predicted % | measured % | within"
    )?;
    writeln!(out, "{}", ["---"; 11].join(" | "))?;
    let (mut all, mut within, mut width) = (0_u32, 0_u32, 0.0);
    let other = Reads {
        seed: args.reads.seed.wrapping_add(OTHER_SEED),
        ..args.reads
    };
    for prediction in &predictions {
        let it = &prediction.configuration;
        let measured = match args.predict {
            true => [None; 2],
            false => it.measure(&other)?.map(Some),
        };
        let both = [("guest", &prediction.upper), ("both", &prediction.combined)];
        for ((of, estimate), measured) in both.into_iter().zip(measured) {
            let is_within = measured.map(|it| (estimate.low..=estimate.high).contains(&it));
            all += 1;
            within += u32::from(is_within == Some(true));
            width += 100.0 * estimate.half_width();
            let percent = |it: f64| format!("{:.2}", 100.0 * it);
            writeln!(
                out,
                "{} | {} | {} | {} | {} | {} | {} | {of} | {} ({} to {}) | {} | {}",
                it.number,
                it.kernel,
                if it.generations { "generations" } else { "two" },
                it.upper_pages,
                it.lower_pages,
                it.policy,
                it.workload,
                percent(estimate.mean),
                percent(estimate.low),
                percent(estimate.high),
                measured.map_or_else(|| "–".to_owned(), percent),
                is_within.map_or("–", |is| if is { "yes" } else { "no" }),
            )?;
            out.flush()?;
        }
    }
    let mean_width = width / f64::from(all.max(1));
    if args.predict {
        writeln!(out, "{all} ratios, ± {mean_width:.2} points in the mean")?;
        return Ok(());
    }
    writeln!(
        out,
        "{within} of {all} ratios within what was predicted, ± {mean_width:.2} points in the mean"
    )?;
    if f64::from(within) < SHARE * f64::from(all) {
        let message = format!("{within} of {all} ratios are within what was predicted");
        return Err(anyhow!(message).into());
    }
    Ok(())
}

/// All predictions, from their file if that has them.
fn predictions(args: &Args, numbers: std::ops::Range<u64>) -> Result<Vec<Prediction>, Failure> {
    let path = &args.predictions;
    let mut known: Vec<Prediction> = match path.exists() {
        true => serde_json::from_slice(&fs::read(path)?)
            .with_context(|| format!("{}: not predictions", path.display()))?,
        false => Vec::new(),
    };
    let mut wanted = Vec::new();
    for number in numbers {
        let drawn = Configuration::draw(number, args.reads.seed);
        let same = |it: &&Prediction| {
            it.configuration == drawn
                && [it.reads, it.warmup] == [args.reads.reads, args.reads.warmup]
        };
        if let Some(there) = known.iter().find(same) {
            wanted.push(there.clone());
            continue;
        }
        let prediction = drawn.predict(&args.reads)?;
        known.push(prediction.clone());
        wanted.push(prediction);
    }
    fs::write(path, serde_json::to_vec_pretty(&known)?)
        .with_context(|| path.display().to_string())?;
    Ok(wanted)
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
