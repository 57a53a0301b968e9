//! A cache of objects that differ in size: its capacity is in bytes, and as many objects leave as it takes for a new one to fit.
//!
//! The policies are those of a level, by the same contract: [`Policy::victim`] is asked again until there is room. It is a driver of its
//! own, so that levels of equal blocks, whose slots are what is scarce, stay as fast as they are. A policy must decide without a number of
//! slots ([`Trait::AnySize`]).
//!
//! An object keeps the size that it had when it was placed until it leaves, as in libCacheSim. An object of no bytes takes one.
//!
//! [`Policy::victim`]: futae_policy::Policy::victim
//! [`Trait::AnySize`]: futae_policy::Trait::AnySize

mod cache;
mod run;
#[cfg(test)]
mod tests;

pub use cache::{Counts, ObjectCache};
pub use run::{Lives, ObjectError, ObjectReport, ObjectRun, ObjectSimulation, simulate};
