//! Work that takes the lock more than once. Whatever touches many blocks decides on at most
//! [`STEP_BLOCKS`] of them while it holds the lock; the rest is left in the [`Effects`], and the same
//! thread goes on with it after others have had the lock. What a request must be alone for (a write and
//! its range, say) is kept by tables in the state meanwhile, not by the lock.

use super::Engine;
use super::change::Waiting;
use super::effects::Effects;
use super::hints::Demoting;
use super::state::State;
use super::write::{Deciding, Ending};
use super::write_back::Keeping;
use crate::{Operation, Request};
use futae_policy::VolumeId;
use std::collections::VecDeque;
use std::sync::Arc;

/// Blocks that are decided on at most while the lock is held once.
pub const STEP_BLOCKS: u64 = 1024;
/// The same in bytes, which may be copied; one block at least.
pub const STEP_BYTES: u64 = 4 << 20;

/// How far the present step is.
#[derive(Debug)]
pub struct Steps {
    most: u64,
    decided: u64,
    is_full: bool,
    /// Blocks of the longest step so far.
    pub longest: u64,
}

impl Steps {
    /// Steps over blocks of so many bytes.
    pub fn new(block_bytes: u64) -> Self {
        Self {
            most: (STEP_BYTES / block_bytes).clamp(1, STEP_BLOCKS),
            decided: 0,
            is_full: false,
            longest: 0,
        }
    }

    /// Blocks of a step at most.
    pub fn most(&self) -> u64 {
        self.most
    }

    fn begin(&mut self) {
        self.decided = 0;
        self.is_full = false;
    }

    /// So many blocks were decided on.
    #[inline]
    pub fn count(&mut self, blocks: u64) {
        self.decided += blocks;
    }

    /// Blocks that may still be decided on.
    pub fn left(&self) -> u64 {
        if self.is_full {
            return 0;
        }
        self.most.saturating_sub(self.decided)
    }

    /// Whether a request for so many blocks may begin in this step: one that fits, or any if it is the first.
    pub fn has_room_for(&self, blocks: u64) -> bool {
        !self.is_full && (self.decided == 0 || blocks <= self.left())
    }

    /// Something has been left for later, and all that follows it is to stay behind it.
    pub fn fill(&mut self) {
        self.is_full = true;
    }

    fn end(&mut self) {
        self.longest = self.longest.max(self.decided);
    }
}

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
    /// Notices that wait to be decided on.
    Notices(VolumeId),
    /// Writes that waited for others to become clean.
    Throttled,
    /// Whatever every step ends with.
    Anything,
}

impl State {
    /// Decides on a request if this step has room for it, else in a later one. Those that come after one
    /// that is left for later stay behind it.
    pub fn begin_in_turn(&mut self, request: Request, effects: &mut Effects) {
        if self.steps.has_room_for(self.blocks_of(&request)) {
            self.begin(request, effects);
        } else {
            self.steps.fill();
            effects.later(Rest::Begin(request));
        }
    }

    /// Blocks that a request is decided on by, one after the other.
    pub fn blocks_of(&self, request: &Request) -> u64 {
        let (offset, length) = match &request.operation {
            Operation::Read { offset, length } | Operation::ReadOn { offset, length } => {
                (*offset, *length)
            }
            Operation::Write { offset, data, .. } | Operation::Demote { offset, data } => {
                (*offset, data.len() as u64)
            }
            Operation::Append { data, .. } => (0, data.len() as u64),
            Operation::Flush
            | Operation::Settle
            | Operation::Trim { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Notice { .. }
            | Operation::Change(_) => return 0,
        };
        let end = offset.saturating_add(length).div_ceil(self.block_bytes);
        end.saturating_sub(offset / self.block_bytes)
    }

    fn go_on(&mut self, rest: Rest, effects: &mut Effects) {
        match rest {
            Rest::Begin(request) => self.begin(request, effects),
            Rest::Write(deciding) => self.decide_write(deciding, effects),
            Rest::Written(ending) => self.end_write(ending, effects),
            Rest::Keep(keeping) => self.keep_on(keeping, effects),
            Rest::Grant(change, from) => self.grant(change, from, effects),
            Rest::Changed(key) => self.end_change(key, effects),
            Rest::Demotion(demoting) => self.demote_on(demoting, effects),
            Rest::Notices(volume) => self.notice_on(volume, effects),
            Rest::Throttled => self.resume_throttled(effects),
            Rest::Anything => {}
        }
    }
}

impl Engine {
    /// Has a step decide on at most so many blocks. For tests.
    pub fn set_step_blocks(&self, blocks: u64) {
        self.lock().steps.most = blocks.max(1);
    }

    /// Decides under the lock, then acts without it; goes on until nothing is left to be decided on.
    pub(super) fn act<T>(
        self: &Arc<Self>,
        decide: impl FnOnce(&mut State, &mut Effects) -> T,
    ) -> T {
        let (value, mut rest) = self.step(decide);
        while let Some(next) = rest.pop_front() {
            self.state.give_way();
            let ((), more) = self.step(|state, effects| state.go_on(next, effects));
            rest.extend(more);
        }
        value
    }

    /// A step after which nothing is left to be done.
    pub(super) fn quiet_step<T>(&self, decide: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        state.steps.begin();
        let value = decide(&mut state);
        state.steps.end();
        value
    }

    fn step<T>(
        self: &Arc<Self>,
        decide: impl FnOnce(&mut State, &mut Effects) -> T,
    ) -> (T, VecDeque<Rest>) {
        let mut effects = Effects::default();
        let value = {
            let mut state = self.lock();
            state.steps.begin();
            let value = decide(&mut state, &mut effects);
            state.preload(&mut effects);
            state.write_back_on(&mut effects);
            state.steps.end();
            value
        };
        (value, effects.run(self))
    }
}
