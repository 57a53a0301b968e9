//! A guest whose memory is changed.

use crate::actuator::Actuator;
use crate::config::{ConfigError, GuestConfig};
use crate::feed::Feed;
use futae_allocate::{Activity, GuestLimits};
use std::time::{Duration, Instant};

/// How often sizes are looked at while they change.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Sizes may be off by this without being told again.
pub(super) const SLACK: u64 = 1 << 20;

/// A guest that is kept.
pub(super) struct Guest {
    pub(super) name: String,
    pub(super) actuator: Actuator,
    pub(super) feed: Option<Feed>,
    /// How it was before.
    pub(super) remembered: Option<String>,
    /// Requests and hits when they were last asked for, of a share.
    pub(super) requests: Option<(u64, u64)>,
    /// Whether its balloon reports free pages, once it was asked.
    pub(super) reports_free_pages: Option<Option<bool>>,
}

/// What a guest may have, and begins with.
pub(super) fn limits_of(one: &GuestConfig) -> Result<GuestLimits, ConfigError> {
    if one.start.is_some() {
        return one.limits(None);
    }
    let has = one.actuator.achieved().map_err(|why| {
        let name = &one.name;
        ConfigError(format!(
            "guest {name:?} is out of sight ({why}); start it or say its start"
        ))
    })?;
    one.limits(Some(has))
}

impl Guest {
    /// Begins to listen to its agent. `remembered` is how it was before.
    pub(super) fn new(one: &GuestConfig, remembered: Option<String>) -> Result<Self, ConfigError> {
        let name = &one.name;
        let feed = one.agent.as_ref().map(Feed::start).transpose();
        let feed = feed.map_err(|error| {
            ConfigError(format!(
                "guest {name:?}: its agent cannot be heard: {error}"
            ))
        })?;
        Ok(Self {
            name: name.clone(),
            feed,
            remembered,
            requests: one.actuator.requests(),
            actuator: one.actuator.clone(),
            reports_free_pages: None,
        })
    }

    /// What a share's guest did since it was last asked. One out of sight is not asked: it would cost its time limit again.
    pub(super) fn counted(&mut self, is_in_sight: bool) -> Option<Activity> {
        let before = self.requests;
        self.requests = is_in_sight.then(|| self.actuator.requests()).flatten();
        let ((requests, hits), (requests_before, hits_before)) = (self.requests?, before?);
        // Less than before: the server was started again.
        let all = requests.checked_sub(requests_before)?;
        let hits = hits.checked_sub(hits_before)?.min(all);
        Some(Activity {
            hits,
            misses: all - hits,
            ..Activity::default()
        })
    }

    /// Bytes that it had before, if that is a number.
    pub(super) fn wanted(&self) -> Option<u64> {
        self.remembered
            .as_ref()
            .and_then(|text| text.parse::<u64>().ok())
    }

    /// Has it as it was before, and waits until it has no more than that.
    pub(super) fn give_back(&self, end: Instant) -> Result<(), String> {
        let Some(remembered) = &self.remembered else {
            return Err("its memory before is not known".to_owned());
        };
        self.actuator.restore(remembered)?;
        let is_there = || match (self.actuator.achieved(), self.wanted()) {
            (Ok(has), Some(wanted)) => has <= wanted.saturating_add(SLACK),
            _ => true,
        };
        while !is_there() && Instant::now() < end {
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }
}
