//! Simulation: hierarchies of caches fed by a workload or a trace, and what comes of it.
//!
//! * [`hierarchy`]: levels joined by links, and the one order of events that the simulator and
//!   the live caches follow;
//! * [`write_back`]: the same where caches keep what is written;
//! * [`batch`]: requests as the inner loop takes them;
//! * [`machine`]: the same for the common shapes, made for speed;
//! * [`spec`]: levels and links as they are written on a command line;
//! * [`run`]: a whole simulation, from spec to results;
//! * [`forecast`]: how sure a simulated figure is, from the windows of a run;
//! * [`theory`]: hit ratios in closed form, to hold results against;
//! * [`curve`]: miss-ratio curves, exact and from samples;
//! * [`locality`]: re-access intervals between the levels;
//! * [`objects`]: a cache of objects that differ in size;
//! * [`queueing`]: how long requests take where they wait for each other;
//! * [`replay`]: a recorded decision log against a fresh level.
//!
//! Nothing in this crate does live I/O.

#![forbid(unsafe_code)]

pub mod batch;
pub mod curve;
pub mod forecast;
pub mod hierarchy;
mod index;
pub mod link;
pub mod locality;
pub mod machine;
pub mod objects;
pub mod queueing;
pub mod replay;
pub mod run;
pub mod spec;
pub mod theory;
pub mod write_back;

pub use hierarchy::{Hierarchy, HierarchyShape, LevelShape};
pub use index::BackedIndex;
pub use link::{Below, Link, Store, put};
pub use run::{LevelResult, Report, Run, SimulationError, SimulationSpec, simulate, simulate_all};
pub use spec::{LevelSpec, LevelSpecError, links};
pub use write_back::WriteMode;
