//! One connection in its transmission phase: commands in flight and the thread that reads their
//! replies.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futae_engine::{IoBuf, IoError, IoErrorKind, StoreDone};

use super::error::ConnectError;
use super::order::{Body, Finish, Order};
use super::outbox::{Frame, Outbox, Urgency};
use super::socket::Socket;
use futae_nbd::client::ClientExport;
use futae_nbd::error::ErrorNumber;
use futae_nbd::export::TransmissionFlags;
use futae_nbd::extension::demote_header;
use futae_nbd::request::{Command, CommandFlags, RequestHeader};

/// With more commands than this in flight, the next one is left to the sender thread, so that many
/// are sent in one system call.
const INLINE_IN_FLIGHT_MAX: usize = 8;

/// The largest number of notices that the server has not answered. Further ones are dropped: a server may take its time for
/// each, and nobody waits for an answer.
pub(super) const NOTICES_MAX: usize = 4096;

/// What is left to the store's own thread.
pub(super) enum Errand {
    Refuse(Finish, IoError),
    Succeed(StoreDone, IoBuf),
    /// Commands, by cookie, to be sent over the next connection.
    Again(Vec<(u64, Order)>),
    /// A connection was lost.
    Lost(Arc<Session>),
    /// An attempt to connect ended.
    Connected(Box<Result<(Socket, ClientExport), ConnectError>>),
    /// The store was dropped.
    End,
}

/// A command in flight.
pub(super) struct Waiting {
    pub(super) order: Order,
    pub(super) failed: Option<IoError>,
    /// For a FLUSH: how many writes had been answered when it was sent.
    mark: u64,
    /// When it was sent over this connection.
    pub(super) sent: Instant,
}

struct Pending {
    by_cookie: HashMap<u64, Waiting>,
    /// Number of these that are notices.
    notices: usize,
    /// When the command was sent whose data is being received. It is not among the others meanwhile.
    receiving: Option<Instant>,
    /// Why the connection was lost, if it was.
    lost: Option<IoError>,
}

/// One connection.
pub(super) struct Session {
    /// The address, for messages.
    name: Arc<str>,
    /// The number of the connection of its store, counted from 1.
    pub(super) generation: u64,
    pub(super) export: ClientExport,
    pub(super) socket: Socket,
    pub(super) outbox: Outbox,
    /// How long callers wait for an answer, across lost connections. Zero: they wait indefinitely
    /// while the connection stands, and not at all after it is lost.
    timeout: Duration,
    pending: Mutex<Pending>,
    errands: Sender<Errand>,
    /// Answered writes that need a FLUSH to be durable, and the number of these that a FLUSH has
    /// covered or that no FLUSH over this connection can cover any more.
    written: AtomicU64,
    flushed: AtomicU64,
}

impl Session {
    /// The connection with number `generation`.
    pub(super) fn new(
        name: Arc<str>,
        generation: u64,
        socket: Socket,
        export: ClientExport,
        errands: Sender<Errand>,
        timeout: Duration,
    ) -> Self {
        let pending = Pending {
            by_cookie: HashMap::new(),
            notices: 0,
            receiving: None,
            lost: None,
        };
        Self {
            name,
            generation,
            export,
            socket,
            outbox: Outbox::new(),
            timeout,
            pending: Mutex::new(pending),
            errands,
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
        }
    }

    pub(super) fn has(&self, flag: TransmissionFlags) -> bool {
        self.export.flags.contains(flag)
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command. Its result arrives on a thread of the store, never on the caller's.
    pub(super) fn issue(&self, cookie: u64, mut order: Order) {
        if order.first_generation == 0 {
            order.first_generation = self.generation;
        }
        let header = RequestHeader {
            flags: order.flags,
            command: order.command,
            cookie,
            offset: order.offset,
            length_bytes: order.length,
        };
        let payload = match &order.body {
            Body::Write(data, range) => Some((Arc::clone(data), range.clone())),
            _ => None,
        };
        let mark = self.written.load(Ordering::Acquire);
        let mut pending = self.lock();
        if let Some(error) = pending.lost.clone() {
            drop(pending);
            if order.can_wait(self.timeout) {
                let _ = self.errands.send(Errand::Again(vec![(cookie, order)]));
                return;
            }
            return self.refuse(order.finish, error);
        }
        match pending.by_cookie.entry(cookie) {
            Entry::Occupied(_) => {
                drop(pending);
                let problem = format!("{}: request number {cookie} is in use already", self.name);
                return self.refuse(order.finish, IoError::new(IoErrorKind::Store, problem));
            }
            Entry::Vacant(free) => {
                let is_notice = order.is_notice();
                free.insert(Waiting {
                    order,
                    failed: None,
                    mark,
                    sent: Instant::now(),
                });
                pending.notices += usize::from(is_notice);
            }
        }
        let many = pending.by_cookie.len() > INLINE_IN_FLIGHT_MAX;
        drop(pending);
        let urgency = if many { Urgency::Soon } else { Urgency::Now };
        self.outbox.push(
            &self.socket,
            Frame {
                header: header.encode(),
                payload,
            },
            urgency,
        );
    }

    /// Passes an error to the store's own thread.
    pub(super) fn refuse(&self, finish: Finish, error: IoError) {
        // Without that thread the store was dropped, and no caller waits.
        let _ = self.errands.send(Errand::Refuse(finish, error));
    }

    /// Passes a success to the store's own thread.
    pub(super) fn succeed(&self, done: StoreDone, buffer: IoBuf) {
        let _ = self.errands.send(Errand::Succeed(done, buffer));
    }

    /// Demotes an evicted block, if the server accepts demotions.
    pub(super) fn demote(&self, cookie: u64, offset: u64, data: IoBuf) {
        let Some(terms) = self.export.demotion else {
            return;
        };
        let Ok(length) = u32::try_from(data.len()) else {
            return;
        };
        if terms
            .misfit(offset, length, self.export.size_bytes)
            .is_some()
        {
            return;
        }
        let header = demote_header(cookie, offset, length);
        let payload = Some((Arc::new(data), 0..length as usize));
        self.outbox
            .push(&self.socket, Frame { header, payload }, Urgency::Hint);
    }

    /// Ends the session: sends the queued frames, then DISC.
    pub(super) fn finish(&self) {
        let header = RequestHeader::new(Command::Disconnect, 0, 0, 0).encode();
        self.outbox.finish(Frame {
            header,
            payload: None,
        });
    }

    /// Whether answered writes have not been covered by a FLUSH.
    pub(super) fn has_unflushed_writes(&self) -> bool {
        self.written.load(Ordering::Acquire) > self.flushed.load(Ordering::Acquire)
    }

    /// As [`has_unflushed_writes`](Self::has_unflushed_writes), of a lost connection: true once for each such write, so
    /// that no loss is told twice.
    pub(super) fn take_unflushed_writes(&self) -> bool {
        let written = self.written.load(Ordering::Acquire);
        self.flushed.fetch_max(written, Ordering::AcqRel) < written
    }

    /// Writes answered over an earlier connection need a FLUSH over this one.
    pub(super) fn note_unflushed_write(&self) {
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    /// An error of this connection or its server.
    pub(super) fn error(&self, problem: &str) -> IoError {
        IoError::new(IoErrorKind::Store, format!("{}: {problem}", self.name))
    }

    /// Number of commands in flight.
    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.lock().by_cookie.len()
    }

    /// Takes a command out of those in flight.
    pub(super) fn take(&self, cookie: u64) -> Option<Waiting> {
        let mut pending = self.lock();
        let waiting = pending.by_cookie.remove(&cookie)?;
        pending.notices -= usize::from(waiting.order.is_notice());
        Some(waiting)
    }

    /// Puts back a command whose reply is incomplete.
    pub(super) fn keep(&self, cookie: u64, waiting: Waiting) {
        let mut pending = self.lock();
        pending.notices += usize::from(waiting.order.is_notice());
        pending.by_cookie.insert(cookie, waiting);
    }

    /// The rest of the data of a command that was taken out, sent at this time, has yet to arrive; none: it has.
    pub(super) fn receives(&self, sent: Option<Instant>) {
        self.lock().receiving = sent;
    }

    /// Whether the server has answered enough notices to be sent another one.
    pub(super) fn has_room_for_notice(&self) -> bool {
        self.lock().notices < NOTICES_MAX
    }

    /// The reply to a command is complete.
    pub(super) fn complete(&self, waiting: Waiting) {
        let Waiting {
            order,
            mut failed,
            mark,
            sent: _,
        } = waiting;
        let length = order.length as usize;
        match &order.body {
            Body::Read(_, covered) if !covered.is_whole(length) && failed.is_none() => {
                let sent = covered.bytes();
                let problem = format!("the server sent {sent} of {length} bytes");
                failed = Some(self.error(&problem));
            }
            Body::Status(found) if found.is_empty() && failed.is_none() => {
                failed = Some(self.error("the server sent no extents"));
            }
            _ => {}
        }
        if let Some(error) = failed {
            return order.finish.fail(error);
        }
        if order.command.writes() && !order.flags.contains(CommandFlags::FUA) {
            self.written.fetch_add(1, Ordering::AcqRel);
        } else if order.command == Command::Flush {
            self.flushed.fetch_max(mark, Ordering::AcqRel);
        }
        match (order.finish, order.body) {
            (Finish::Store(done), Body::Read(buffer, _)) => done(Ok(buffer)),
            (Finish::Store(done), Body::Write(data, range)) => {
                // Other parts of the same write, or the sender thread, may still hold the data.
                done(Ok(Arc::try_unwrap(data).unwrap_or_else(|data| {
                    IoBuf::copy_of(&data.as_slice()[range])
                })));
            }
            (Finish::Store(done) | Finish::Part(done), body) => {
                drop(body);
                done(Ok(IoBuf::new(0)));
            }
            (Finish::Extents(channel), Body::Status(found)) => {
                drop(channel.try_send(Ok(found.into_list())));
            }
            (Finish::Extents(_), _) | (Finish::Nobody, _) => {}
        }
    }

    /// The error for an error number from the server.
    pub(super) fn refused(&self, order: &Order, error: ErrorNumber, words: &[u8]) -> IoError {
        let kind = match error {
            ErrorNumber::NotPermitted => IoErrorKind::ReadOnly,
            ErrorNumber::NoSpace => IoErrorKind::NoSpace,
            ErrorNumber::NotSupported => IoErrorKind::Unsupported,
            _ => IoErrorKind::Store,
        };
        let Self { name, .. } = self;
        let Order {
            command,
            offset,
            length,
            ..
        } = order;
        let command = command.name();
        let mut message = format!("{name}: {command} of {length} bytes at {offset}: {error}");
        if !words.is_empty() {
            message.push_str(" (");
            message.extend(
                String::from_utf8_lossy(words)
                    .chars()
                    .filter(|c| !c.is_control()),
            );
            message.push(')');
        }
        IoError::new(kind, message)
    }

    /// The connection was lost: commands in flight and later ones fail.
    pub(super) fn lose(self: &Arc<Self>, problem: &str) {
        let mut pending = self.lock();
        // The thread that is told by the end of the socket does not know why.
        let error = pending.lost.get_or_insert_with(|| self.error(problem));
        let error = error.clone();
        let waiting = std::mem::take(&mut pending.by_cookie);
        pending.notices = 0;
        drop(pending);
        self.socket.shut_down();
        self.outbox.close();
        // Before any request fails, so that a caller that retries finds the reconnection under way.
        let _ = self.errands.send(Errand::Lost(Arc::clone(self)));
        let mut waiting: Vec<_> = waiting.into_iter().collect();
        waiting.sort_unstable_by_key(|(cookie, _)| *cookie);
        let mut again = Vec::new();
        for (cookie, waiting) in waiting {
            if waiting.order.can_wait(self.timeout) {
                again.push((cookie, waiting.order.anew()));
            } else {
                waiting.order.finish.fail(error.clone());
            }
        }
        if !again.is_empty() {
            // Without that thread the store was dropped, and no caller waits.
            let _ = self.errands.send(Errand::Again(again));
        }
    }

    /// Records why no new connection could be made.
    pub(super) fn explain(&self, error: &ConnectError) {
        let mut pending = self.lock();
        if pending.lost.is_some() {
            pending.lost = Some(IoError::new(IoErrorKind::Store, error.to_string()));
        }
    }

    /// Why the connection was lost.
    pub(super) fn why_lost(&self) -> String {
        let pending = self.lock();
        let why = pending.lost.as_ref().map(ToString::to_string);
        why.unwrap_or_else(|| self.name.to_string())
    }

    /// Whether the connection was lost.
    pub(super) fn is_lost(&self) -> bool {
        self.lock().lost.is_some()
    }

    /// Closes a connection on which an answer is overdue.
    pub(super) fn look_for_silence(self: &Arc<Self>) {
        let is_late = |sent: Instant| sent.elapsed() >= self.timeout;
        let is_silent = {
            let pending = self.lock();
            // A server may carry out a hint before it answers, and nobody waits for that.
            let commands = pending.by_cookie.values();
            let mut awaited = commands.filter(|waiting| !waiting.order.is_notice());
            let is_any_late = awaited.any(|waiting| is_late(waiting.sent))
                || pending.receiving.is_some_and(is_late);
            pending.lost.is_none() && is_any_late
        };
        if is_silent {
            let seconds = self.timeout.as_secs_f64();
            self.lose(&format!("the server has not answered for {seconds} s"));
        }
    }
}
