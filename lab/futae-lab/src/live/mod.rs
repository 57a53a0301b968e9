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
//! | `kotoge_site` | the files that it serves, and the clients that ask for them |
//! | `kotoge_kernel` | the same with `sendfile`, where the kernel holds the pages |
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
pub mod cgroup;
mod disk;
pub mod guests;
mod kotoge;
mod kotoge_kernel;
mod kotoge_site;
pub mod process;
mod stores;
mod sudo;
mod sugimoto;
mod web;
mod yoshida;
mod yoshida_guest;
mod yoshida_host;

use futae_papers::Options;
use futae_terminal::failure::Failure;
use futae_trace::{WorkloadError, WorkloadSpec};
use futae_units::Size;

/// A live experiment.
pub type Experiment = futae_papers::Experiment<Failure>;

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

/// The operations of `futae load --choice CHOICE`, on files that are so large together.
fn choice(choice: &str, size: Size) -> Result<WorkloadSpec, WorkloadError> {
    format!("{choice}:{size}").parse()
}
