//! What a controller knows of its guests, and the file that keeps how they were.

use super::guest::{Guest, limits_of};
use super::kept::Kept;
use crate::config::{Config, ConfigError, bytes};
use crate::libvirt::events::Events;
use crate::pressure::PressureMeter;
use futae_allocate::{Allocator, Host, HostSettings};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Keeps guests at the sizes that the allocator decides.
pub struct Controller {
    pub(super) guests: Vec<Guest>,
    pub(super) allocator: Allocator,
    pub(super) told: Vec<u64>,
    /// What each guest had when it was last seen.
    pub(super) seen: Vec<u64>,
    pub(super) period: Duration,
    pub(super) reserve: u64,
    pub(super) return_on_exit: bool,
    pub(super) dry_run: bool,
    /// What each guest shall have: the allocator's targets less what the host has of them.
    pub(super) targets: Vec<u64>,
    pub(super) host: Host,
    pub(super) pressure: PressureMeter,
    pub(super) config: Config,
    /// What libvirt tells at once, while it does.
    pub(super) events: Option<Events>,
    /// What came of that since the last period.
    pub(super) between: Between,
    /// Where it is written down what guests had before, if it is.
    pub(super) kept: Option<Kept>,
    /// Whether all is to end.
    pub(super) stopped: Arc<AtomicBool>,
}

/// Guests that came or went between two periods.
#[derive(Default)]
pub(super) struct Between {
    pub(super) changes: Vec<String>,
    pub(super) problems: Vec<String>,
}

impl Controller {
    /// Looks at every guest, and listens to its agent. With `dry_run` no guest is ever told anything.
    ///
    /// # Errors
    ///
    /// What is wrong with the configuration; a guest that is out of sight and has no `start`.
    pub fn new(config: &Config, dry_run: bool) -> Result<Self, ConfigError> {
        let (mut guests, mut limits) = (Vec::new(), Vec::new());
        for one in &config.guests {
            limits.push(limits_of(one)?);
            guests.push(Guest::new(one, one.actuator.remember())?);
        }
        let allocator = config.allocator(limits)?;
        let allocator_targets = allocator.targets().to_vec();
        let settings = HostSettings {
            idle_after: config.host.idle_after,
            pressure: config.host.pressure,
            period: config.period,
        };
        Ok(Self {
            told: allocator.targets().to_vec(),
            seen: allocator.targets().to_vec(),
            guests,
            allocator,
            period: config.period(),
            reserve: bytes("reserve", config.reserve)?,
            return_on_exit: config.return_on_exit,
            dry_run,
            targets: allocator_targets,
            host: Host::new(settings, config.guests.len()),
            pressure: PressureMeter::new(config.host.pressure_file.clone()),
            config: config.clone(),
            events: None,
            between: Between::default(),
            kept: None,
            stopped: Arc::default(),
        })
    }

    /// From now on a period does not wait for guests once this is true.
    #[must_use]
    pub fn stopped_by(mut self, stopped: &Arc<AtomicBool>) -> Self {
        self.stopped = Arc::clone(stopped);
        self
    }

    /// From one period to the next.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.period
    }

    /// What each guest shall have, in bytes.
    #[must_use]
    pub fn targets(&self) -> &[u64] {
        &self.targets
    }

    /// Whether guests get back what they had.
    pub(super) fn gives_back(&self) -> bool {
        self.return_on_exit && !self.dry_run
    }

    /// From now on keeps in this file what guests had before, until [`Self::end`] has given it back. If an earlier balancer with
    /// this file was killed, guests get back what they had before that one. Without `return_on_exit`, and in a dry run, there is
    /// no file.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written. Guests are then given back what they have now, if this process ends by itself.
    pub fn keep_in(&mut self, path: &Path) -> io::Result<()> {
        if !self.gives_back() {
            return Ok(());
        }
        let kept = Kept::open(path)?;
        for guest in &mut self.guests {
            let had = kept.had(&guest.actuator);
            guest.remembered = had.or(guest.remembered.take());
        }
        kept.write(&self.guests)?;
        self.kept = Some(kept);
        Ok(())
    }

    /// Writes down what guests had, after some came or went.
    pub(super) fn keep(&self, problems: &mut Vec<String>) {
        let Some(kept) = &self.kept else { return };
        if let Err(error) = kept.write(&self.guests) {
            problems.push(kept.problem(&error));
        }
    }
}
