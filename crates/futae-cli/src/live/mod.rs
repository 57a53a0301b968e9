//! The experiments of the papers, live: with real caches, sockets, mounts and guests, on a small
//! scale. What came of each is held against the same bounds as in simulation, and against a
//! simulation of the very same requests.
//!
//! | file | holds |
//! | --- | --- |
//! | `process` | commands as child processes, which do not outlive the experiment |
//! | `aoki` | memory moved between two readers: the systems, the race, the table, the checks |
//! | `aoki_group` | both readers in control groups |
//! | `aoki_pace` | how much is read in a trial, and how fast |
//! | `aoki_race` | what both readers know of each other, and when a trial ends |
//! | `aoki_reader` | a reader in a control group, and what tells the allocator of it |
//! | `aoki_guest` | both readers in guests |
//! | `cgroup` | bounds of memory and of reading |
//! | `disk` | a disk of the experiment's own |
//! | `guests` | guests with this program and an agent |
//! | `kotoge` | directory priority under a web server: the cases, the table, the checks |
//! | `stores` | a near and a far store in one cache, and a client of both |
//! | `sugimoto` | an exclusive cache below a guest, told and handed the data: the table, the checks |
//! | `sudo` | replacement by cost: sessions and mixes of requests, the tables, the checks |
//! | `web` | the web server and its client |
//! | `yoshida` | LFU Cache FS above a host's cache: the variants, the table, the checks |
//! | `yoshida_host` | both caches on this machine |
//! | `yoshida_guest` | the upper cache in a guest |

mod aoki;
mod aoki_group;
mod aoki_guest;
mod aoki_pace;
mod aoki_race;
mod aoki_reader;
mod cgroup;
mod disk;
pub mod guests;
mod kotoge;
pub mod process;
mod stores;
mod sudo;
mod sugimoto;
mod web;
mod yoshida;
mod yoshida_guest;
mod yoshida_host;

use crate::failure::Failure;
use futae_papers::Reproduction;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// How an experiment is run.
pub struct Options<'a> {
    /// All randomness comes from this number.
    pub seed: u64,
    /// Requests of warm-up and of measurement, as a multiple of the places that they can be for;
    /// none: as many as in simulation.
    pub passes: Option<u64>,
    /// Traces of a near and of a far store, in place of synthetic requests.
    pub traces: Option<[&'a Path; 2]>,
    /// Somebody wants it to end.
    pub stopped: &'a AtomicBool,
}

/// Runs an experiment, and tells the fraction done.
type Run = fn(&Options<'_>, &dyn Fn(f64)) -> Result<Reproduction, Failure>;

/// One live experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// The paper, by first author and year.
    pub paper: &'static str,
    /// What it is called beside the paper's figures.
    pub figure: &'static str,
    /// What it shows.
    pub title: &'static str,
    run: Run,
}

impl Experiment {
    /// Runs it. `progress` is given the fraction done, from 0 to 1.
    pub fn run(
        &self,
        options: &Options<'_>,
        progress: &dyn Fn(f64),
    ) -> Result<Reproduction, Failure> {
        let mut made = (self.run)(options, progress)?;
        made.paper = self.paper;
        made.figure = self.figure;
        made.title = self.title;
        made.seed = options.seed;
        Ok(made)
    }
}

/// Every live experiment, by paper.
pub fn experiments() -> Vec<Experiment> {
    [
        sugimoto::EXPERIMENTS,
        aoki::EXPERIMENTS,
        yoshida::EXPERIMENTS,
        kotoge::EXPERIMENTS,
        sudo::EXPERIMENTS,
    ]
    .concat()
}
