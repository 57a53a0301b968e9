//! The scheduler: what happens next.

use crate::client::Client;
use crate::config::POLICIES;
use crate::content::{SECTOR, ZERO};
use crate::lower::Lower;
use crate::sim::{Crash, Inside, Sim};
use futae_policy::VolumeId;
use std::sync::Arc;
use std::time::Duration;

/// Store operations under way at most; more are answered first.
const HELD_MAX: usize = 12;

#[derive(Clone, Copy)]
enum Action {
    Ask,
    Release,
    Perform,
    Tick,
    Work,
    Deliver,
    Resize,
    Away,
    Leave,
    Steps,
    Extents,
    Policy,
    Pages,
    Crash,
    Restart,
}

impl Inside {
    fn choose(&mut self) -> Action {
        let is_outermost = self.depth == 1;
        let crashes = self.config.crashes;
        if crashes > 0 && !self.is_calm && self.prng.below(crashes) == 0 {
            return match self.prng.below(3) {
                0 if is_outermost => Action::Restart,
                _ => Action::Crash,
            };
        }
        let has_room = self.pending.len() < self.config.pending_max;
        let has_letters = !self.letters.is_empty();
        if has_letters && self.prng.below(2) == 0 {
            return Action::Deliver;
        }
        if self.pages.is_some() && self.prng.below(4) == 0 {
            return Action::Pages;
        }
        match self.prng.below(100) {
            0..45 if has_room && self.held.len() < HELD_MAX => Action::Ask,
            0..82 => Action::Release,
            82..86 => Action::Perform,
            86..92 => Action::Tick,
            92..96 => Action::Work,
            _ if !is_outermost => Action::Release,
            _ => match self.prng.below(7) {
                0 | 1 => Action::Resize,
                2 => Action::Away,
                3 => Action::Leave,
                4 => Action::Steps,
                5 => Action::Policy,
                _ => Action::Extents,
            },
        }
    }

    fn any_held(&mut self) -> Option<usize> {
        let held = self.held.len() as u64;
        (held > 0).then(|| self.prng.below(held) as usize)
    }

    fn fails(&mut self) -> bool {
        let odds = self.config.fails;
        odds > 0 && !self.is_calm && self.prng.below(odds) == 0
    }
}

impl Sim {
    /// One action.
    pub fn act(self: &Arc<Self>) {
        let action = self.lock().choose();
        match action {
            Action::Ask => self.ask(),
            Action::Release => self.release_any(true),
            Action::Perform => self.release_any(false),
            Action::Tick => self.tick(),
            Action::Work => self.work(),
            Action::Deliver => self.deliver(),
            Action::Resize => self.resize(),
            Action::Away => self.lock().away(),
            Action::Leave => self.leave(),
            Action::Steps => self.set_steps(),
            Action::Extents => self.ask_for_extents(),
            Action::Policy => self.change_policy(),
            Action::Pages => self.turn_pages(),
            Action::Crash => {
                let mut inside = self.lock();
                let crash = match inside.prng.below(2) {
                    0 => Crash::Process,
                    _ => Crash::Power,
                };
                inside.crashing = Some(crash);
            }
            Action::Restart => self.restart(),
        }
    }

    fn release_any(self: &Arc<Self>, answers: bool) {
        let (which, fails) = {
            let mut inside = self.lock();
            if inside.quiet > 0 {
                return;
            }
            (inside.any_held(), inside.fails())
        };
        match which {
            Some(which) if answers => self.release(which, fails),
            Some(which) => self.perform(which, fails),
            None => {}
        }
    }

    /// Time passes.
    pub fn tick(self: &Arc<Self>) {
        {
            let mut inside = self.lock();
            let milliseconds = match inside.prng.below(4) {
                0 => 1,
                1 => 20,
                2 => 600,
                _ => 3000,
            };
            inside.clock += Duration::from_millis(milliseconds);
        }
        for engine in self.engines() {
            engine.tick();
        }
    }

    /// Work that is done apart.
    pub fn work(self: &Arc<Self>) {
        let job = {
            let mut inside = self.lock();
            let jobs = inside.jobs.len() as u64;
            if jobs == 0 {
                return;
            }
            let which = inside.prng.below(jobs) as usize;
            inside.jobs.swap_remove(which)
        };
        job();
    }

    fn resize(self: &Arc<Self>) {
        let engines = self.engines();
        let (engine, slots) = {
            let mut inside = self.lock();
            inside.cover.resizes += 1;
            let which = inside.prng.below(engines.len().max(1) as u64) as usize;
            let slots = 1 + inside.prng.below(24) as u32;
            let slots = inside.config.slots(slots);
            inside.trace(|| format!("resize of cache {which} to {slots}"));
            (engines.get(which), slots)
        };
        if let Some(Err(error)) = engine.map(|engine| engine.resize(slots)) {
            self.lock().fail(|| format!("a resize to {slots}: {error}"));
        }
    }

    fn leave(self: &Arc<Self>) {
        let mut inside = self.lock();
        let Some(engine) = inside.engine.clone() else {
            return;
        };
        let volumes = inside.volumes.len() as u64;
        let count = inside.clients.len() as u64;
        let which = inside.prng.below(count) as usize;
        let (old, volume) = (inside.clients[which].id, inside.clients[which].volume);
        // A third of the time a volume then has two clients, or none.
        let next = if inside.prng.below(3) == 0 {
            inside.prng.below(volumes) as usize
        } else {
            volume
        };
        drop(inside);
        engine.leave(VolumeId(volume as u16), old);
        let id = engine.join(VolumeId(next as u16));
        let mut inside = self.lock();
        inside.volumes[volume].untold.remove(&old);
        let joined = inside.event();
        inside.clients[which] = Client::new(id, next, joined);
    }

    fn set_steps(self: &Arc<Self>) {
        let (engine, blocks) = {
            let mut inside = self.lock();
            (inside.engine.clone(), 1 + inside.prng.below(6))
        };
        if let Some(engine) = engine {
            engine.set_step_blocks(blocks);
        }
    }

    fn change_policy(self: &Arc<Self>) {
        let engines = self.engines();
        let (engine, policy) = {
            let mut inside = self.lock();
            let which = inside.prng.below(engines.len().max(1) as u64) as usize;
            let policy = POLICIES[inside.prng.below(POLICIES.len() as u64) as usize];
            inside.trace(|| format!("policy of cache {which} to {policy}"));
            (engines.get(which), policy)
        };
        let changed = policy.parse().map_err(|error| format!("{error}"));
        let changed = changed.and_then(|policy| {
            let changed = engine.map(|engine| engine.change_policy(&policy));
            changed.map_or(Ok(()), |changed| {
                changed.map(drop).map_err(|error| error.to_string())
            })
        });
        if let Err(error) = changed {
            self.lock()
                .fail(|| format!("a change to {policy}: {error}"));
        }
    }

    fn ask_for_extents(self: &Arc<Self>) {
        let (engine, volume, bytes, began) = {
            let mut inside = self.lock();
            let volumes = inside.volumes.len() as u64;
            let volume = inside.prng.below(volumes) as usize;
            let bytes = inside.config.volumes[volume];
            (inside.engine.clone(), volume, bytes, inside.event())
        };
        let Some(engine) = engine else { return };
        let extents = engine.extents(VolumeId(volume as u16), 0, bytes);
        let mut inside = self.lock();
        let (now, mut at) = (inside.event(), 0);
        for extent in extents.unwrap_or_default() {
            for sector in at / SECTOR..(at + extent.length) / SECTOR {
                let register = &mut inside.volumes[volume].registers[sector as usize];
                if extent.hole && register.read(ZERO, began, now).is_err() {
                    let known = register.describe();
                    inside.fail(|| {
                        format!("sector {sector} of volume {volume} is a hole in data ({known})")
                    });
                }
            }
            at += extent.length;
        }
        if at != bytes {
            inside.fail(|| format!("extents of {at} bytes of {bytes}"));
        }
    }
}

impl Inside {
    /// A store goes away, or comes back over another connection.
    fn away(&mut self) {
        if !self.config.goes_away || self.is_calm {
            return;
        }
        let volumes = self.volumes.len() as u64;
        let which = self.prng.below(volumes) as usize;
        let known = &mut self.volumes[which];
        known.is_away = !known.is_away;
        let is_away = known.is_away;
        if !known.is_away {
            known.generation += 1;
            known.lower = Lower::default();
        }
        self.trace(|| format!("volume {which} is away: {is_away}"));
    }
}
