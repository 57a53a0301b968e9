//! What a service says of itself. A message that cannot be sent is logged: the service goes on.

use sd_notify::NotifyState;
use std::time::{Duration, Instant};
use tracing::warn;

/// Says that the service does its work, or does it again after [`reloading`], with a sentence for `systemctl status`.
pub fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Says that the configuration is read again; [`ready`] ends it.
pub fn reloading() {
    send(&[NotifyState::Reloading]);
}

/// Says that the service ends.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!("systemd cannot be told the state of the service (NOTIFY_SOCKET): {error}");
    }
}

/// The watchdog of the unit (`WatchdogSec=`), which restarts a service that has not said for that long that it is alive.
#[derive(Debug)]
pub struct Watchdog {
    every: Duration,
    last: Option<Instant>,
}

impl Watchdog {
    /// None if the unit has no watchdog.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        let timeout = sd_notify::watchdog_enabled()?;
        // As sd_watchdog_enabled(3) advises.
        let every = timeout / 2;
        Some(Self { every, last: None })
    }

    /// How often [`Self::alive`] is to be called at least: half of `WatchdogSec=`.
    #[must_use]
    pub fn every(&self) -> Duration {
        self.every
    }

    /// Says that the service is alive. To be called from a place that a service that is stuck does not reach; more often
    /// than needed costs nothing.
    pub fn alive(&mut self) {
        let is_early = |last: Instant| last.elapsed() < self.every / 4;
        if !self.last.is_some_and(is_early) {
            self.last = Some(Instant::now());
            send(&[NotifyState::Watchdog]);
        }
    }
}
