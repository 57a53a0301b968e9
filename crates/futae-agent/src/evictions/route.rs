//! Which way evicted pages go: read in place, else by a channel disk, else told of without their data.

use super::budget::{Budget, thread_time};
use super::channel::Channel;
use super::in_place::InPlace;
use super::withheld::{Reason, Withheld};
use crate::args::Checked;
use crate::extents::{Pages, Places};
use crate::probe::{Copies, Probe};
use crate::ring::Record;
use crate::sink::Destination;
use futae_agent_protocol::PAGE_BYTES;
use futae_agent_protocol::evicted_pages::EvictedPage;
use futae_agent_protocol::in_place::{RingAnswer, RingOffer};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long the ring of copied pages is left alone: while pages come, and while none do.
const DELAY_BUSY: Duration = Duration::from_millis(2);
const DELAY_IDLE: Duration = Duration::from_millis(20);
/// Batches sent, or pages told of, before the counters and the connection get their turn.
const BATCHES_AT_ONCE: usize = 64;
const PAGES_AT_ONCE: usize = 4096;
/// The agent's priority (nice) while it has pages to see to: the ring fills up while somebody else runs. What it may take
/// of the processors is bounded by its budget.
const PRIORITY: i32 = -10;
/// How long no pages are copied after the channel has failed.
const CHANNEL_PAUSE: Duration = Duration::from_secs(1);
/// How long a way is the one that is left before it is logged: the host's answer may be on its way.
const WAY_SETTLES: Duration = Duration::from_secs(5);

/// Which way pages go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    InPlace,
    Channel,
    None,
}

/// The way of evicted pages to the host.
pub struct Route {
    copies: Copies,
    in_place: Option<InPlace>,
    channel: Option<Channel>,
    budget: Budget,
    /// Processor time that the agent has spent on them.
    spent: Duration,
    /// Whether the last look found any.
    is_busy: bool,
    /// Why the programs do not copy pages; none if they do.
    held_back: Option<Reason>,
    withheld: Withheld,
    /// The way that was logged last, and since when it is another one.
    logged_way: Option<Way>,
    other_way_since: Option<Instant>,
    /// No pages are copied until then: the channel has failed.
    failed_until: Option<Instant>,
}

/// What came of a look at the ring.
#[derive(Default)]
pub struct Sent {
    /// Pages that are to be told of without their data.
    pub left: Vec<Pages>,
    /// Pages without a place on a disk.
    pub homeless: u64,
}

impl Route {
    /// The ways that there are, if evicted pages are wanted and any way can be had.
    pub fn open(args: &Checked, probe: &mut Probe, run: u64) -> Option<Self> {
        if !args.evictions {
            return None;
        }
        let no_way = |probe: &mut Probe, why: &str| {
            warn!("evicted pages are sent without their data: {why}");
            probe.hold_back(true);
        };
        let mut copies = match probe.take_copies() {
            Ok(copies) => copies,
            Err(why) => {
                no_way(probe, &why);
                return None;
            }
        };
        // Nobody answers on standard output.
        let table = copies.table.take();
        let table = table.filter(|_| args.destination != Destination::Output);
        let in_place = table.and_then(|table| match InPlace::new(table, &copies.ring, run) {
            Ok(in_place) => Some(in_place),
            Err(why) => {
                info!("evicted pages cannot be read in this machine's memory: {why}");
                None
            }
        });
        let channel = match Channel::open(args.channel.as_deref(), run) {
            Ok(channel) => Some(channel),
            // A channel that is named has to be there.
            Err(why) if args.channel.is_some() || in_place.is_none() => {
                if in_place.is_none() {
                    no_way(probe, &format!("{why:#}"));
                    return None;
                }
                warn!("the channel for evicted pages: {why:#}");
                None
            }
            Err(_) => None,
        };
        // Without the privilege it does what it can.
        let _ = rustix::process::setpriority_process(None, PRIORITY);
        Some(Self {
            copies,
            in_place,
            channel,
            budget: Budget::new(args.evictions_share),
            spent: Duration::ZERO,
            is_busy: false,
            held_back: None,
            withheld: Withheld::new(args.evictions_share),
            logged_way: None,
            other_way_since: None,
            failed_until: None,
        })
    }

    /// How long the ring may be left alone.
    #[must_use]
    pub fn delay(&self) -> Duration {
        let waits = self.in_place.as_ref().is_some_and(|one| !one.is_idle());
        if self.is_busy || waits {
            DELAY_BUSY
        } else {
            DELAY_IDLE
        }
    }

    /// Whether answers of the host are of use.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.in_place.is_some()
    }

    /// A connection to the host has begun or ended.
    pub fn connected(&mut self) {
        if let Some(in_place) = &mut self.in_place {
            in_place.connected();
        }
    }

    /// What to tell the host, if it is time to.
    pub fn offer(&mut self) -> Option<RingOffer> {
        self.in_place.as_mut()?.offer(Instant::now())
    }

    /// Takes what the host says.
    pub fn hear(&mut self, answer: &RingAnswer) {
        if let Some(in_place) = &mut self.in_place {
            in_place.hear(answer, &self.copies.ring, Instant::now());
        }
    }

    /// Sends the pages that were copied, and sees to the budget.
    pub fn send(&mut self, probe: &mut Probe, places: &mut Places) -> Sent {
        let (begin, mut sent) = (thread_time(), Sent::default());
        self.is_busy = false;
        if let Some(in_place) = &mut self.in_place {
            in_place.expire(&self.copies.ring, Instant::now(), &mut sent.left);
        }
        match self.way() {
            Way::InPlace => self.tell(places, &mut sent),
            Way::Channel => self.write(places, &mut sent),
            Way::None => {
                // What was copied while there was a way.
                while let Some((pages, _)) = self.copies.next_page() {
                    sent.left.push(pages);
                }
                self.copies.ring.release_all();
            }
        }
        self.spent += thread_time().saturating_sub(begin);
        let now = Instant::now();
        let (without_data, copy_ns) = probe.copy_counts();
        let spent = self.spent + Duration::from_nanos(copy_ns);
        if let Some(in_place) = &self.in_place {
            in_place.note_cost(spent);
        }
        self.failed_until = self.failed_until.filter(|until| now < *until);
        if let Some(line) = self.withheld.note(without_data, self.held_back, now) {
            info!("{line}");
        }
        let is_within_budget = self.budget.allows(spent, now);
        let holds = if self.way() == Way::None {
            Some(Reason::NoWay)
        } else if self.failed_until.is_some() {
            Some(Reason::ChannelFailed)
        } else if is_within_budget {
            None
        } else {
            Some(Reason::Budget)
        };
        if holds.is_some() != self.held_back.is_some() {
            probe.hold_back(holds.is_some());
        }
        self.held_back = holds;
        sent
    }

    fn way(&self) -> Way {
        if self.in_place.as_ref().is_some_and(InPlace::is_read) {
            Way::InPlace
        } else if self.channel.is_some() {
            Way::Channel
        } else {
            Way::None
        }
    }

    /// Logs the way that pages go where the host does not read them in place, once it has had the time to.
    pub fn log_way(&mut self) {
        let (way, now) = (self.way(), Instant::now());
        if way == Way::InPlace {
            // That was logged when the host began.
            self.logged_way = Some(way);
        }
        if self.logged_way == Some(way) {
            self.other_way_since = None;
            return;
        }
        let since = *self.other_way_since.get_or_insert(now);
        if now.duration_since(since) < WAY_SETTLES {
            return;
        }
        self.logged_way = Some(way);
        match &self.channel {
            Some(channel) => {
                let path = channel.path().display();
                info!("evicted pages go to the host by the channel disk {path}");
            }
            None => warn!(
                "evicted pages are sent without their data: the host does not read them in this machine's memory, and \
                 no disk of this machine is a channel (the export EXPORT.evictions of futae serve --evictions-disk)"
            ),
        }
    }

    /// Tells in the table which pages are where in the ring.
    fn tell(&mut self, places: &mut Places, sent: &mut Sent) {
        let (Some(in_place), now) = (&mut self.in_place, Instant::now()) else {
            return;
        };
        for _ in 0..PAGES_AT_ONCE {
            if !in_place.has_room() {
                return;
            }
            let Some((pages, record)) = self.copies.next_page() else {
                break;
            };
            self.is_busy = true;
            match place_of(pages, places) {
                Some(page) => {
                    let data = self.copies.data_at(&record);
                    in_place.put((pages, page), (data, record.end), now);
                }
                None => sent.homeless += 1,
            }
        }
        if in_place.is_idle() {
            // All that was looked at has no place on a disk.
            self.copies.ring.release_all();
        }
    }

    /// Writes pages to the channel disk.
    fn write(&mut self, places: &mut Places, sent: &mut Sent) {
        let Some(channel) = &mut self.channel else {
            return;
        };
        for _ in 0..BATCHES_AT_ONCE {
            let (mut batch, most, mut count) = (Vec::new(), channel.most(), 0);
            while count < most {
                let Some((pages, record)) = self.copies.next_page() else {
                    break;
                };
                count += 1;
                let data = self.copies.data_at(&record);
                let put = |page| channel.put(page, |into| self.copies.ring.read(data, into));
                if place_of(pages, places).is_some_and(put) {
                    batch.push(pages);
                } else {
                    sent.homeless += 1;
                }
            }
            self.copies.ring.release_all();
            if let Err(error) = channel.send() {
                let path = channel.path().display();
                warn!("{path}: {error}; evicted pages are sent without their data for a second");
                self.failed_until = Some(Instant::now() + CHANNEL_PAUSE);
                sent.left.append(&mut batch);
            }
            self.is_busy |= count > 0;
            if count < most || self.failed_until.is_some() {
                break;
            }
        }
    }
}

/// Where on a disk a page lies, if it is known and in one piece.
fn place_of(pages: Pages, places: &mut Places) -> Option<EvictedPage> {
    let mut place = None;
    places.find(&[pages], |device, range| {
        let is_whole = range.count * futae_agent_protocol::SECTOR_BYTES == PAGE_BYTES;
        place = is_whole.then_some(EvictedPage {
            device,
            sector: range.start,
        });
    });
    place
}

impl Copies {
    /// The next page that was copied, with its record. Its place in the ring stays taken.
    fn next_page(&mut self) -> Option<(Pages, Record)> {
        loop {
            let record = self.ring.next_record()?;
            if let Some(pages) = self.notice(&record) {
                return Some((pages, record));
            }
        }
    }
}
