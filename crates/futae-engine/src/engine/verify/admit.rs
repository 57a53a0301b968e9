//! Demotions with data: each block is compared with its known hash, and accepted or refused.

use super::mac::Keys;
use super::macs::Macs;
use super::options::OnRefusal;
use super::table::Verdict;
use super::tally::DemotionTally;
use crate::engine::effects::Effects;
use crate::engine::flights::Span;
use crate::engine::frames::Frame;
use crate::engine::front::Engine;
use crate::engine::rest::{Rest, Verifying};
use crate::engine::state::State;
use crate::engine::steps::STEP_BYTES;
use crate::request::Demotion;
use crate::{IoBuf, Operation, Request};
use futae_policy::{AccessKind, BlockId, Outcome};

/// The verdict on a block.
enum Judgement {
    Resident,
    Twin(BlockId),
    Verified,
    Refused,
}

impl Engine {
    /// Computes the hashes of an operation that demotes data. Other operations, and all operations
    /// in a cache that does not verify, are returned unchanged. [`submit`](Self::submit) calls this
    /// itself. Operations that reach the cache while its lock is held
    /// ([`run_batch`](Self::run_batch)) are better hashed before.
    #[must_use]
    pub fn hashed(&self, operation: Operation) -> Operation {
        match self.keys.get() {
            Some(keys) if self.verifies_demotions() => hash(keys, self.block_bytes, operation),
            _ => operation,
        }
    }
}

fn hash(keys: &Keys, block_bytes: u64, operation: Operation) -> Operation {
    let Operation::Demote(mut demotion) = operation else {
        return operation;
    };
    if demotion.macs.is_none() {
        let data = demotion.data.as_slice();
        demotion.macs = Some(Macs::make(keys, block_bytes, demotion.offset, data));
    }
    Operation::Demote(demotion)
}

impl State {
    /// A request with its hashes, if it needs any. They are computed here at the latest, under the
    /// lock, so that no demotion bypasses verification.
    pub fn hashed(&self, mut request: Request) -> Request {
        let is_demotion = matches!(request.operation, Operation::Demote(_));
        if let (Some(verifier), true) = (&self.verifier, is_demotion) {
            request.operation = hash(verifier.table.keys(), self.block_bytes, request.operation);
        }
        request
    }

    /// Demoted blocks, each of which is accepted only if its hash matches.
    pub fn verify_demotion(&mut self, span: Span, demotion: Demotion, effects: &mut Effects) {
        let verifying = Verifying {
            span,
            data: demotion.data,
            macs: demotion.macs.unwrap_or_default(),
            is_by_agent: demotion.is_by_agent,
            next: self.block_range(&span).0,
        };
        self.verify_on(verifying, effects);
    }

    /// Decides on blocks whose data is verified, as many as this step has room for.
    pub fn verify_on(&mut self, mut verifying: Verifying, effects: &mut Effects) {
        let (_, end) = self.block_range(&verifying.span);
        let (mut refused, mut started) = (None, Vec::new());
        while verifying.next < end && self.steps.left() > 0 {
            let block = BlockId::new(verifying.span.volume, verifying.next);
            verifying.next += 1;
            match self.judge(block, &verifying) {
                Judgement::Resident => drop(self.offer(block, AccessKind::Demotion, effects)),
                Judgement::Twin(twin) => {
                    self.touch_twin(twin, block.volume(), AccessKind::Demotion, effects);
                }
                Judgement::Verified => self.admit(block, &verifying, &mut started, effects),
                Judgement::Refused => {
                    self.steps.count(1);
                    self.tally.demotions_refused += 1;
                    let of = self.block_span(block);
                    refused = match refused.take() {
                        Some(Span { offset, length, .. }) if offset + length == of.offset => {
                            Some(Span {
                                offset,
                                length: length + of.length,
                                ..of
                            })
                        }
                        other => {
                            self.note_refused(other, &verifying, effects);
                            Some(of)
                        }
                    };
                }
            }
        }
        self.launch(&started, effects);
        self.note_refused(refused, &verifying, effects);
        if verifying.next < end {
            effects.later(Rest::Verify(verifying));
        }
    }

    fn judge(&mut self, block: BlockId, verifying: &Verifying) -> Judgement {
        let of = self.block_span(block);
        let at = usize::from(block.volume().0);
        if self.level.find(block).is_some() || self.unframed(block).is_some() {
            // The block is resident: the demoted data is neither needed nor checked.
            self.count(block, |tally| tally.resident += 1);
            return Judgement::Resident;
        }
        if self.under_way.write_over(&of).is_some() {
            self.count(block, |tally| tally.busy += 1);
            return Judgement::Refused;
        }
        let mac = verifying.macs.of(block.index());
        let mac =
            mac.filter(|_| of.overlap(&verifying.span) == Some(of) && !self.volumes[at].grows);
        match self.check(block, mac) {
            Verdict::Same => {
                self.count(block, |tally| tally.judge(true));
                let twin = mac.and_then(|mac| self.twin_with(block, mac));
                twin.map_or(Judgement::Verified, |(twin, _)| Judgement::Twin(twin))
            }
            Verdict::Different => {
                self.count(block, |tally| tally.judge(false));
                Judgement::Refused
            }
            Verdict::Unknown => {
                self.count(block, |tally| tally.unknown += 1);
                Judgement::Refused
            }
        }
    }

    fn count(&mut self, block: BlockId, change: impl Fn(&mut DemotionTally)) {
        change(&mut self.volumes[usize::from(block.volume().0)].demotions);
        change(&mut self.demotions);
    }

    fn admit(
        &mut self,
        block: BlockId,
        verifying: &Verifying,
        started: &mut Vec<usize>,
        effects: &mut Effects,
    ) {
        let of = self.block_span(block);
        self.tally.bytes_demoted_in += of.length;
        let Outcome::Admitted { slot, .. } = self.offer(block, AccessKind::Demotion, effects)
        else {
            return;
        };
        let frame = self.arena.frame_mut(slot);
        verifying.span.copy(verifying.data.as_slice(), &of, frame);
        let verifier = self.verifier.as_deref();
        let compares = verifier.is_some_and(|verifier| verifier.options.compare_with_store);
        // No read begins where a request in the line waits.
        let copy = compares && !self.under_way.line.over(&of);
        let copy = copy.then(|| IoBuf::copy_of(&frame[..of.length as usize]));
        self.frames.set(slot, Frame::Ready);
        if let Some(mac) = verifying.macs.of(block.index()) {
            self.hold_once(block, mac);
        }
        self.seal(block, slot, verifying.macs.of(block.index()));
        if let Some(copy) = copy {
            self.read_to_compare(block, copy, started);
        }
    }

    /// Reads an accepted block from the store. Like every read of whole blocks, the read excludes
    /// writes.
    fn read_to_compare(&mut self, block: BlockId, copy: IoBuf, started: &mut Vec<usize>) {
        let known = self.under_way.flight_of.get(&block).copied();
        let flight = known.unwrap_or_else(|| {
            let of = self.block_span(block);
            let flight = self
                .under_way
                .extend_or_start(of, true, STEP_BYTES, started);
            self.under_way.flight_of.insert(block, flight);
            flight
        });
        self.under_way.flights[flight].compared.push((block, copy));
    }

    /// The store has returned its data for comparison.
    pub fn compare(&mut self, key: usize, span: Span, data: &IoBuf) {
        for (block, entered) in std::mem::take(&mut self.under_way.flights[key].compared) {
            let of = self.block_span(block);
            let from = (of.offset - span.offset) as usize;
            let has = &data.as_slice()[from..from + of.length as usize];
            let is_wrong = entered.as_slice() != has;
            self.count(block, |tally| {
                tally.compared += 1;
                tally.wrong += u64::from(is_wrong);
            });
        }
    }

    /// Handles a refused block: the upper level has evicted it nevertheless.
    fn note_refused(
        &mut self,
        refused: Option<Span>,
        verifying: &Verifying,
        effects: &mut Effects,
    ) {
        let on_refusal = match &self.verifier {
            Some(verifier) => verifier.options.on_refusal,
            None => OnRefusal::Notice,
        };
        if let (Some(span), OnRefusal::Notice, true) = (refused, on_refusal, verifying.is_by_agent)
        {
            self.notice(span, effects);
        }
    }
}
