//! Aoki and Shiba 2024, live at a sixteenth of its sizes: memory moved between two readers.
//!
//! G1 reads a file of 128 MiB and then one of 256, G2 the other way round. Each has memory of its own:
//! a control group (`aoki_group`), or a whole guest (`aoki_guest`). `futae_balance` moves it: never, by
//! the paper's value, or by miss-ratio curves. The reading of the paper is that of the simulation
//! (`futae_papers`), and readers are slowed down until a trial is what it is there (`aoki_pace`).

use super::experiment::Experiment;
use super::{aoki_group, aoki_guest};

/// The live experiments of this paper.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        paper: "aoki-2024",
        figure: "live-cgroup",
        title: "two readers in control groups, whose limits futae balance moves",
        run: |options, progress| aoki_group::run(NARROW, options, progress),
    },
    Experiment {
        paper: "aoki-2024",
        figure: "live-guest",
        title: "two guests with agents, whose balloons futae balance moves",
        run: |options, progress| aoki_guest::run(NARROW, options, progress),
    },
    Experiment {
        paper: "aoki-2024",
        figure: "live-cgroup-wide",
        title: "as live-cgroup, and the files are read more evenly: σ is a quarter of a file",
        run: |options, progress| aoki_group::run(WIDE, options, progress),
    },
    Experiment {
        paper: "aoki-2024",
        figure: "live-guest-wide",
        title: "as live-guest, and the files are read more evenly: σ is a quarter of a file",
        run: |options, progress| aoki_guest::run(WIDE, options, progress),
    },
];

/// How pages are chosen. The paper says "normally distributed" and not how widely: with σ a sixth of the file it is nearest
/// to the published run.
const NARROW: &str = "normal(0.1666667)";
/// With σ a quarter of the file.
const WIDE: &str = "normal(0.25)";
