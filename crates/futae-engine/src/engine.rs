//! The cache. [`Engine`] is its public face. Under its lock `State` puts together what plain parts decide,
//! each of which knows nothing of the others: what is dirty, what is loaded, what is under way, which
//! demotions are good. What is left to be done comes out as effects, done without the lock.

mod account;
mod asking;
mod audit;
mod carry_out;
mod change;
mod class_weights;
mod classes;
mod complaining;
mod complaints;
mod cost;
mod demotion_guard;
mod dirt;
mod dirty_total;
mod effects;
mod extents;
mod flights;
mod flushing;
mod frames;
mod front;
mod generations;
mod growing;
mod hints;
mod joint;
mod loading;
mod loads;
mod lock_turns;
mod log;
mod long;
mod mark_guard;
mod notices;
mod noticing;
mod options;
mod questions;
mod ranges;
mod read;
mod residents;
mod resizing;
mod rest;
mod restart;
mod sizing;
mod state;
mod status;
mod stepping;
mod steps;
mod tally;
mod unclean;
mod under_way;
mod volume;
mod write;
mod write_back;

pub use front::Engine;
pub use options::{EngineOptions, OnEviction, WriteBackOptions};
pub use questions::ExtentsDone;
pub use status::{ClassStatus, EngineStatus, VolumeStatus, WeightStatus};
