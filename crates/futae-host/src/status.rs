//! The status of a server.

use crate::FeedReport;
use crate::rate::RateReport;
use futae_control::EngineReport;
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

/// The status of a server at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerStatus {
    /// The version of futae.
    pub version: String,
    /// Time since the start, in seconds.
    pub uptime_seconds: f64,
    /// Connections now, those in their handshake included.
    pub connections: u64,
    /// Connections still in their handshake.
    pub handshakes: u64,
    /// Connections that may demote.
    pub demotion_clients: u64,
    /// Connections ever accepted.
    pub accepted: u64,
    /// Connections closed at once because there were too many.
    pub turned_away: u64,
    /// Connections ended to make room for peers that had fewer.
    #[serde(default)]
    pub dismissed: u64,
    /// Connections that ended because the peer violated the protocol or did not finish its
    /// handshake.
    pub protocol_errors: u64,
    /// The most recent violation.
    pub last_protocol_error: Option<String>,
    /// The largest number of bytes that all connections together may make the server hold.
    #[serde(default)]
    pub buffer_memory_bytes: u64,
    /// Bytes held now: payloads, requests, replies, and the allotment of each connection.
    #[serde(default)]
    pub buffer_bytes: u64,
    /// The maximum so far.
    #[serde(default)]
    pub buffer_bytes_peak: u64,
    /// Connections that wait for room for their next request.
    #[serde(default)]
    pub buffer_waiters: u64,
    /// Connections ended because they held memory that others waited for, and moved no bytes.
    #[serde(default)]
    pub stalled_connections: u64,
    /// Traffic of all connections.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// The caches.
    pub engines: Vec<EngineReport>,
    /// The exports.
    pub exports: Vec<ExportReport>,
    /// The feeds from agents in guests.
    #[serde(default)]
    pub feeds: Vec<FeedReport>,
}

/// One export of a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ExportReport {
    /// Its name.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Connections that use it now.
    pub connections: u64,
    /// Whether the cache is blind for it: its policy depends on the guest's evictions, and neither
    /// an agent nor a client reports them.
    #[serde(default)]
    pub is_blind: bool,
    /// Its limits of requests and bytes per second, and how many requests they delayed.
    #[serde(flatten)]
    pub rates: RateReport,
}
