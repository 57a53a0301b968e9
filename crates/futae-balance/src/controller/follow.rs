//! Guests that come and go as libvirt starts and stops them.

use super::at_once::at_once;
use super::guest::Guest;
use super::state::Controller;
use crate::config::{ConfigError, GuestConfig};
use crate::libvirt::events::Events;
use crate::libvirt::{LibvirtConfig, fit};
use futae_allocate::{Allocator, GuestLimits};

impl Controller {
    /// Takes up domains that started, and leaves those that stopped, if libvirt has told of any since this was called last. The
    /// report of the next period has them. Returns how many there were.
    ///
    /// Callers do this between periods, as often as they like: it asks nobody unless there are news.
    pub fn heed_events(&mut self) -> usize {
        if !self.events.as_ref().is_some_and(Events::take) {
            return 0;
        }
        let mut problems = Vec::new();
        let changes = self.follow(&mut problems);
        let count = changes.len();
        self.between.changes.extend(changes);
        self.between.problems.extend(problems);
        count
    }

    /// Has libvirt tell of domains, if it does not yet or does not any more.
    pub(super) fn see_to_events(&mut self) {
        let Some(libvirt) = &self.config.libvirt else {
            return;
        };
        if !self.events.as_mut().is_some_and(Events::is_alive) {
            self.events = Events::start(libvirt.uri.as_deref());
        }
    }

    /// Leaves the domains that do not run any more, and takes up those that do. Who came and who went, in sentences; a newcomer that
    /// cannot be taken up is a problem, and left alone. When libvirt does not answer, all stays as it is.
    pub(super) fn follow(&mut self, problems: &mut Vec<String>) -> Vec<String> {
        let Some(libvirt) = self.config.libvirt.clone() else {
            return Vec::new();
        };
        let running = match libvirt.running(&self.config.guests) {
            Ok(running) => running,
            Err(why) => {
                problems.push(format!("libvirt: {why}"));
                return Vec::new();
            }
        };
        let named = self.config.guests.len();
        let stays = |at: usize| at < named || running.contains(&self.guests[at].name);
        let (stay, gone): (Vec<usize>, Vec<usize>) =
            (0..self.guests.len()).partition(|&at| stays(at));
        let now = self.limits_now();
        let mut limits: Vec<GuestLimits> = stay.iter().map(|&at| now[at].clone()).collect();
        let come = self.newcomers(&libvirt, &running, &mut limits, problems);
        if come.is_empty() && gone.is_empty() {
            return Vec::new();
        }
        let allocator = match self.allocator_of(limits) {
            Ok(allocator) => allocator,
            Err(why) => {
                problems.push(format!("libvirt: {why}"));
                return Vec::new();
            }
        };
        let left = gone.iter().map(|&at| &self.guests[at]);
        let mut changes: Vec<String> = left
            .map(|guest| format!("{} does not run any more", guest.name))
            .collect();
        let arrived = |guest: &Guest| format!("{} runs, and is balanced from now on", guest.name);
        changes.extend(come.iter().map(arrived));
        // Where each was before; newcomers were nowhere.
        let newcomers = std::iter::repeat_n(None, come.len());
        let places: Vec<Option<usize>> = stay.iter().copied().map(Some).chain(newcomers).collect();
        if let Some(kept) = &mut self.kept {
            gone.iter()
                .for_each(|&at| kept.forget(&self.guests[at].actuator));
        }
        let before = std::mem::take(&mut self.guests).into_iter().enumerate();
        let stayed = before.filter(|(at, _)| stay.contains(at));
        self.guests = stayed.map(|(_, guest)| guest).chain(come).collect();
        let moved = |from: &[u64]| -> Vec<u64> {
            let each = places.iter().zip(allocator.targets());
            each.map(|(place, &target)| place.map_or(target, |at| from[at]))
                .collect()
        };
        (self.told, self.seen, self.targets) =
            (moved(&self.told), moved(&self.seen), moved(&self.targets));
        (self.host, self.allocator) = (self.host.of(&places), allocator);
        self.keep(problems);
        changes
    }

    /// The domains among `running` that are no guests yet and fit beside `limits`, which get theirs.
    fn newcomers(
        &self,
        libvirt: &LibvirtConfig,
        running: &[String],
        limits: &mut Vec<GuestLimits>,
        problems: &mut Vec<String>,
    ) -> Vec<Guest> {
        let known = |name: &&String| self.guests.iter().any(|guest| guest.name == **name);
        let new: Vec<&String> = running.iter().filter(|name| !known(name)).collect();
        // All at once, so that many that are slow cost no more than one of them.
        let asked = new.iter().map(|name| || libvirt.ask(name));
        let answers = at_once(asked.collect());
        let mut come = Vec::new();
        for (name, answer) in new.iter().zip(answers) {
            match answer.and_then(|(one, has)| self.admitted(&one, has, limits)) {
                Ok(guest) => come.push(guest),
                Err(why) => problems.push(format!("libvirt: {name} is left alone: {why}")),
            }
        }
        come
    }

    /// A domain that has so many bytes, if it fits beside `limits`, which get its own.
    fn admitted(
        &self,
        one: &GuestConfig,
        has: u64,
        limits: &mut Vec<GuestLimits>,
    ) -> Result<Guest, String> {
        let said = |error: ConfigError| error.to_string();
        let all = [&limits[..], &[one.limits(Some(has)).map_err(said)?]].concat();
        fit(&mut all.clone(), self.allocator.bounds().total())?;
        let had = self.kept.as_ref().and_then(|kept| kept.had(&one.actuator));
        let remembered = had.unwrap_or_else(|| has.to_string());
        let guest = Guest::new(one, Some(remembered)).map_err(said)?;
        *limits = all;
        Ok(guest)
    }

    /// What guests may have, each with what it shall have now as its start.
    fn limits_now(&self) -> Vec<GuestLimits> {
        let guests = self
            .allocator
            .bounds()
            .guests()
            .iter()
            .zip(self.allocator.targets());
        let now = guests.map(|(limits, &start)| GuestLimits {
            start,
            ..limits.clone()
        });
        now.collect()
    }

    /// An allocator of these guests, which begins with what they have, or with less.
    fn allocator_of(&self, mut limits: Vec<GuestLimits>) -> Result<Allocator, String> {
        fit(&mut limits, self.allocator.bounds().total())?;
        let allocator = self.config.allocator(limits);
        let allocator = allocator.map_err(|error| error.to_string())?;
        Ok(allocator.after(&self.allocator))
    }
}
