//! How to serve.

use crate::feed::{FeedOptions, RelayOptions};
use crate::pulse::Heartbeat;
use crate::rate::Clock;
use crate::tenant::Gate;
use crate::tls::TlsOptions;
use crate::{Listen, OpenExport};
use futae_control::Access;
use std::time::Duration;

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where clients connect who may use every export.
    pub listen: Vec<Listen>,
    /// The same where more is to be said: one export, or who may connect.
    pub gates: Vec<Gate>,
    /// Listen on TCP addresses that other machines can reach even if clients need no certificate there.
    pub insecure_tcp: bool,
    /// With these, clients have to use TLS.
    pub tls: Option<TlsOptions>,
    /// Where status is asked for and the cache resized, if anywhere.
    pub control: Option<Listen>,
    /// Who may connect there.
    pub control_access: Access,
    /// Whether clients may hand evicted blocks down.
    pub demotion: bool,
    /// How exports are opened that orders add, if orders may.
    pub open_export: Option<OpenExport>,
    /// Where agents in guests tell of what is evicted there.
    pub feeds: Vec<FeedOptions>,
    /// Whether each export with a feed has a channel disk, `EXPORT.evictions`, on which its agent hands down
    /// evicted pages with their data.
    pub channels: bool,
    /// Where samples go that come by the feeds.
    pub relays: Vec<RelayOptions>,
    /// Connections that use exports at a time. A newcomer beyond takes the place of one of the peer that has
    /// most, if that has more than the newcomer's. Handshakes are counted apart: see [`Self::handshakes_max`].
    pub connections_max: usize,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
    /// Requests that one connection may have under way, replies that have not left included.
    pub requests_max: usize,
    /// The same in bytes.
    pub request_bytes_max: u64,
    /// Requests that all exports together may have under way; when they want more, each has a part of it by its weight
    /// ([`crate::RateLimits::weight`]). None: any number.
    pub requests_together: Option<usize>,
    /// Bytes that all connections together may make the server hold, at least
    /// [`crate::BUFFER_MEMORY_MIN`].
    pub buffer_memory_bytes: u64,
    /// How long a peer may neither send nor receive anything to speak of while others wait for the memory
    /// that it takes.
    pub stall_timeout: Duration,
    /// How long a stop waits for requests in flight, and how long a client that says goodbye may
    /// take to receive its replies.
    pub stop_timeout: Duration,
    /// The time by which [`crate::RateLimits`] are kept.
    pub clock: Clock,
    /// What hears that the server is alive, if anything.
    pub heartbeat: Option<Heartbeat>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            gates: Vec::new(),
            insecure_tcp: false,
            tls: None,
            control: None,
            control_access: Access::default(),
            demotion: true,
            open_export: None,
            feeds: Vec::new(),
            channels: false,
            relays: Vec::new(),
            connections_max: 512,
            handshake_timeout: Duration::from_secs(10),
            requests_max: 256,
            request_bytes_max: 64 << 20,
            requests_together: None,
            buffer_memory_bytes: 256 << 20,
            stall_timeout: Duration::from_secs(10),
            stop_timeout: Duration::from_secs(10),
            clock: Clock::default(),
            heartbeat: None,
        }
    }
}

impl ServerOptions {
    /// Handshakes at a time. Of more, the oldest of the peer that has most is ended.
    #[must_use]
    pub fn handshakes_max(&self) -> usize {
        self.connections_max.clamp(16, 128)
    }
}
