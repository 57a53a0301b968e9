//! The transmission phase of one connection: requests to the cache in batches, replies out in
//! batches, and one wait for whichever comes first.
//!
//! A round sends ready replies, passes received requests to the cache, and receives more; the
//! thread sleeps only when none of these can make progress. With nothing under way, the receive
//! call itself is the sleep, so a client with one request at a time costs two system calls per
//! request; at greater depth, many requests share both.

mod carry_out;
mod sleep;
mod submit;

use crate::answer;
use crate::budget::{Account, Budget};
use crate::intake::{Arrived, Filled, Intake};
use crate::kept_clients::{Parting, Unread};
use crate::mailbox::{Completion, Mailbox, Tag, TagKind};
use crate::outbox::{Outbox, Sent};
use crate::quota::Quota;
use crate::rate::{Rate, Turn};
use crate::requests::{Gathered, carried, memory_of, needs_cache};
use crate::traffic::TrafficCounters;
use crate::wire::Wire;
use futae_engine::{Asked, ClientId, Ended, Engine, LatencyNotes, Operation};
use futae_nbd::{Command, RequestHeader, RequestRules, WireError};
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
        if let Some(header) = self.intake.give_up() {
            let held_bytes = memory_of(&header, &self.session.engine);
            self.account.give_back(held_bytes);
        }
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
        let mut sent = Sent::default();
        let ended = self.outbox.send(self.wire, &mut sent);
        self.held_requests = self.held_requests.saturating_sub(sent.replies as usize);
        self.account.moved(sent.bytes);
        self.account.give_back(sent.released_bytes);
        self.traffic.replies.fetch_add(sent.replies, Relaxed);
        self.traffic.sends.fetch_add(sent.calls, Relaxed);
        if ended.is_err() {
            self.lose_peer();
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
