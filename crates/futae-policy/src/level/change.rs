//! Changes the policy of a level.

use super::Level;
use crate::{Access, AccessKind, Index, Policy, PolicySpec};

impl PolicySpec {
    /// The kind of access by which [`Level::change_policy`] passes resident blocks to a new policy
    /// of this string. A policy that lives on demotions gets them as demotions; if they came as
    /// reads, it would evict them, the latest first.
    #[must_use]
    pub fn handover_kind(&self) -> AccessKind {
        if self.lives_on_demotions() {
            AccessKind::Demotion
        } else {
            AccessKind::Read
        }
    }
}

impl<P: Policy, I: Index> Level<P, I> {
    /// Switches to `policy`, which was built for the capacity of this level and has seen no access.
    /// Resident blocks stay, in their slots and with their classes; nothing is counted.
    ///
    /// The new policy gets the blocks by accesses of `kind` ([`PolicySpec::handover_kind`]) in the
    /// order in which the old policy would have evicted them, the next victim first. A policy that
    /// orders new blocks by their arrival, as nearly all do, thus keeps the order exactly; `mru`,
    /// `random`, `clock` and others make an order of their own. Returns the old policy: what it
    /// knew beside the order (frequencies, departed blocks) is lost. Takes time for every resident
    /// block.
    pub fn change_policy(&mut self, policy: P, kind: AccessKind) -> P {
        let order = self.policy.order();
        let old = std::mem::replace(&mut self.policy, policy);
        for slot in order.into_iter().rev() {
            let block = self.index.block_in(slot);
            let mut access = Access::of(block, kind).classed(self.class_in(slot));
            access.tick = self.tick;
            // The block is resident, whether or not the policy would admit it.
            self.policy.miss(&access);
            self.policy.insert(slot, &access);
        }
        old
    }
}

#[cfg(test)]
mod tests {
    use crate::contract::{Run, order_after, run};
    use crate::{Kind, PolicySpec, Shape, build};

    /// Policies that do not order blocks by arrival when they come one after the other.
    const ORDER_ANEW: &[&str] = &[
        "mru",
        "random",
        "fix",
        "clock",
        "lirs",
        "w-tinylfu",
        "lfu-history",
        "const",
        "two-handed-clock",
        "cacheus",
        "clock-pro",
        "gl-cache",
        "inferred",
    ];

    #[test]
    fn contents_are_equal_before_and_after_for_every_pair_of_policies() {
        for (seed, &old) in (1..).zip(Kind::ALL) {
            for &new in Kind::ALL {
                let mut run = Run::new(old, seed);
                run.go_on(250);
                run.change_policy(new);
                run.go_on(250);
                run.change_policy(old);
                run.go_on(50);
            }
        }
    }

    #[test]
    fn all_but_a_few_policies_keep_the_order_of_the_one_before() {
        let reads = [1, 2, 3, 4, 5, 2, 6, 1, 3];
        let before = order_after("lru", 5, &reads);
        let mut anew = Vec::new();
        for &kind in Kind::ALL {
            let mut level = run("lru", 5, 1, &reads);
            let spec = PolicySpec::of(kind);
            let shape = Shape { slots: 5, seed: 1 };
            let policy = build(&spec, &shape).expect("needs no parameters");
            level.change_policy(policy, spec.handover_kind());
            let after: Vec<u64> = level.order().iter().map(|block| block.index()).collect();
            if after != before {
                anew.push(kind.name());
            }
        }
        assert_eq!(anew, ORDER_ANEW);
    }

    #[test]
    fn counters_go_on_and_the_change_counts_nothing() {
        let mut level = run("lru", 3, 1, &[1, 2, 3, 1]);
        let before = level.counters();
        let policy = build(&PolicySpec::of(Kind::arc), &Shape { slots: 3, seed: 1 });
        level.change_policy(policy.expect("plain"), crate::AccessKind::Read);
        assert_eq!(level.counters(), before);
        level.audit();
    }
}
