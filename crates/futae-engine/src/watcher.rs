//! Who is told of requests where they end, such as a tracer.

use std::fmt::Debug;
use std::time::Duration;

/// Requests for one volume that ended together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What they are: a name of [`Asked`](crate::Asked), or `demotion`.
    pub kind: &'static str,
    /// Their number.
    pub requests: u64,
    /// The bytes that they carry or ask for together.
    pub bytes: u64,
    /// Of reads, whether the cache had all of their data, if that is known.
    pub hit: Option<bool>,
    /// Whether they failed.
    pub failed: bool,
    /// From the receipt of the first one to now.
    pub took: Duration,
}

/// A watcher of the requests for one volume. The threads that serve requests call it, so it must
/// not wait.
pub trait Watcher: Send + Sync + Debug {
    /// These requests have just ended.
    fn ended(&self, ended: &Ended);
}
