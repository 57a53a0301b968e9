//! W-TinyLFU: new blocks enter a small window; a block moves from it to the main space only if it was
//! requested more often than the block that it would replace.
//!
//! # Source
//! Einziger, Friedman and Manes, "TinyLFU: a highly efficient cache admission policy", ACM ToS 13(4), 2017;
//! the adaptive window: Einziger, Eytan, Friedman and Manes, "Adaptive software cache management",
//! Middleware 2018.
//! # Picture
//! new → [ window, LRU ] → requested more often than the LRU block of probation? → [ main: probation
//! | protected, segmented LRU ]; the other one is evicted
//! # Transitions
//! hit in window: to its MRU end | hit in main: as in segmented LRU | miss: to window | victim, window
//! full: of the LRU blocks of window and probation, the one with the lower count in the sketch | every
//! access is counted in the sketch
//! # Parameters
//! window 0.01: initial share of the slots for the window, rounded up, at least 1
//! protected 0.8: share of main for the protected segment, rounded down
//! adaptive true: adapt the size of the window by hill climbing on the hit ratio
//! # Deviations
//! the window adapts as in the paper: every ten accesses per slot by a step, at first a sixteenth of the
//! slots, in the same direction while hits grow and else in the other one. Each step is 2 % smaller than
//! the one before, and the first size again after the hit ratio changes by 5 points. There is no
//! doorkeeper. libCacheSim has a fixed window and another sketch; hit ratios differ by a point or two
//! either way
//! # libCacheSim
//! libCacheSim's window is fixed, where the paper's and this one adapt, and its sketch is another
//! # Cost
//! O(1) per access, amortised; 30 to 38 bytes per slot with the sketch

use crate::structures::{LogQueues, Sketch, Table};
use crate::{
    Access, Admission, Arguments, BlockId, Departure, Policy, Shape, SimulatorHints, Slot,
    SpecError,
};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

const FIRST_STEP: f64 = 0.0625;
const DECAY: f64 = 0.98;
const RESTART: f64 = 0.05;
const SAMPLE_PER_SLOT: u64 = 10;

/// The hill climber: which way the window's share moves next, and by how much.
#[derive(Clone, Copy, Debug)]
struct Climber {
    accesses: u64,
    hits: u64,
    previous: Option<f64>,
    step: f64,
}

impl Climber {
    const START: Self = Self {
        accesses: 0,
        hits: 0,
        previous: None,
        step: FIRST_STEP,
    };

    /// Counts an access. At the end of a sample, returns the change of the window's share.
    #[inline]
    fn observe(&mut self, hit: bool, slots: u32) -> Option<f64> {
        self.accesses += 1;
        self.hits += u64::from(hit);
        if self.accesses < u64::from(slots) * SAMPLE_PER_SLOT {
            return None;
        }
        let ratio = self.hits as f64 / self.accesses as f64;
        (self.accesses, self.hits) = (0, 0);
        let previous = self.previous.replace(ratio)?;
        let step = if ratio >= previous {
            self.step
        } else {
            -self.step
        };
        self.step = if (ratio - previous).abs() >= RESTART {
            FIRST_STEP.copysign(step)
        } else {
            step * DECAY
        };
        Some(step)
    }
}

/// A window before a segmented LRU, and a sketch at the gate between them.
#[derive(Debug)]
pub struct WTinyLfu {
    slots: u32,
    window_share: f64,
    protected_share: f64,
    window_limit: u32,
    protected_limit: u32,
    climber: Option<Climber>,
    queues: LogQueues<3>,
    names: Table<BlockId>,
    sketch: Sketch,
}

/// Builds the policy; its parameters are `window`, `protected` and `adaptive`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<WTinyLfu, SpecError> {
    let adaptive = arguments.take("adaptive", "true or false", |_: &bool| true)?;
    let mut policy = WTinyLfu {
        slots: shape.slots,
        window_share: arguments.share("window", 0.01)?,
        protected_share: arguments.share("protected", 0.8)?,
        window_limit: 1,
        protected_limit: 0,
        climber: adaptive.unwrap_or(true).then_some(Climber::START),
        queues: LogQueues::new(shape.slots),
        names: Table::new(shape.slots),
        sketch: Sketch::new(shape.slots),
    };
    policy.derive();
    Ok(policy)
}

impl WTinyLfu {
    /// Limits from shares; blocks over their limit move on.
    fn derive(&mut self) {
        let window = (f64::from(self.slots) * self.window_share).ceil() as u32;
        self.window_limit = window.clamp(1, self.slots.max(1));
        let main = self.slots.saturating_sub(self.window_limit);
        self.protected_limit = (f64::from(main) * self.protected_share) as u32;
        while self.queues.len(WINDOW) > self.window_limit {
            self.move_oldest(WINDOW, PROBATION);
        }
        self.unprotect_surplus();
    }

    fn move_oldest(&mut self, from: usize, to: usize) {
        if let Some(oldest) = self.queues.front(from) {
            self.queues.remove(oldest);
            self.queues.push_back(to, oldest);
        }
    }

    #[inline]
    fn unprotect_surplus(&mut self) {
        while self.queues.len(PROTECTED) > self.protected_limit {
            self.move_oldest(PROTECTED, PROBATION);
        }
    }

    #[inline]
    fn observe(&mut self, access: &Access, hit: bool) {
        self.sketch.count(access.block);
        let Some(climber) = &mut self.climber else {
            return;
        };
        if let Some(step) = climber.observe(hit, self.slots) {
            self.window_share = (self.window_share + step).clamp(0.0, 0.8);
            self.derive();
        }
    }

    fn uses(&self, slot: Slot) -> u32 {
        self.sketch.estimate(self.names.get(slot))
    }

    /// The oldest in main: on probation, or protected where none is.
    fn main_victim(&self) -> Option<Slot> {
        let on_probation = self.queues.front(PROBATION);
        on_probation.or_else(|| self.queues.front(PROTECTED))
    }
}

impl Policy for WTinyLfu {
    #[inline]
    fn miss(&mut self, access: &Access) -> Admission {
        self.observe(access, false);
        Admission::Admit
    }

    #[inline]
    fn insert(&mut self, slot: Slot, access: &Access) {
        self.names.set(slot, access.block);
        self.queues.push_back(WINDOW, slot);
        // Only while the level is filling: otherwise the window gave one up for the newcomer.
        while self.queues.len(WINDOW) > self.window_limit {
            self.move_oldest(WINDOW, PROBATION);
        }
    }

    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        match self.queues.queue_of(slot) {
            WINDOW => self.queues.move_back(WINDOW, slot),
            _ => {
                self.queues.move_back(PROTECTED, slot);
                self.unprotect_surplus();
            }
        }
        self.observe(access, true);
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        let candidate = self.queues.front(WINDOW);
        let Some(resident) = self.main_victim() else {
            return candidate;
        };
        match candidate {
            Some(candidate) if self.queues.len(WINDOW) >= self.window_limit => {
                if self.uses(candidate) > self.uses(resident) {
                    self.queues.remove(candidate);
                    self.queues.push_back(PROBATION, candidate);
                    Some(resident)
                } else {
                    Some(candidate)
                }
            }
            _ => Some(resident),
        }
    }

    #[inline]
    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.queues.remove(slot);
    }

    fn resize(&mut self, slots: u32) {
        self.slots = slots;
        self.sketch = Sketch::new(slots);
        self.derive();
    }

    /// By queue; the gate decides between the oldest of window and probation.
    fn order(&self) -> Vec<Slot> {
        let mut order: Vec<Slot> = self.queues.iter_back(PROTECTED).collect();
        order.extend(self.queues.iter_back(PROBATION));
        order.extend(self.queues.iter_back(WINDOW));
        if let (Some(candidate), Some(resident)) = (self.queues.front(WINDOW), self.main_victim()) {
            let stays = self.queues.len(WINDOW) < self.window_limit
                || self.uses(candidate) > self.uses(resident);
            if stays {
                order.retain(|&slot| slot != resident);
                order.push(resident);
            }
        }
        order
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.queues.total(), resident);
        assert!(self.queues.len(WINDOW) <= self.window_limit);
        assert!(self.queues.len(PROTECTED) <= self.protected_limit);
    }
}

impl SimulatorHints for WTinyLfu {
    #[inline]
    fn glance(&self, block: BlockId) -> u32 {
        self.sketch.estimate(block)
    }
}

/// Three lists, oldest first, with the same sketch and the climber left out.
#[cfg(test)]
mod reference {
    use crate::BlockId;
    use crate::structures::Sketch;

    pub struct WTinyLfu {
        pub slots: usize,
        pub window: Vec<u64>,
        pub probation: Vec<u64>,
        pub protected: Vec<u64>,
        pub sketch: Sketch,
    }

    fn take(list: &mut Vec<u64>, block: u64) -> bool {
        let at = list.iter().position(|&held| held == block);
        at.map(|at| list.remove(at)).is_some()
    }

    impl WTinyLfu {
        fn uses(&self, block: u64) -> u32 {
            self.sketch.estimate(BlockId::on_first(block))
        }

        /// The candidate from the window enters main, if its uses earn it a place there.
        fn enter_main(&mut self) {
            let candidate = self.window.remove(0);
            if self.probation.len() + self.protected.len() < self.slots - 1 {
                self.probation.push(candidate);
                return;
            }
            let victims = [self.probation.as_slice(), &self.protected].concat();
            let Some(&victim) = victims.first() else {
                return;
            };
            if self.uses(candidate) > self.uses(victim) {
                let _ = take(&mut self.probation, victim) || take(&mut self.protected, victim);
                self.probation.push(candidate);
            }
        }
    }

    impl crate::contract::Reference for WTinyLfu {
        fn access(&mut self, block: u64) -> bool {
            self.sketch.count(BlockId::on_first(block));
            if take(&mut self.window, block) {
                self.window.push(block);
                return true;
            }
            if take(&mut self.probation, block) || take(&mut self.protected, block) {
                self.protected.push(block);
                if self.protected.len() > (self.slots - 1) * 8 / 10 {
                    self.probation.push(self.protected.remove(0));
                }
                return true;
            }
            self.window.push(block);
            if self.window.len() > 1 {
                self.enter_main();
            }
            false
        }

        fn resident(&self) -> Vec<u64> {
            [self.window.as_slice(), &self.probation, &self.protected].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Climber, FIRST_STEP, reference};
    use crate::contract::{equals_reference, order_after};
    use crate::structures::Sketch;

    #[test]
    fn worked_example() {
        // 3 slots: a window of 1, main of 2, one of it protected. 4 comes; 3 leaves the window
        // and is not asked for more often than 2: 3 goes.
        assert_eq!(order_after("w-tinylfu", 3, &[1, 2, 3, 1]), [1, 2, 3]);
        assert_eq!(order_after("w-tinylfu", 3, &[1, 2, 3, 1, 4]), [1, 2, 4]);
        // With a second use 4 wins against 2, which goes when 5 comes.
        assert_eq!(
            order_after("w-tinylfu", 3, &[1, 2, 3, 1, 4, 4, 5]),
            [1, 4, 5]
        );
    }

    #[test]
    fn the_climber_turns_when_hits_fall() {
        let mut climber = Climber::START;
        let mut sample = |hits: u64| {
            let steps = (0..100).filter_map(|at| climber.observe(at < hits, 10));
            steps.last()
        };
        assert_eq!(sample(50), None, "the first sample only sets the mark");
        assert_eq!(sample(51), Some(FIRST_STEP));
        assert!(sample(49).is_some_and(|step| step < 0.0));
        assert!(sample(48).is_some_and(|step| step > 0.0));
    }

    #[test]
    fn equals_its_reference_model() {
        equals_reference("w-tinylfu(adaptive=false)", |slots, _| {
            reference::WTinyLfu {
                slots,
                window: Vec::new(),
                probation: Vec::new(),
                protected: Vec::new(),
                sketch: Sketch::new(slots as u32),
            }
        });
    }
}
