//! In-place reads of evicted pages, from the memory of guests whose disks are vhost-user devices.
//!
//! The agent's ring ([`futae_agent_protocol::in_place`]) is searched in the memory of the frontends
//! that are attached to the exports of its feed. A thread reads the ring and changes nothing there:
//! when it reads a page, the guest may have reused it already. The pages enter the cache only if the
//! cache can verify them.

use crate::Export;
use crate::demoter::{Demoter, Place};
use crate::registry::Registry;
use futae_agent_protocol::PAGE_BYTES;
use futae_agent_protocol::in_place::{
    NoRing, RingAnswer, RingEntry, RingMemory, RingOffer, RingReader, Verdict,
};
use futae_agent_protocol::receiver::{Answers, RingSink, Stop};
use futae_engine::IoBuf;
use futae_vhost::GuestMemory;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Pages read before the thread checks for other work.
const PAGES_AT_ONCE: usize = 256;
/// Pauses of the reading thread: when more pages may follow, when there were some, and when there
/// were none (doubled each time). The last is a fraction of the time in which a small ring fills
/// up.
const PAUSE_FULL: Duration = Duration::from_micros(200);
const PAUSE_BUSY: Duration = Duration::from_millis(1);
const PAUSE_IDLE_MAX: Duration = Duration::from_millis(4);
/// The longest time between two confirmations to the agent that its ring is read.
const ANSWER_INTERVAL: Duration = Duration::from_secs(1);
/// Of a disk whose pages keep differing, one page in so many is compared nevertheless: so it is seen if they do no longer.
const COMPARED_EACH: u64 = 64;
const PAGE: usize = PAGE_BYTES as usize;

/// Counters of in-place reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InPlaceReport {
    /// Whether a ring is being read.
    pub reading: bool,
    /// Why the last ring was refused, or is no longer read; empty if there is no reason.
    pub why_not: String,
    /// Rings offered by agents.
    pub offers: u64,
    /// Pages passed to the cache, with their data.
    pub pages: u64,
    /// Dropped pages: of other disks of the guest, or beyond the end of their volume.
    pub foreign_pages: u64,
    /// Pages told to the cache without their data, because those of their disk keep differing from what it served.
    pub differing_pages: u64,
    /// Pages that are not in the guest's memory, although the table lists them.
    pub unreadable_pages: u64,
    /// Pages that the guest had reused before they were read; it reports them without their data.
    pub missed_pages: u64,
    /// Number of times that the table did not continue where reading had stopped.
    pub resyncs: u64,
    /// The server's processor time for reading pages and passing them to the cache, in seconds.
    pub seconds: f64,
    /// Processor time of the guest for copying pages and telling of them, in seconds, as the guest says.
    pub guest_seconds: f64,
    /// Pages that the guest has copied for that, as it says.
    pub guest_pages: u64,
}

/// The rings of one feed.
pub(crate) struct InPlace {
    demoter: Arc<Demoter>,
    registry: Arc<Registry>,
    stop: Stop,
    report: Mutex<InPlaceReport>,
    /// The number of the current offer: a thread that reads for an earlier one ends.
    turn: AtomicU64,
}

/// The memory of one machine.
struct Seen(GuestMemory);

impl RingMemory for Seen {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.0.read(address, into)
    }
}

impl InPlace {
    pub(crate) fn new(demoter: &Arc<Demoter>, registry: &Arc<Registry>, stop: &Stop) -> Arc<Self> {
        Arc::new(Self {
            demoter: Arc::clone(demoter),
            registry: Arc::clone(registry),
            stop: stop.clone(),
            report: Mutex::default(),
            turn: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, InPlaceReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters; `None` if no agent has offered a ring.
    pub(crate) fn report(&self) -> Option<InPlaceReport> {
        let report = self.lock();
        (report.offers > 0).then(|| report.clone())
    }

    /// Searches the ring in the memory of the machines that have these disks, the latest first, since
    /// a migrated machine leaves its old memory behind for a while.
    fn find(&self, offer: &RingOffer) -> Result<(RingReader, Seen), String> {
        let refusals: Vec<_> = self.demoter.exports().filter_map(refusal).collect();
        if refusals.len() == self.demoter.exports().count()
            && let Some(why) = refusals.into_iter().next()
        {
            return Err(why);
        }
        let names: Vec<_> = self.demoter.exports().map(|it| it.name.as_str()).collect();
        let memories = self.registry.memories(&names);
        let mut why = None;
        for memory in memories.into_iter().rev().map(Seen) {
            match RingReader::open(offer.clone(), &memory) {
                Ok(reader) => return Ok((reader, memory)),
                Err(problem) => why = Some(problem),
            }
        }
        let why = match why {
            None => "none of the guest's disks is a vhost-user device, so its memory is not here",
            Some(why) => why.text(),
        };
        Err(why.to_owned())
    }

    /// Reads a ring until it disappears, or a newer offer replaces it.
    fn read(&self, mut reader: RingReader, memory: &Seen, answers: &Answers, turn: u64) {
        let mut told: Option<(u64, Instant)> = None;
        let (mut entries, mut pause) = (Vec::new(), PAUSE_BUSY);
        let mut differing = Vec::new();
        let begin = self.lock().clone();
        let ended = loop {
            if self.turn.load(Relaxed) != turn || self.stop.has_come() {
                return;
            }
            let count = match self.take(&mut reader, memory, &mut entries, (&differing, &begin)) {
                Ok(count) => count,
                Err(why) => break why.text(),
            };
            if count > 0 {
                let before = std::mem::replace(&mut differing, self.demoter.differing());
                if !differing.is_empty() && differing.len() == self.demoter.known_disks() {
                    break "what it brings is not what the disk holds";
                }
                self.log_differing(&before, &differing);
            }
            let taken = reader.cursor();
            let is_news =
                told.is_none_or(|(last, at)| last != taken || at.elapsed() >= ANSWER_INTERVAL);
            if is_news {
                told = Some((taken, Instant::now()));
                answers.send(answer(reader.offer(), Verdict::Reads, taken, ""));
            }
            pause = match count {
                0 => (pause * 2).min(PAUSE_IDLE_MAX),
                PAGES_AT_ONCE => PAUSE_FULL,
                _ => PAUSE_BUSY,
            };
            if self.stop.within(pause) {
                return;
            }
        };
        self.refuse(answers, reader.offer(), ended);
    }

    /// Reads the new entries and passes their pages to the cache, those of `differing` exports without their data.
    /// Returns the number of entries.
    fn take(
        &self,
        reader: &mut RingReader,
        memory: &Seen,
        entries: &mut Vec<RingEntry>,
        (differing, begin): (&[usize], &InPlaceReport),
    ) -> Result<usize, NoRing> {
        let clock = thread_time();
        entries.clear();
        reader.entries(memory, PAGES_AT_ONCE, entries)?;
        let (mut foreign, mut unreadable, mut told) = (0, 0, 0);
        let mut copies: Vec<(u64, Place, IoBuf)> = Vec::with_capacity(entries.len());
        for entry in entries.iter() {
            let Some(place) = self.demoter.place(entry.page) else {
                foreign += 1;
                continue;
            };
            if differing.contains(&place.volume) && !entry.number.is_multiple_of(COMPARED_EACH) {
                self.demoter.tell(place);
                told += 1;
                continue;
            }
            let mut data = IoBuf::new(PAGE);
            let bytes = data.as_mut_slice().first_chunk_mut();
            if bytes.is_some_and(|bytes| reader.data(memory, entry, bytes)) {
                copies.push((entry.number, place, data));
            } else {
                unreadable += 1;
            }
        }
        let mut late = 0;
        if !copies.is_empty() {
            let valid = reader.first_valid(memory)?;
            let copied = copies.len();
            copies.retain(|(number, ..)| *number >= valid);
            late = (copied - copies.len()) as u64;
            reader.note_late(late);
        }
        let pages = copies.len() as u64;
        self.demoter
            .demote(copies.into_iter().map(|(_, place, data)| (place, data)));
        let mut report = self.lock();
        report.pages += pages;
        report.foreign_pages += foreign;
        report.differing_pages += told;
        report.unreadable_pages += unreadable;
        report.missed_pages = begin.missed_pages.saturating_add(reader.missed());
        report.resyncs = begin.resyncs.saturating_add(reader.resyncs());
        let (guest_ns, guest_pages) = reader.guest_cost();
        report.guest_seconds = guest_ns as f64 / 1e9;
        report.guest_pages = guest_pages;
        if pages + foreign + told + unreadable + late > 0 {
            report.seconds += thread_time().saturating_sub(clock).as_secs_f64();
        }
        Ok(entries.len())
    }

    /// Logs of which exports the data is no longer taken, and of which it is again.
    fn log_differing(&self, before: &[usize], now: &[usize]) {
        for (at, Export { name, .. }) in self.demoter.exports().enumerate() {
            match (before.contains(&at), now.contains(&at)) {
                (false, true) => info!(
                    export = name,
                    "evicted pages of export {name} are told to the cache without their data: most of it is not what the \
                     disk holds"
                ),
                (true, false) => info!(
                    export = name,
                    "evicted pages of export {name} are read in place again"
                ),
                (true, true) | (false, false) => {}
            }
        }
    }

    fn refuse(&self, answers: &Answers, offer: u64, why: &str) {
        let mut report = self.lock();
        report.reading = false;
        if report.why_not != why {
            why.clone_into(&mut report.why_not);
            let exports = self.demoter.names();
            info!(
                exports,
                "evicted pages of {exports} are not read in place: {why}"
            );
        }
        drop(report);
        answers.send(answer(offer, Verdict::Refuses, 0, why));
    }
}

/// Why the cache of an export takes no pages with their data.
fn refusal(export: &Export) -> Option<String> {
    let bytes = export.engine.block_bytes();
    if bytes != PAGE_BYTES {
        Some(format!(
            "the cache's blocks have {bytes} bytes, and pages {PAGE_BYTES}; see --block"
        ))
    } else if export.engine.status().demotions.hash_entries_max == 0 {
        let why = "the cache verifies no pages: its policy takes no demotions (--policy, --demotion), or \
                   --evictions-memory is off";
        Some(why.to_owned())
    } else {
        None
    }
}

fn answer(offer: u64, verdict: Verdict, taken: u64, why: &str) -> RingAnswer {
    RingAnswer {
        offer,
        verdict,
        taken,
        why: why.to_owned(),
    }
}

/// Processor time of the calling thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.try_into().unwrap_or_default()
}

/// Receives the offers of rings on a feed, and starts the threads that read them.
pub(crate) struct Rings {
    in_place: Arc<InPlace>,
    thread: Option<JoinHandle<()>>,
}

impl Rings {
    pub(crate) fn new(in_place: &Arc<InPlace>) -> Self {
        Self {
            in_place: Arc::clone(in_place),
            thread: None,
        }
    }

    /// Ends the reading thread, which checks every few milliseconds.
    fn end(&mut self) -> u64 {
        let turn = self.in_place.turn.fetch_add(1, Relaxed) + 1;
        if let Some(thread) = self.thread.take() {
            // A panicked thread has stopped reading, too.
            let _ = thread.join();
        }
        self.in_place.lock().reading = false;
        turn
    }
}

impl RingSink for Rings {
    fn offered(&mut self, offer: RingOffer, answers: &Answers) {
        let turn = self.end();
        let in_place = Arc::clone(&self.in_place);
        in_place.lock().offers += 1;
        let number = offer.offer;
        let (reader, memory) = match in_place.find(&offer) {
            Ok(found) => found,
            Err(why) => return in_place.refuse(answers, number, &why),
        };
        {
            let mut report = in_place.lock();
            report.reading = true;
            report.why_not.clear();
        }
        let thread = Builder::new().name("ring".into());
        let (reads, answered) = (Arc::clone(&in_place), answers.clone());
        let started = thread.spawn(move || reads.read(reader, &memory, &answered, turn));
        match started {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                let exports = in_place.demoter.names();
                warn!(
                    exports,
                    "cannot start a thread to read evicted pages of {exports}: {error}"
                );
                in_place.refuse(answers, number, "the server has no thread for it");
            }
        }
    }

    fn gone(&mut self) {
        self.end();
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        self.end();
    }
}
