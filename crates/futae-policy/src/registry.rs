//! Every policy by name, with its traits. A new policy is one file in `replace/` and one line here;
//! its module, its name on every command line, its card and its contract test follow from that line.

use crate::card::Card;
use crate::external::{self, Built};
use crate::replace;
use crate::spec::is_path;
use crate::{Arguments, PolicySpec, RegisteredPolicy, Shape, SpecError, Trait};

/// Runs code with a policy of a type known at compile time: the simulator's inner loop.
pub trait Visit {
    /// The result.
    type Output;
    /// Receives the policy that the string names.
    fn visit<P: RegisteredPolicy + 'static>(self, policy: P) -> Self::Output;
}

/// Passes the list of all policies to the macro `$with`: `file = "name" [traits]`, one line per
/// policy.
macro_rules! registered {
    ($with:ident) => {
        $with! {
            lru = "lru" [Candidate, Advised, AnySize],
            mru = "mru" [AnySize],
            fifo = "fifo" [TakesMarks, AnySize],
            random = "random" [TakesMarks, AnySize],
            fix = "fix" [TakesMarks],
            exclusive = "exclusive" [LivesOnDemotions, KeepsServed, Candidate, Advised],
            lfu = "lfu" [Candidate, FirstBelow, AnySize],
            lfu_in_cache = "lfu-in-cache" [AnySize],
            two_q = "2q" [Candidate, Advised, TwoQueues],
            mq = "mq" [Candidate],
            clock = "clock" [TakesMarks],
            sieve = "sieve" [Candidate, TakesMarks, AnySize],
            s3_fifo = "s3-fifo" [Candidate, Advised, TakesMarks, TwoQueues],
            arc = "arc" [Candidate, Advised, TwoQueues],
            slru = "slru" [FourQueues],
            opt = "opt" [NeedsFuture],
            lirs = "lirs" [Candidate, Opens, Advised, TwoQueues],
            w_tinylfu = "w-tinylfu" [Candidate, RehearsedFirst, Opens, Advised, FourQueues],
            lfu_history = "lfu-history" [CountsRequests, MayPrefill, TakesCounts],
            constant = "const" [ChoosesByNumber, NeedsVolumeSize, TakesMarks],
            directory = "directory" [Protects, TakesMarks],
            fifo_second_chance = "fifo-second-chance" [TakesMarks],
            cost = "cost" [WeighsClasses, TakesMarks],
            linux = "linux" [MayReadAhead],
            mglru = "mglru" [TakesMarks, MayReadAhead],
            two_handed_clock = "two-handed-clock" [TakesMarks],
            car = "car" [TakesMarks, TwoQueues],
            lrfu = "lrfu",
            hyperbolic = "hyperbolic" [TakesMarks],
            lhd = "lhd",
            lecar = "lecar",
            gdsf = "gdsf" [AnySize],
            clock2q_plus = "clock2q-plus" [TakesMarks, TwoQueues],
            lru_k = "lru-k",
            lfuda = "lfuda",
            bidifilter = "bidifilter" [LivesOnDemotions, BelowOneTimers],
            promote = "promote",
            lrb = "lrb",
            cacheus = "cacheus" [TwoQueues],
            clock_pro = "clock-pro" [TakesMarks],
            three_l_cache = "3l-cache",
            gl_cache = "gl-cache",
            ulc = "ulc" [Directs],
            directed = "directed" [TakesDemotions],
            inferred = "inferred",
            second_hit = "second-hit" [AnySize],
            auto = "auto" [TakesDemotions, Advised, FourQueues],
        }
    };
}
pub(crate) use registered;

macro_rules! policies {
    ($($module:ident = $name:literal $([$($trait:ident),*])?),* $(,)?) => {
        /// A registered policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(non_camel_case_types, reason = "variants are the file names")]
        pub enum Kind { $(
            #[doc = $name]
            $module
        ),* }

        impl Kind {
            /// Every policy, in the order of the registry.
            pub const ALL: &'static [Self] = &[$(Self::$module),*];

            /// The name on command lines.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$module => $name),* }
            }

            /// What the rest of the system must know about the policy, excluding the policies
            /// inside it; see [`PolicySpec::has`].
            #[must_use]
            pub const fn traits(self) -> &'static [Trait] {
                match self { $(Self::$module => &[$($(Trait::$trait),*)?]),* }
            }

            fn source_text(self) -> &'static str {
                match self { $(Self::$module => include_str!(concat!("replace/", stringify!($module), ".rs"))),* }
            }
        }

        fn dispatch<V: Visit>(kind: Kind, arguments: &mut Arguments, shape: &Shape, visitor: V) -> Result<V::Output, SpecError> {
            match kind {
                $(Kind::$module => replace::$module::build(arguments, shape).map(|policy| visitor.visit(policy))),*
            }
        }

        /// The card of every policy, in the order of the registry.
#[must_use]
pub fn cards() -> Vec<Card> {
    Kind::ALL
        .iter()
        .map(|kind| Card::parse(kind.name(), kind.source_text()))
        .collect()
}

#[cfg(test)]
        mod contract {
            $(mod $module {
                #[test]
                fn obeys_the_contract() {
                    crate::contract::check(crate::Kind::$module);
                }
            })*
        }
    };
}

registered!(policies);

/// Builds the policy that `spec` names and passes it to `visitor`.
pub fn visit<V: Visit>(
    spec: &PolicySpec,
    shape: &Shape,
    visitor: V,
) -> Result<V::Output, SpecError> {
    if let Some(built) = external::build(spec, shape) {
        return built.map(|built| match built {
            Built::Any(policy) => visitor.visit(policy),
            Built::Checked(policy) => visitor.visit(policy),
        });
    }
    let kind = find(&spec.name)?;
    spec.check_slots(shape.slots)?;
    let mut arguments = Arguments::new(spec);
    let output = dispatch(kind, &mut arguments, shape, visitor)?;
    arguments.finish()?;
    Ok(output)
}

/// Builds the policy that `spec` names.
pub fn build(spec: &PolicySpec, shape: &Shape) -> Result<Box<dyn RegisteredPolicy>, SpecError> {
    struct Boxed;
    impl Visit for Boxed {
        type Output = Box<dyn RegisteredPolicy>;
        fn visit<P: RegisteredPolicy + 'static>(self, policy: P) -> Box<dyn RegisteredPolicy> {
            Box::new(policy)
        }
    }
    visit(spec, shape, Boxed)
}

impl Kind {
    /// The policy of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The names of the policies that have a trait, for messages: `a` or `a or b`.
    #[must_use]
    pub fn names_with(wanted: Trait) -> String {
        Self::names_with_any(&[wanted])
    }

    /// The names of the policies that have one of the traits, as a sentence lists them.
    #[must_use]
    pub fn names_with_any(wanted: &[Trait]) -> String {
        let having = Self::ALL
            .iter()
            .filter(|kind| kind.traits().iter().any(|has| wanted.contains(has)));
        let names: Vec<_> = having.map(|kind| kind.name()).collect();
        names.join(" or ")
    }
}

impl PolicySpec {
    /// A registered policy without arguments.
    #[must_use]
    pub fn of(kind: Kind) -> Self {
        Self::plain(kind.name())
    }
}

/// Names in the literature, and the policy's name here. They are suggested, not accepted.
const ALSO_KNOWN: [(&str, &str); 7] = [
    ("belady", "opt"),
    ("min", "opt"),
    ("optimal", "opt"),
    ("second-chance", "clock"),
    ("tinylfu", "w-tinylfu"),
    ("segmented-lru", "slru"),
    ("hyper", "hyperbolic"),
];

fn find(name: &str) -> Result<Kind, SpecError> {
    if let Some(kind) = Kind::named(name) {
        return Ok(kind);
    }
    if is_path(name) {
        return Err(external::refused(name));
    }
    if let Some((_, known)) = ALSO_KNOWN.iter().find(|(other, _)| *other == name) {
        return Err(SpecError::UnknownPolicy {
            name: name.to_owned(),
            candidates: vec![known],
        });
    }
    let mut scored: Vec<(f64, &'static str)> = Kind::ALL
        .iter()
        .map(|kind| (likeness(name, kind.name()), kind.name()))
        .filter(|(score, _)| *score > 0.7)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    let candidates = scored.into_iter().take(3).map(|(_, name)| name).collect();
    Err(SpecError::UnknownPolicy {
        name: name.chars().take(60).collect(),
        candidates,
    })
}

/// The similarity of two names, from 0 to 1. Names that differ by one typing error are always
/// similar, which the usual measure does not ensure for short names.
fn likeness(a: &str, b: &str) -> f64 {
    let slip = strsim::damerau_levenshtein(a, b) <= 1;
    strsim::jaro_winkler(a, b).max(if slip { 0.9 } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { slots: 16, seed: 1 };

    #[test]
    fn a_wrong_name_gets_the_near_ones() {
        let error = build(&PolicySpec::plain("exklusive"), &SHAPE)
            .map(|_| ())
            .expect_err("unknown");
        assert!(
            error.to_string().contains("did you mean exclusive"),
            "{error}"
        );
        let error = build(&PolicySpec::plain("lur"), &SHAPE).map(|_| ());
        let error = error.expect_err("unknown").to_string();
        assert!(error.contains("did you mean lru"), "{error}");
        let error = build(&PolicySpec::plain("belady"), &SHAPE).map(|_| ());
        let error = error.expect_err("unknown").to_string();
        assert!(error.contains("did you mean opt?"), "{error}");
    }

    #[test]
    fn other_names_are_names_of_none_and_stand_for_one() {
        let is_known = |name: &str| Kind::ALL.iter().any(|kind| kind.name() == name);
        for (other, known) in ALSO_KNOWN {
            assert!(!is_known(other) && is_known(known), "{other}");
        }
    }

    #[test]
    fn a_policy_with_several_queues_says_so_and_has_as_many_slots_as_fit() {
        for &kind in Kind::ALL {
            let has = |wanted| kind.traits().contains(&wanted);
            let source = kind.source_text();
            let all = source.matches("LogQueues<").count() + source.matches("GhostLists<").count();
            let twos =
                source.matches("LogQueues<2>").count() + source.matches("GhostLists<2>").count();
            // It holds several policies, whose queues count.
            let holds_candidates = source.contains("\nmod candidates;\n");
            assert_eq!(
                has(Trait::TwoQueues),
                all > 0 && all == twos,
                "{}",
                kind.name()
            );
            assert_eq!(
                has(Trait::FourQueues),
                all > twos || holds_candidates,
                "{}",
                kind.name()
            );
        }
        let most = PolicySpec::plain("auto").slots_max();
        for &kind in Kind::ALL
            .iter()
            .filter(|kind| kind.traits().contains(&Trait::Candidate))
        {
            assert!(most <= PolicySpec::of(kind).slots_max(), "{}", kind.name());
        }
        let shape = Shape {
            slots: 9 << 28,
            seed: 0,
        };
        for policy in ["arc", "slru", "exclusive(2q)"] {
            let spec: PolicySpec = policy.parse().expect("valid");
            let error = build(&spec, &shape).map(drop).expect_err("too many slots");
            assert!(error.to_string().contains("can order"), "{error}");
        }
    }

    #[test]
    fn every_card_is_complete_and_its_parameters_are_real() {
        for card in cards() {
            assert!(!card.summary.is_empty(), "{}: no summary", card.name);
            for heading in Card::HEADINGS {
                let text = card.section(heading).unwrap_or("");
                assert!(!text.is_empty(), "{}: no text under # {heading}", card.name);
            }
            for parameter in card.parameters() {
                let (key, default) = (parameter.name, parameter.default);
                let text = format!("{}({key}={default})", card.name);
                let spec: PolicySpec = text.parse().expect("valid");
                build(&spec, &SHAPE)
                    .map(|_| ())
                    .unwrap_or_else(|error| panic!("{text}: {error}"));
            }
            let unknown: PolicySpec = format!("{}(no_such=1)", card.name).parse().expect("valid");
            assert!(
                build(&unknown, &SHAPE).is_err(),
                "{}: takes any parameter",
                card.name
            );
        }
    }
}
