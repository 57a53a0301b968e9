//! Deterministic simulation of the cache: the real engine in one thread, over simulated disks, with a
//! virtual clock and a scheduler, all of which one seed decides on. docs/explanation/how-it-is-tested.md
//! describes it.

mod action;
mod client;
mod config;
mod content;
mod cover;
mod crash_states;
mod disk;
mod front;
mod held;
mod letter;
mod link;
mod lower;
mod options;
mod pages;
mod register;
mod restart;
mod run;
mod sim;
mod start;

pub use cover::Cover;
pub use crash_states::States;
pub use options::Options;
pub use run::{Failure, crash_states, run_seed};
