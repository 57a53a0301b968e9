//! Guests that come and go as libvirt starts and stops them.

use super::{Controller, Guest, limits_of};
use crate::config::bytes;
use crate::libvirt::events::Events;
use crate::libvirt::fit;
use futae_allocate::{Allocator, Bounds, GuestLimits};

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

    /// Takes up the domains that run now. Who came and who went, in sentences; when libvirt does not answer, or a newcomer cannot be
    /// taken up, all stays as it is, and that is a problem.
    pub(super) fn follow(&mut self, problems: &mut Vec<String>) -> Vec<String> {
        let Some(libvirt) = self.config.libvirt.clone() else {
            return Vec::new();
        };
        let named = self.config.guests.len();
        let running = match libvirt.running(&self.config.guests) {
            Ok(running) => running,
            Err(why) => {
                problems.push(format!("libvirt: {why}"));
                return Vec::new();
            }
        };
        let known = |name: &String| self.guests.iter().any(|guest| guest.name == *name);
        let (mut come, mut limits) = (Vec::new(), self.limits_now());
        for name in running.iter().filter(|name| !known(name)) {
            let taken = libvirt.guest(name).and_then(|one| {
                let said = |error: crate::ConfigError| error.to_string();
                let its = limits_of(&one).map_err(said)?;
                // Its target in the first period is what it has, so nobody remembers less.
                Ok((its, Guest::new(&one).map_err(said)?))
            });
            match taken {
                Ok((its, guest)) => {
                    limits.push(its);
                    come.push(guest);
                }
                Err(why) => problems.push(format!("libvirt: {name} is left alone: {why}")),
            }
        }
        let is_gone = |at: usize, guest: &Guest| at >= named && !running.contains(&guest.name);
        let gone: Vec<bool> = self
            .guests
            .iter()
            .enumerate()
            .map(|(at, guest)| is_gone(at, guest))
            .collect();
        if come.is_empty() && !gone.contains(&true) {
            return Vec::new();
        }
        let stays = |at: usize| !gone.get(at).copied().unwrap_or(false);
        let limits: Vec<GuestLimits> = limits
            .into_iter()
            .enumerate()
            .filter(|(at, _)| stays(*at))
            .map(|(_, one)| one)
            .collect();
        let allocator = match self.allocator_of(limits) {
            Ok(allocator) => allocator,
            Err(why) => {
                let names: Vec<_> = come.iter().map(|guest| &*guest.name).collect();
                problems.push(format!(
                    "libvirt: {} cannot be taken up: {why}",
                    names.join(", ")
                ));
                return Vec::new();
            }
        };
        let mut changes: Vec<String> = Vec::new();
        let before = std::mem::take(&mut self.guests);
        for (at, guest) in before.into_iter().enumerate() {
            if stays(at) {
                self.guests.push(guest);
            } else {
                changes.push(format!("{} does not run any more", guest.name));
            }
        }
        for guest in come {
            changes.push(format!("{} runs, and is balanced from now on", guest.name));
            self.guests.push(guest);
        }
        // Where each was before; newcomers were nowhere.
        let count = self.told.len();
        let stayed = (0..count).filter(|&at| stays(at)).map(Some);
        let places: Vec<Option<usize>> = stayed
            .chain(std::iter::repeat(None))
            .take(self.guests.len())
            .collect();
        let moved = |from: &[u64]| -> Vec<u64> {
            let each = places.iter().zip(allocator.targets());
            each.map(|(place, &target)| place.map_or(target, |at| from[at]))
                .collect()
        };
        (self.told, self.seen, self.targets) =
            (moved(&self.told), moved(&self.seen), moved(&self.targets));
        (self.host, self.allocator) = (self.host.of(&places), allocator);
        changes
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
        let total = bytes("total", self.config.total).map_err(|error| error.to_string())?;
        let bounds = if limits.is_empty() {
            Bounds::of_nobody(total)
        } else {
            fit(&mut limits, total)?;
            Bounds::new(limits, total).map_err(|error| error.to_string())?
        };
        let settings = self.config.settings().map_err(|error| error.to_string())?;
        Allocator::new(bounds, settings).map_err(|error| error.to_string())
    }
}
