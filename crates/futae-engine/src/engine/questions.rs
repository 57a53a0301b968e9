//! Queries for extents that wait.

use crate::{Extent, IoError};
use futae_policy::VolumeId;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Called once with the extents; it must not block and must not call the cache.
pub type ExtentsDone = Box<dyn FnOnce(Result<Vec<Extent>, IoError>) + Send>;

/// A query for the extents of a range.
pub struct Question {
    pub offset: u64,
    pub length: u64,
    pub done: ExtentsDone,
}

/// Waiting queries, by volume. A volume is in the table while a thread answers its queries.
#[derive(Default)]
pub struct Questions(pub HashMap<VolumeId, VecDeque<Question>>);
