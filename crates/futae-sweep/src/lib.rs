//! Many simulations as one piece of work: policies × sizes × traces × seeds.
//!
//! A [`Plan`] comes to *cells*, each one simulation. [`work`] does cells and hands each one's [`Rows`] on as text; a
//! [`Folder`] keeps them, so that a sweep goes on where a kill ended it; a [`Table`] is all of them in the order of
//! the plan. Who does which cells is left to the caller: threads of one process, a [`Part`] of a Slurm array, or the
//! workers of a Dask cluster.

#![forbid(unsafe_code)]

mod error;
mod folder;
mod levels;
mod part;
mod plan;
mod rows;
mod summary;
mod traces;
mod whole_file;
mod work;

pub use error::SweepError;
pub use folder::Folder;
pub use levels::product;
pub use part::Part;
pub use plan::{Cell, Objects, Plan, Source};
pub use rows::{Rows, Table};
pub use summary::summary;
pub use work::{Failed, work};

/// The example of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
