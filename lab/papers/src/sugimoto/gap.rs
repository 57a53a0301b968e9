//! Figures 3 and 4: how soon a block is asked of the lower cache again.
//!
//! # What the paper says
//! FFSB in a KVM guest reads 8192 files of 1 MiB (8 GB) uniformly, in operations of 1 MiB, with
//! 1 GB (figure 3) and 2 GB (figure 4) of guest memory. The probability density of the re-access
//! interval, measured below the guest's cache, is about 0 below 0.4 GB and below 0.6 GB.
//!
//! # Readings
//! The interval is in bytes of other lower requests between two lower requests for the same file
//! (section 3.1). The guest's cache is a strict LRU of files, of guest memory less what its kernel
//! and processes hold: 0.8 and 1.7 GB. Such a cache gives a hard gap of −(D−U)·ln(1−U/D), wider
//! than the published ones, which correspond to strict LRUs of 0.41 and 0.62 GB: Linux's inactive
//! list, not the whole cache. So the published widths are not checked, only that
//! there is a gap and that it widens; its width is held against the closed form. The gap is the
//! interval that one re-access in a thousand stays below.

use crate::experiment::Experiment;
use crate::report::{Check, Grid, Options, PaperError, Progress, Reproduction, Source};
use futae_policy::{Access, BlockId, DenseIndex, Level, Outcome, PolicySpec, Prng, Shape, build};
use futae_sim::theory::shortest_gap;

macro_rules! figure {
    ($figure:literal, $at:literal) => {
        Experiment {
            paper: "sugimoto-2015",
            figure: $figure,
            title: "density of re-access intervals below the guest's cache",
            run: |options, progress| run($at, options, progress),
        }
    };
}

/// Guest memory of 1 GB, and of 2 GB.
pub const FIGURES: [Experiment; 2] = [figure!("fig3", 0), figure!("fig4", 1)];

const FILES: u64 = 8192;
const DATA_GIB: f64 = 8.0;
const FILES_A_GIB: f64 = FILES as f64 / DATA_GIB;
/// The guest's cache in GiB for each figure.
const UPPERS: [f64; 2] = [0.8, 1.7];
const MEMORY: [&str; 2] = ["1 GB", "2 GB"];
/// The effective strict-LRU size that the published gap of figure 3 corresponds to.
const EFFECTIVE: f64 = 0.45;
const PASSES: u64 = 40;
const BIN_GIB: f64 = 0.25;
const BINS: usize = 24;
/// Share of re-accesses that may come before the gap's end.
const BELOW_GAP: f64 = 0.001;

/// Intervals between lower requests for the same file, in GiB, ascending.
fn intervals(upper_gib: f64, options: &Options, passes: u64) -> Result<Vec<f64>, PaperError> {
    let slots = (upper_gib * FILES_A_GIB).round() as u32;
    let policy = build(
        &PolicySpec::plain("lru"),
        &Shape {
            slots,
            seed: options.seed,
        },
    )?;
    let mut upper = Level::new(policy, DenseIndex::new(FILES as usize), slots);
    let mut prng = Prng::new(options.seed);
    let mut last = vec![None; FILES as usize];
    let (mut lower_requests, mut found) = (0u64, Vec::new());
    let warmup = FILES * passes / 4;
    for request in 0..FILES * passes {
        let file = prng.below(FILES);
        let access = Access::read(BlockId::on_first(file));
        if matches!(upper.access(&access), Outcome::Hit(_)) {
            continue;
        }
        let before = last[file as usize].replace(lower_requests);
        if let Some(before) = before
            && request >= warmup
        {
            found.push((lower_requests - before - 1) as f64 / FILES_A_GIB);
        }
        lower_requests += 1;
    }
    found.sort_by(f64::total_cmp);
    Ok(found)
}

/// The interval that a share of [`BELOW_GAP`] stays below.
fn gap(intervals: &[f64]) -> f64 {
    let at = (intervals.len() as f64 * BELOW_GAP) as usize;
    intervals.get(at).copied().unwrap_or(f64::NAN)
}

/// Share of all intervals between two lengths, per GiB.
fn density(intervals: &[f64], from: f64, to: f64) -> f64 {
    let below = |end: f64| intervals.partition_point(|&interval| interval < end);
    (below(to) - below(from)) as f64 / intervals.len() as f64 / (to - from)
}

fn run(at: usize, options: &Options, _: &Progress<'_>) -> Result<Reproduction, PaperError> {
    let passes = options.passes.unwrap_or(PASSES);
    let found = intervals(UPPERS[at], options, passes)?;
    let mut result = Grid::new(["re-access interval", "density a GiB"]);
    for bin in 0..BINS {
        let (from, to) = (bin as f64 * BIN_GIB, (bin + 1) as f64 * BIN_GIB);
        result.row([
            format!("{from:.2}–{to:.2} GiB"),
            format!("{:.4}", density(&found, from, to)),
        ]);
    }
    let mut gaps = Vec::new();
    for upper in [EFFECTIVE, UPPERS[0], UPPERS[1]] {
        gaps.push(gap(&intervals(upper, options, passes)?));
    }
    let here = gap(&found);
    let expected = shortest_gap(UPPERS[at], DATA_GIB);
    let after = density(&found, expected * 1.03, expected * 1.03 + BIN_GIB);
    let checks = vec![
        Check::within(
            Source::Published,
            "gap in GiB, above 0",
            here,
            f64::MIN_POSITIVE,
            None,
        ),
        Check::within(
            Source::Published,
            "gap of the 2 GB guest less that of the 1 GB guest, in GiB",
            gaps[2] - gaps[1],
            f64::MIN_POSITIVE,
            None,
        ),
        Check::within(
            Source::Model,
            "gap in GiB, −(D−U)·ln(1−U/D) ± 3 %",
            here,
            expected * 0.97,
            expected * 1.03,
        ),
        Check::within(
            Source::Model,
            format!("gap in GiB of a strict LRU of {EFFECTIVE} GiB, closed form ± 3 %"),
            gaps[0],
            shortest_gap(EFFECTIVE, DATA_GIB) * 0.97,
            shortest_gap(EFFECTIVE, DATA_GIB) * 1.03,
        ),
        Check::within(
            Source::Model,
            "density just above the gap times D, about 1 (falling from 1)",
            after * DATA_GIB,
            0.85,
            1.05,
        ),
    ];
    Ok(Reproduction {
        parameters: vec![
            (
                "data",
                format!("{FILES} files of 1 MiB, uniform reads of whole files"),
            ),
            (
                "guest",
                format!("{} of memory, lru of {} GiB", MEMORY[at], UPPERS[at]),
            ),
            (
                "requests",
                format!("{} in all, the first quarter as warm-up", FILES * passes),
            ),
        ],
        result,
        published: vec![
            "1 GB guest: hardly any re-access at intervals below 0.4 GB",
            "2 GB guest: hardly any below 0.6 GB; the gap widens with guest memory",
        ],
        errata: vec![
            "the published gaps are those of strict LRUs of 0.41 and 0.62 GB, not of whole guest caches: no check asks for 0.4 and 0.6",
        ],
        checks,
        ..Reproduction::default()
    })
}

#[cfg(test)]
mod tests {
    use super::FIGURES;
    use crate::Options;

    #[test]
    fn the_gap_is_as_wide_as_predicted() {
        for figure in FIGURES {
            let made = figure.run(&Options::default(), &|_| ()).expect("runs");
            assert!(made.ok(), "{:#?}", made.checks);
        }
    }
}
