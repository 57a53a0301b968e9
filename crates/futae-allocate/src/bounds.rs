//! Bounds on sizes, the same for every evaluator.

use crate::guest::GuestLimits;
use std::fmt;

/// The bounds of all guests together.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    guests: Vec<GuestLimits>,
    total: u64,
}

/// Why settings cannot be satisfied: a sentence that says which ones and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(pub(crate) String);

impl fmt::Display for SettingsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for SettingsError {}

impl Bounds {
    /// Validated bounds.
    ///
    /// # Errors
    ///
    /// A guest without a name of its own, or whose initial size is not between its minimum and its
    /// maximum; a weight that is not positive; initial sizes that exceed the total.
    pub fn new(guests: Vec<GuestLimits>, total: u64) -> Result<Self, SettingsError> {
        let wrong = |text: String| Err(SettingsError(text));
        if guests.is_empty() {
            return wrong("there are no guests; name at least one".to_owned());
        }
        let mut sum = 0u64;
        for (at, guest) in guests.iter().enumerate() {
            let name = &guest.name;
            if guests[..at].iter().any(|other| other.name == *name) {
                return wrong(format!(
                    "two guests are named {name:?}; give each its own name"
                ));
            }
            if !(guest.least <= guest.start && guest.start <= guest.most) {
                return wrong(format!(
                    "guest {name:?} begins with {} MiB, which is not between its minimum of {} MiB and its \
                     maximum of {} MiB",
                    guest.start >> 20,
                    guest.least >> 20,
                    guest.most >> 20
                ));
            }
            if !(guest.weight > 0.0 && guest.weight <= 1e6) {
                return wrong(format!(
                    "guest {name:?} has weight {}; a weight is above 0 and at most a million",
                    guest.weight
                ));
            }
            sum = sum.saturating_add(guest.start);
        }
        if sum > total {
            return wrong(format!(
                "the guests begin with {} MiB together, more than the total of {} MiB; raise the total or let \
                 them begin with less",
                sum >> 20,
                total >> 20
            ));
        }
        Ok(Self { guests, total })
    }

    /// Bounds of no guests, which are still to come.
    #[must_use]
    pub fn of_nobody(total: u64) -> Self {
        Self {
            guests: Vec::new(),
            total,
        }
    }

    /// The guests.
    #[must_use]
    pub fn guests(&self) -> &[GuestLimits] {
        &self.guests
    }

    /// The largest sum of all guests' bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What guests begin with.
    pub(crate) fn start(&self) -> Vec<u64> {
        self.guests.iter().map(|guest| guest.start).collect()
    }

    /// `wished` within the bounds, where `now` are targets within them. Guests that are not `free`
    /// keep their targets. An excess over the total is taken from the guests that were to grow.
    pub(crate) fn within(&self, now: &[u64], wished: &[u64], free: &[bool]) -> Vec<u64> {
        let mut targets: Vec<u64> = now.to_vec();
        for (at, guest) in self.guests.iter().enumerate() {
            if free[at] {
                targets[at] = wished[at].clamp(guest.least, guest.most);
            }
        }
        let sum: u128 = targets.iter().copied().map(u128::from).sum();
        let mut excess = sum.saturating_sub(u128::from(self.total));
        for at in (0..targets.len()).rev() {
            let growth = targets[at].saturating_sub(now[at]);
            let less = u64::try_from(excess).unwrap_or(u64::MAX).min(growth);
            targets[at] -= less;
            excess -= u128::from(less);
        }
        targets
    }

    /// The next order for each guest, so that its target is reached without giving away memory that
    /// is still in use. A guest shrinks at once. It grows by the memory that the others do not
    /// actually have and the host has free. While the sum is too large, as after a guest was
    /// restarted with all of its memory, a growing guest stops at its present size. `None`: no
    /// order, since the guest's size is unknown.
    ///
    /// `achieved` is each guest's actual size, `last` its last order; `host_free` is the number of
    /// bytes available on the host, if known.
    #[must_use]
    pub fn orders(
        &self,
        targets: &[u64],
        last: &[u64],
        achieved: &[Option<u64>],
        host_free: Option<u64>,
    ) -> Vec<Option<u64>> {
        // A guest of unknown size may have taken as much as its last order.
        let held = |at: usize| match achieved[at] {
            Some(achieved) => achieved.max(targets[at].min(last[at])),
            None => last[at].max(targets[at]),
        };
        let all: u128 = (0..targets.len()).map(|at| u128::from(held(at))).sum();
        let mut excess = all.saturating_sub(u128::from(self.total));
        let left = u128::from(self.total).saturating_sub(all);
        let mut left = u64::try_from(left).unwrap_or(u64::MAX);
        left = left.min(host_free.unwrap_or(u64::MAX));
        let order = |at: usize| {
            let coming = held(at).saturating_sub(achieved[at]?);
            let stopped = u64::try_from(excess).unwrap_or(u64::MAX).min(coming);
            excess -= u128::from(stopped);
            let growth = targets[at].saturating_sub(held(at)).min(left);
            left -= growth;
            let limits = &self.guests[at];
            let order = targets[at].min((held(at) - stopped).saturating_add(growth));
            // A guest below its minimum gets it even if the others have too much: the minimum is
            // reserved for it.
            Some(order.clamp(limits.least, limits.most))
        };
        (0..targets.len()).map(order).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds() -> Bounds {
        let guest = |name: &str| GuestLimits {
            name: name.to_owned(),
            least: 100,
            most: 500,
            start: 300,
            weight: 1.0,
            overhead: 0,
        };
        Bounds::new(vec![guest("a"), guest("b")], 600).expect("good bounds")
    }

    #[test]
    fn what_cannot_be_kept_is_said() {
        let guests = bounds().guests;
        let said = |change: &dyn Fn(&mut Vec<GuestLimits>), total| {
            let mut guests = guests.clone();
            change(&mut guests);
            Bounds::new(guests, total).expect_err("wrong").to_string()
        };
        assert!(said(&|guests| guests.clear(), 600).contains("no guests"));
        assert!(said(&|guests| guests[1].name = "a".to_owned(), 600).contains("two guests"));
        assert!(said(&|guests| guests[1].start = 99, 600).contains("between"));
        assert!(said(&|guests| guests[0].weight = f64::NAN, 600).contains("weight"));
        assert!(said(&|_| (), 599).contains("more than the total"));
    }

    #[test]
    fn wishes_are_cut_to_the_bounds() {
        let (bounds, both) = (bounds(), [true, true]);
        assert_eq!(bounds.within(&[300, 300], &[0, 900], &both), [100, 500]);
        assert_eq!(bounds.within(&[300, 300], &[400, 400], &both), [300, 300]);
        assert_eq!(bounds.within(&[300, 300], &[200, 450], &both), [200, 400]);
        let frozen = bounds.within(&[300, 300], &[200, 400], &[false, true]);
        assert_eq!(frozen, [300, 300]);
    }

    #[test]
    fn nothing_is_given_before_it_is_got_back() {
        let bounds = bounds();
        let orders = |achieved: [Option<u64>; 2], free| {
            bounds.orders(&[200, 400], &[300, 300], &achieved, free)
        };
        assert_eq!(orders([Some(300), Some(300)], None), [Some(200), Some(300)]);
        assert_eq!(orders([Some(240), Some(300)], None), [Some(200), Some(360)]);
        assert_eq!(orders([Some(200), Some(300)], None), [Some(200), Some(400)]);
        let little_free = orders([Some(200), Some(300)], Some(10));
        assert_eq!(little_free, [Some(200), Some(310)]);
        // One that cannot be seen may still have what it had.
        assert_eq!(orders([None, Some(300)], None), [None, Some(300)]);
        // One that was started again, as large as can be.
        assert_eq!(orders([Some(500), Some(300)], None), [Some(200), Some(300)]);
        // Meanwhile the other stops where it is, if it was still growing.
        assert_eq!(orders([Some(500), Some(250)], None), [Some(200), Some(250)]);
        assert_eq!(orders([Some(320), Some(250)], None), [Some(200), Some(280)]);
    }
}
