//! How work continues from step to step.

use super::effects::Effects;
use super::front::Engine;
use super::rest::Rest;
use super::state::State;
use crate::{Demotion, Operation, Request};
use std::collections::VecDeque;
use std::sync::Arc;

impl State {
    /// Decides on a request if this step has room for it, otherwise in a later one. Once a request
    /// is left for later, those that follow it stay behind it.
    pub fn begin_in_turn(&mut self, request: Request, effects: &mut Effects) {
        self.in_turn(request, effects, Self::begin, |_, request| {
            Rest::Begin(request)
        });
    }

    /// As [`begin_in_turn`](Self::begin_in_turn), for a request that began before and had to wait, or for a part of one.
    pub fn go_on_in_turn(&mut self, request: Request, effects: &mut Effects) {
        self.in_turn(request, effects, Self::decide, |state, request| {
            Rest::Decide(state.under_way.left.insert(request))
        });
    }

    #[inline]
    fn in_turn(
        &mut self,
        request: Request,
        effects: &mut Effects,
        now: impl FnOnce(&mut Self, Request, &mut Effects),
        later: impl FnOnce(&mut Self, Request) -> Rest,
    ) {
        if self.steps.has_room_for(self.blocks_of(&request)) {
            now(self, request, effects);
        } else {
            self.steps.fill();
            effects.later(later(self, request));
        }
    }

    /// The number of blocks that have to be decided for a request.
    pub fn blocks_of(&self, request: &Request) -> u64 {
        let (offset, length) = match &request.operation {
            Operation::Read { offset, length } | Operation::ReadOn { offset, length } => {
                (*offset, *length)
            }
            Operation::Write { offset, data, .. }
            | Operation::Demote(Demotion { offset, data, .. }) => (*offset, data.len() as u64),
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
            Rest::Decide(key) => {
                let request = self.under_way.left.remove(key);
                self.decide(request, effects);
            }
            Rest::First(key) => self.go_on_first(key, effects),
            Rest::Write(deciding) => self.decide_write(deciding, effects),
            Rest::Written(ending) => self.end_write(ending, effects),
            Rest::Keep(keeping) => self.keep_on(keeping, effects),
            Rest::Grant(change, from) => self.grant(change, from, effects),
            Rest::Changed(key) => self.end_change(key, effects),
            Rest::Demotion(demoting) => self.demote_on(demoting, effects),
            Rest::Verify(verifying) => self.verify_on(verifying, effects),
            Rest::Notices(volume) => self.notice_on(volume, effects),
            Rest::News => self.hear(0, effects),
            Rest::Throttled => self.resume_throttled(effects),
            Rest::Answered(answered) => self.ended(answered, effects),
            Rest::Anything => {}
        }
    }
}

impl Engine {
    /// Sets the largest number of blocks per step. For tests.
    pub fn set_step_blocks(&self, blocks: u64) {
        self.lock().steps.most = blocks.max(1);
    }

    /// Decides under the lock, then acts without it, until no work is left to decide.
    pub(super) fn act<T>(
        self: &Arc<Self>,
        decide: impl FnOnce(&mut State, &mut Effects) -> T,
    ) -> T {
        let (value, mut rest) = self.step(decide);
        while let Some(next) = rest.pop_front() {
            self.state.give_way();
            self.world.between_steps();
            let ((), more) = self.step(|state, effects| state.go_on(next, effects));
            rest.extend(more);
        }
        value
    }

    /// A step with no effects.
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
            state.log_remarks();
            state.write_back_on(&mut effects);
            for first in state.under_way.line.due() {
                effects.later(Rest::First(first));
            }
            state.steps.end();
            value
        };
        (value, self.carry_out(effects))
    }
}
