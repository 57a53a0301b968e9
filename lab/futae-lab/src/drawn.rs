//! `futae-lab drawn`: configurations drawn by lot, predicted first and measured then.

mod configuration;
mod meeting;

use crate::interrupt;
use crate::kernels::setup::Reads;
use crate::live::guests::look_for_qemu;
use anyhow::{Context, anyhow};
use configuration::{Configuration, Prediction};
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Choose configurations at random, predict their hit ratios, and measure them with guests
///
/// A configuration is one guest or two, their kernel, a split of memory between their page caches and a server's cache, the
/// server's policy, and a load. Of two guests the second reads once, twice or four times as often. They read by rounds of 500 reads
/// of the first, and wait for each other after each. All predictions are written to --predictions before the first guest boots, from other random numbers than
/// the guests get: the mean of 20 simulated runs, with bounds for one more run and a point for the error of the models. Exits
/// with 1 if fewer than 95 of 100 hit ratios are within what was predicted.
#[derive(clap::Args)]
pub struct Args {
    /// The first configuration, from 0
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=NUMBER_MAX))]
    from: u64,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=NUMBER_MAX))]
    count: u64,
    /// File of the predictions; existing ones are kept
    #[arg(long, value_name = "FILE", default_value = "predictions.json")]
    predictions: PathBuf,
    /// Only predict
    #[arg(long)]
    predict: bool,
    #[command(flatten)]
    reads: Reads,
}

const SHARE: f64 = 0.95;
/// The highest number of a configuration, and how many there are at most.
const NUMBER_MAX: u64 = 1_000_000;
/// What the loads of guests differ from those of predictions by.
const OTHER_SEED: u64 = 1000;

/// Predicts, then measures, and prints a row for each.
pub fn run(args: &Args) -> Result<(), Failure> {
    let numbers = args.from..args.from + args.count;
    if !args.predict {
        look_for_qemu("drawn")?;
    }
    let predictions = predictions(args, numbers)?;
    let stopped = interrupt::watch()?;
    interrupt::unless_stopped(&stopped, measure(args, &predictions))
}

fn measure(args: &Args, predictions: &[Prediction]) -> Result<(), Failure> {
    let mut out = output();
    writeln!(
        out,
        "number | guests | rate | kernel | lists | above | below | policy | load | of | predicted % | measured % | within"
    )?;
    writeln!(out, "{}", ["---"; 13].join(" | "))?;
    let (mut all, mut within, mut width) = (0_u32, 0_u32, 0.0);
    let other = Reads {
        seed: args.reads.seed.wrapping_add(OTHER_SEED),
        ..args.reads
    };
    for prediction in predictions {
        let it = &prediction.configuration;
        let measured = match args.predict {
            true => [None; 2],
            false => it.measure(&other)?.map(Some),
        };
        let both = [("above", &prediction.upper), ("all", &prediction.combined)];
        for ((of, estimate), measured) in both.into_iter().zip(measured) {
            let is_within = measured.map(|it| (estimate.low..=estimate.high).contains(&it));
            all += 1;
            within += u32::from(is_within == Some(true));
            width += 100.0 * estimate.half_width();
            let percent = |it: f64| format!("{:.2}", 100.0 * it);
            writeln!(
                out,
                "{} | {} | {} | {} | {} | {} | {} | {} | {} | {of} | {} ({} to {}) | {} | {}",
                it.number,
                it.guests,
                it.rate,
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
        true => {
            let text = fs::read(path).with_context(|| path.display().to_string())?;
            serde_json::from_slice(&text)
                .with_context(|| format!("{}: not predictions", path.display()))?
        }
        false => Vec::new(),
    };
    // Before anything is simulated for a file that cannot be written.
    keep(path, &known)?;
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
    keep(path, &known)?;
    Ok(wanted)
}

/// Writes predictions in place of those that are there, which stay if this fails or is ended.
fn keep(path: &Path, known: &[Prediction]) -> anyhow::Result<()> {
    let written = || -> anyhow::Result<()> {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new()
            .prefix(".futae-")
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(folder)?;
        file.write_all(&serde_json::to_vec_pretty(known)?)?;
        file.persist(path)?;
        Ok(())
    };
    written().with_context(|| format!("{}: cannot be written", path.display()))
}
