//! A policy whose order is kept by code outside futae: told in groups, and every answer checked.

use crate::{
    Access, AccessKind, Admission, BlockId, Departure, Policy, SimulatorHints, Slot, SpecError,
};

/// At most this many calls wait: few enough for the processor's nearest cache.
const CALLS: usize = 128;

/// A call without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// As [`Policy::hit`].
    Hit(Slot, BlockId, AccessKind),
    /// As [`Policy::insert`].
    Insert(Slot, BlockId, AccessKind),
    /// As [`Policy::remove`].
    Remove(Slot, Departure),
}

/// Code outside futae that keeps an order over slots.
pub trait Foreign: Send {
    /// Receives calls, in order.
    fn tell(&mut self, calls: &[Call]);
    /// Whether [`miss`](Self::miss) is asked; otherwise every block is admitted.
    fn admits(&self) -> bool;
    /// Whether to place a block: 1 or 0. All calls have been told.
    fn miss(&mut self, block: BlockId, kind: AccessKind) -> i32;
    /// Receives these calls, and then says which slot to give up for a block; `None` declines the
    /// block.
    fn victim(&mut self, calls: &[Call], block: BlockId, kind: AccessKind) -> Option<Slot>;
    /// Whether [`foresee`](Self::foresee) is asked.
    fn foresees(&self) -> bool;
    /// The slot that would be the victim after `ahead` others, or any slot. Some calls may not have
    /// been told yet.
    fn foresee(&self, ahead: u32) -> Option<Slot>;
}

/// Foreign code, beside which slots are in use.
///
/// A wrong answer becomes the policy's [`fault`](Policy::fault), after which the code is not called
/// any more. Hits, insertions and removals have no answer; they wait until one is needed or many
/// wait, so that a hit costs a note of 16 bytes and no call.
pub struct Checked {
    name: String,
    foreign: Box<dyn Foreign>,
    slots: u32,
    /// A bit for each slot that is in use.
    used: Vec<u64>,
    resident: u32,
    admits: bool,
    foresees: bool,
    fault: Option<SpecError>,
    /// How many of the calls wait.
    waiting: usize,
    calls: Box<[Call; CALLS]>,
}

impl Checked {
    /// Has `foreign`, made for this many slots and called `name` in errors, decide.
    #[must_use]
    pub fn new(name: &str, foreign: Box<dyn Foreign>, slots: u32) -> Self {
        let none = Call::Remove(Slot(0), Departure::Evicted);
        Self {
            name: name.to_owned(),
            slots,
            used: vec![0; slots.div_ceil(64) as usize],
            resident: 0,
            admits: foreign.admits(),
            foresees: foreign.foresees(),
            foreign,
            fault: None,
            waiting: 0,
            calls: Box::new([none; CALLS]),
        }
    }

    #[inline]
    fn is_used(&self, slot: Slot) -> bool {
        let word = self.used.get(slot.i() / 64);
        word.is_some_and(|word| word >> (slot.0 % 64) & 1 == 1)
    }

    /// Has a call wait. After a fault calls are forgotten when they are many.
    #[inline(always)]
    fn note(&mut self, call: Call) {
        if self.waiting == CALLS {
            self.tell();
        }
        self.calls[self.waiting & (CALLS - 1)] = call;
        self.waiting += 1;
    }

    #[inline(never)]
    fn tell(&mut self) {
        if self.fault.is_none() && self.waiting > 0 {
            self.foreign.tell(&self.calls[..self.waiting]);
        }
        self.waiting = 0;
    }

    /// The code is not called again.
    #[cold]
    fn give_up(&mut self, problem: String) {
        self.foresees = false;
        self.fault.get_or_insert(SpecError::External {
            policy: self.name.clone(),
            problem,
        });
    }

    /// Any slot in use, for the calls that may still come once the code is not asked any more.
    #[cold]
    fn any(&self) -> Option<Slot> {
        let at = self.used.iter().position(|&word| word != 0)?;
        Some(Slot(at as u32 * 64 + self.used[at].trailing_zeros()))
    }

    #[cold]
    fn refuse_victim(&mut self, Slot(slot): Slot) {
        let what = match slot < self.slots {
            true => "holds no block".to_owned(),
            false => format!("is none of its {} slots", self.slots),
        };
        self.give_up(format!("victim answered slot {slot}, which {what}"));
    }
}

impl Policy for Checked {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        if self.fault.is_some() {
            return Admission::Bypass;
        }
        if !self.admits {
            return Admission::Admit;
        }
        self.tell();
        match self.foreign.miss(access.block, access.kind) {
            1 => Admission::Admit,
            0 => Admission::Bypass,
            other => {
                self.give_up(format!("miss answered {other}, which is neither 1 nor 0"));
                Admission::Bypass
            }
        }
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        // The level's slots are fewer than it was built for, so there is a word.
        if let Some(word) = self.used.get_mut(slot.i() / 64) {
            *word |= 1 << (slot.0 % 64);
        }
        self.resident += 1;
        self.note(Call::Insert(slot, access.block, access.kind));
    }

    #[inline(always)]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.note(Call::Hit(slot, access.block, access.kind));
    }

    #[inline]
    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        if self.resident == 0 {
            return None;
        }
        if self.fault.is_some() {
            return self.any();
        }
        let calls = &self.calls[..self.waiting];
        let slot = self.foreign.victim(calls, incoming.block, incoming.kind);
        self.waiting = 0;
        let slot = slot?;
        if self.is_used(slot) {
            return Some(slot);
        }
        self.refuse_victim(slot);
        None
    }

    #[inline]
    fn remove(&mut self, slot: Slot, why: Departure) {
        if let Some(word) = self.used.get_mut(slot.i() / 64) {
            *word &= !(1 << (slot.0 % 64));
        }
        self.resident -= 1;
        self.note(Call::Remove(slot, why));
    }

    fn fault(&self) -> Option<&SpecError> {
        self.fault.as_ref()
    }

    /// By number: what comes when is the code's secret.
    fn order(&self) -> Vec<Slot> {
        let slots = (0..self.slots).map(Slot);
        slots.filter(|&slot| self.is_used(slot)).collect()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.resident, resident);
    }
}

impl SimulatorHints for Checked {
    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        if !self.foresees {
            return None;
        }
        let slot = self.foreign.foresee(ahead);
        // The simulator looks into the slot.
        slot.filter(|&slot| self.is_used(slot))
    }
}

/// The code has been told everything when it ends.
impl Drop for Checked {
    fn drop(&mut self) {
        self.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// What it heard: questions by their names.
    #[derive(Clone, Debug, PartialEq)]
    enum Heard {
        Told(Call),
        Miss(BlockId, AccessKind),
        Victim(BlockId, AccessKind),
    }

    /// Keeps what it hears, answers a miss of block 9 wrong, and always names the same victim.
    struct Keeping {
        heard: Arc<Mutex<Vec<Heard>>>,
        admits: bool,
        victim: Option<Slot>,
    }

    impl Keeping {
        fn hear(&self, what: Heard) {
            self.heard.lock().expect("not poisoned").push(what);
        }
    }

    impl Foreign for Keeping {
        fn tell(&mut self, calls: &[Call]) {
            calls.iter().for_each(|&call| self.hear(Heard::Told(call)));
        }
        fn admits(&self) -> bool {
            self.admits
        }
        fn miss(&mut self, block: BlockId, kind: AccessKind) -> i32 {
            self.hear(Heard::Miss(block, kind));
            if block.index() == 9 { 7 } else { 1 }
        }
        fn victim(&mut self, calls: &[Call], block: BlockId, kind: AccessKind) -> Option<Slot> {
            self.tell(calls);
            self.hear(Heard::Victim(block, kind));
            self.victim
        }
        fn foresees(&self) -> bool {
            true
        }
        fn foresee(&self, ahead: u32) -> Option<Slot> {
            Some(Slot(ahead))
        }
    }

    fn keeping(admits: bool, victim: Option<Slot>) -> (Checked, Arc<Mutex<Vec<Heard>>>) {
        let heard = Arc::default();
        let foreign = Keeping {
            heard: Arc::clone(&heard),
            admits,
            victim,
        };
        (Checked::new("./it.so", Box::new(foreign), 4), heard)
    }

    fn access(block: u64, kind: AccessKind) -> Access {
        Access::of(BlockId::on_first(block), kind)
    }

    fn taken(heard: &Mutex<Vec<Heard>>) -> Vec<Heard> {
        std::mem::take(&mut heard.lock().expect("not poisoned"))
    }

    #[test]
    fn calls_are_told_before_the_next_question_and_at_the_end() {
        use AccessKind::{Demotion, Notice, Preload, Read, Write};
        use Heard::Told;
        let [five, six] = [5, 6].map(BlockId::on_first);
        let (mut policy, heard) = keeping(true, Some(Slot(1)));
        policy.insert(Slot(1), &access(5, Read));
        policy.hit(Slot(1), &access(5, Write));
        assert_eq!(taken(&heard), []);
        let next = access(6, Demotion);
        assert_eq!(policy.miss(&next), Admission::Admit);
        let told = [
            Call::Insert(Slot(1), five, Read),
            Call::Hit(Slot(1), five, Write),
        ];
        let [first, second] = told.map(Told);
        assert_eq!(taken(&heard), [first, second, Heard::Miss(six, Demotion)]);
        policy.hit(Slot(1), &access(5, Notice));
        assert_eq!(policy.victim(&next), Some(Slot(1)));
        let hit = Told(Call::Hit(Slot(1), five, Notice));
        assert_eq!(taken(&heard), [hit, Heard::Victim(six, Demotion)]);
        policy.remove(Slot(1), Departure::Promoted);
        policy.insert(Slot(1), &access(6, Preload));
        // What is in use is known without the code.
        assert_eq!(policy.order(), [Slot(1)]);
        assert_eq!(
            (policy.foresee(1), policy.foresee(2)),
            (Some(Slot(1)), None)
        );
        drop(policy);
        let removed = Told(Call::Remove(Slot(1), Departure::Promoted));
        let inserted = Told(Call::Insert(Slot(1), six, Preload));
        assert_eq!(taken(&heard), [removed, inserted]);
    }

    #[test]
    fn many_hits_are_told_in_groups_and_none_is_lost() {
        let (mut policy, heard) = keeping(false, None);
        policy.insert(Slot(0), &access(0, AccessKind::Read));
        let blocks = 1..=CALLS as u64 * 5 / 2;
        for block in blocks.clone() {
            policy.hit(Slot(0), &access(block, AccessKind::Read));
        }
        let told = heard.lock().expect("not poisoned").len();
        assert_eq!(told, 2 * CALLS);
        let next = access(9, AccessKind::Read);
        assert_eq!(policy.victim(&next), None);
        assert!(policy.fault().is_none());
        let on_first = BlockId::on_first;
        let hits = blocks.map(|block| Call::Hit(Slot(0), on_first(block), AccessKind::Read));
        let inserted = Call::Insert(Slot(0), on_first(0), AccessKind::Read);
        let told = std::iter::once(inserted).chain(hits).map(Heard::Told);
        let asked = Heard::Victim(next.block, next.kind);
        assert_eq!(taken(&heard), told.chain([asked]).collect::<Vec<_>>());
    }

    #[test]
    fn code_that_answered_wrong_is_not_called_again() {
        for admits in [false, true] {
            let (mut policy, heard) = keeping(admits, Some(Slot(3)));
            policy.insert(Slot(0), &access(1, AccessKind::Read));
            let next = access(9, AccessKind::Read);
            let fault = match admits {
                true => {
                    assert_eq!(policy.miss(&next), Admission::Bypass);
                    "miss answered 7"
                }
                false => {
                    assert_eq!(policy.victim(&next), None);
                    "victim answered slot 3, which holds no block"
                }
            };
            let found = policy.fault().expect("a fault").to_string();
            assert!(
                found.contains("./it.so") && found.contains(fault),
                "{found}"
            );
            assert_eq!(taken(&heard).len(), 2);
            assert_eq!(policy.foresee(0), None);
            for block in 0..CALLS as u64 * 2 {
                policy.hit(Slot(0), &access(block, AccessKind::Read));
            }
            assert_eq!(policy.miss(&next), Admission::Bypass);
            assert_eq!(policy.victim(&next), Some(Slot(0)));
            policy.remove(Slot(0), Departure::Evicted);
            assert_eq!(policy.victim(&next), None);
            drop(policy);
            assert_eq!(taken(&heard), []);
        }
    }
}
