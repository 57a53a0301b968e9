//! One client, from its greeting to its end.

use crate::budget::Budget;
use crate::connection_loop::{ConnectionLoop, Left, Limits, Session};
use crate::export::{Entry, Export};
use crate::kept_clients::{Parting, Record, Unread};
use crate::registry::{ConnectionLimits, Place};
use crate::tenant::{Offered, Tenant};
use crate::tls::{Progress, ServerTerms, TlsError};
use crate::wire::Wire;
use futae_engine::JoinedClient;
use futae_nbd::constants::{MAX_OPTION_BYTES, OPTION_HEADER_BYTES};
use futae_nbd::{Handshake, Negotiated, Outcome, RequestRules, WireError, option};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// Limits and timeouts of a connection.
#[derive(Clone)]
pub(crate) struct ConnectionOptions {
    /// If set, the client must begin TLS.
    pub(crate) tls: Option<Arc<ServerTerms>>,
    pub(crate) handshake_timeout: Duration,
    pub(crate) connections_max: usize,
    pub(crate) limits: Limits,
    /// If clients are kept when the server stops: tells the connection to stop.
    pub(crate) parting: Option<Arc<Parting>>,
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
    /// The peer sent a request without TLS, which it must begin first.
    InTheClear,
    /// The TLS handshake failed, or the peer broke the rules of TLS.
    Insecure(String),
}

impl From<TlsError> for End {
    fn from(error: TlsError) -> Self {
        Self::Insecure(error.0)
    }
}

/// Serves a client until it disconnects.
pub(crate) fn serve(
    tenant: &Tenant,
    budget: &Arc<Budget>,
    place: &Place,
    options: &ConnectionOptions,
) -> End {
    let _allotment = budget.place();
    let link = &place.link;
    let mut greeter = Greeter {
        wire: Wire::Plain(link.socket.as_fd()),
        deadline: Instant::now() + options.handshake_timeout,
        received: Vec::new(),
        out: option::greeting().to_vec(),
        has_flags: false,
    };
    let agreed = agree(&mut greeter, tenant, options.tls.as_deref());
    let agreed = agreed.and_then(|agreed| {
        let (negotiated, entry) = (&agreed.negotiated, &agreed.entry);
        if !agreed.tenant.still_has(entry) {
            return Err(End::Gone);
        }
        let export = &entry.export;
        let limits = limits_of(options, export);
        let demotes = negotiated.demotion.is_some() && !negotiated.export.read_only;
        let rules = RequestRules::new(negotiated);
        if options.parting.is_some() && may_part(&greeter.wire, &rules, entry.volume()) {
            // Before the client learns the result: then it is kept, also if the server stops at once.
            link.parts();
        }
        if !place.begin(&export.name, demotes, &limits) {
            return Err(End::Gone);
        }
        // A failed flush of another client that follows the result concerns this client, too.
        let joined = JoinedClient::join(&export.engine, export.volume);
        // The client learns the result only now.
        greeter.send()?;
        Ok((agreed, joined))
    });
    let (agreed, joined) = match agreed {
        Ok(both) => both,
        Err(end) => return end,
    };
    let Agreed {
        negotiated,
        entry,
        tenant,
        names,
    } = agreed;
    // The export may have been removed meanwhile. A connection that finds it here began before its
    // removal, which waits for the connection.
    if !tenant.still_has(&entry) {
        return End::Gone;
    }
    let Greeter {
        mut wire, received, ..
    } = greeter;
    let unread = Unread {
        bytes: received,
        skip_bytes: 0,
    };
    let resumed = Resumed {
        entry,
        joined,
        rules: RequestRules::new(&negotiated),
        names,
        unread,
    };
    transmit(&mut wire, resumed, budget, place, options)
}

/// A client whose handshake is over.
pub(crate) struct Resumed {
    pub(crate) entry: Entry,
    /// The client, as the cache of the export knows it.
    pub(crate) joined: JoinedClient,
    pub(crate) rules: RequestRules,
    /// The names that it has proved over TLS.
    pub(crate) names: Vec<String>,
    pub(crate) unread: Unread,
}

/// Serves a client of an earlier server until it disconnects.
pub(crate) fn resume(
    tenant: &Tenant,
    resumed: Resumed,
    budget: &Arc<Budget>,
    place: &Place,
    options: &ConnectionOptions,
) -> End {
    let _allotment = budget.place();
    let export = &resumed.entry.export;
    let limits = limits_of(options, export);
    // As after a handshake, the export may have been removed meanwhile.
    if !place.begin(&export.name, false, &limits) || !tenant.still_has(&resumed.entry) {
        return End::Gone;
    }
    let mut wire = Wire::Plain(place.link.socket.as_fd());
    transmit(&mut wire, resumed, budget, place, options)
}

fn limits_of(options: &ConnectionOptions, export: &Export) -> ConnectionLimits {
    ConnectionLimits {
        of_server: options.connections_max,
        of_export: export.connections_max.unwrap_or(usize::MAX),
    }
}

/// Whether another server could go on with a client. Others connect again by themselves, or hold keys that cannot be handed on; or
/// the next server could not tell whether it has the same volume.
fn may_part(wire: &Wire<'_>, rules: &RequestRules, volume: Option<[u8; 16]>) -> bool {
    matches!(wire, Wire::Plain(_)) && rules.demotion.is_none() && volume.is_some()
}

/// Serves the requests of a client.
fn transmit(
    wire: &mut Wire<'_>,
    resumed: Resumed,
    budget: &Arc<Budget>,
    place: &Place,
    options: &ConnectionOptions,
) -> End {
    let link = &place.link;
    let Resumed {
        entry,
        joined,
        rules,
        names,
        unread,
    } = resumed;
    let volume = entry.volume();
    let Entry {
        number,
        export,
        quota,
        rate,
        ..
    } = entry;
    let (peer, name, opened) = (link.peer, &export.name, Instant::now());
    let names = if names.is_empty() {
        String::new()
    } else {
        format!(" as {:?}", names.join(", "))
    };
    debug!(%peer, export = name, "client {peer} opened export {name}{names}");
    let session = Session {
        engine: Arc::clone(&export.engine),
        volume: export.volume,
        client: joined.id(),
        export: number,
        quota: quota.clone(),
        rate,
        rules,
    };
    let parting = options.parting.as_deref();
    let parting = parting.filter(|_| may_part(wire, &rules, volume));
    let serving = ConnectionLoop::new(
        wire,
        session,
        &unread,
        options.limits,
        (budget, parting),
        &link.traffic,
    );
    drop(unread);
    // Without a descriptor for the wake-up, the connection cannot be served.
    let ending = serving.map_or(Ok(Left::Gone), ConnectionLoop::run);
    if let Some(quota) = quota {
        quota.leave(None);
    }
    let (requests, seconds) = (link.traffic.read().requests, opened.elapsed().as_secs_f64());
    debug!(
        %peer,
        export = name,
        requests,
        seconds,
        "client {peer} left export {name} after {requests} requests in {seconds:.1} s"
    );
    match (ending, wire.problem()) {
        (Err(error), _) => End::Broken(error),
        (Ok(_), Some(problem)) => End::Insecure(problem.to_owned()),
        (Ok(Left::Parted(unread)), None) => {
            let kept = parting.zip(volume).map(|(parting, volume)| {
                let record = Record::new(&link.gate, (name, volume), &rules, unread);
                parting.keep(place, record, joined)
            });
            if let Some(Err(error)) = kept {
                warn!(%peer, export = name, "client {peer} cannot be kept for the next server: {error}");
            }
            End::Gone
        }
        (Ok(Left::Gone), None) => {
            wire.say_goodbye();
            End::Gone
        }
    }
}

/// What the handshakes have come to.
struct Agreed {
    negotiated: Box<Negotiated>,
    /// The export that it is about.
    entry: Entry,
    /// The exports that the client may see.
    tenant: Tenant,
    /// The names that it has proved over TLS.
    names: Vec<String>,
}

impl Agreed {
    fn new(
        negotiated: Option<Box<Negotiated>>,
        offered: &Offered<'_>,
        names: Vec<String>,
    ) -> Result<Self, End> {
        let negotiated = negotiated.ok_or(End::Gone)?;
        let entry = offered.find(&negotiated.export.name).ok_or(End::Gone)?;
        Ok(Self {
            entry: entry.clone(),
            tenant: offered.tenant().clone(),
            negotiated,
            names,
        })
    }
}

/// Negotiates the export and the options that the client may see, with a TLS handshake in between
/// if it is required.
fn agree(
    greeter: &mut Greeter<'_>,
    tenant: &Tenant,
    terms: Option<&ServerTerms>,
) -> Result<Agreed, End> {
    let offered = Offered::new(tenant);
    let Some(terms) = terms else {
        let negotiated = greeter.negotiate(&mut Handshake::new(&offered))?;
        return Agreed::new(negotiated, &offered, Vec::new());
    };
    let mut in_the_clear = Handshake::with_tls(&offered);
    match greeter.negotiate(&mut in_the_clear) {
        Ok(None) => {}
        // No export can be chosen.
        Ok(Some(_)) => return Err(End::Gone),
        Err(End::Gone | End::Broken(_)) if in_the_clear.was_refused_without_tls() => {
            return Err(End::InTheClear);
        }
        Err(end) => return Err(end),
    }
    let names = greeter.begin_tls(terms)?;
    let tenant = tenant.for_client(terms.allow(), &names);
    let offered = Offered::new(&tenant);
    let negotiated = greeter.negotiate(&mut in_the_clear.over_tls(&offered))?;
    Agreed::new(negotiated, &offered, names)
}

/// Length of a client's first message.
const CLIENT_FLAGS_BYTES: usize = 4;

/// Bytes of the option that begins here, or of its header while that is incomplete. An option
/// longer than allowed is refused after its header.
fn option_bytes(received: &[u8]) -> usize {
    let length = received.get(OPTION_HEADER_BYTES - 4..OPTION_HEADER_BYTES);
    let length = length.and_then(|bytes| bytes.try_into().ok());
    let length = length.map_or(0, |bytes| u32::from_be_bytes(bytes) as usize);
    let is_legal = length <= MAX_OPTION_BYTES;
    OPTION_HEADER_BYTES + if is_legal { length } else { 0 }
}

/// The handshake on a socket, which must complete before a deadline.
struct Greeter<'a> {
    wire: Wire<'a>,
    deadline: Instant,
    /// Received bytes that have not been processed.
    received: Vec<u8>,
    /// Bytes to be sent next.
    out: Vec<u8>,
    has_flags: bool,
}

impl Greeter<'_> {
    /// The negotiated result, whose answer is not sent yet; `None` if TLS begins here.
    fn negotiate(
        &mut self,
        handshake: &mut Handshake<&Offered<'_>>,
    ) -> Result<Option<Box<Negotiated>>, End> {
        loop {
            self.send()?;
            // One message at a time, so that answers to many options are never in memory together.
            let length = if self.has_flags {
                option_bytes(&self.received)
            } else {
                CLIENT_FLAGS_BYTES
            };
            if self.received.len() < length {
                self.receive()?;
                continue;
            }
            self.has_flags = true;
            let progress = handshake.feed(&self.received[..length], &mut self.out);
            let progress = match progress {
                Ok(progress) => progress,
                Err(error) => {
                    let _ = self.send();
                    return Err(End::Broken(error));
                }
            };
            self.received.drain(..progress.consumed);
            match progress.outcome {
                Outcome::NeedMore => {}
                Outcome::Done(negotiated) => return Ok(Some(negotiated)),
                Outcome::StartTls => return Ok(None),
                Outcome::Aborted => {
                    let _ = self.send();
                    return Err(End::Gone);
                }
            }
        }
    }

    /// Begins TLS. Returns the names under which rules know the client.
    fn begin_tls(&mut self, terms: &ServerTerms) -> Result<Vec<String>, End> {
        // An attacker in between could have inserted these bytes, to pass them off as the client's.
        if !self.received.is_empty() {
            let problem = "it continued without TLS after it had requested TLS";
            return Err(End::Insecure(problem.to_owned()));
        }
        self.send()?;
        let socket = self.wire.socket();
        let mut tls = terms.begin(socket)?;
        let names = loop {
            match tls.shake_hands()? {
                Progress::Send => self.wait(PollFlags::OUT)?,
                Progress::Receive => self.wait(PollFlags::IN)?,
                Progress::Done(names) => break names,
            }
        };
        self.wire = Wire::Tls { socket, tls };
        Ok(names)
    }

    fn send(&mut self) -> Result<(), End> {
        let out = std::mem::take(&mut self.out);
        let mut rest = &out[..];
        while !rest.is_empty() {
            match self.wire.send(&mut [IoSlice::new(rest)]) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) => self.wait_after(error, PollFlags::OUT)?,
            }
        }
        while self.wire.has_unsent() {
            self.wait(PollFlags::OUT)?;
            if let Err(error) = self.wire.flush() {
                self.wait_after(error, PollFlags::OUT)?;
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
            let mut slices = [IoSliceMut::new(&mut chunk[..room])];
            match self.wire.receive(&mut slices, RecvFlags::DONTWAIT) {
                Ok(0) => return Err(End::Gone),
                Ok(received) => {
                    self.received.extend_from_slice(&chunk[..received]);
                    return Ok(());
                }
                Err(error) => self.wait_after(error, PollFlags::IN)?,
            }
        }
    }

    /// Waits if the socket is merely not ready.
    fn wait_after(&self, error: Errno, flags: PollFlags) -> Result<(), End> {
        match (error, self.wire.problem()) {
            (Errno::AGAIN, _) => self.wait(flags),
            (Errno::INTR, _) => Ok(()),
            (_, Some(problem)) => Err(End::Insecure(problem.to_owned())),
            (_, None) => Err(End::Gone),
        }
    }

    fn wait(&self, flags: PollFlags) -> Result<(), End> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(End::TooSlow);
        }
        let timeout = Timespec::try_from(left).ok();
        let socket = PollFd::from_borrowed_fd(self.wire.socket(), flags);
        match poll(&mut [socket], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(_) => Err(End::Gone),
        }
    }
}
