//! What is handed down with its data: each block is held against its hash, and enters or is refused.

use super::mac::Keys;
use super::macs::Macs;
use super::options::OnRefusal;
use super::table::Verdict;
use super::tally::HandDownTally;
use crate::engine::effects::Effects;
use crate::engine::flights::Span;
use crate::engine::frames::Frame;
use crate::engine::front::Engine;
use crate::engine::rest::{Handing, Rest};
use crate::engine::state::State;
use crate::engine::steps::STEP_BYTES;
use crate::request::HandedDown;
use crate::{IoBuf, Operation, Request};
use futae_policy::{AccessKind, BlockId, Outcome};

/// What becomes of a block.
enum Judgement {
    Resident,
    Twin(BlockId),
    Verified,
    Refused,
}

impl Engine {
    /// An operation that hands data down, with its hashes made; others, and all where nothing is verified, as they
    /// are. [`submit`](Self::submit) does so itself; of operations that reach the cache while its lock is held
    /// ([`run_batch`](Self::run_batch)) it is better done before.
    #[must_use]
    pub fn hashed(&self, operation: Operation) -> Operation {
        match self.keys.get() {
            Some(keys) if self.verifies_hand_downs() => hash(keys, self.block_bytes, operation),
            _ => operation,
        }
    }
}

fn hash(keys: &Keys, block_bytes: u64, operation: Operation) -> Operation {
    let (offset, data, is_demotion) = match operation {
        Operation::Demote { offset, data } => (offset, data, true),
        Operation::HandDown(handed) if handed.macs.is_none() => (handed.offset, handed.data, false),
        other => return other,
    };
    let macs = Macs::make(keys, block_bytes, offset, data.as_slice());
    Operation::HandDown(HandedDown {
        macs: Some(macs),
        offset,
        data,
        is_demotion,
    })
}

impl State {
    /// A request of which the hashes are made, if it needs any: here at the latest, under the lock, so that nothing
    /// that is handed down goes round them.
    pub fn hashed(&self, mut request: Request) -> Request {
        let is_handed = matches!(
            request.operation,
            Operation::Demote { .. } | Operation::HandDown(_)
        );
        if let (Some(verifier), true) = (&self.verifier, is_handed) {
            request.operation = hash(verifier.table.keys(), self.block_bytes, request.operation);
        }
        request
    }

    /// Decides on blocks that were handed down, as many as this step has room for.
    pub fn hand_on(&mut self, mut handing: Handing, effects: &mut Effects) {
        let (_, end) = self.block_range(&handing.span);
        let (mut refused, mut started) = (None, Vec::new());
        while handing.next < end && self.steps.left() > 0 {
            let block = BlockId::new(handing.span.volume, handing.next);
            handing.next += 1;
            match self.judge(block, &handing) {
                Judgement::Resident => drop(self.offer(block, AccessKind::Demotion, effects)),
                Judgement::Twin(twin) => {
                    self.touch_twin(twin, block.volume(), AccessKind::Demotion, effects);
                }
                Judgement::Verified => self.admit(block, &handing, &mut started, effects),
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
                            self.note_refused(other, &handing, effects);
                            Some(of)
                        }
                    };
                }
            }
        }
        self.launch(&started, effects);
        self.note_refused(refused, &handing, effects);
        if handing.next < end {
            effects.later(Rest::HandDown(handing));
        }
    }

    fn judge(&mut self, block: BlockId, handing: &Handing) -> Judgement {
        let of = self.block_span(block);
        let at = usize::from(block.volume().0);
        if self.level.find(block).is_some() || self.evicted_data(block).is_some() {
            // Its data is here: what was handed down is not needed, and not looked at.
            self.count(block, |tally| tally.resident += 1);
            return Judgement::Resident;
        }
        if self.under_way.write_over(&of).is_some() {
            self.count(block, |tally| tally.busy += 1);
            return Judgement::Refused;
        }
        let mac = handing.macs.of(block.index());
        let mac = mac.filter(|_| of.overlap(&handing.span) == Some(of) && !self.volumes[at].grows);
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

    fn count(&mut self, block: BlockId, change: impl Fn(&mut HandDownTally)) {
        change(&mut self.volumes[usize::from(block.volume().0)].handed_down);
        change(&mut self.handed_down);
    }

    fn admit(
        &mut self,
        block: BlockId,
        handing: &Handing,
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
        handing.span.copy(handing.data.as_slice(), &of, frame);
        let verifier = self.verifier.as_deref();
        let copy = verifier.is_some_and(|verifier| verifier.options.compare_with_store);
        let copy = copy.then(|| IoBuf::copy_of(&frame[..of.length as usize]));
        self.frames.set(slot, Frame::Ready);
        if let Some(mac) = handing.macs.of(block.index()) {
            self.hold_once(block, mac);
        }
        self.seal(block, slot, handing.macs.of(block.index()));
        if let Some(copy) = copy {
            self.read_to_compare(block, copy, started);
        }
    }

    /// Has the store read for a block that has entered. As every read of whole blocks it keeps writes away.
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

    /// The store says what it has.
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

    /// What was refused is still evicted above.
    fn note_refused(&mut self, refused: Option<Span>, handing: &Handing, effects: &mut Effects) {
        let on_refusal = match &self.verifier {
            Some(verifier) => verifier.options.on_refusal,
            None => OnRefusal::Notice,
        };
        if let (Some(span), OnRefusal::Notice, false) = (refused, on_refusal, handing.is_demotion) {
            self.notice(span, effects);
        }
    }
}
