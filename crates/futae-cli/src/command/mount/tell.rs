//! `--on-eviction`.

/// What to tell the cache below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Tell {
    Auto,
    #[value(alias = "data")]
    Demote,
    Notice,
    #[value(alias = "nothing")]
    None,
}
