//! Who gets what an agent says, once it has been checked.

use super::{Answers, Stop};
use crate::in_place::RingOffer;
use crate::{Device, Frame, Hello};
use std::ops::Range;

/// A cache that is told what its guest evicted of one of its disks: of the disk that is a volume of this cache.
pub trait NoticeSink: Send {
    /// The name of the volume, by which its disk is found: see [`serial_of`](super::serial_of).
    fn volume_name(&self) -> &str;

    /// The agent says who it is: with every period, and again after it was started or connected anew. `disk` is
    /// the volume; none if no disk of the guest is. It must not wait.
    fn hello(&mut self, hello: &Hello, disk: Option<&Device>);

    /// Bytes of the volume now. Ranges beyond it are refused.
    fn volume_bytes(&self) -> u64;

    /// Evicted ranges are cut at multiples of this many bytes.
    fn step_bytes(&self) -> u64;

    /// Takes bytes of the volume that the guest evicted, no more than a step. False if it cannot keep
    /// up, or all is to end: the rest of the message is dropped.
    fn evicted(&mut self, bytes: Range<u64>, stop: &Stop) -> bool;
}

/// An allocator that is told what its guest does.
pub trait SampleSink: Send {
    /// Takes a hello, a sample or sampled reads; never notices. Frames keep the numbers that the agent gave
    /// them. It must not wait.
    fn take(&mut self, frame: &Frame);
}

/// A cache that can read its guest's memory.
pub trait RingSink: Send {
    /// The agent says where the memory holds evicted pages. The answer goes to `answers`, and so does all that
    /// follows. It must not wait.
    fn offered(&mut self, offer: RingOffer, answers: &Answers);

    /// The connection to the agent is gone.
    fn gone(&mut self);
}
