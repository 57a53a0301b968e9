//! Effects: the work that follows from the cache's decisions, carried out after its lock is
//! released.

use super::complaints::Remark;
use super::mark_guard::MarkWork;
use super::rest::Rest;
use super::ticket::Ticket;
use crate::{Done, IoBuf, IoError, Store, StoreOperation};
use std::collections::VecDeque;
use std::sync::Arc;

/// A block on its way to the lower level.
pub enum SentDown {
    /// The block with its data, and the generation of the store under which the data came.
    Demote(IoBuf, u64),
    /// A notice for this many bytes.
    Notice(u64),
}

/// A store operation, its sequence and its ticket.
pub type Started = (Arc<dyn Store>, u64, StoreOperation, Ticket);
/// An evicted block for the lower level, its sequence and its byte offset.
pub type Evicted = (Arc<dyn Store>, u64, u64, SentDown);

/// Store operations, demotions and answers, in the order in which they were decided.
#[derive(Default)]
pub struct Effects {
    pub operations: Vec<Started>,
    pub down: Vec<Evicted>,
    pub answers: Vec<(Done, Result<IoBuf, IoError>)>,
    pub marks: Vec<MarkWork>,
    pub remarks: Vec<Remark>,
    pub rest: VecDeque<Rest>,
}

impl Effects {
    /// A store operation to start.
    pub fn start(&mut self, store: Arc<dyn Store>, sequence: u64, op: StoreOperation, of: Ticket) {
        self.operations.push((store, sequence, op, of));
    }

    /// A block to send down: store, sequence, byte offset.
    pub fn send_down(&mut self, store: Arc<dyn Store>, sequence: u64, offset: u64, what: SentDown) {
        self.down.push((store, sequence, offset, what));
    }

    /// An answer to give.
    pub fn answer(&mut self, done: Done, result: Result<IoBuf, IoError>) {
        self.answers.push((done, result));
    }

    /// A mark to set or remove.
    pub fn mark(&mut self, work: MarkWork) {
        self.marks.push(work);
    }

    /// A line to log.
    pub fn remark(&mut self, remark: Remark) {
        self.remarks.push(remark);
    }

    /// Work that needs further decisions in a later step.
    pub fn later(&mut self, rest: Rest) {
        self.rest.push_back(rest);
    }
}
