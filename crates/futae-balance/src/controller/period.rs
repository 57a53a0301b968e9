//! A period: see, decide, tell, look again.

use super::at_once::at_once;
use super::guest::{Guest, LOOK_INTERVAL, SLACK};
use super::state::{Between, Controller};
use crate::feed::Feed;
use crate::hints::{hint, keeps_freed_pages};
use crate::samples::{GuestPeriod, Period};
use futae_allocate::{Decision, Observation, Reason};
use serde::Serialize;
use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes of what curves count: pages.
const UNIT: u64 = 4096;
/// How long guests may take to give back what others are waiting for, in one period.
const SHRINK_MAX: Duration = Duration::from_secs(5);

/// What was done in a period.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Seconds since 1970.
    pub time: f64,
    /// What was decided, and why.
    #[serde(flatten)]
    pub decision: Decision,
    /// What each guest was told, in bytes; none: nothing.
    pub orders: Vec<Option<u64>>,
    /// Bytes that the host could give, the reserve left out; none if it does not tell.
    pub host_free: Option<u64>,
    /// The share of the period in which programs of the host waited for memory; none if it does not tell.
    pub host_pressure: Option<f64>,
    /// Whether nobody was told anything in fact.
    pub dry_run: bool,
    /// Guests that came or went, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// What could not be seen or told, in sentences.
    pub problems: Vec<String>,
    /// What guests lack to be balanced, in sentences, with the line that mends it.
    pub hints: Vec<String>,
}

impl Controller {
    /// Ends a period: sees, decides, tells.
    pub fn period(&mut self) -> Report {
        self.see_to_events();
        let Between {
            mut changes,
            mut problems,
        } = std::mem::take(&mut self.between);
        changes.extend(self.follow(&mut problems));
        problems.dedup();
        let achieved = self.achieved(&mut problems);
        let mut seen = Vec::new();
        for (at, guest) in self.guests.iter_mut().enumerate() {
            let activity = match &guest.feed {
                Some(feed) => feed.take(self.allocator.curve(at)),
                None => guest.counted(achieved[at].is_some()),
            };
            let one = Observation {
                achieved: achieved[at],
                activity,
            };
            // What is not believed must neither move memory nor keep a guest from being idle.
            let believed = one.believed();
            if one.achieved.is_some() && one.activity.is_some() && believed.activity.is_none() {
                problems.push(format!(
                    "{}: its agent reported counts that no guest reaches in a period; futae does not use them",
                    guest.name
                ));
            }
            seen.push(believed);
        }
        let hints = self.hints(&seen);
        let pressure = self.pressure.share();
        let decision = self.decide(&seen, pressure);
        let host_free = host_free().map(|free| free.saturating_sub(self.reserve));
        let mut orders = self.orders(&achieved, host_free);
        if self.dry_run {
            self.targets = decision.guests.iter().map(|guest| guest.before).collect();
            self.host.undo();
        } else {
            self.tell(&orders, &achieved, &mut problems);
            if decision.moves() {
                orders = self.grow(orders, &mut problems);
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Report {
            time: now.map_or(0.0, |time| time.as_secs_f64()),
            decision,
            orders,
            host_free,
            host_pressure: pressure,
            dry_run: self.dry_run,
            changes,
            problems,
            hints,
        }
    }

    /// Who shall have how much from now on: as the evaluator divides, less what is given to the host.
    fn decide(&mut self, seen: &[Observation], pressure: Option<f64>) -> Decision {
        let blind = |guest: &Guest| guest.feed.as_ref().is_some_and(Feed::is_blind);
        let blind: Vec<bool> = self.guests.iter().map(blind).collect();
        self.host.period(seen, &blind, pressure);
        let is_pressed = self.host.is_pressed();
        let mut shown = seen.to_vec();
        for (at, one) in shown.iter_mut().enumerate() {
            // What it does with less than its target says nothing of the target.
            if is_pressed || self.host.is_left_out(at) {
                one.activity = None;
            }
        }
        let mut decision = self.allocator.decide(&shown);
        let now = self
            .host
            .targets(self.allocator.bounds().guests(), self.allocator.targets());
        if self.dry_run {
            self.allocator.undo(&decision);
        }
        for (at, guest) in decision.guests.iter_mut().enumerate() {
            (guest.before, guest.target) = (self.targets[at], now[at]);
            guest.activity = guest.activity.or(seen[at].activity);
        }
        if let (true, Some(threshold)) = (is_pressed, self.config.host.pressure) {
            let share = pressure.unwrap_or(0.0);
            decision.reason = Reason::HostPressure { share, threshold };
        }
        decision.given = self.host.given(&self.targets, &now, pressure);
        self.targets = now;
        decision
    }

    /// The last period, to be recorded: what each guest had, did and would miss at other sizes.
    pub fn recorded(&mut self, report: &Report) -> Period {
        let most: Vec<u64> = self
            .allocator
            .bounds()
            .guests()
            .iter()
            .map(|guest| guest.most)
            .collect();
        let guests = report.decision.guests.iter().zip(most).enumerate();
        let guests = guests.map(|(at, (guest, most))| {
            let one = GuestPeriod::new(&guest.name, guest.achieved, most, guest.activity);
            match self.allocator.curve(at) {
                Some(curve) if curve.is_known() => one.with_curve(|sizes| {
                    let units = |&size: &u64| size as f64 / UNIT as f64;
                    curve.miss_ratios(&sizes.iter().map(units).collect::<Vec<_>>())
                }),
                _ => one,
            }
        });
        Period {
            time: report.time,
            guests: guests.collect(),
        }
    }

    /// What guests lack: their agents, and balloons where the host wants memory back.
    fn hints(&mut self, seen: &[Observation]) -> Vec<String> {
        let mut hints = Vec::new();
        let host = &self.config.host;
        if host.idle_after.is_some() || host.pressure.is_some() {
            self.ask_for_free_pages(seen);
        }
        for (at, guest) in self.guests.iter().enumerate() {
            if guest.reports_free_pages == Some(Some(false)) && seen[at].achieved.is_some() {
                hints.push(keeps_freed_pages(&guest.name, &guest.actuator));
            }
            let Some(feed) = &guest.feed else { continue };
            let needs_curve = self.allocator.curve(at).is_some();
            let accesses = seen[at].activity.map_or(0, |did| did.accesses());
            let agent = feed.agent();
            hints.extend(hint(
                &guest.name,
                feed.path(),
                &agent,
                needs_curve,
                accesses,
            ));
        }
        hints
    }

    /// Asks the balloons in sight that were not asked yet whether they report free pages, all at once.
    fn ask_for_free_pages(&mut self, seen: &[Observation]) {
        let is_unasked = |at: &usize| {
            seen[*at].achieved.is_some() && self.guests[*at].reports_free_pages.is_none()
        };
        let unasked: Vec<usize> = (0..self.guests.len()).filter(is_unasked).collect();
        let guests = &self.guests;
        let ask = |&at: &usize| move || Ok(guests[at].actuator.reports_free_pages());
        let answers = at_once(unasked.iter().map(ask).collect());
        for (at, answer) in unasked.into_iter().zip(answers) {
            // One whose thread broke off is asked again.
            self.guests[at].reports_free_pages = answer.ok();
        }
    }

    fn orders(&mut self, achieved: &[Option<u64>], host_free: Option<u64>) -> Vec<Option<u64>> {
        let mut last = self.told.clone();
        for (at, achieved) in achieved.iter().enumerate() {
            match achieved {
                Some(achieved) => self.seen[at] = *achieved,
                // It may have been on its way to what it was told, and not there.
                None => last[at] = last[at].max(self.seen[at]),
            }
        }
        let bounds = self.allocator.bounds();
        bounds.orders(&self.targets, &last, achieved, host_free)
    }

    /// Waits until those that were to shrink have, and lets the others grow by that.
    fn grow(
        &mut self,
        mut orders: Vec<Option<u64>>,
        problems: &mut Vec<String>,
    ) -> Vec<Option<u64>> {
        let end = Instant::now() + SHRINK_MAX.min(self.period / 2);
        loop {
            let achieved = self.achieved(&mut Vec::new());
            let host_free = host_free().map(|free| free.saturating_sub(self.reserve));
            orders = self
                .orders(&achieved, host_free)
                .into_iter()
                .zip(orders)
                .map(|(new, old)| new.or(old))
                .collect();
            self.tell(&orders, &achieved, problems);
            let is_done = orders
                .iter()
                .zip(&self.targets)
                .all(|(order, target)| order.is_none_or(|order| order == *target));
            let is_over = || self.stopped.load(Ordering::Relaxed) || Instant::now() >= end;
            if is_done || is_over() {
                return orders;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// What each guest has, all asked at once.
    pub(super) fn achieved(&self, problems: &mut Vec<String>) -> Vec<Option<u64>> {
        let answers = at_once(
            self.guests
                .iter()
                .map(|guest| || guest.actuator.achieved())
                .collect(),
        );
        let mut take = |(guest, answer): (&Guest, Result<u64, String>)| match answer {
            Ok(has) => Some(has),
            Err(why) => {
                problems.push(format!("{}: {why}", guest.name));
                None
            }
        };
        self.guests.iter().zip(answers).map(&mut take).collect()
    }

    /// Tells those that have something else than they shall, all at once.
    fn tell(
        &mut self,
        orders: &[Option<u64>],
        achieved: &[Option<u64>],
        problems: &mut Vec<String>,
    ) {
        let mut told = Vec::new();
        for (at, order) in orders.iter().enumerate() {
            let is_off = |order: &u64| achieved[at].is_some_and(|has| has.abs_diff(*order) > SLACK);
            if let Some(order) = order.filter(|order| is_off(order) || self.told[at] != *order) {
                told.push((at, order));
            }
        }
        let guests = &self.guests;
        let answers = at_once(
            told.iter()
                .map(|&(at, order)| move || guests[at].actuator.order(order))
                .collect(),
        );
        for ((at, order), answer) in told.into_iter().zip(answers) {
            // It may have heard even if it did not answer.
            self.told[at] = order;
            if let Err(why) = answer {
                problems.push(format!("{}: {why}", self.guests[at].name));
            }
        }
    }
}

/// Bytes that the host could give to new programs without swapping.
fn host_free() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    kib.checked_mul(1024)
}
