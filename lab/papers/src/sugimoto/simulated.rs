//! Figures 12, 13 and 14: nine lower-cache policies under uniform random reads.
//!
//! # What the paper says
//! 10 GB of data in 4 KiB blocks, read uniformly at random. Upper cache: LRU of 2 GB (figure 12),
//! 3 GB (13), 4 GB (14). Lower cache: 2, 3, 4 and 5 GB. The figures show the lower cache's hit
//! ratio; their values do not survive in print, so what is published are orders and trends.
//!
//! # Readings
//! GB is 2^30 bytes. The list of policies in the text leaves out LFU and 2Q, of which
//! other sections speak: all nine are run. LFU keeps counts of departed blocks;
//! MQ has 8 queues, 4·L names and a lifetime of as many accesses as there are blocks; 2Q is
//! the full one with Kin = L/4, Kout = L/2. The length of a run is not published: 100 reads a
//! block of warm-up and as many measured; 10 and 10 at full size. MQ and LFU depend on it.

use crate::experiment::Experiment;
use crate::report::{Check, Grid, Options, PaperError, Progress, Reproduction, Source};
use futae_sim::theory::uniform_lower_hit;
use futae_sim::{LevelSpec, Run, SimulationSpec, WriteMode, links, simulate_all};

const BLOCK_BYTES: u64 = 4096;
const GIB: u64 = 1 << 30;
const DATA: u64 = 10;
const UPPERS: [u64; 3] = [2, 3, 4];
const LOWERS: [u64; 4] = [2, 3, 4, 5];
/// Requests a block of the runs at other sizes of the upper cache, at most. They serve orders only, of LRU and of the
/// proposed policy, which count no uses as MQ and LFU do.
const TREND_PASSES: u64 = 5;
/// As in the registry, LRU first and the proposed one last.
const POLICIES: [&str; 9] = [
    "lru",
    "mq",
    "fifo",
    "random",
    "2q",
    "lfu",
    "mru",
    "fix",
    "exclusive",
];

macro_rules! figure {
    ($figure:literal, $upper:literal) => {
        Experiment {
            paper: "sugimoto-2015",
            figure: $figure,
            title: concat!(
                "lower hit ratio of nine policies under uniform reads, upper cache ",
                $upper,
                " GB"
            ),
            run: |options, progress| run($upper, options, progress),
        }
    };
}

/// One figure for each size of the upper cache.
pub const FIGURES: [Experiment; 3] = [
    figure!("fig12", 2),
    figure!("fig13", 3),
    figure!("fig14", 4),
];

/// One run: upper and lower size in GiB, and the lower policy.
#[derive(Clone, Copy, PartialEq)]
struct Cell {
    upper: u64,
    lower: u64,
    policy: &'static str,
}

/// The runs of this figure and, apart, those of the other two that its trends are seen against.
fn cells(upper: u64) -> [Vec<Cell>; 2] {
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for lower in LOWERS {
        let cell = |upper, policy| Cell {
            upper,
            lower,
            policy,
        };
        own.extend(POLICIES.map(|policy| cell(upper, policy)));
        for other in UPPERS.into_iter().filter(|&other| other != upper) {
            others.extend(["lru", "exclusive"].map(|policy| cell(other, policy)));
        }
    }
    [own, others]
}

fn simulation(cell: Cell, options: &Options, passes: u64) -> Result<SimulationSpec, PaperError> {
    let bytes = |gib: u64| gib * GIB / options.scale;
    let blocks = bytes(DATA) / BLOCK_BYTES;
    let policy = if cell.policy == "mq" {
        format!("mq(life_time={blocks})")
    } else {
        cell.policy.to_owned()
    };
    let level = |text: String| {
        text.parse::<LevelSpec>()
            .map_err(futae_sim::SimulationError::from)
    };
    let levels = vec![
        level(format!("lru:{}blocks", bytes(cell.upper) / BLOCK_BYTES))?,
        level(format!(
            "{policy}:{}blocks",
            bytes(cell.lower) / BLOCK_BYTES
        ))?,
    ];
    Ok(SimulationSpec {
        links: links(&levels, None),
        levels,
        write_mode: WriteMode::WriteThrough,
        guests: 1,
        workload: format!("uniform:{blocks}blocks").parse()?,
        block_bytes: BLOCK_BYTES,
        seed: options.seed,
        warmup_requests: Some(passes * blocks),
        requests: Some(passes * blocks),
    })
}

fn run(upper: u64, options: &Options, progress: &Progress<'_>) -> Result<Reproduction, PaperError> {
    options.check_scale()?;
    let passes = options
        .passes
        .unwrap_or(if options.scale == 1 { 10 } else { 100 });
    let simulate = |cells: &[Cell], passes: u64, progress: &Progress<'_>| {
        let specs = cells.iter().map(|&cell| simulation(cell, options, passes));
        let specs = specs.collect::<Result<Vec<_>, _>>()?;
        Ok::<_, PaperError>(simulate_all(&specs, options.threads, progress)?)
    };
    let [mut cells, others] = cells(upper);
    let report = simulate(&cells, passes, progress)?;
    // A trend is larger than what short runs leave in doubt.
    let trend = simulate(&others, passes.min(TREND_PASSES), &|_| ())?;
    cells.extend(others);
    let mut runs = report.runs;
    runs.extend(trend.runs);
    let results = Results { cells, runs };
    Ok(Reproduction {
        parameters: vec![
            (
                "data",
                format!(
                    "{DATA} GiB / {}, blocks of 4 KiB, uniform reads",
                    options.scale
                ),
            ),
            (
                "upper cache",
                format!("lru, {upper} GiB / {}", options.scale),
            ),
            ("lower cache", format!("2, 3, 4, 5 GiB / {}", options.scale)),
            (
                "requests",
                format!(
                    "{passes} a block of warm-up, {passes} a block measured; {} at other upper caches",
                    passes.min(TREND_PASSES)
                ),
            ),
            ("trace digest", report.trace_digest),
        ],
        result: results.table(upper),
        published: vec![
            "the proposed policy has the highest hit ratio in every case",
            "LRU has the lowest",
            "the larger the upper cache, the lower the hit ratio of LRU",
            "the larger the upper cache, the higher the hit ratio of the proposed policy",
            "MQ does as LRU does, because all blocks fall into one queue",
        ],
        errata: vec![
            "section 3.4.1 prints the hit ratio as 1 − A/B, where it must be 1 − B/A (B of A requests leave the cache)",
            "the list of simulated policies leaves out LFU and 2Q, and has RADN for RAND",
            "only uniform reads were tried; under a loop of more than both caches the proposed policy has no hits, FIX and MRU have (both keep L blocks of the loop)",
        ],
        checks: results.checks(upper, passes),
        ..Reproduction::default()
    })
}

struct Results {
    cells: Vec<Cell>,
    runs: Vec<Run>,
}

impl Results {
    fn run(&self, upper: u64, lower: u64, policy: &'static str) -> Option<&Run> {
        let cell = Cell {
            upper,
            lower,
            policy,
        };
        let at = self.cells.iter().position(|&c| c == cell)?;
        self.runs.get(at)
    }

    /// The lower hit ratio in percent; undefined where the cell was not run.
    fn hit(&self, upper: u64, lower: u64, policy: &'static str) -> f64 {
        let run = self.run(upper, lower, policy);
        let ratio = run.and_then(|run| run.levels.last()?.hit_ratio);
        100.0 * ratio.unwrap_or(f64::NAN)
    }

    fn table(&self, upper: u64) -> Grid {
        let mut heads = vec!["lower cache".to_owned()];
        heads.extend(POLICIES.map(str::to_owned));
        heads.extend(["both, lru".to_owned(), "both, exclusive".to_owned()]);
        let mut grid = Grid::new(heads);
        for lower in LOWERS {
            let both = |policy| {
                let ratio = self
                    .run(upper, lower, policy)
                    .and_then(|r| r.combined_hit_ratio);
                format!("{:.1} %", 100.0 * ratio.unwrap_or(f64::NAN))
            };
            let mut row = vec![format!("{lower} GiB")];
            row.extend(POLICIES.map(|policy| format!("{:.1} %", self.hit(upper, lower, policy))));
            row.extend([both("lru"), both("exclusive")]);
            grid.row(row);
        }
        grid
    }

    fn checks(&self, upper: u64, passes: u64) -> Vec<Check> {
        let mut checks = self.published(upper);
        for lower in LOWERS {
            self.model(upper, lower, passes, &mut checks);
        }
        checks
    }

    fn published(&self, upper: u64) -> Vec<Check> {
        let hit = |lower, policy| self.hit(upper, lower, policy);
        let margin = |policy: &'static str, sign: f64| {
            let margins = LOWERS.iter().flat_map(|&lower| {
                let others = POLICIES.iter().filter(move |&&other| other != policy);
                others.map(move |&other| sign * (hit(lower, policy) - hit(lower, other)))
            });
            margins.fold(f64::INFINITY, f64::min)
        };
        let steps = |policy: &'static str, sign: f64| {
            let steps = LOWERS.iter().flat_map(|&lower| {
                UPPERS.windows(2).map(move |pair| {
                    sign * (self.hit(pair[1], lower, policy) - self.hit(pair[0], lower, policy))
                })
            });
            steps.fold(f64::INFINITY, f64::min)
        };
        let distance = LOWERS.map(|lower| (hit(lower, "mq") - hit(lower, "lru")).abs());
        let published = Source::Published;
        let above_zero = f64::MIN_POSITIVE;
        vec![
            Check::within(
                published,
                "(i) exclusive above every other policy, least margin in points",
                margin("exclusive", 1.0),
                above_zero,
                None,
            ),
            Check::within(
                published,
                "(ii) lru below every other policy or level, least margin in points (noise 0.3)",
                margin("lru", -1.0),
                -0.3,
                None,
            ),
            Check::within(
                published,
                "(iii) lru falls as the upper cache grows (ties at 0), least step in points",
                steps("lru", -1.0),
                0.0,
                None,
            ),
            Check::within(
                published,
                "(iv) exclusive rises as the upper cache grows, least step in points",
                steps("exclusive", 1.0),
                above_zero,
                None,
            ),
            Check::within(
                published,
                "(v) mq about as lru, greatest distance in points",
                distance.into_iter().fold(0.0, f64::max),
                None,
                7.0,
            ),
        ]
    }

    /// Bands around an independent simulation, in points; closed forms where there are.
    fn model(&self, upper: u64, lower: u64, passes: u64, checks: &mut Vec<Check>) {
        let mut band = |policy: &'static str, low: f64, high: f64| {
            let name = format!("{policy} at {lower} GiB, lower hit in percent");
            let hit = self.hit(upper, lower, policy);
            checks.push(Check::within(Source::Model, name, hit, low, high));
        };
        let theory = |policy| {
            let hit = uniform_lower_hit(policy, upper as f64, lower as f64, DATA as f64);
            100.0 * hit.unwrap_or(f64::NAN)
        };
        for (policy, width) in [
            ("lru", 0.5),
            ("fifo", 0.5),
            ("random", 0.5),
            ("mru", 0.3),
            ("fix", 0.3),
            ("exclusive", 0.3),
        ] {
            band(policy, theory(policy) - width, theory(policy) + width);
        }
        let lru = self.hit(upper, lower, "lru");
        band("mq", lru - 0.3, lru + 7.0);
        // Perfect LFU comes to the L/D of FIX from below, the nearer the longer the run: at 100
        // reads a block 1 to 4 points below, of which an independent simulation makes 0.9 to 4 (19.1 % where
        // FIX has 20 %).
        let fix = theory("fix");
        let (low, high) = if passes >= 100 {
            (fix - 4.0, fix - 0.8)
        } else {
            (0.0, fix)
        };
        band("lfu", low, high);
        // 2Q depends on the length of the run: the model's value is for 100 reads a block.
        if passes >= 100 {
            let modelled = two_q(upper, lower);
            band("2q", modelled - 1.0, modelled + 1.0);
        }
    }
}

/// There is no closed form for 2Q: these are the values of an independent simulation, in percent.
fn two_q(upper: u64, lower: u64) -> f64 {
    let row = match upper {
        2 => [15.0, 20.3, 26.3, 38.4],
        3 => [7.0, 21.3, 24.4, 31.2],
        _ => [0.0, 21.1, 25.3, 24.1],
    };
    row[(lower - LOWERS[0]) as usize]
}

#[cfg(test)]
mod tests {
    use super::FIGURES;
    use crate::Options;

    #[test]
    fn every_check_passes_on_short_runs() {
        let options = Options {
            scale: 256,
            passes: Some(30),
            threads: 2,
            ..Options::default()
        };
        for figure in FIGURES {
            let made = figure.run(&options, &|_| ()).expect("runs");
            assert!(made.ok(), "{:#?}", made.checks);
            assert_eq!(made.result.rows.len(), 4);
        }
    }
}
