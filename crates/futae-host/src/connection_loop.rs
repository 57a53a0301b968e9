//! The transmission phase of one connection: requests to the cache in batches, replies out in
//! batches, and one wait for whichever comes first.
//!
//! A round sends ready replies, passes received requests to the cache, and receives more; the
//! thread sleeps only when none of these can make progress. With nothing under way, the receive
//! call itself is the sleep, so a client with one request at a time costs two system calls per
//! request; at greater depth, many requests share both.

mod sleep;
mod submit;

use crate::answer;
use crate::budget::{Account, Budget};
use crate::intake::{Arrived, Filled, Intake, Item, is_empty};
use crate::kept_clients::{Parting, Unread};
use crate::mailbox::{Completion, Mailbox, Tag, TagKind};
use crate::outbox::{Frame, Outbox};
use crate::quota::Quota;
use crate::rate::{Rate, Turn};
use crate::requests::{Gathered, asked, carried, memory_of, needs_cache};
use crate::traffic::TrafficCounters;
use crate::wire::Wire;
use futae_engine::{
    Asked, ClientId, Demotion, Ended, Engine, Extent, IoBuf, IoError, LatencyNotes, Operation,
};
use futae_nbd::{Command, CommandFlags, RequestHeader, RequestRules, WireError};
use futae_policy::VolumeId;
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The largest number of queries for extents that one connection may have under way: a volume
/// answers them one by one.
const ASKING_MAX: usize = 4;

/// Limits on what one connection has under way, including replies that have not been sent. The
/// request that exceeds a limit is the last one read until others are done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) requests: usize,
    pub(crate) bytes: u64,
    /// How long a disconnecting peer may take to receive its remaining replies.
    pub(crate) linger: Duration,
    /// How long a peer may move nothing while others wait for the memory that it holds.
    pub(crate) stall: Duration,
}

/// The client and the export of the requests.
pub(crate) struct Session {
    pub(crate) engine: Arc<Engine>,
    pub(crate) volume: VolumeId,
    pub(crate) client: ClientId,
    /// The export's number, for the budget.
    pub(crate) export: usize,
    /// The limit on requests under way of all connections of the export.
    pub(crate) quota: Option<Arc<Quota>>,
    /// The export's limits per second.
    pub(crate) rate: Arc<Rate>,
    pub(crate) rules: RequestRules,
}

/// How a connection ended that broke no rules.
pub(crate) enum Left {
    /// The peer has disconnected.
    Gone,
    /// The server stops, and another may go on from here: no request is under way.
    Parted(Unread),
}

/// The error if the peer broke the protocol. A disconnected peer is no error.
pub(crate) type Ending = Result<Left, WireError>;

pub(crate) struct ConnectionLoop<'a, 'socket> {
    wire: &'a mut Wire<'socket>,
    session: Session,
    limits: Limits,
    traffic: &'a TrafficCounters,
    mailbox: Arc<Mailbox>,
    intake: Intake,
    outbox: Outbox,
    batch: Gathered,
    /// Demotions behind the batch: the requests of the batch get their replies first.
    demotions: Gathered,
    completions: Vec<Completion>,
    /// Reads that were answered at once.
    answered: Vec<Completion>,
    /// Number of requests in the cache.
    in_flight: usize,
    /// Number of those that query the store for extents.
    asking: usize,
    /// The next request has arrived, and there is no room for it yet.
    is_held_back: bool,
    /// The next request's turn under the export's rates.
    turn: Turn,
    /// Number of requests in the cache, plus replies that have not been sent.
    held_requests: usize,
    /// The memory that these hold.
    account: Account,
    arrivals: u64,
    latencies: LatencyNotes,
    /// When the requests of the batch were received.
    taken: Instant,
    reading: bool,
    /// The last request came soon after the reply before it.
    follows_closely: bool,
    goodbye: Option<Instant>,
    /// Tells it to stop between two requests, if its client can be kept.
    parting: Option<&'a Parting>,
    /// It has been told to.
    parts: bool,
    ending: Result<(), WireError>,
}

impl<'a, 'socket> ConnectionLoop<'a, 'socket> {
    pub(crate) fn new(
        wire: &'a mut Wire<'socket>,
        session: Session,
        unread: &Unread,
        limits: Limits,
        (budget, parting): (&Arc<Budget>, Option<&'a Parting>),
        traffic: &'a TrafficCounters,
    ) -> io::Result<Self> {
        let mailbox = Arc::new(Mailbox::new()?);
        let turn = Turn::new(&session.rate, &mailbox);
        Ok(Self {
            account: Account::new(budget, session.export, &mailbox),
            latencies: LatencyNotes::new(session.engine.latencies(session.volume)),
            taken: Instant::now(),
            wire,
            session,
            limits,
            traffic,
            mailbox,
            intake: Intake::after(unread, budget.intake_bytes()),
            outbox: Outbox::default(),
            batch: Gathered::default(),
            demotions: Gathered::default(),
            completions: Vec::new(),
            answered: Vec::new(),
            in_flight: 0,
            asking: 0,
            is_held_back: false,
            turn,
            held_requests: 0,
            arrivals: 0,
            reading: true,
            follows_closely: false,
            goodbye: None,
            parting,
            parts: false,
            ending: Ok(()),
        })
    }

    /// Serves until the peer has disconnected and the cache has completed its requests.
    pub(crate) fn run(mut self) -> Ending {
        loop {
            self.part();
            self.collect();
            self.send();
            if self.take_requests() {
                continue;
            }
            let is_done = self.in_flight == 0 && !self.has_unsent();
            if !self.reading && is_done {
                debug_assert_eq!(self.account.held(), 0, "no request is left");
                return self.ending.map(|()| Left::Gone);
            }
            if self.parts && is_done {
                return Ok(Left::Parted(self.intake.into_unread()));
            }
            if self.may_receive() && self.receive() {
                continue;
            }
            self.sleep();
        }
    }

    /// Whether replies remain to be sent.
    fn has_unsent(&self) -> bool {
        !self.outbox.is_empty() || self.wire.has_unsent()
    }

    fn has_room(&self) -> bool {
        self.held_requests < self.limits.requests && self.account.held() < self.limits.bytes
    }

    fn may_receive(&self) -> bool {
        self.reading && !self.parts && self.has_room() && !self.is_held_back
    }

    /// Begins no further request once the server stops, if its client can be kept.
    fn part(&mut self) {
        if !self.parts && self.parting.is_some_and(Parting::has_begun) {
            self.parts = true;
            self.account.withdraw();
            self.goodbye.get_or_insert_with(Instant::now);
        }
    }

    fn stop_reading(&mut self) {
        self.reading = false;
        self.account.give_back(self.intake.give_up());
        self.account.withdraw();
        self.turn.give_up();
        self.goodbye.get_or_insert_with(Instant::now);
    }

    /// The peer has disconnected: no reply can be sent, but the cache still completes its requests.
    fn lose_peer(&mut self) {
        self.stop_reading();
        // Half a reply may have been sent; nothing may follow it.
        let _ = shutdown(self.wire.socket(), Shutdown::Both);
        let (held_bytes, untold) = self.outbox.clear();
        self.account.give_back(held_bytes);
        self.held_requests = self.in_flight;
        if let Some(error) = untold {
            // A store reports lost data once. The peer may connect again and flush again, or has done so already.
            let Session {
                engine,
                volume,
                client,
                ..
            } = &self.session;
            engine.pass_on_failure(*volume, *client, &error);
        }
    }

    /// Turns completed requests into replies.
    fn collect(&mut self) {
        if self.in_flight == 0 {
            return;
        }
        let mut completions = std::mem::take(&mut self.completions);
        self.mailbox.take(&mut completions);
        if !completions.is_empty() {
            self.taken = Instant::now();
        }
        for completion in completions.drain(..) {
            self.note(&completion);
            self.finish(completion);
        }
        self.latencies.hand_on();
        self.completions = completions;
        self.submit();
    }

    /// Records the latency of a completed request.
    fn note(&mut self, done: &Completion) {
        let tag = &done.tag;
        let is_over = tag.kind != TagKind::ThenFlush || done.result.is_err();
        if is_over && tag.kind != TagKind::Silent {
            let took = self.taken.saturating_duration_since(tag.taken);
            self.latencies.note(tag.asked, took, 1);
            if let Some(watcher) = self.latencies.watcher() {
                watcher.ended(&Ended {
                    kind: tag.asked.name(),
                    requests: 1,
                    bytes: tag.carried_bytes,
                    // It was not answered at once.
                    hit: (tag.asked == Asked::Read).then_some(false),
                    failed: done.result.is_err(),
                    took,
                });
            }
        }
    }

    /// Turns a completed request into its reply, or into the flush that has to come first.
    fn finish(&mut self, completion: Completion) {
        self.in_flight -= 1;
        if completion.tag.kind == TagKind::Encoded {
            self.asking -= 1;
        }
        if completion.tag.kind == TagKind::ThenFlush && completion.result.is_ok() {
            let tag = Tag {
                kind: TagKind::Plain,
                ..completion.tag
            };
            return self.enqueue(self.arrivals, tag, Operation::Flush);
        }
        if let Some(quota) = &self.session.quota {
            quota.give_back();
        }
        let held_bytes = completion.tag.held_bytes;
        let failure = completion.result.as_ref().err();
        let failure = failure.filter(|_| completion.tag.is_promise).cloned();
        match answer::completed(completion, self.session.rules.structured_replies) {
            Some(frame) => self.outbox.push(frame.telling(failure)),
            None => {
                self.held_requests = self.held_requests.saturating_sub(1);
                self.account.give_back(held_bytes);
            }
        }
    }

    fn send(&mut self) {
        if !self.has_unsent() {
            return;
        }
        match self.outbox.send(self.wire) {
            Ok(sent) => {
                self.held_requests = self.held_requests.saturating_sub(sent.replies as usize);
                self.account.moved(sent.bytes);
                self.account.give_back(sent.released_bytes);
                self.traffic.replies.fetch_add(sent.replies, Relaxed);
                self.traffic.sends.fetch_add(sent.calls, Relaxed);
            }
            Err(_) => self.lose_peer(),
        }
    }

    /// Passes at most a batch of received requests to the cache. Returns whether there were any.
    fn take_requests(&mut self) -> bool {
        let mut taken = 0;
        while self.reading && !self.parts && self.has_room() && !self.batch.is_full() {
            let (account, is_held_back) = (&mut self.account, &mut self.is_held_back);
            let may_ask = self.asking < ASKING_MAX;
            let (quota, mailbox) = (self.session.quota.as_deref(), &self.mailbox);
            let (turn, engine) = (&mut self.turn, &self.session.engine);
            *is_held_back = false;
            let admits = |header: &RequestHeader, arrived: Arrived| {
                let fits = may_ask || header.command != Command::BlockStatus;
                let counts = needs_cache(header);
                // A place is for a request that the cache can carry out now: a client that never
                // sends the rest of a payload holds none.
                let quota = quota.filter(|_| counts && arrived != Arrived::Header);
                let takes = || quota.is_none_or(|quota| quota.take(mailbox));
                // No memory is reserved for a request that waits for its turn. One whose payload
                // has arrived has both.
                let is_new = arrived != Arrived::Payload;
                let mut has_turn = || !is_new || !counts || turn.admits(carried(header));
                let mut admits = fits && has_turn() && takes();
                if !admits {
                    account.step_aside();
                }
                if admits && is_new && !account.take(memory_of(header, engine)) {
                    admits = false;
                    quota.inspect(|quota| quota.give_back());
                }
                if admits && counts && arrived != Arrived::Header {
                    turn.used();
                }
                *is_held_back = !admits;
                admits
            };
            match self.intake.next(&self.session.rules, admits) {
                Ok(Some(item)) => {
                    if taken == 0 {
                        self.taken = Instant::now();
                    }
                    taken += 1;
                    self.take(item);
                }
                Ok(None) => break,
                Err(error) => {
                    self.ending = Err(error);
                    self.stop_reading();
                }
            }
        }
        self.traffic.requests.fetch_add(taken, Relaxed);
        self.submit();
        taken > 0
    }

    fn take(&mut self, item: Item) {
        match item {
            Item::Request(header, payload) => self.carry_out(&header, payload),
            Item::Refused(header, error, why) => {
                let structured = self.session.rules.structured_replies;
                self.traffic.refused_requests.fetch_add(1, Relaxed);
                self.reply(answer::failure(header.cookie, error, why, structured, 0));
            }
            Item::Ignored => {
                self.traffic.misshapen_demotions.fetch_add(1, Relaxed);
            }
        }
    }

    fn reply(&mut self, frame: Frame) {
        self.held_requests += 1;
        self.outbox.push(frame);
    }

    fn carry_out(&mut self, header: &RequestHeader, payload: Option<IoBuf>) {
        self.arrivals += 1;
        if is_empty(header) {
            return self.answer_empty(header);
        }
        let (offset, length) = (header.offset, u64::from(header.length_bytes));
        let fua = header.flags.contains(CommandFlags::FUA);
        let no_hole = header.flags.contains(CommandFlags::NO_HOLE);
        let data = payload.unwrap_or_else(|| IoBuf::new(0));
        let (kind, operation) = match header.command {
            Command::Read => (TagKind::Read, Operation::Read { offset, length }),
            Command::Write => (TagKind::Plain, Operation::Write { offset, data, fua }),
            Command::Flush => (TagKind::Plain, Operation::Flush),
            Command::Trim if fua => (TagKind::ThenFlush, Operation::Trim { offset, length }),
            Command::Trim => (TagKind::Plain, Operation::Trim { offset, length }),
            Command::Cache => (TagKind::Plain, Operation::Notice { offset, length }),
            Command::WriteZeroes => (
                TagKind::Plain,
                Operation::WriteZeroes {
                    offset,
                    length,
                    fua,
                    no_hole,
                },
            ),
            Command::Demote => (
                TagKind::Silent,
                Operation::Demote(Demotion::new(offset, data)),
            ),
            Command::BlockStatus => return self.block_status(header),
            // The protocol checks let no other command through.
            Command::Disconnect | Command::Unknown(_) => return self.stop_reading(),
        };
        let tag = self.tag(header, kind, fua || header.command == Command::Flush);
        self.held_requests += 1;
        let agreed = self.session.rules.demotion.is_some();
        self.enqueue(
            if agreed { header.cookie } else { self.arrivals },
            tag,
            operation,
        );
    }

    fn tag(&self, header: &RequestHeader, kind: TagKind, is_promise: bool) -> Tag {
        Tag {
            cookie: header.cookie,
            offset: header.offset,
            held_bytes: memory_of(header, &self.session.engine),
            carried_bytes: carried(header),
            kind,
            asked: asked(header.command),
            is_promise,
            taken: self.taken,
        }
    }

    fn answer_empty(&mut self, header: &RequestHeader) {
        let structured = self.session.rules.structured_replies;
        let cookie = header.cookie;
        match header.command {
            Command::Read => self.reply(answer::empty_read(cookie, structured)),
            Command::BlockStatus => {
                let error = futae_nbd::ErrorNumber::Invalid;
                let why = "a block status needs a range";
                self.reply(answer::failure(cookie, error, why, structured, 0));
            }
            Command::Demote => {}
            _ => self.reply(answer::success(cookie, 0)),
        }
    }

    /// Queries the store on a thread of the cache, since the answer may take long.
    fn block_status(&mut self, header: &RequestHeader) {
        let tag = self.tag(header, TagKind::Encoded, false);
        let (length, volume) = (header.length_bytes, self.session.volume);
        let only_first = header.flags.contains(CommandFlags::REQ_ONE);
        let range = u64::from(length).min(answer::BLOCK_STATUS_RANGE);
        let mailbox = Arc::clone(&self.mailbox);
        let done = Box::new(move |extents: Result<Vec<Extent>, IoError>| {
            let result = extents
                .and_then(|extents| answer::block_status(tag.cookie, &extents, length, only_first));
            mailbox.put(Completion { tag, result });
        });
        self.held_requests += 1;
        self.in_flight += 1;
        self.asking += 1;
        let engine = &self.session.engine;
        engine.extents_later(volume, header.offset, range, done);
    }

    /// Receives. Returns whether that changed anything. Waits if there is nothing else to wait for.
    fn receive(&mut self) -> bool {
        let idle = self.in_flight == 0 && !self.has_unsent();
        let filled = if idle {
            self.wait_for_request()
        } else {
            self.intake.fill(self.wire)
        };
        match filled {
            Ok(Filled::Bytes(count)) => {
                self.account.moved(count as u64);
                true
            }
            Ok(Filled::WouldBlock) => false,
            Ok(Filled::End) => {
                self.stop_reading();
                true
            }
            Err(_) => {
                self.lose_peer();
                true
            }
        }
    }
}
