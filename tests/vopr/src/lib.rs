//! Deterministic simulation of the cache: the real engine in one thread, over simulated disks, with a
//! virtual clock and a scheduler, all of which one seed decides on. docs/explanation/how-it-is-tested.md
//! describes it.

mod action;
mod client;
mod config;
mod content;
mod cover;
mod disk;
mod front;
mod lower;
mod register;
mod restart;
mod run;
mod sim;

pub use cover::Cover;
pub use run::{Failure, run_seed};
