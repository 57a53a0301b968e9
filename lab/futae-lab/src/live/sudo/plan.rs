//! What is asked of a cache: the session of X and eqntott, or a mix of requests for both stores.

use super::super::stores::{Step, Store};
use anyhow::anyhow;
use futae_papers::Options;
use futae_papers::sudo::{Page, Session};
use futae_policy::Prng;
use futae_terminal::failure::Failure;
use futae_trace::{DenseTrace, TraceOptions, TraceReader, View, WorkloadReader, WorkloadSpec};
use std::path::Path;

/// Blocks of the session's cache: less than the simulation's 1300, so that more of its time is spent on
/// what was given up, and less on the requests themselves.
pub(super) const FRAMES: u32 = 900;
/// One of this many uses of a heap page that is there modifies it.
const USES_A_WRITE: u64 = 4;
/// Requests of the mix for each store; the first half warms up.
const REQUESTS: usize = 8000;
pub(super) const NEAR: &str = "zipf(0.8):2000blocks";
pub(super) const FAR: &str = "zipf(0.8):1000blocks";
/// One of this many requests of the synthetic mix is a write.
const REQUESTS_A_WRITE: u64 = 10;
/// One of this many blocks of the mix can be in the cache.
const BLOCKS_A_SLOT: u32 = 3;
/// What is asked of a cache, by one program after the other.
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// How many steps the first part has: start-up, or warm-up.
    pub(super) first: usize,
    pub(super) blocks: [u32; 2],
    pub(super) slots: u32,
}

/// Where the text of the programs is; the heap is in the other store.
pub(super) fn session(seed: u64, text: Store) -> Plan {
    let session = Session::new(seed);
    let mut prng = Prng::new(seed ^ 1);
    let (mut steps, mut first) = (Vec::new(), 0);
    let mut is_new = vec![true; session.pages()];
    let heap = match text {
        Store::Near => Store::Far,
        Store::Far => Store::Near,
    };
    for (at, page) in session.references.iter().enumerate() {
        if at == session.started {
            first = steps.len();
        }
        let block = page.number() as u32;
        let mut step = |store, is_write| {
            steps.push(Step {
                store,
                block,
                is_write,
            });
        };
        match page {
            // Everything but X is always near: it is what the machine itself runs.
            Page::Text { of_x: false, .. } => step(Store::Near, false),
            Page::Text { .. } => step(text, false),
            // A new page is filled and not read.
            Page::Heap(_) if std::mem::take(&mut is_new[block as usize]) => step(heap, true),
            Page::Heap(_) => {
                step(heap, false);
                if prng.below(USES_A_WRITE) == 0 {
                    step(heap, true);
                }
            }
        }
    }
    Plan {
        steps,
        first,
        blocks: [session.pages() as u32; 2],
        slots: FRAMES,
    }
}

/// The requests for both stores, in turn by their shares.
pub(super) fn mix(options: &Options) -> Result<Plan, Failure> {
    let traces = match &options.traces {
        Some([near, far]) => [read(near)?, read(far)?],
        None => {
            let draw = |text: &str, seed| -> Result<DenseTrace, Failure> {
                let spec: WorkloadSpec = text.parse()?;
                let drawn = WorkloadReader::new(&spec, 4096, seed, REQUESTS as u64)?;
                dense(drawn)
            };
            let seed = options.seed.wrapping_mul(2);
            [draw(NEAR, seed)?, draw(FAR, seed.wrapping_add(1))?]
        }
    };
    let mut prng = Prng::new(options.seed);
    let lengths = [0, 1].map(|at: usize| traces[at].ids().len());
    let (mut steps, mut taken) = (Vec::new(), [0, 0]);
    while taken != lengths {
        // The one of which less has been taken.
        let behind = taken[0] * lengths[1] > taken[1] * lengths[0];
        let at = usize::from(behind);
        let is_write = match &options.traces {
            Some(_) => traces[at].is_write(taken[at]),
            None => prng.below(REQUESTS_A_WRITE) == 0,
        };
        steps.push(Step {
            store: [Store::Near, Store::Far][at],
            block: traces[at].ids()[taken[at]],
            is_write,
        });
        taken[at] += 1;
    }
    let blocks = [traces[0].distinct(), traces[1].distinct()];
    Ok(Plan {
        first: steps.len() / 2,
        steps,
        blocks,
        slots: (blocks[0] + blocks[1]).div_ceil(BLOCKS_A_SLOT),
    })
}

/// The first requests of a trace file. What begins at the same place is one block.
fn read(path: &Path) -> Result<DenseTrace, Failure> {
    let reader = TraceReader::open(path, &TraceOptions::default())?;
    let trace = dense(reader.take(REQUESTS))?;
    match trace.ids() {
        [] => Err(anyhow!("{}: no requests", path.display()).into()),
        _ => Ok(trace),
    }
}

fn dense(
    requests: impl Iterator<Item = Result<futae_trace::Request, futae_trace::TraceError>>,
) -> Result<DenseTrace, Failure> {
    let requests: Vec<_> = requests.collect::<Result<_, _>>()?;
    let trace = DenseTrace::from_requests(&requests, View::Start);
    trace.map_err(|error| anyhow!("{error}").into())
}
