//! Simulation of a trace that is read once and not kept.

use super::drive::Known;
use super::noting::Noting;
use super::planned::Extras;
use super::view::ViewChoice;
use super::{Plan, Report, SimulationError, TraceFacts, TraceSimulation};
use crate::index::BackedIndex;
use futae_trace::{DensePieces, Doubt, TraceOptions, TraceReader, View};
use std::path::PathBuf;

impl TraceSimulation {
    /// Whether [`simulate_one_pass`] supports this simulation: no level may need to know anything
    /// of the trace before its end, and with a view of the trace's own lengths might differ.
    /// `block_bytes` is the size of a block.
    #[must_use]
    pub fn is_one_pass(&self, view: ViewChoice, block_bytes: u64) -> bool {
        let mut levels = self.levels.iter();
        view != ViewChoice::Start && levels.all(|level| level.is_open_ended(block_bytes))
    }
}

/// Simulates one hierarchy under one trace while the trace is read, in memory that grows with the
/// trace's blocks and not with its length. The report equals that of [`Traces`](super::Traces). The
/// hierarchy must be [supported](TraceSimulation::is_one_pass). It is simulated on at most `threads`
/// threads. `progress` gets the fraction read,
/// from 0 to 1.
pub fn simulate_one_pass(
    path: &PathBuf,
    options: &TraceOptions,
    view: ViewChoice,
    spec: &TraceSimulation,
    threads: usize,
    progress: &mut (dyn FnMut(f64) + Send),
) -> Result<Report, SimulationError> {
    debug_assert!(
        spec.is_one_pass(view, options.unit_bytes),
        "needs the whole trace"
    );
    let reader = TraceReader::open(path, options)?;
    let mut facts = TraceFacts::of(std::slice::from_ref(path));
    let format = reader.format();
    let choice = view;
    let view = choice.view(&reader, options.unit_bytes);
    if view != View::Start {
        facts.view = "blocks";
    }
    facts.formats.push(format.name());
    let mut pieces = DensePieces::new(Noting::progress_of(reader, progress), view);
    let plan = Plan {
        levels: &spec.levels,
        links: &spec.links,
        write_mode: spec.write_mode,
        guests: 1,
        blocks: BackedIndex::BLOCKS_MAX,
        volumes: Vec::new(),
        distinct: BackedIndex::BLOCKS_MAX,
        footprint: 0,
        block_bytes: options.unit_bytes,
        seed: spec.seed,
        warmup_requests: spec.warmup_requests,
        requests: spec.requests.unwrap_or(u64::MAX),
        is_spread: threads > 1,
    };
    let extras = Extras {
        known: Known::default(),
        digest: false,
    };
    let (mut run, _) = plan.run_with(&extras, &mut pieces, &mut |_| {})?;
    let (noting, pieced) = pieces.finish()?;
    facts.trace_requests = pieced.requests;
    facts.accesses = pieced.accesses;
    facts.distinct_blocks = u64::from(pieced.distinct);
    facts.records_skipped = noting.reader.skipped();
    facts.doubts = choice.doubts(&noting.reader);
    // Lengths are not kept in one pass.
    if noting.reader.has_sizes() && view == View::Start {
        facts.doubts.push(Doubt::SizesNotKept);
    }
    if facts.sizes_ignored() {
        run.byte_miss_ratio = None;
    }
    if spec.warmup_requests > 0 && spec.warmup_requests >= facts.accesses {
        return Err(SimulationError::Warmup {
            warmup: spec.warmup_requests,
            accesses: facts.accesses,
        });
    }
    facts.read_seconds = pieced.reading.as_secs_f64();
    run.footprint_blocks = facts.distinct_blocks;
    run.seconds = (run.seconds - facts.read_seconds).max(0.0);
    let mut report = Report::of(vec![run], spec.seed, pieced.digest.hex());
    report.sources.clone_from(&facts.files);
    report.trace = Some(facts);
    Ok(report)
}
