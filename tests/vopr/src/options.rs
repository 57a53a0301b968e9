//! How seeds are run.

/// How seeds are run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether every event is printed.
    pub traces: bool,
    /// Whether disks lie: what they answer to a FLUSH means nothing. The cache cannot help that, so the checker
    /// must find it; tests of the checker ask for it.
    pub lies: bool,
}
