//! Traffic of connections and disks.

use serde::{Deserialize, Serialize};
use std::ops::AddAssign;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Counters of connections' traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Requests received.
    pub requests: u64,
    /// Batches in which they were passed to the cache.
    pub batches: u64,
    /// Replies sent.
    pub replies: u64,
    /// System calls that sent replies, or notified a guest of them.
    pub sends: u64,
    /// Requests answered with an error before the cache saw them.
    pub refused_requests: u64,
    /// Demotions that violated the rules of form.
    pub misshapen_demotions: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.batches += other.batches;
        self.replies += other.replies;
        self.sends += other.sends;
        self.refused_requests += other.refused_requests;
        self.misshapen_demotions += other.misshapen_demotions;
    }
}

/// The traffic of one connection while it lives.
#[derive(Debug, Default)]
pub(crate) struct TrafficCounters {
    pub(crate) requests: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) replies: AtomicU64,
    pub(crate) sends: AtomicU64,
    pub(crate) refused_requests: AtomicU64,
    pub(crate) misshapen_demotions: AtomicU64,
}

impl TrafficCounters {
    pub(crate) fn read(&self) -> Traffic {
        Traffic {
            requests: self.requests.load(Relaxed),
            batches: self.batches.load(Relaxed),
            replies: self.replies.load(Relaxed),
            sends: self.sends.load(Relaxed),
            refused_requests: self.refused_requests.load(Relaxed),
            misshapen_demotions: self.misshapen_demotions.load(Relaxed),
        }
    }
}

/// The traffic of a virtual machine's disk. A notification to the guest counts as a send.
pub(crate) fn of_disk(disk: &futae_vhost::Traffic) -> Traffic {
    Traffic {
        requests: disk.requests.load(Relaxed),
        batches: disk.batches.load(Relaxed),
        replies: disk.replies.load(Relaxed),
        sends: disk.notifications.load(Relaxed),
        refused_requests: disk.refused.load(Relaxed),
        misshapen_demotions: 0,
    }
}
