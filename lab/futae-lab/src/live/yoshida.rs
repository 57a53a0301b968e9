//! Yoshida and others 2018, live at a sixteenth of its sizes: LFU Cache FS above a host's cache.
//!
//! 256 MiB are read at random, uniformly, by 64 KiB, from one thread. In the guest there is its
//! ordinary page cache ("normal"), Const Cache FS, LFU Cache FS as printed, or with `min_gain`;
//! below it a host cache that bounds what the host may keep. The reading of the paper is that of the
//! simulation (`futae_papers::yoshida`).

use super::experiment::Experiment;
use super::{yoshida_guest, yoshida_host};

/// The live experiments of this paper.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        paper: "yoshida-2018",
        figure: "live-host",
        title: "both caches on this machine: futae mount over futae serve",
        run: yoshida_host::run,
    },
    Experiment {
        paper: "yoshida-2018",
        figure: "live-guest",
        title: "the upper cache in a guest, futae serve behind its disk",
        run: yoshida_guest::run_over_serve,
    },
    Experiment {
        paper: "yoshida-2018",
        figure: "live-qemu",
        title: "the upper cache in a guest, the host's page cache behind its disk",
        run: yoshida_guest::run_over_page_cache,
    },
];
