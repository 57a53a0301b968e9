//! Options of a server.

use crate::feed_options::{FeedOptions, RelayOptions};
use crate::gate::{Gate, SOCKET_NAME};
use crate::pulse::Heartbeat;
use crate::rate::Clock;
use crate::tls::TlsOptions;
use crate::{HostError, Listen, OpenExport, RateLimits};
use futae_control::Access;
use std::time::Duration;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Addresses whose clients may use every export.
    pub listen: Vec<Listen>,
    /// Addresses with further settings: a single export, or access rights.
    pub gates: Vec<Gate>,
    /// Listens on TCP addresses that other machines can reach even if clients need no certificate
    /// there.
    pub insecure_tcp: bool,
    /// If set, clients must use TLS.
    pub tls: Option<TlsOptions>,
    /// The address of the control socket, if any.
    pub control: Option<Listen>,
    /// Access to the control socket.
    pub control_access: Access,
    /// Whether clients may demote evicted blocks.
    pub demotion: bool,
    /// Opens exports that orders add; `None` if orders may not add any.
    pub open_export: Option<OpenExport>,
    /// Sockets on which agents in guests report evictions.
    pub feeds: Vec<FeedOptions>,
    /// Whether each feed has a channel disk, `EXPORT.evictions` by the name of its first export, on which its agent
    /// demotes evicted pages with their data.
    pub channels: bool,
    /// Where samples from the feeds are relayed.
    pub relays: Vec<RelayOptions>,
    /// The largest number of connections that use exports at a time. One more connection replaces
    /// one of the peer with the most connections, if that peer has more than the newcomer's.
    /// Handshakes are counted separately: see [`Self::handshakes_max`].
    pub connections_max: usize,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
    /// The largest number of requests that one connection may have under way, including replies not
    /// sent yet.
    pub requests_max: usize,
    /// The same in bytes.
    pub request_bytes_max: u64,
    /// The largest number of requests that all exports together may have under way, divided by
    /// weight ([`crate::RateLimits::weight`]) when they want more. `None`: no limit.
    pub requests_together: Option<usize>,
    /// The largest number of bytes that all connections together may make the server hold, at least
    /// [`crate::BUFFER_MEMORY_MIN`].
    pub buffer_memory_bytes: u64,
    /// How long a peer may neither send nor receive a significant amount while others wait for the
    /// memory that it holds.
    pub stall_timeout: Duration,
    /// How long a stop waits for requests in flight, and how long a disconnecting client may take
    /// to receive its replies.
    pub stop_timeout: Duration,
    /// Whether [`crate::Server::stop_and_keep`] keeps clients for the next server.
    pub keeps_clients: bool,
    /// The clock for [`crate::RateLimits`].
    pub clock: Clock,
    /// Receives proofs that the server is alive, if set.
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
            keeps_clients: false,
            clock: Clock::default(),
            heartbeat: None,
        }
    }
}

impl ServerOptions {
    /// Checks that the addresses can be listened on, as far as that shows without listening: host names are known, no
    /// address is open to other machines by mistake, and sockets have a place. An address in use is no error.
    ///
    /// # Errors
    ///
    /// As of [`crate::Server::start`].
    pub fn check_addresses(&self) -> Result<(), HostError> {
        for gate in self.all_gates() {
            gate.check(SOCKET_NAME, self.may_be_reached(&gate))?;
        }
        Ok(())
    }

    /// Checks that the limits of an export can have an effect.
    ///
    /// # Errors
    ///
    /// It has a weight, and [`Self::requests_together`] is not given.
    pub fn check_rates(&self, export: &str, rates: RateLimits) -> Result<(), HostError> {
        if rates.weight.is_some() && self.requests_together.is_none() {
            let name = export.to_owned();
            return Err(HostError::WeightAlone { name });
        }
        Ok(())
    }

    /// The addresses in their order, those without further settings first.
    pub(crate) fn all_gates(&self) -> Vec<Gate> {
        let plain = self.listen.iter().cloned().map(Gate::from);
        plain.chain(self.gates.iter().cloned()).collect()
    }

    /// Whether other machines may reach the address: by the operator's word, or because clients identify themselves.
    pub(crate) fn may_be_reached(&self, gate: &Gate) -> bool {
        let knows_clients = self.tls.as_ref().is_some_and(TlsOptions::knows_clients);
        self.insecure_tcp || (knows_clients && !gate.in_the_clear)
    }

    /// The largest number of concurrent handshakes. Beyond it, the oldest handshake of the peer
    /// with the most is ended.
    #[must_use]
    pub fn handshakes_max(&self) -> usize {
        self.connections_max.clamp(16, 128)
    }
}
