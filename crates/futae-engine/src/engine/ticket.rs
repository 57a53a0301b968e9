//! What a store operation is a part of.

use futae_policy::VolumeId;

/// The piece of work that a store operation belongs to.
#[derive(Clone, Copy, Debug)]
pub enum Ticket {
    /// A read flight.
    Flight(usize),
    /// A write, trim or zeroing.
    Write(usize),
    /// A flush.
    Flush(usize),
    /// A write-back.
    Run(usize),
    /// The flush before a volume's unclean mark is removed.
    Mark(VolumeId),
}
