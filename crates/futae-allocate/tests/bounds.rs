//! Whatever agents say and guests do, the bounds hold.

use futae_allocate::{
    Activity, Allocator, Bounds, GuestLimits, Observation, Settings, mrc, paper, paper::MoveWhen,
};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn limits() -> impl Strategy<Value = Vec<GuestLimits>> {
    let one = (1u64..400, 0u64..400, 0u64..400, 1u32..50);
    prop::collection::vec(one, 1..6).prop_map(|all| {
        let guest =
            |(at, (least, more, most, weight)): (usize, (u64, u64, u64, u32))| GuestLimits {
                name: format!("g{at}"),
                least: least * MIB,
                start: (least + more) * MIB,
                most: (least + more + most) * MIB,
                weight: f64::from(weight) / 10.0,
                overhead: 30 * MIB,
            };
        all.into_iter().enumerate().map(guest).collect()
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let when = prop::sample::select(vec![MoveWhen::Lt, MoveWhen::Ge, MoveWhen::Always]);
    let paper = (when, 1u64..200, 0.0..2000.0).prop_map(|(move_when, step, threshold)| {
        Settings::Paper(paper::Settings {
            move_when,
            step: step * MIB,
            threshold,
        })
    });
    let mrc = (0u64..300, 0u32..4, 1.5..100.0).prop_map(|(step, cool_down, miss_cost)| {
        Settings::Mrc(mrc::Settings {
            step: step * MIB,
            cool_down,
            miss_cost,
            unit: MIB,
            ..mrc::Settings::default()
        })
    });
    prop_oneof![paper, mrc, Just(Settings::Static)]
}

/// Honest, silent, mad or hostile.
fn activity() -> impl Strategy<Value = Option<Activity>> {
    let count = prop_oneof![Just(0), 0u64..100_000, any::<u64>(), Just(u64::MAX)];
    let share = prop_oneof![
        0.0..1.0,
        Just(f64::NAN),
        Just(-1.0),
        Just(1e300),
        any::<f64>()
    ];
    let cache = prop::option::of(prop_oneof![any::<u64>(), 0..500 * MIB]);
    let some = (count.clone(), count, cache, prop::option::of(share)).prop_map(
        |(hits, misses, cache, pressure)| {
            Some(Activity {
                hits,
                misses,
                cache,
                pressure,
            })
        },
    );
    prop_oneof![12 => some, 1 => Just(None)]
}

/// What happens to a guest in a period.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// It does this part of what it is told.
    Obeys(f64),
    /// It cannot be seen.
    IsGone,
    /// It begins again with all that it may have.
    Reboots,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        30 => Just(Event::Obeys(1.0)),
        3 => (0.0..1.0).prop_map(Event::Obeys),
        1 => Just(Event::IsGone),
        1 => Just(Event::Reboots),
    ]
}

type Period = (Vec<(Option<Activity>, Event)>, Vec<u64>, Option<u64>);

fn periods() -> impl Strategy<Value = Vec<Period>> {
    let guests = prop::collection::vec((activity(), event()), 6);
    let units = prop::collection::vec(any::<u64>(), 0..20);
    let free = prop::option::of(0..2000 * MIB);
    prop::collection::vec((guests, units, free), 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn nothing_is_given_that_is_not_there(
        limits in limits(),
        shares in prop::collection::vec((0.0..1.0, 0.0..1.0, 0.0..1.2, 0u8..8), 6),
        spare in 0u64..500,
        free in prop::option::of(0..600 * MIB),
    ) {
        let total = limits.iter().map(|guest| guest.start).sum::<u64>() + spare * MIB;
        let bounds = Bounds::new(limits.clone(), total).expect("good bounds");
        let size = |at: usize, share: f64| {
            let guest = &limits[at];
            guest.least + ((guest.start - guest.least) as f64 * share) as u64
        };
        // All targets fit together, as the allocator's do; one guest has what is spare.
        let all = 0..limits.len();
        let mut targets: Vec<u64> = all.clone().map(|at| size(at, shares[at].0)).collect();
        let left = total - targets.iter().sum::<u64>();
        for (target, guest) in targets.iter_mut().zip(&limits) {
            *target += left.min(guest.most - *target) / limits.len() as u64;
        }
        let told: Vec<u64> = all.clone().map(|at| size(at, shares[at].1)).collect();
        let achieved: Vec<Option<u64>> = all
            .clone()
            .map(|at| (shares[at].3 > 0).then_some(size(at, shares[at].2)))
            .collect();
        let orders = bounds.orders(&targets, &told, &achieved, free);
        let (mut held, mut grown) = (0, 0);
        for at in all {
            let reserved = told[at].min(targets[at]).max(achieved[at].unwrap_or(0));
            let Some(order) = orders[at] else {
                held += told[at].max(targets[at]);
                continue;
            };
            prop_assert!((limits[at].least..=limits[at].most).contains(&order));
            prop_assert!(order <= targets[at].max(limits[at].least));
            held += order.max(reserved);
            grown += order.saturating_sub(reserved.max(limits[at].least));
        }
        prop_assert!(grown == 0 || held <= total, "{held} of {total}: {orders:?}");
        prop_assert!(grown <= free.unwrap_or(u64::MAX), "{grown} of {free:?} free");
    }

    #[test]
    fn bounds_hold(
        limits in limits(), spare in 0u64..500, settings in settings(), periods in periods(),
    ) {
        let total = limits.iter().map(|guest| guest.start).sum::<u64>() + spare * MIB;
        let bounds = Bounds::new(limits.clone(), total).expect("good bounds");
        let mut allocator = Allocator::new(bounds.clone(), settings).expect("good settings");
        let mut has: Vec<u64> = limits.iter().map(|guest| guest.start).collect();
        let mut told = has.clone();
        for (happens, units, free) in periods {
            let mut seen = Vec::new();
            for (at, (activity, event)) in happens.iter().take(has.len()).enumerate() {
                if let Some(curve) = allocator.curve(at) {
                    units.iter().for_each(|&unit| curve.access(unit));
                    let span = 1 + units.first().copied().unwrap_or(0) % 700 / (at as u64 + 1);
                    (0..900).for_each(|unit| curve.access(unit * 7 % span));
                }
                if matches!(event, Event::Reboots) {
                    has[at] = limits[at].most;
                }
                let achieved = (!matches!(event, Event::IsGone)).then_some(has[at]);
                seen.push(Observation { achieved, activity: *activity });
            }
            let decision = allocator.decide(&seen);
            let targets = allocator.targets().to_vec();
            prop_assert!(targets.iter().sum::<u64>() <= total, "{decision}");
            for ((target, guest), one) in targets.iter().zip(&limits).zip(&decision.guests) {
                prop_assert!((guest.least..=guest.most).contains(target), "{decision}");
                // A guest that is silent or out of sight is left as it is.
                prop_assert!(one.activity.is_some() || one.before == one.target, "{decision}");
            }
            let achieved: Vec<_> = seen.iter().map(|one| one.achieved).collect();
            let orders = bounds.orders(&targets, &told, &achieved, free);
            let mut held = 0;
            let mut grown = 0;
            for (at, order) in orders.iter().enumerate() {
                let Some(order) = *order else {
                    prop_assert!(achieved[at].is_none());
                    held += told[at].max(targets[at]);
                    continue;
                };
                prop_assert!((limits[at].least..=limits[at].most).contains(&order));
                held += has[at].max(order);
                let kept = has[at].max(told[at].min(targets[at])).max(limits[at].least);
                grown += order.saturating_sub(kept);
                told[at] = order;
            }
            prop_assert!(grown == 0 || held <= total, "{held} of {total}: {orders:?}");
            prop_assert!(grown <= free.unwrap_or(u64::MAX), "{grown} of {free:?} free");
            for (at, (_, event)) in happens.iter().take(has.len()).enumerate() {
                if let (Event::Obeys(part), Some(order)) = (event, orders[at]) {
                    let change = (order as f64 - has[at] as f64) * part;
                    has[at] = (has[at] as f64 + change) as u64;
                }
            }
        }
    }
}
