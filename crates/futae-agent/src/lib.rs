//! The agent in a guest: counts what its page cache does, and tells a host what it gives up.
//!
//! eBPF programs count in the kernel ([`probe`]); once a period the agent reads the counters, adds what
//! `/proc` says, and sends a [`futae_agent_protocol::Sample`]. Evicted pages come through a ring; their places on
//! a disk are looked up ([`extents`]) and sent as [`futae_agent_protocol::Notices`]. Where the kernel refuses eBPF,
//! or the agent was built without it, `/proc/vmstat` has to do.
//!
//! | room | holds |
//! | --- | --- |
//! | [`args`] | the command line, the same for `futae agent` and `futae-agent` |
//! | [`mod@run`] | the loop |
//! | [`probe`] | the programs in the kernel: loading, reading, which family |
//! | [`proc`] | what `/proc` and `/sys` tell |
//! | [`extents`] | from pages of files to sectors of disks |
//! | [`ring`] | the ring that the programs copy evicted pages into |
//! | [`evictions`] | evicted pages with their data: which way they go, the budget |
//! | [`sink`] | where reports go: connecting, queueing, trying again |
//! | [`table`] | a period as a table for a person |

pub mod args;
pub mod evictions;
pub mod extents;
mod groups;
pub mod probe;
pub mod proc;
pub mod ring;
pub mod run;
pub mod sink;
pub mod table;

mod sync;
mod system;

pub use args::Args;
pub use run::run;
