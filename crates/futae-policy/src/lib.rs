//! Replacement policies, and the cache level that they control.
//!
//! A [`Level`] owns *residency*: which block is in which slot, each slot's class, the free slots
//! and all counting. A [`Policy`] owns *order* only: which slot is the next victim and which is
//! safe. The same objects run in the simulator, where a slot is a number, and in the live caches,
//! where slot *i* is frame *i* of the memory arena.
//!
//! This crate knows no files, clocks, threads, sockets or bytes.

mod access;
mod block;
mod card;
mod checked;
mod costs;
mod counters;
mod decision;
mod directive;
mod external;
mod hints;
mod index;
mod level;
mod policy;
mod prng;
mod registry;
pub mod replace;
mod requirements;
mod shape;
mod spec;
pub mod structures;
mod traits;

pub use access::{Access, AccessKind, Class};
pub use block::{BlockId, Slot, VolumeId};
pub use card::{Card, Parameter};
pub use checked::{Call, Checked, Foreign};
pub use costs::{BlockCost, StoreCosts};
pub use counters::Counters;
pub use decision::{
    Decision, DecisionError, LOADED, Verdict, dropped_line, dropped_of_line, policy_line,
    policy_of_line, slots_line, slots_of_line,
};
pub use directive::Directive;
pub use external::{Built, External, Registration, register};
pub use hints::{RegisteredPolicy, SimulatorHints};
pub use index::{DenseIndex, HashIndex, Index};
pub use level::{Level, Outcome, Victim};
pub use policy::{Admission, Departure, Policy};
pub use prng::{Prng, mixed};
pub use registry::{Kind, Visit, build, cards, visit};
pub use shape::Shape;
pub use spec::{Argument, Arguments, PolicySpec, SpecError, split_policies};
pub use traits::Trait;

#[cfg(test)]
mod contract;
#[cfg(test)]
mod golden;

/// The example of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
