//! A cache of objects that differ in size: its capacity is in bytes, and it evicts as many objects
//! as a new one needs to fit.
//!
//! The policies are those of a level, under the same contract: [`Policy::victim`] is called until
//! there is room. It is a separate driver, so that levels of equal blocks, which are limited by
//! slots, stay fast. A policy must not depend on a number of slots ([`Trait::AnySize`]).
//!
//! An object keeps the size that it had when it was placed until it leaves, as in libCacheSim. An
//! object of 0 bytes counts as 1.
//!
//! [`Policy::victim`]: futae_policy::Policy::victim
//! [`Trait::AnySize`]: futae_policy::Trait::AnySize

mod cache;
mod columns;
mod run;
#[cfg(test)]
mod tests;

pub use cache::{Counts, ObjectCache};
pub use run::{Lives, ObjectError, ObjectReport, ObjectRun, ObjectSimulation, simulate};
