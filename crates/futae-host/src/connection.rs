//! One client from greeting to goodbye.

use crate::budget::Budget;
use crate::connection_loop::{ConnectionLoop, Ending, Limits, Session};
use crate::export::Entry;
use crate::registry::{ConnectionLimits, Place};
use crate::tenant::Tenant;
use futae_engine::{ClientId, Engine};
use futae_nbd::constants::{MAX_OPTION_BYTES, OPTION_HEADER_BYTES};
use futae_nbd::{Handshake, Negotiated, Outcome, RequestRules, WireError, option};
use futae_policy::VolumeId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::debug;

/// Limits and timeouts of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionOptions {
    pub(crate) handshake_timeout: Duration,
    pub(crate) connections_max: usize,
    pub(crate) limits: Limits,
}

/// How a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The peer disconnected, or the server closed the connection.
    Gone,
    /// The peer did not finish its handshake in time.
    TooSlow,
    /// The peer broke the protocol.
    Broken(WireError),
}

/// Serves a client until it is gone.
pub(crate) fn serve(
    tenant: &Tenant,
    budget: &Arc<Budget>,
    place: &Place,
    options: &ConnectionOptions,
) -> End {
    let _allotment = budget.place();
    let link = &place.link;
    let mut greeter = Greeter {
        socket: &link.socket,
        deadline: Instant::now() + options.handshake_timeout,
        received: Vec::new(),
    };
    let negotiated = match greeter.negotiate(tenant, |negotiated| {
        let export = tenant.find(&negotiated.export.name)?.export;
        let limits = ConnectionLimits {
            of_server: options.connections_max,
            of_export: export.connections_max.unwrap_or(usize::MAX),
        };
        let demotes = negotiated.demotion.is_some() && !negotiated.export.read_only;
        place.begin(&export.name, demotes, &limits).then_some(())
    }) {
        Ok(negotiated) => negotiated,
        Err(end) => return end,
    };
    // It may have been removed meanwhile. Who finds it here has begun before, and is waited for by its removal.
    let Some(Entry {
        number,
        export,
        quota,
        ..
    }) = tenant.find(&negotiated.export.name)
    else {
        return End::Gone;
    };
    let (peer, name, opened) = (link.peer, &export.name, Instant::now());
    debug!(%peer, export = name, "client {peer} opened export {name}");
    let guest = Guest::join(&export.engine, export.volume);
    let session = Session {
        engine: Arc::clone(&export.engine),
        volume: export.volume,
        client: guest.client,
        export: number,
        quota,
        rules: RequestRules::new(&negotiated),
    };
    let serving = ConnectionLoop::new(
        &link.socket,
        session,
        &greeter.received,
        options.limits,
        budget,
        &link.traffic,
    );
    drop(greeter);
    // Without a descriptor to be woken by, the connection cannot be served.
    let ending = serving.map_or(Ok(()), ConnectionLoop::run);
    drop(guest);
    let (requests, seconds) = (link.traffic.read().requests, opened.elapsed().as_secs_f64());
    debug!(
        %peer,
        export = name,
        requests,
        seconds,
        "client {peer} left export {name} after {requests} requests in {seconds:.1} s"
    );
    match ending {
        Ending::Ok(()) => End::Gone,
        Err(error) => End::Broken(error),
    }
}

/// A client of the cache, for as long as this lives.
struct Guest<'a> {
    engine: &'a Engine,
    volume: VolumeId,
    client: ClientId,
}

impl<'a> Guest<'a> {
    fn join(engine: &'a Engine, volume: VolumeId) -> Self {
        Self {
            engine,
            volume,
            client: engine.join(volume),
        }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.engine.leave(self.volume, self.client);
    }
}

/// What a client says first.
const CLIENT_FLAGS_BYTES: usize = 4;

/// Bytes of the option that begins here; of its header, as long as that is not there. One that is longer
/// than allowed is refused by its header.
fn option_bytes(received: &[u8]) -> usize {
    let length = received.get(OPTION_HEADER_BYTES - 4..OPTION_HEADER_BYTES);
    let length = length.and_then(|bytes| bytes.try_into().ok());
    let length = length.map_or(0, |bytes| u32::from_be_bytes(bytes) as usize);
    let is_legal = length <= MAX_OPTION_BYTES;
    OPTION_HEADER_BYTES + if is_legal { length } else { 0 }
}

/// The handshake on a socket, all of it before a deadline.
struct Greeter<'a> {
    socket: &'a OwnedFd,
    deadline: Instant,
    /// What arrived and is not dealt with.
    received: Vec<u8>,
}

impl Greeter<'_> {
    /// What was agreed on, if `admits` lets it be: before the client hears of it.
    fn negotiate(
        &mut self,
        tenant: &Tenant,
        admits: impl FnOnce(&Negotiated) -> Option<()>,
    ) -> Result<Box<Negotiated>, End> {
        let mut handshake = Handshake::new(tenant);
        let mut out = option::greeting().to_vec();
        let mut has_flags = false;
        loop {
            self.send(&out)?;
            out.clear();
            // One message at a time, so that the answers to many are never in memory together.
            let length = if has_flags {
                option_bytes(&self.received)
            } else {
                CLIENT_FLAGS_BYTES
            };
            if self.received.len() < length {
                self.receive()?;
                continue;
            }
            has_flags = true;
            let progress = handshake.feed(&self.received[..length], &mut out);
            let progress = match progress {
                Ok(progress) => progress,
                Err(error) => {
                    let _ = self.send(&out);
                    return Err(End::Broken(error));
                }
            };
            self.received.drain(..progress.consumed);
            match progress.outcome {
                Outcome::NeedMore => {}
                Outcome::Done(negotiated) => {
                    admits(&negotiated).ok_or(End::Gone)?;
                    self.send(&out)?;
                    return Ok(negotiated);
                }
                Outcome::Aborted => {
                    let _ = self.send(&out);
                    return Err(End::Gone);
                }
            }
        }
    }

    fn send(&self, mut out: &[u8]) -> Result<(), End> {
        while !out.is_empty() {
            match send(self.socket, out, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => out = &out[sent..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(_) => return Err(End::Gone),
            }
        }
        Ok(())
    }

    /// Receives once, at most as much as one option can need.
    fn receive(&mut self) -> Result<(), End> {
        let mut chunk = [0; 4096];
        let room = (MAX_OPTION_BYTES + OPTION_HEADER_BYTES).saturating_sub(self.received.len());
        let room = room.clamp(1, chunk.len());
        loop {
            match recv(self.socket, &mut chunk[..room], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(End::Gone),
                Ok((received, _)) => {
                    self.received.extend_from_slice(&chunk[..received]);
                    return Ok(());
                }
                Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(_) => return Err(End::Gone),
            }
        }
    }

    fn wait(&self, flags: PollFlags) -> Result<(), End> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(End::TooSlow);
        }
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(self.socket, flags)], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(_) => Err(End::Gone),
        }
    }
}
