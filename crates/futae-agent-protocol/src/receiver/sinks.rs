//! Who gets what an agent says, once it has been checked.

use super::{Answers, Stop};
use crate::in_place::RingOffer;
use crate::{Device, Frame, Hello};
use std::ops::Range;

/// A cache that is told what its guest evicted.
pub trait NoticeSink: Send {
    /// The agent says who it is: with every period, and again after it was started or connected anew. Returns
    /// which of its disks is the volume of this cache; notices of the others are refused.
    fn hello<'a>(&mut self, hello: &'a Hello) -> Option<&'a Device>;

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
