//! Work that is decided in several steps, and its progress.

use super::early::Answered;
use super::flights::Span;
use super::joint::Joint;
use super::verify::Macs;
use crate::request::Granted;
use crate::{ClientId, Done, IoBuf, IoError, Request, StoreOperation};
use futae_policy::VolumeId;

/// Work that still needs decisions.
pub enum Rest {
    /// A request that has not begun.
    Begin(Request),
    /// A request that has begun, and waited since; or a part of one. By its key among those that are
    /// [left](super::under_way::UnderWay::left): others see that it is there.
    Decide(usize),
    /// The blocks of a write, before the store gets it.
    Write(Deciding),
    /// The blocks of a write that the store has answered.
    Written(Ending),
    /// The blocks of a write that is kept.
    Keep(Keeping),
    /// The blocks of a change, before it is made.
    Grant(Waiting, u64),
    /// What lies behind the end of a volume after a change.
    Changed(usize),
    /// Blocks that a client demoted, accepted by the order of the client's requests.
    Demotion(Demoting),
    /// Blocks that were demoted and whose data is verified.
    Verify(Verifying),
    /// Notices that await decisions.
    Notices(VolumeId),
    /// Hits and evictions that the keeper of the blocks saw.
    News,
    /// Writes that waited until fewer blocks were dirty.
    Throttled,
    /// A store operation that was answered while it was submitted.
    Answered(Answered),
    /// The work that ends every step.
    Anything,
}

/// A write whose blocks are being decided before it is sent to the store.
pub struct Deciding {
    /// Its key among the writes.
    pub key: usize,
    /// The store operation that follows.
    pub operation: StoreOperation,
    /// The next block.
    pub next: u64,
}

/// A write that the store has answered, and whose blocks are being updated.
pub struct Ending {
    pub key: usize,
    pub result: Result<IoBuf, IoError>,
    /// The hashes of the written data.
    pub macs: Macs,
    pub next: u64,
}

/// Demoted blocks that are being decided on.
pub struct Demoting {
    pub client: ClientId,
    pub sequence: u64,
    pub span: Span,
    pub data: IoBuf,
    pub next: u64,
}

/// Demoted blocks whose data is being verified.
pub struct Verifying {
    pub span: Span,
    pub data: IoBuf,
    pub macs: Macs,
    /// Whether an agent sent it: a refused block may then count as a notice.
    pub is_by_agent: bool,
    /// The next block.
    pub next: u64,
}

/// A change that waits for write-backs.
pub struct Waiting {
    /// Its key among the writes.
    pub key: usize,
    pub blocks: Span,
    /// Whether dirty data in its range may be dropped.
    pub cuts: bool,
    pub granted: Granted,
}

/// A write-back write whose blocks are being placed.
pub struct Keeping {
    pub span: Span,
    pub data: IoBuf,
    /// The next block.
    pub next: u64,
    /// The entry, by its key among the writes, that protects the rest of its range between steps.
    pub place: Option<usize>,
    /// Its completion, unless some of it goes to the store.
    pub done: Option<Done>,
    /// The joint completion once some of it goes to the store, and the part of it for the kept
    /// blocks.
    pub joint: Option<(Joint, Done)>,
}

impl Keeping {
    /// The completion for a part that goes to the store.
    pub fn end(&mut self) -> Done {
        let done = self.done.take();
        let (joint, _) = self.joint.get_or_insert_with(|| {
            let joint = Joint::new(done);
            let kept = joint.end();
            (joint, kept)
        });
        joint.end()
    }

    /// All kept blocks have been placed: returns the completion to call for them.
    pub fn kept(&mut self) -> Option<Done> {
        let kept = self.joint.take().map(|(_, kept)| kept);
        kept.or_else(|| self.done.take())
    }
}
