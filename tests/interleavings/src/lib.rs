//! What threads hand to each other, in every order in which they can run.
//!
//! Files of other crates are compiled here (`build.rs`) as they are, without their own tests, but over loom's model of atomics, fences, locks and threads. A test runs its
//! threads again and again, until every order of their steps has been seen, and every value that a load may return: what
//! processors with weaker memory than this machine's may do, too.
//!
//! | room | of | what is shared |
//! | --- | --- | --- |
//! | [`mailbox`] | `futae-engine` | results for a thread that sleeps in `poll` |
//! | [`lock_turns`] | `futae-engine` | the lock of a cache between the steps of a long request |
//! | [`connection`] | `futae-nbd-store` | commands to an NBD server: a thread that finds no other one sending sends them |
//! | [`writer`], [`in_place::reader`] | `futae-agent`, `futae-agent-protocol` | a table in a guest's memory that the host reads |
//!
//! The rest stands for what surrounds these files: [`bell`] for an eventfd, [`socket`] for a connected one, [`system`] for memory of the guest's kernel, [`ring`] for the
//! kernel's programs that write evicted pages.

// Files name the crates of what surrounds them.
extern crate self as futae_agent_protocol;
extern crate self as futae_engine;
extern crate self as futae_nbd;

pub mod bell;
pub mod connection;
pub mod extents;
pub mod in_place;
pub mod ring;
pub mod socket;
pub mod sync;
pub mod system;

/// Results for a thread that sleeps in `poll`.
pub mod mailbox {
    include!(concat!(env!("OUT_DIR"), "/mailbox.rs"));
}

/// The lock of a cache, with fairness for work of many steps.
pub mod lock_turns {
    include!(concat!(env!("OUT_DIR"), "/lock_turns.rs"));
}

/// The agent's side of a table in a guest's memory.
pub mod writer {
    include!(concat!(env!("OUT_DIR"), "/writer.rs"));
}

/// Where pages lie in a guest's memory.
pub mod proc {
    use std::io;

    /// The table's pages are the first ones of the guest's memory.
    ///
    /// # Errors
    ///
    /// None.
    pub fn page_numbers(_address: usize, pages: usize) -> io::Result<Vec<u64>> {
        Ok((0..pages as u64).collect())
    }
}

pub use protocol::{DeviceId, evicted_pages, printable::printable};

/// Bytes of a page: as few as there can be, so that a table is full after two entries.
pub const PAGE_BYTES: u64 = 64;

/// What the header of an NBD request is like, if it is as short as can be.
pub mod constants {
    /// Bytes of the header.
    pub const REQUEST_HEADER_BYTES: usize = 1;
}

/// A buffer of a request.
#[derive(Debug)]
pub struct IoBuf(pub Vec<u8>);

impl IoBuf {
    /// Its bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}
