//! Work that is decided on in several steps, as far as it has come.

use super::flights::Span;
use super::joint::Joint;
use super::verify::Macs;
use crate::request::Granted;
use crate::{ClientId, Done, IoBuf, IoError, Request, StoreOperation};
use futae_policy::VolumeId;

/// What is left to be decided on.
pub enum Rest {
    /// A request that has not begun.
    Begin(Request),
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
    /// Blocks that were demoted.
    Demotion(Demoting),
    /// Blocks that were handed down to be verified.
    HandDown(Handing),
    /// Notices that wait to be decided on.
    Notices(VolumeId),
    /// What the keeper of the blocks saw.
    News,
    /// Writes that waited for others to become clean.
    Throttled,
    /// Whatever every step ends with.
    Anything,
}

/// A write whose blocks are being decided on, before the store gets it.
pub struct Deciding {
    /// Its key among the writes.
    pub key: usize,
    /// What the store is to do then.
    pub operation: StoreOperation,
    /// The next block.
    pub next: u64,
}

/// A write that the store has answered, whose blocks are being brought up to date.
pub struct Ending {
    pub key: usize,
    pub result: Result<IoBuf, IoError>,
    /// The hashes of what was written.
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

/// Blocks that were handed down with their data and are being decided on.
pub struct Handing {
    pub span: Span,
    pub data: IoBuf,
    pub macs: Macs,
    /// Whether it came as a demotion: what is refused of it is no notice.
    pub is_demotion: bool,
    /// The next block.
    pub next: u64,
}

/// A change that waits for write-backs.
pub struct Waiting {
    /// Its key among the writes.
    pub key: usize,
    pub blocks: Span,
    /// Whether it does not matter what is dirty in its range.
    pub cuts: bool,
    pub granted: Granted,
}

/// A write that is being kept.
pub struct Keeping {
    pub span: Span,
    pub data: IoBuf,
    /// The next block.
    pub next: u64,
    /// What keeps others away from the rest of it between steps, by key among the writes.
    pub place: Option<usize>,
    /// Its answer, unless some of it goes through.
    pub done: Option<Done>,
    /// The same once something goes through, and the end that stands for what is kept.
    pub joint: Option<(Joint, Done)>,
}

impl Keeping {
    /// The end of a part that goes through.
    pub fn end(&mut self) -> Done {
        let done = self.done.take();
        let (joint, _) = self.joint.get_or_insert_with(|| {
            let joint = Joint::new(done);
            let kept = joint.end();
            (joint, kept)
        });
        joint.end()
    }

    /// All that is kept of it has been taken over: who gets the answer to that.
    pub fn kept(&mut self) -> Option<Done> {
        let kept = self.joint.take().map(|(_, kept)| kept);
        kept.or_else(|| self.done.take())
    }
}
