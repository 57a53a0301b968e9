//! Aoki and Shiba 2024, figure 2: memory moved between two guests by their page-cache hits.
//!
//! # What the paper says
//! Two guests share 6 GB. After every trial an allocator computes e = (hits − misses) ÷ memory of
//! each and, "if the difference is less than 500", moves 100 MB from the guest with the higher e to
//! the other. G1 reads a 2 GB file and then one of 4 GB, G2 first 4 GB and then 2 GB; each file is
//! read 50 times over. Figure 2 shows the hits of every trial, against 3 GB for each throughout.
//! G1's first file ends at trial 11 either way; all is over after 24 trials against 30, and the
//! total is above the static one in 19 of 24 trials; it is below between the two switches.
//!
//! # Readings
//! The condition is taken as printed (`lt`) and shown beside its opposite (`ge`) and none
//! (`always`). Memory is in MiB. A trial is a fixed time: 2.4 million page
//! reads of a guest that always hits; a miss takes as long as 8 hits; both are a model, as is the
//! length of a phase: 11 trials of hits only. Positions are normal around the middle of the
//! file ("regular expression" is a slip for normal distribution), σ a sixth of the file. The
//! cache is the guest's memory less 0.4 GiB, a strict LRU, counted in units of 1 MiB, each of
//! 256 page reads. "3 GB" is read as the end of the 4 GB phase.
//!
//! The allocator is the one of `futae balance` ([`futae_allocate::Allocator`]), with the paper's evaluator
//! and with `mrc`.
//!
//! | file | holds |
//! | --- | --- |
//! | `guests` | the simulated guests under an allocator |
//! | `measure` | which hits are compared |
//! | `fig2` | files that are swapped |
//! | `steady` | files that stay, against the best division that stays |

mod fig2;
mod guests;
mod measure;
mod steady;

use crate::experiment::Experiment;

pub use measure::{Hits, Simulated, Spread, TRIALS_COMPARED, simulated_hits};

/// The experiments of this paper.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        paper: "aoki-2024",
        figure: "fig2",
        title: "hits by trial while an allocator moves memory between two guests",
        run: fig2::run,
    },
    Experiment {
        paper: "aoki-2024",
        figure: "steady",
        title: "hits once memory has been moved, against the best division that stays",
        run: steady::run,
    },
];
