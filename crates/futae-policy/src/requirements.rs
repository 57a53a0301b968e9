//! What a policy string requires, by the traits of the policy that it names and of those inside; and the parameters that its
//! users add by these traits.

use crate::spec::is_path;
use crate::structures::LogQueues;
use crate::{Argument, Kind, PolicySpec, SpecError, Trait};

impl PolicySpec {
    /// Whether this policy, or a policy inside it, has a trait.
    #[must_use]
    pub fn has(&self, wanted: Trait) -> bool {
        self.any(&|spec| spec.has_itself(wanted))
    }

    /// This policy if it has the trait, otherwise the inner policy that has it.
    pub fn find_mut(&mut self, wanted: Trait) -> Option<&mut Self> {
        if self.has_itself(wanted) {
            return Some(self);
        }
        self.arguments
            .iter_mut()
            .find_map(|argument| match argument {
                Argument::Inner(inner) => inner.find_mut(wanted),
                Argument::Named(..) => None,
            })
    }

    /// The most slots that a level with this policy can have.
    #[must_use]
    pub fn slots_max(&self) -> u32 {
        if self.has(Trait::FourQueues) {
            LogQueues::<4>::SLOTS_MAX
        } else if self.has(Trait::TwoQueues) {
            LogQueues::<2>::SLOTS_MAX
        } else {
            LogQueues::<1>::SLOTS_MAX
        }
    }

    /// Checks that the policy can order this many slots. Without this check, its queues would panic once they are full.
    ///
    /// # Errors
    ///
    /// There are more than [`slots_max`](Self::slots_max).
    pub fn check_slots(&self, slots: u32) -> Result<(), SpecError> {
        let most = self.slots_max();
        if slots <= most {
            return Ok(());
        }
        Err(SpecError::TooManySlots {
            policy: self.to_string(),
            slots,
            most,
        })
    }

    /// Whether the policy depends on the future, so that it cannot run live.
    #[must_use]
    pub fn needs_future(&self) -> bool {
        self.has(Trait::NeedsFuture)
    }

    /// Whether the cache depends on the evictions of the upper level.
    #[must_use]
    pub fn lives_on_demotions(&self) -> bool {
        self.has(Trait::LivesOnDemotions)
    }

    /// The paths of the shared libraries that it names, for itself and inside it.
    #[must_use]
    pub fn libraries(&self) -> Vec<&str> {
        let own = is_path(&self.name).then_some(self.name.as_str());
        let inside = self.arguments.iter().flat_map(|argument| match argument {
            Argument::Inner(inner) => inner.libraries(),
            Argument::Named(..) => Vec::new(),
        });
        own.into_iter().chain(inside).collect()
    }

    /// Whether the evictions of the upper level should come to this cache with their data.
    #[must_use]
    pub fn wants_demotions(&self) -> bool {
        self.lives_on_demotions() || self.has(Trait::TakesDemotions)
    }

    /// Whether this policy and its inner ones decide the same in whatever order the hits between
    /// two misses come, so that marks of hit blocks suffice.
    #[must_use]
    pub fn takes_marks(&self) -> bool {
        self.takes_hits_as(&[Trait::TakesMarks])
    }

    /// Whether counts of the hits between two misses suffice for this policy and its inner ones.
    #[must_use]
    pub fn takes_counts(&self) -> bool {
        self.takes_hits_as(&[Trait::TakesMarks, Trait::TakesCounts])
    }

    fn takes_hits_as(&self, ways: &[Trait]) -> bool {
        let inside = |argument: &Argument| match argument {
            Argument::Inner(inner) => Some(inner.takes_hits_as(ways)),
            Argument::Named(..) => None,
        };
        let inside: Vec<bool> = self.arguments.iter().filter_map(inside).collect();
        // Without an inner policy, its blocks are ordered by lru.
        let is_plain = inside.is_empty() && self.has_itself(Trait::Protects);
        let takes = ways.iter().any(|&way| self.has_itself(way));
        // Read-ahead follows each read.
        takes && !is_plain && !self.reads_ahead() && inside.iter().all(|&takes| takes)
    }

    /// Whether blocks may differ in size under this policy and its inner ones.
    #[must_use]
    pub fn takes_any_size(&self) -> bool {
        let takes = |argument: &Argument| match argument {
            Argument::Inner(inner) => inner.takes_any_size(),
            Argument::Named(..) => true,
        };
        self.has_itself(Trait::AnySize) && self.arguments.iter().all(takes)
    }

    /// Whether requests must be counted as the application makes them.
    #[must_use]
    pub fn counts_requests(&self) -> bool {
        self.has(Trait::CountsRequests)
    }

    /// Whether the policy loads blocks that were not requested, so that the set of existing blocks
    /// must be known.
    #[must_use]
    pub fn needs_volume_size(&self) -> bool {
        let prefills = |argument: &Argument| *argument == named("prefill", "true");
        self.has(Trait::NeedsVolumeSize)
            || self.any(&|spec| {
                spec.has_itself(Trait::MayPrefill) && spec.arguments.iter().any(prefills)
            })
    }

    /// How many blocks the policy reads ahead at most, if it models a cache that does. Blocks that it loads unasked are then read
    /// through the levels below, as its misses are.
    #[must_use]
    pub fn read_ahead_blocks(&self) -> u32 {
        let own = |argument: &Argument| match argument {
            Argument::Named(key, value) if key == "readahead" => value.trim().parse().ok(),
            _ => None,
        };
        let is_model = self.has_itself(Trait::MayReadAhead);
        let blocks = self.arguments.iter().filter_map(|argument| match argument {
            Argument::Inner(inner) => Some(inner.read_ahead_blocks()),
            named => own(named).filter(|_| is_model),
        });
        blocks.max().unwrap_or(0)
    }

    /// This model of a kernel, with at most this many blocks read ahead.
    #[must_use]
    pub fn reading_ahead(mut self, blocks: u64) -> Self {
        if blocks > 0 {
            self.arguments.push(named("readahead", &blocks.to_string()));
        }
        self
    }

    /// This model of a kernel that reads ahead, with what it reads ahead in large folios.
    #[must_use]
    pub fn in_large_folios(mut self) -> Self {
        self.arguments.push(named("folios", "large"));
        self
    }

    /// Whether the policy models a cache that reads ahead.
    #[must_use]
    pub fn reads_ahead(&self) -> bool {
        self.read_ahead_blocks() > 0
    }

    /// Sets `keep_served` for a policy that supports it, unless its string contains the parameter.
    /// Returns whether the string was changed.
    pub fn keep_served(&mut self) -> bool {
        const KEY: &str = "keep_served";
        let decides =
            |argument: &Argument| matches!(argument, Argument::Named(key, _) if key == KEY);
        let undecided = self
            .find_mut(Trait::KeepsServed)
            .filter(|policy| !policy.arguments.iter().any(decides));
        let Some(policy) = undecided else {
            return false;
        };
        policy.arguments.push(named(KEY, "true"));
        true
    }

    /// Whether the policy directs the level below. One inside another does not: the outer policy
    /// owns the level.
    #[must_use]
    pub fn directs(&self) -> bool {
        self.has_itself(Trait::Directs)
    }

    /// Tells a policy that directs the level below how many slots that has, unless its string says
    /// so.
    pub fn set_below(&mut self, slots: u32) {
        const KEY: &str = "below";
        let decides =
            |argument: &Argument| matches!(argument, Argument::Named(key, _) if key == KEY);
        if self.directs() && !self.arguments.iter().any(decides) {
            self.arguments.push(named(KEY, &slots.to_string()));
        }
    }

    fn has_itself(&self, wanted: Trait) -> bool {
        let kind = Kind::named(&self.name);
        kind.is_some_and(|kind| kind.traits().contains(&wanted))
    }

    fn any(&self, test: &dyn Fn(&Self) -> bool) -> bool {
        let inside =
            |argument: &Argument| matches!(argument, Argument::Inner(inner) if inner.any(test));
        test(self) || self.arguments.iter().any(inside)
    }
}

fn named(key: &str, value: &str) -> Argument {
    Argument::Named(key.to_owned(), value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Shape, build};

    fn spec(text: &str) -> PolicySpec {
        text.parse().expect("valid")
    }

    #[test]
    fn traits_are_those_of_the_policy_and_of_the_policies_inside() {
        for (text, lives) in [
            ("exclusive", true),
            ("exclusive(lfu)", true),
            ("directory(cost(exclusive))", true),
            ("lru", false),
            ("directory", false),
            ("cost(inner=arc)", false),
        ] {
            assert_eq!(spec(text).lives_on_demotions(), lives, "{text}");
        }
        let any_size = |text: &str| spec(text).takes_any_size();
        assert!(any_size("second-hit(gdsf,names=9)") && any_size("second-hit"));
        assert!(!any_size("second-hit(arc)") && !any_size("exclusive(lru)"));
        assert!(spec("exclusive(opt)").needs_future());
        assert!(!spec("exclusive(lru)").needs_future());
        assert!(spec("directory(lfu-history)").counts_requests());
        let loads = |text: &str| spec(text).needs_volume_size();
        assert!(loads("const(pin=3)") && loads("directory(lfu-history(prefill=true))"));
        assert!(!loads("lfu-history") && !loads("lfu-history(prefill=false)"));
        let ahead = |text: &str| spec(text).read_ahead_blocks();
        let ahead = [
            "linux(late=1,readahead=32)",
            "directory(mglru(readahead=1))",
            "linux",
        ]
        .map(ahead);
        assert_eq!(ahead, [32, 1, 0]);
        let set = [0, 32].map(|blocks| spec("mglru").reading_ahead(blocks).to_string());
        assert_eq!(set, ["mglru", "mglru(readahead=32)"]);
        let large = spec("linux").reading_ahead(32).in_large_folios();
        assert_eq!(large.to_string(), "linux(readahead=32,folios=large)");
        assert!(spec("mglru").takes_marks() && !spec("mglru(readahead=32)").takes_marks());
    }

    /// A policy around others that is not in the registry yet: its author cannot forget to pass
    /// traits on.
    #[test]
    fn a_new_wrapper_has_the_traits_of_what_is_inside() {
        let mut wrapped = spec("made-up(depth=2,exclusive(lfu-history(prefill=true)))");
        assert!(Kind::named(&wrapped.name).is_none());
        assert!(wrapped.lives_on_demotions() && wrapped.counts_requests());
        assert!(wrapped.needs_volume_size() && !wrapped.needs_future());
        assert!(wrapped.keep_served() && !wrapped.keep_served());
        let kept = "made-up(depth=2,exclusive(lfu-history(prefill=true),keep_served=true))";
        assert_eq!(wrapped.to_string(), kept);
        assert!(!spec("made-up(lru)").lives_on_demotions());
    }

    /// What the registry says of parameters is true of the policies.
    #[test]
    fn parameters_that_traits_promise_exist() {
        let shape = Shape { slots: 16, seed: 1 };
        for &kind in Kind::ALL {
            for (wanted, argument) in [
                (Trait::KeepsServed, "keep_served=true"),
                (Trait::MayPrefill, "prefill=true"),
                (Trait::WeighsClasses, "classes=a+b"),
                (Trait::Protects, "max_protected=0.5"),
                (Trait::Directs, "below=7"),
                (Trait::MayReadAhead, "readahead=32"),
            ] {
                let text = format!("{}({argument})", kind.name());
                let is_built = build(&spec(&text), &shape).is_ok();
                assert_eq!(kind.traits().contains(&wanted), is_built, "{text}");
            }
        }
    }

    /// A policy loads blocks that nobody asked for if and only if the registry says so.
    #[test]
    fn only_policies_that_say_so_load_unasked() {
        let shape = Shape { slots: 16, seed: 1 };
        for &kind in Kind::ALL {
            let plain = PolicySpec::of(kind);
            let mut policy = build(&plain, &shape).expect("needs no parameters");
            let first = policy.review();
            assert_eq!(first.is_some(), plain.needs_volume_size(), "{plain}");
        }
        let prefilling = spec("lfu-history(prefill=true)");
        let mut policy = build(&prefilling, &shape).expect("valid");
        assert!(policy.review().is_some());
        assert!(prefilling.needs_volume_size());
    }

    /// Between two misses hits may come in any order if and only if the registry says so: reversed, they leave the same blocks.
    #[test]
    fn only_policies_that_say_so_decide_alike_whatever_the_order_of_hits() {
        let run = |spec: &PolicySpec, seed: u64, is_reversed: bool| {
            let slots = 24;
            let shape = Shape { slots, seed: 1 };
            let policy = build(spec, &shape).expect("plain");
            let mut level = crate::Level::new(policy, crate::HashIndex::default(), slots);
            let mut prng = crate::Prng::new(seed);
            let (mut waiting, mut left) = (Vec::new(), Vec::new());
            for _ in 0..4000 {
                let block = crate::BlockId::on_first(prng.below(8) * prng.below(8));
                if level.find(block).is_some() {
                    waiting.push(block);
                    continue;
                }
                if is_reversed {
                    waiting.reverse();
                }
                for hit in waiting.drain(..) {
                    level.access(&Access::read(hit));
                }
                level.access(&Access::read(block));
                let mut order = level.order();
                order.sort_unstable();
                left.push(order);
            }
            left
        };
        for &kind in Kind::ALL {
            let text = match kind.name() {
                "directory" => "directory(clock)",
                name => name,
            };
            let spec = spec(text);
            let alike = (1..4).all(|seed| run(&spec, seed, false) == run(&spec, seed, true));
            println!("{text} {alike}");
            assert!(!spec.takes_marks() || alike, "{text}");
        }
        assert!(!spec("directory").takes_marks() && !spec("directory(lru)").takes_marks());
        assert!(!spec("cost(inner=lru)").takes_marks() && spec("directory(cost)").takes_marks());
        let counts = |text: &str| (spec(text).takes_marks(), spec(text).takes_counts());
        assert_eq!(counts("lfu-history"), (false, true));
        assert_eq!(counts("directory(lfu-history)"), (false, true));
        assert_eq!(counts("const"), (true, true));
        assert_eq!(counts("directory(lru)"), (false, false));
    }

    /// A policy is blind to the future unless the registry says that it needs it: with and without
    /// it, it leaves the same blocks.
    #[test]
    fn only_policies_that_say_so_look_at_the_future() {
        let mut reads = Vec::new();
        for at in 0..400u64 {
            reads.push(at * at % 37 % 23);
        }
        for &kind in Kind::ALL {
            let run = |knows: bool| {
                let shape = Shape { slots: 8, seed: 1 };
                let policy = build(&PolicySpec::of(kind), &shape).expect("plain");
                let mut level = crate::Level::new(policy, crate::HashIndex::default(), 8);
                for (at, &block) in reads.iter().enumerate() {
                    let later = reads[at + 1..].iter().position(|&other| other == block);
                    let mut access = Access::read(crate::BlockId::on_first(block));
                    if let (true, Some(distance)) = (knows, later) {
                        access.next_use = (at + 1 + distance) as u64;
                    }
                    level.access(&access);
                }
                level.order()
            };
            let looks = run(true) != run(false);
            assert_eq!(
                looks,
                PolicySpec::of(kind).needs_future(),
                "{}",
                kind.name()
            );
        }
    }
}
