//! Simulation: hierarchies of caches fed by a workload or a trace, and their results.
//!
//! * [`hierarchy`]: levels joined by links, and the order of events that the simulator and the live
//!   caches follow;
//! * [`write_back`]: the same for caches that keep writes;
//! * [`batch`]: requests in the form of the inner loop;
//! * [`machine`]: fast versions of the common hierarchies;
//! * [`spec`]: levels and links as written on a command line;
//! * [`run`]: a whole simulation, from spec to results;
//! * [`forecast`]: the uncertainty of a simulated figure, from the windows of a run;
//! * [`theory`]: hit ratios in closed form, to compare results with;
//! * [`curve`]: miss-ratio curves, exact and from samples;
//! * [`locality`]: re-access intervals between the levels;
//! * [`objects`]: a cache of objects that differ in size;
//! * [`queueing`]: latencies of requests that wait for each other;
//! * [`study`]: all that `futae sim` is asked, from options to a report;
//! * [`replay`]: a recorded decision log compared with a new level.
//!
//! Nothing in this crate does live I/O.

#![forbid(unsafe_code)]

pub mod batch;
mod conveyor;
pub mod curve;
mod duration;
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
pub mod study;
pub mod theory;
pub mod write_back;

pub use hierarchy::{Hierarchy, HierarchyShape, LevelShape};
pub use index::BackedIndex;
pub use link::{Below, Link, Store, put};
pub use run::{LevelResult, Report, Run, SimulationError, SimulationSpec, simulate, simulate_all};
pub use spec::{LevelSpec, LevelSpecError, links};
pub use write_back::WriteMode;
