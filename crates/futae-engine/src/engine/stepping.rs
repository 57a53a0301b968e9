//! How work continues from step to step.

use super::effects::Effects;
use super::flights::Span;
use super::front::Engine;
use super::line::Awaited;
use super::rest::Rest;
use super::state::State;
use super::under_way::Turn;
use crate::{Demotion, Operation, Request};
use std::collections::VecDeque;
use std::sync::Arc;

impl State {
    /// Decides on a request if this step has room for it, otherwise in a later one. Once a request
    /// is left for later, those that follow it stay behind it.
    pub fn begin_in_turn(&mut self, request: Request, effects: &mut Effects) {
        let blocks = self.blocks_of(&request);
        self.in_turn(blocks, request, effects, Self::begin, |_, request| {
            Rest::Begin(request)
        });
    }

    /// As [`begin_in_turn`](Self::begin_in_turn), for a request that began before and had to wait, or for a part of one.
    pub fn go_on_in_turn(&mut self, request: Request, effects: &mut Effects) {
        // If it waits again, that counts as one.
        let blocks = self.blocks_of(&request).max(1);
        self.in_turn(
            blocks,
            request,
            effects,
            Self::decide_again,
            |state, request| Rest::Decide(state.under_way.left.insert(request)),
        );
    }

    fn decide_again(&mut self, request: Request, effects: &mut Effects) {
        self.decide(request, Turn::Again, effects);
    }

    /// Work under way has ended: the requests that waited for it for the first time go on.
    pub fn go_on_parked(&mut self, parked: Vec<Request>, effects: &mut Effects) {
        for request in parked {
            self.go_on_in_turn(request, effects);
        }
    }

    /// The request that is decided on waits, see [`UnderWay::wait`](super::under_way::UnderWay::wait).
    pub fn wait(&mut self, awaited: Awaited, claim: Span, request: Request) {
        // Thousands may go on to wait again when one write ends.
        if !matches!(self.under_way.turn, Turn::New) {
            self.steps.count(1);
        }
        self.under_way.wait(awaited, claim, request);
    }

    /// Decides on the requests in the line that are due, as many as this step has room for.
    fn go_on_in_line(&mut self, effects: &mut Effects) {
        while let Some(next) = self.under_way.line.next_due() {
            if !self.steps.has_room_for(self.blocks_of(next).max(1)) {
                return effects.later(Rest::Anything);
            }
            if let Some((place, request)) = self.under_way.line.take_due() {
                self.decide_in_line(place, request, effects);
            }
        }
    }

    /// Decides on a request that has its turn in the line.
    pub fn decide_in_line(&mut self, place: usize, request: Request, effects: &mut Effects) {
        self.under_way.line.decide(place);
        self.decide(request, Turn::InLine(place), effects);
        self.under_way.line.decided(place);
    }

    #[inline]
    fn in_turn(
        &mut self,
        blocks: u64,
        request: Request,
        effects: &mut Effects,
        now: impl FnOnce(&mut Self, Request, &mut Effects),
        later: impl FnOnce(&mut Self, Request) -> Rest,
    ) {
        if self.steps.has_room_for(blocks) {
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
                self.decide_again(request, effects);
            }
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
            // Before anything else begins in their ranges.
            state.go_on_in_line(&mut effects);
            state.preload(&mut effects);
            state.log_remarks();
            state.write_back_on(&mut effects);
            state.steps.end();
            value
        };
        (value, self.carry_out(effects))
    }
}
