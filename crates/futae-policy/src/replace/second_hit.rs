//! Second hit: does not place a block at its first miss; a Bloom filter remembers it, and the next miss
//! places it.
//!
//! # Source
//! Maggs and Sitaraman, "Algorithmic nuggets in content delivery", ACM SIGCOMM Computer Communication
//! Review 45(3), 2015 (cache on second hit); the filter: Bloom, "Space/time trade-offs in hash coding with
//! allowable errors", Communications of the ACM 13(7), 1970
//! # Picture
//! first miss → [ newer filter ] → full: becomes the older one, whose contents are discarded
//! | second miss → the inner policy
//! # Transitions
//! hit: as the inner policy decides | miss: if either filter has the block, as the inner policy decides,
//! else the block enters the newer filter | demotion, notice: as the inner policy decides, because the
//! level above has placed the block
//! # Parameters
//! names 1000000: blocks that a filter takes until it becomes the older one
//! bits 10: bits per block; with 10, a filter reports a block that did not enter it with a probability of
//! about 1 %
//! # Deviations
//! two filters of equal length take turns, so a block is remembered for at least `names` first misses and
//! at most twice as many. The paper says that the filter has to forget in time, and leaves open how. The
//! inner policy is the first argument, as in second-hit(sieve,names=50000); the default is lru
//! # Cost
//! that of the inner policy, and 0.69 × `bits` reads of memory per miss; 2.5 MB with these parameters

use crate::structures::Bloom;
use crate::{
    Access, Admission, Arguments, BlockId, Class, Departure, Directive, Policy, PolicySpec,
    RegisteredPolicy, Shape, SimulatorHints, Slot, SpecError, StoreCosts,
};

/// The most names, and the most bits for each, that a filter may have: 4 GiB.
const NAMES_MAX: u64 = 1 << 30;
const BITS_MAX: u64 = 32;

/// Another policy for blocks that were missed before.
pub struct SecondHit {
    inside: Box<dyn RegisteredPolicy>,
    newer: Bloom,
    older: Bloom,
    /// Names that the newer filter may still take.
    left: u64,
    names: u64,
}

/// Builds the policy; its parameters are the policy inside, `names` and `bits`.
pub fn build(arguments: &mut Arguments, shape: &Shape) -> Result<SecondHit, SpecError> {
    let inside = arguments.inner();
    let inside = inside.unwrap_or_else(|| PolicySpec::of(crate::Kind::lru));
    let mut count = |key, default, most| -> Result<u64, SpecError> {
        let expected = format!("a whole number from 1 to {most}");
        let found = arguments.take(key, &expected, |it: &u64| (1..=most).contains(it))?;
        Ok(found.unwrap_or(default))
    };
    let names = count("names", 1_000_000, NAMES_MAX)?;
    let bits = count("bits", 10, BITS_MAX)?;
    Ok(SecondHit {
        inside: crate::build(&inside, shape)?,
        newer: Bloom::new(names, bits),
        older: Bloom::new(names, bits),
        left: names,
        names,
    })
}

impl SecondHit {
    fn note(&mut self, block: BlockId) {
        if self.left == 0 {
            std::mem::swap(&mut self.newer, &mut self.older);
            self.newer.clear();
            self.left = self.names;
        }
        self.left -= 1;
        self.newer.add(block);
    }
}

impl Policy for SecondHit {
    fn miss(&mut self, access: &Access) -> Admission {
        // What is preloaded, as what this cache held before a restart, has been missed twice already.
        let is_first = access.kind.is_demand()
            && !self.newer.has(access.block)
            && !self.older.has(access.block);
        if is_first {
            self.note(access.block);
            return Admission::Bypass;
        }
        self.inside.miss(access)
    }

    fn note_size(&mut self, bytes: u32) {
        self.inside.note_size(bytes);
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        self.inside.insert(slot, access);
    }

    #[inline]
    fn hit(&mut self, slot: Slot, access: &Access) {
        self.inside.hit(slot, access);
    }

    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        self.inside.victim(incoming)
    }

    fn surplus(&mut self) -> Option<Slot> {
        self.inside.surplus()
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        self.inside.remove(slot, why);
    }

    fn reclass(&mut self, slot: Slot, class: Class) {
        self.inside.reclass(slot, class);
    }

    fn reclass_at_once(&mut self, slot: Slot, access: &Access) {
        self.inside.reclass_at_once(slot, access);
    }

    fn note_costs(&mut self, costs: &StoreCosts) {
        self.inside.note_costs(costs);
    }

    fn note_volumes(&mut self, firsts: &[u64]) {
        self.inside.note_volumes(firsts);
    }

    fn weights(&self) -> Vec<(String, f64)> {
        self.inside.weights()
    }

    fn review(&mut self) -> Option<BlockId> {
        self.inside.review()
    }

    fn directive(&self, block: BlockId) -> Option<Directive> {
        self.inside.directive(block)
    }

    fn direct(&mut self, directive: &Directive) {
        self.inside.direct(directive);
    }

    fn remarks(&self) -> &[String] {
        self.inside.remarks()
    }

    fn fault(&self) -> Option<&SpecError> {
        self.inside.fault()
    }

    fn history(&self) -> Vec<BlockId> {
        self.inside.history()
    }

    fn recall(&mut self, history: &[BlockId]) {
        self.inside.recall(history);
    }

    fn resize(&mut self, slots: u32) {
        self.inside.resize(slots);
    }

    fn order(&self) -> Vec<Slot> {
        self.inside.order()
    }

    fn rank(&self, slot: Slot) -> u64 {
        self.inside.rank(slot)
    }

    fn audit(&self, resident: u32) {
        assert!(self.left <= self.names);
        self.inside.audit(resident);
    }
}

impl SimulatorHints for SecondHit {
    fn number_blocks(&mut self, first: u64) {
        self.inside.number_blocks(first);
    }

    fn glance(&self, block: BlockId) -> u32 {
        self.inside.glance(block)
    }

    fn foresee(&self, ahead: u32) -> Option<Slot> {
        self.inside.foresee(ahead)
    }
}

/// A list in order of last use, and two lists of names without false ones.
#[cfg(test)]
mod reference {
    pub struct SecondHit {
        pub slots: usize,
        pub names: usize,
        pub newer: Vec<u64>,
        pub older: Vec<u64>,
        pub blocks: Vec<u64>,
    }

    impl crate::contract::Reference for SecondHit {
        fn access(&mut self, block: u64) -> bool {
            if let Some(at) = self.blocks.iter().position(|&held| held == block) {
                self.blocks.remove(at);
                self.blocks.push(block);
                return true;
            }
            if !self.newer.contains(&block) && !self.older.contains(&block) {
                if self.newer.len() == self.names {
                    self.older = std::mem::take(&mut self.newer);
                }
                self.newer.push(block);
                return false;
            }
            if self.blocks.len() == self.slots {
                self.blocks.remove(0);
            }
            self.blocks.push(block);
            false
        }

        fn resident(&self) -> Vec<u64> {
            self.blocks.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference;
    use crate::contract::{equals_reference, order_after};

    #[test]
    fn worked_example() {
        // 2 slots; safest first, next victim last. Only the second miss places.
        let text = "second-hit(bits=32)";
        assert_eq!(order_after(text, 2, &[1, 2, 3]), []);
        assert_eq!(order_after(text, 2, &[1, 2, 3, 1, 2]), [2, 1]);
        assert_eq!(order_after(text, 2, &[1, 2, 3, 1, 2, 3]), [3, 2]);
        // Each filter takes one name: 3 is the third, so 1 is forgotten, and 3 is not.
        let text = "second-hit(names=1,bits=32)";
        assert_eq!(order_after(text, 2, &[1, 2, 3, 1]), []);
        assert_eq!(order_after(text, 2, &[1, 2, 3, 3]), [3]);
        let text = "second-hit(fifo,bits=32)";
        assert_eq!(order_after(text, 2, &[1, 1, 2, 2, 1, 3, 3]), [3, 2]);
    }

    /// With so many bits a name is not thought to be another here.
    #[test]
    fn equals_its_reference_model() {
        for names in [1usize, 5, 1000] {
            let text = format!("second-hit(names={names},bits=32)");
            equals_reference(&text, |slots, _| reference::SecondHit {
                slots,
                names,
                newer: Vec::new(),
                older: Vec::new(),
                blocks: Vec::new(),
            });
        }
    }
}
