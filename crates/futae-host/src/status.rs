//! The status of a server.

use crate::FeedReport;
use crate::rate::RateReport;
use crate::traffic::Traffic;
use futae_control::EngineReport;
use serde::{Deserialize, Serialize};

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
