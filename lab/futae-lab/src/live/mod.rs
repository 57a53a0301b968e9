//! The experiments of the papers, live: with real caches, sockets, mounts and guests, on a small
//! scale. What came of each is held against the same bounds as in simulation, and against a
//! simulation of the very same requests.
//!
//! | file | holds |
//! | --- | --- |
//! | `process` | commands as child processes, which do not outlive the experiment |
//! | `aoki` | memory moved between two readers |
//! | `aoki_systems` | its systems, the race, the table, the checks |
//! | `aoki_group` | both readers in control groups |
//! | `aoki_pace` | how much is read in a trial, and how fast |
//! | `aoki_race` | what both readers know of each other, and when a trial ends |
//! | `aoki_reader` | a reader in a control group, and what tells the allocator of it |
//! | `aoki_guest` | both readers in guests |
//! | `cgroup` | bounds of memory and of reading |
//! | `disk` | a disk of the experiment's own |
//! | `experiment` | what an experiment is, and how its requests are chosen |
//! | `guests` | guests with this program and an agent |
//! | `kotoge` | directory priority under a web server: the cases, the table, the checks |
//! | `kotoge_site` | the files that it serves, and the clients that ask for them |
//! | `kotoge_kernel` | the same with `sendfile`, where the kernel holds the pages |
//! | `stores` | a near and a far store in one cache, and a client of both |
//! | `sugimoto` | an exclusive cache below a guest, told and handed the data: the table, the checks |
//! | `sudo` | replacement by cost: sessions and mixes of requests, the tables, the checks |
//! | `web` | the web server and its client |
//! | `yoshida` | LFU Cache FS above a host's cache |
//! | `yoshida_variants` | its variants, the table, the checks |
//! | `yoshida_host` | both caches on this machine |
//! | `yoshida_guest` | the upper cache in a guest |

mod aoki;
mod aoki_group;
mod aoki_guest;
mod aoki_pace;
mod aoki_race;
mod aoki_reader;
mod aoki_systems;
pub mod cgroup;
mod disk;
pub mod experiment;
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
mod yoshida_variants;

use experiment::Experiment;

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
