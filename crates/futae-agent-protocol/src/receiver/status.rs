//! What is known of an agent.

use crate::{PageCache, Source};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What came from an agent so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentStatus {
    /// Whether an agent is connected, has introduced itself, and has not fallen silent
    /// ([`SILENCE_SECONDS`](Self::SILENCE_SECONDS)).
    pub connected: bool,
    /// Time since the last frame that was believed, in seconds; none if there was none.
    pub last_frame_seconds: Option<f64>,
    /// The guest's name.
    pub guest: String,
    /// How the agent counts, as it said last; none before it said so. One with
    /// [`Source::Vmstat`] sends neither notices nor sampled reads.
    pub source: Option<Source>,
    /// How the guest's kernel caches pages; none if the agent has not said so.
    pub page_cache: Option<PageCache>,
    /// The disk of the first of `volumes`; empty if none is.
    pub disk: String,
    /// The volumes of which the agent is to tell. A server calls them exports.
    #[serde(rename = "exports", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<AgentVolume>,
    /// Messages received.
    pub frames: u64,
    /// Samples believed: the page counts of a period.
    pub samples: u64,
    /// Sampled reads believed, of which miss-ratio curves are made.
    pub sampled_reads: u64,
    /// Ranges of evicted pages on the disks of `volumes`.
    pub ranges: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Ranges that were not taken: beyond their volume, of another disk, empty, or more than the store kept up with.
    pub refused_ranges: u64,
    /// Of those: ranges of disks of the guest that are none of `volumes`.
    pub other_disk_ranges: u64,
    /// Frames that had been received before.
    pub replayed_frames: u64,
    /// Frames that were damaged, of an unknown kind, or not frames.
    pub broken_frames: u64,
    /// Evictions of which the agent says that they were not told: too many at once, or no place known.
    pub untold_pages: u64,
}

/// What came of one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentVolume {
    /// Its name.
    pub name: String,
    /// The disk of the guest that was taken for it; empty if none was.
    pub disk: String,
    /// Ranges of evicted pages on that disk.
    pub ranges: u64,
    /// Bytes in them.
    pub bytes: u64,
}

impl AgentStatus {
    /// An agent that has said nothing for this long, and for three of its periods, counts as gone: it reports
    /// every period.
    pub const SILENCE_SECONDS: f64 = 15.0;
    /// After this long it is gone whatever it calls a period.
    const SILENCE_SECONDS_MAX: f64 = 600.0;

    /// The names of `volumes`, for people.
    #[must_use]
    pub fn volume_names(&self) -> String {
        let names: Vec<_> = self.volumes.iter().map(|it| it.name.as_str()).collect();
        names.join(", ")
    }

    /// Counts a range of evicted pages of one of `volumes`.
    pub(super) fn note_evicted(&mut self, volume: usize, bytes: u64) {
        self.ranges += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(volume) = self.volumes.get_mut(volume) {
            volume.ranges += 1;
            volume.bytes = volume.bytes.saturating_add(bytes);
        }
    }
}

/// What was heard of an agent.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// But for what depends on the time at which it is asked for.
    pub(super) status: AgentStatus,
    pub(super) last: Option<Instant>,
    /// How often the agent reports, as it says.
    pub(super) period_seconds: f64,
}

impl Heard {
    fn at(&self, now: Instant) -> AgentStatus {
        let silence = self
            .last
            .map(|last| now.saturating_duration_since(last).as_secs_f64());
        let timeout = (3.0 * self.period_seconds).clamp(
            AgentStatus::SILENCE_SECONDS,
            AgentStatus::SILENCE_SECONDS_MAX,
        );
        let speaks = silence.is_some_and(|silence| silence < timeout);
        AgentStatus {
            connected: self.status.connected && speaks,
            last_frame_seconds: silence,
            ..self.status.clone()
        }
    }
}

/// The same for the thread that hears and for those who ask.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared(Arc<Mutex<Heard>>);

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> AgentStatus {
        self.lock().at(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_agent_that_is_silent_is_gone() {
        let begin = Instant::now();
        let mut heard = Heard {
            last: Some(begin),
            ..Heard::default()
        };
        heard.status.connected = true;
        let connected = |heard: &Heard, seconds| {
            let status = heard.at(begin + Duration::from_secs(seconds));
            assert_eq!(status.last_frame_seconds, Some(seconds as f64));
            status.connected
        };
        assert!(connected(&heard, 14) && !connected(&heard, 16));
        heard.period_seconds = 60.0;
        assert!(connected(&heard, 170) && !connected(&heard, 190));
        heard.period_seconds = f64::MAX;
        assert!(!connected(&heard, 601), "whatever it says");
    }
}
