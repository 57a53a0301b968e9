//! A policy from a shared library, whose every answer is checked.

use crate::foreign::State;
use futae_policy::{
    Access, AccessKind, Admission, Departure, Policy, SimulatorHints, Slot, SpecError,
};

/// `FUTAE_NO_SLOT`.
const NO_SLOT: u32 = u32::MAX;

/// A state of a library, beside which slots are in use.
pub struct Plugin {
    path: String,
    state: State,
    slots: u32,
    /// A bit for each slot that is in use.
    used: Vec<u64>,
    resident: u32,
    fault: Option<SpecError>,
}

impl Plugin {
    /// Has `state`, made for this many slots by the library at `path`, decide.
    pub fn new(path: &str, state: State, slots: u32) -> Self {
        Self {
            path: path.to_owned(),
            state,
            slots,
            used: vec![0; slots.div_ceil(64) as usize],
            resident: 0,
            fault: None,
        }
    }

    #[inline]
    fn is_used(&self, slot: u32) -> bool {
        let word = self.used.get(slot as usize / 64);
        word.is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// The library is not asked again.
    #[cold]
    fn give_up(&mut self, problem: String) {
        self.fault.get_or_insert(SpecError::External {
            policy: self.path.clone(),
            problem,
        });
    }

    /// Any slot in use, for the calls that may still come once the library is not asked any more.
    #[cold]
    fn any(&self) -> Option<Slot> {
        let at = self.used.iter().position(|&word| word != 0)?;
        Some(Slot(at as u32 * 64 + self.used[at].trailing_zeros()))
    }
}

/// `enum futae_kind`.
#[inline]
fn kind(access: &Access) -> u32 {
    match access.kind {
        AccessKind::Read => 0,
        AccessKind::Write => 1,
        AccessKind::Demotion => 2,
        AccessKind::Notice => 3,
        AccessKind::Preload => 4,
    }
}

impl Policy for Plugin {
    fn miss(&mut self, access: &Access) -> Admission {
        if self.fault.is_some() {
            return Admission::Bypass;
        }
        match self.state.miss(access.block.raw(), kind(access)) {
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
        if self.fault.is_none() {
            self.state.insert(slot.0, access.block.raw(), kind(access));
        }
    }

    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        if self.fault.is_none() {
            self.state.hit(slot.0, access.block.raw(), kind(access));
        }
    }

    #[inline]
    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        if self.resident == 0 {
            return None;
        }
        if self.fault.is_some() {
            return self.any();
        }
        let slot = self.state.victim(incoming.block.raw(), kind(incoming));
        if self.is_used(slot) {
            return Some(Slot(slot));
        }
        if slot != NO_SLOT {
            let what = match slot < self.slots {
                true => "holds no block".to_owned(),
                false => format!("is none of its {} slots", self.slots),
            };
            self.give_up(format!("victim answered slot {slot}, which {what}"));
        }
        None
    }

    #[inline]
    fn remove(&mut self, slot: Slot, why: Departure) {
        if let Some(word) = self.used.get_mut(slot.i() / 64) {
            *word &= !(1 << (slot.0 % 64));
        }
        self.resident -= 1;
        if self.fault.is_none() {
            let why = match why {
                Departure::Evicted => 0,
                Departure::Promoted => 1,
                Departure::Invalidated => 2,
            };
            self.state.remove(slot.0, why);
        }
    }

    fn fault(&self) -> Option<&SpecError> {
        self.fault.as_ref()
    }

    /// By number: what comes when is the library's secret.
    fn order(&self) -> Vec<Slot> {
        let slots = (0..self.slots).filter(|&slot| self.is_used(slot));
        slots.map(Slot).collect()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.resident, resident);
    }
}

impl SimulatorHints for Plugin {
    #[inline]
    fn foresee(&self, ahead: u32) -> Option<Slot> {
        let slot = self.state.foresee(ahead)?;
        // The simulator looks into the slot.
        self.is_used(slot).then_some(Slot(slot))
    }
}
