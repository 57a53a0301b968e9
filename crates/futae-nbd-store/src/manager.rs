//! The store's own thread. It delivers results that are known at once, so that they never arrive on
//! the caller's thread, and it reconnects after a connection was lost.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

use super::error::ConnectError;
use super::open::{check_sizes, open, step};
use super::order::{Finish, Order};
use super::pace::Pace;
use super::receiver;
use super::session::{Errand, Session};
use super::shared::{LOST_WRITES, Shared};
use super::socket::Socket;
use futae_nbd::client::ClientExport;
use futae_nbd::export::TransmissionFlags;
use futae_nbd::request::Command;

/// Interval of the check for requests that have waited too long.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Runs errands until the store is dropped.
pub(super) fn run(shared: &Arc<Shared>, errands: &Receiver<Errand>) {
    let mut next_attempt: Option<Instant> = None;
    let mut pace = Pace::new(Instant::now());
    // From the loss of a connection until there is another.
    let mut is_connecting = false;
    let mut again: Vec<(u64, Order)> = Vec::new();
    let mut outage: Option<Outage> = None;
    loop {
        let looks = (!shared.timeout.is_zero()).then(|| Instant::now() + LOOK_INTERVAL);
        let errand = match next_attempt.into_iter().chain(looks).min() {
            None => errands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => errands.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        if looks.is_some() {
            shared.session().look_for_silence();
            again = expire(shared, again);
        }
        match errand {
            Ok(Errand::Refuse(finish, error)) => finish.fail(error),
            Ok(Errand::Succeed(done, buffer)) => done(Ok(buffer)),
            Ok(Errand::Again(orders)) => {
                again.extend(orders);
                send_again(shared, &mut again);
            }
            Ok(Errand::Lost(session)) => {
                // Both threads of a connection may report its loss.
                let current = shared.session();
                let is_current = session.generation == current.generation;
                if !is_current {
                    // It may have taken in an answer after it was given up.
                    hand_over_unflushed(shared, &session, &current);
                }
                if !is_current || is_connecting {
                    continue;
                }
                is_connecting = true;
                next_attempt = Some(pace.lost(Instant::now()));
                if !session.outbox.is_ending() {
                    outage = Some(Outage::begin(shared, &session));
                }
            }
            Ok(Errand::Connected(outcome)) => {
                let accepted = outcome.and_then(|(socket, export)| accept(shared, socket, export));
                if let Err(error) = &accepted {
                    shared.session().explain(error);
                    if let Some(outage) = &mut outage {
                        outage.go_on(shared, error);
                    }
                    next_attempt = Some(pace.failed());
                } else {
                    is_connecting = false;
                    if let Some(outage) = outage.take() {
                        outage.end(shared);
                    }
                    send_again(shared, &mut again);
                }
            }
            Err(RecvTimeoutError::Timeout) if next_attempt.is_none_or(|at| at > Instant::now()) => {
            }
            Err(RecvTimeoutError::Timeout) => {
                next_attempt = None;
                pace.begin(Instant::now());
                attempt(shared);
            }
            Ok(Errand::End) | Err(RecvTimeoutError::Disconnected) => {
                // There may be another connection since the store was dropped.
                return end(&shared.session(), step(shared.timeout), errands);
            }
        }
    }
}

/// Ends the last connection, also if the server takes nothing more.
fn end(session: &Session, patience: Duration, errands: &Receiver<Errand>) {
    session.finish();
    let deadline = Instant::now() + patience;
    while !session.is_lost() {
        let left = deadline.saturating_duration_since(Instant::now());
        // The loss of the connection is one of them. Nobody waits for any other.
        if errands.recv_timeout(left).is_err() {
            break;
        }
    }
    session.socket.shut_down();
}

/// A time without a connection, for the log.
struct Outage {
    since: Instant,
    /// The reason, logged once.
    said: String,
}

impl Outage {
    fn begin(shared: &Shared, session: &Session) -> Self {
        let (name, why) = (&shared.name, session.why_lost());
        let meanwhile = match shared.timeout {
            Duration::ZERO => "requests fail meanwhile".to_owned(),
            timeout => format!("requests wait for {} s", timeout.as_secs_f64()),
        };
        warn!(
            store = %name,
            "{why}; {meanwhile}; a new connection is tried at once, and then at least every 8 s"
        );
        Self {
            since: Instant::now(),
            said: String::new(),
        }
    }

    fn go_on(&mut self, shared: &Shared, error: &ConnectError) {
        if self.said != error.problem {
            warn!(store = %shared.name, "cannot connect again: {error}");
            self.said.clone_from(&error.problem);
        }
    }

    fn end(self, shared: &Shared) {
        let (name, seconds) = (&shared.name, self.since.elapsed().as_secs_f64());
        info!(store = %name, seconds, "{name}: connected again after {seconds:.1} s");
    }
}

/// Sends the waiting commands, if there is a connection. Each FLUSH from before a loss of writes fails, even if another
/// one has told the loss: a success would promise that the lost writes are stable.
fn send_again(shared: &Arc<Shared>, again: &mut Vec<(u64, Order)>) {
    let session = shared.session();
    if session.is_lost() {
        return;
    }
    let lost_before = shared.lost_writes_before();
    for (cookie, order) in again.drain(..) {
        if order.command == Command::Flush && order.first_generation < lost_before {
            // The FLUSH that is a part of a forced write fails that write, and tells nothing of the others.
            if matches!(order.finish, Finish::Store(_)) {
                shared.take_lost_writes();
            }
            order.finish.fail(session.error(LOST_WRITES));
        } else {
            session.issue(cookie, order);
        }
    }
}

/// Fails commands that have waited too long; returns the others.
fn expire(shared: &Arc<Shared>, again: Vec<(u64, Order)>) -> Vec<(u64, Order)> {
    let (waiting, late): (Vec<_>, Vec<_>) = again
        .into_iter()
        .partition(|(_, order)| order.can_wait(shared.timeout));
    for (_, order) in late {
        let seconds = shared.timeout.as_secs_f64();
        let problem = format!("no connection to the server for {seconds} s");
        order.finish.fail(shared.session().error(&problem));
    }
    waiting
}

/// Tries to connect on another thread, since that can take many seconds.
fn attempt(shared: &Arc<Shared>) {
    let (uri, wish, errands) = (shared.uri.clone(), shared.wish, shared.errands.clone());
    let timeout = shared.timeout;
    let work = move || {
        let outcome = open(&uri, &wish, timeout);
        // If the send fails, the store was dropped, and the connection is dropped with it.
        let _ = errands.send(Errand::Connected(Box::new(outcome)));
    };
    if let Err(error) = thread::Builder::new()
        .name("futae-nbd-open".into())
        .spawn(work)
    {
        let outcome = Err(shared.connect_error(format!("cannot start a thread: {error}")));
        let _ = shared.errands.send(Errand::Connected(Box::new(outcome)));
    }
}

/// Adopts a new connection if it leads to the same volume.
fn accept(shared: &Shared, socket: Socket, export: ClientExport) -> Result<(), ConnectError> {
    if export.size_bytes != shared.size_bytes {
        let problem = format!(
            "the export has {} bytes now, not {}; start again to use it",
            export.size_bytes, shared.size_bytes
        );
        return Err(shared.connect_error(problem));
    }
    let identity = export.identity.map(|identity| identity.volume);
    if shared.identity.is_some() && identity != shared.identity {
        let problem = "the export is another volume now, so nothing is read from it or written to \
                       it; serve the volume of before under this address, or start again to use \
                       the new one";
        return Err(shared.connect_error(problem.into()));
    }
    check_sizes(&export).map_err(|problem| shared.connect_error(problem))?;
    if export.flags.contains(TransmissionFlags::READ_ONLY) && !shared.read_only {
        return Err(shared.connect_error("the export is read-only now".into()));
    }
    let timeout = shared.timeout;
    let last = shared.session();
    let generation = last.generation + 1;
    let session = start(
        &shared.name,
        generation,
        &shared.errands,
        socket,
        export,
        timeout,
    )?;
    // Before anything is sent over it: a FLUSH over the new connection must know of what was lost.
    hand_over_unflushed(shared, &last, &session);
    shared.replace(session);
    Ok(())
}

/// Decides what became of the writes that were answered over a lost connection and that no FLUSH has covered. A server
/// that ran all the time still has them, and a FLUSH over the new connection makes them stable. Any other may have lost
/// them, for good.
fn hand_over_unflushed(shared: &Shared, lost: &Session, new: &Session) {
    if !lost.take_unflushed_writes() {
        return;
    }
    let identity = new.export.identity;
    let is_same_run = identity.is_some() && identity == lost.export.identity;
    if is_same_run {
        new.note_unflushed_write();
    } else {
        shared.note_lost_writes(new.generation);
    }
}

/// Starts the two threads of a connection.
pub(super) fn start(
    name: &Arc<str>,
    generation: u64,
    errands: &Sender<Errand>,
    socket: Socket,
    export: ClientExport,
    timeout: Duration,
) -> Result<Arc<Session>, ConnectError> {
    let session = Arc::new(Session::new(
        Arc::clone(name),
        generation,
        socket,
        export,
        errands.clone(),
        timeout,
    ));
    let spawn = |thread: &str, work: Box<dyn FnOnce() + Send>| {
        let thread = thread::Builder::new().name(thread.into()).spawn(work);
        thread.map_err(|error| ConnectError::new(name, format!("cannot start a thread: {error}")))
    };
    let sending = Arc::clone(&session);
    spawn(
        "futae-nbd-send",
        Box::new(move || sending.outbox.run(&sending.socket)),
    )?;
    let receiving = Arc::clone(&session);
    let receiving = spawn(
        "futae-nbd-recv",
        Box::new(move || receiver::run(&receiving)),
    );
    if receiving.is_err() {
        session.outbox.close();
    }
    receiving.map(|_| session)
}
