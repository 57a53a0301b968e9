//! The loop: reads the programs' counters and rings, and sends what is to be said.

use crate::args::Checked;
use crate::evictions::Route;
use crate::extents::{Pages, Places};
use crate::groups::{self, Groups};
use crate::probe::{Counts, Probe};
use crate::sink::{Destination, Sink};
use crate::{proc, table};
use futae_agent_protocol::{
    Counters, DeviceId, DeviceSample, FileSample, GroupSample, Hello, Message, Notices, Pressure,
    Range, Reason, References, Sample,
};
use futae_systemd::Watchdog;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::io::{self, Write};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long evictions wait until they are told.
const NOTICE_DELAY: Duration = Duration::from_millis(100);
/// Evictions looked up before the counters and the connection get their turn.
const NOTICES_AT_ONCE: usize = 32_768;
/// Messages of sampled reads before the counters and the connection get their turn.
const REFERENCES_AT_ONCE: usize = 2;

/// Counts and reports until it is killed, or until nobody reads its standard output; with `once`, for a while.
///
/// # Errors
/// If the kernel stops giving counters, or standard output cannot be written.
pub fn run(args: &Checked) -> anyhow::Result<()> {
    crate::system::keep_large_memory_apart();
    let (probe, why) = Probe::start(args);
    if let Some(why) = why {
        let lost = if args.notices || args.threshold > 0 {
            ", which tells neither evictions nor sampled reads"
        } else {
            ""
        };
        warn!("counting by /proc/vmstat alone{lost}: {why}");
    }
    if !args.counts_reads {
        info!("counting evictions only: no eBPF program runs on reads; --count reads counts them");
    }
    let mut agent = Agent::new(args, probe)?;
    let ended = match args.once {
        Some(time) => agent.show(time),
        None => agent.work(args.period),
    };
    let is_to_output = args.once.is_some() || args.destination == Destination::Output;
    match ended {
        // The reader of standard output has read enough.
        Err(error) if is_to_output && is_closed_pipe(&error) => Ok(()),
        ended => ended,
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

struct Agent {
    probe: Probe,
    sink: Sink,
    hello: Hello,
    places: Places,
    threshold: u32,
    top: usize,
    last: Last,
    /// Evicted pages for which no place was found, since the last sample.
    homeless: u64,
    left: Vec<Pages>,
    read: Vec<u64>,
    /// The way of evicted pages that are sent with their data.
    route: Option<Route>,
    watchdog: Option<Watchdog>,
}

/// What was counted until the last sample.
struct Last {
    at: Instant,
    counts: Counts,
    pressure: Option<Pressure>,
    groups: Groups,
}

impl Agent {
    fn new(args: &Checked, mut probe: Probe) -> anyhow::Result<Self> {
        let counts = probe.read()?;
        let run = random();
        let route = Route::open(args, &mut probe, run);
        let mut sink = Sink::new(args.destination.clone());
        if route.as_ref().is_some_and(Route::listens) {
            sink.listen();
        }
        let hello = Hello {
            guest: args.name.clone().unwrap_or_else(proc::host_name),
            kernel: proc::kernel(),
            boot: proc::boot_id(),
            run,
            source: probe.source(),
            devices: proc::disks(),
        };
        Ok(Self {
            probe,
            sink,
            hello,
            places: Places::default(),
            threshold: args.threshold,
            top: args.top,
            last: Last {
                at: Instant::now(),
                counts,
                pressure: proc::pressure(),
                groups: Groups::default(),
            },
            homeless: 0,
            left: Vec::new(),
            read: Vec::new(),
            route,
            watchdog: Watchdog::from_environment(),
        })
    }

    /// Counts for a while, and shows what it has counted.
    fn show(&mut self, time: Duration) -> anyhow::Result<()> {
        std::thread::sleep(time);
        let sample = self.sample()?;
        let table = table::render(&sample, self.probe.source());
        io::stdout().write_all(table.as_bytes())?;
        Ok(())
    }

    fn work(&mut self, period: Duration) -> anyhow::Result<()> {
        self.greet()?;
        let counts = if self.hello.source == futae_agent_protocol::Source::Vmstat {
            "counting by /proc/vmstat"
        } else {
            "counting in the kernel"
        };
        futae_systemd::ready(counts);
        let mut next = Instant::now() + period;
        loop {
            if let Some(watchdog) = &mut self.watchdog {
                watchdog.alive();
            }
            if self.sink.pump() {
                self.greet()?;
                if let Some(route) = &mut self.route {
                    route.connected();
                }
            }
            self.wait(next)?;
            self.tell_evictions()?;
            self.send_copies()?;
            self.tell_references()?;
            let now = Instant::now();
            if now >= next {
                // A machine that slept does not make up for it.
                next = (next + period).max(now);
                self.hello.devices = proc::disks();
                self.places.forget_disks();
                self.greet()?;
                let sample = self.sample()?;
                self.sink.send(Message::Sample(sample))?;
            }
        }
    }

    fn greet(&mut self) -> io::Result<()> {
        self.sink.send(Message::Hello(self.hello.clone()))?;
        let cache = proc::page_cache(&self.hello.devices);
        self.sink.send(Message::PageCache(cache))
    }

    /// Until something is to be done: a ring fills, the connection takes more, or it is time.
    fn wait(&mut self, next: Instant) -> io::Result<()> {
        let has_rings = self.hello.source != futae_agent_protocol::Source::Vmstat;
        let most = if has_rings {
            NOTICE_DELAY
        } else {
            Duration::from_secs(1)
        };
        let most = self
            .route
            .as_ref()
            .map_or(most, |route| most.min(route.delay()));
        let most = self
            .watchdog
            .as_ref()
            .map_or(most, |watchdog| most.min(watchdog.every()));
        let time = next.saturating_duration_since(Instant::now()).min(most);
        let is_gone = {
            let rings = self.probe.wakers();
            let mut all: Vec<PollFd<'_>> = rings
                .iter()
                .map(|ring| PollFd::from_borrowed_fd(*ring, PollFlags::IN))
                .collect();
            let connection = self.sink.waits();
            if let Some((connection, wants)) = connection {
                all.push(PollFd::from_borrowed_fd(connection, wants));
            }
            let time = Timespec::try_from(time).unwrap_or_default();
            match poll(&mut all, Some(&time)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let gone = PollFlags::HUP | PollFlags::ERR;
            connection.is_some() && all.last().is_some_and(|fd| fd.revents().intersects(gone))
        };
        if is_gone {
            self.sink.hung_up();
            if let Some(route) = &mut self.route {
                route.connected();
            }
            // A port says so at once and again.
            std::thread::sleep(time.min(NOTICE_DELAY));
        } else {
            self.sink.has_not_hung_up();
        }
        Ok(())
    }

    fn tell_evictions(&mut self) -> io::Result<()> {
        self.left.clear();
        self.probe.evicted(NOTICES_AT_ONCE, &mut self.left);
        self.tell_left()
    }

    /// Sends notices of pages.
    fn tell_left(&mut self) -> io::Result<()> {
        if self.left.is_empty() {
            return Ok(());
        }
        let mut ranges: BTreeMap<DeviceId, Vec<Range>> = BTreeMap::new();
        self.homeless += self.places.find(&self.left, |device, range| {
            join(ranges.entry(device).or_default(), range);
        });
        for (device, ranges) in ranges {
            for ranges in ranges.chunks(Notices::MAX_RANGES) {
                let (ranges, reason) = (ranges.to_vec(), Reason::Reclaim);
                self.sink.send(Message::Notices(Notices {
                    device,
                    reason,
                    ranges,
                }))?;
            }
        }
        Ok(())
    }

    /// Sends the pages that were copied, and takes what the host says to them.
    fn send_copies(&mut self) -> io::Result<()> {
        let Some(route) = &mut self.route else {
            return Ok(());
        };
        for answer in self.sink.heard() {
            route.hear(&answer);
        }
        let offer = self.sink.is_connected().then(|| route.offer()).flatten();
        if let Some(offer) = offer {
            // Who has not heard that does not know whose pages they are.
            self.sink.send(Message::Hello(self.hello.clone()))?;
            self.sink.send(Message::Ring(offer))?;
        }
        let sent = route.send(&mut self.probe, &mut self.places);
        if self.sink.has_reader() {
            route.log_way();
        }
        self.homeless += sent.homeless;
        self.left = sent.left;
        self.tell_left()
    }

    fn tell_references(&mut self) -> io::Result<()> {
        let (probe, sink, threshold) = (&mut self.probe, &mut self.sink, self.threshold);
        let take = |read: &mut Vec<u64>| probe.references(References::MAX_PAGES, read);
        tell_references(&mut self.read, take, |pages| {
            sink.send(Message::References(References { threshold, pages }))
        })
    }

    /// What happened since the last sample.
    fn sample(&mut self) -> anyhow::Result<Sample> {
        let counts = self.probe.read()?;
        let (now, pressure) = (Instant::now(), proc::pressure());
        let before = std::mem::replace(&mut self.last.counts, counts.clone());
        let mut sample = Sample {
            at_us: uptime_us(),
            period_us: now.duration_since(self.last.at).as_micros() as u64,
            total: counts.total.since(&before.total),
            devices: Vec::new(),
            groups: self.groups(&counts, &before),
            files: Vec::new(),
            memory: proc::memory(),
            pressure: pressure
                .zip(self.last.pressure)
                .map(|(now, before)| Pressure {
                    some_us: now.some_us.saturating_sub(before.some_us),
                    full_us: now.full_us.saturating_sub(before.full_us),
                }),
            notices_lost: counts.notices_lost - before.notices_lost,
            notices_homeless: std::mem::take(&mut self.homeless),
            references_lost: counts.references_lost - before.references_lost,
        };
        for (packed, counters) in changes(&counts.devices, &before.devices) {
            let device = proc::device_id(packed);
            sample.devices.push(DeviceSample { device, counters });
        }
        for ((device, inode), counters) in changes(&counts.files, &before.files) {
            let device = proc::device_id(device);
            sample.files.push(FileSample {
                device,
                inode,
                counters,
            });
        }
        sample.files.sort_by_key(|file| {
            let counters = &file.counters;
            std::cmp::Reverse(counters.accesses + counters.added + counters.evicted())
        });
        sample.files.truncate(self.top);
        (self.last.at, self.last.pressure) = (now, pressure);
        Ok(sample)
    }

    fn groups(&mut self, counts: &Counts, before: &Counts) -> Vec<GroupSample> {
        let changed = changes(&counts.groups, &before.groups);
        let counted = counts.groups.iter().map(|(id, _)| *id);
        let seen = self.last.groups.see(counted, changed, groups::directories);
        // They make room for those that are to come.
        self.probe.forget_groups(&seen.gone);
        let is_gone = |(id, _): &(u64, Counters)| seen.gone.contains(id);
        self.last.counts.groups.retain(|group| !is_gone(group));
        if counts.groups_lost > 0 && before.groups_lost == 0 {
            warn!(
                "there are more memory cgroups at a time than are counted (1024): of the others, samples have nothing"
            );
        }
        seen.samples
    }
}

/// Tells what `take` gives, for one turn: reads may come faster than they can be told.
fn tell_references(
    read: &mut Vec<u64>,
    mut take: impl FnMut(&mut Vec<u64>),
    mut tell: impl FnMut(Vec<u64>) -> io::Result<()>,
) -> io::Result<()> {
    for _ in 0..REFERENCES_AT_ONCE {
        read.clear();
        take(read);
        if read.is_empty() {
            break;
        }
        tell(read.clone())?;
    }
    Ok(())
}

/// What changed, by what it belongs to.
fn changes<K: Hash + Eq + Copy>(
    now: &[(K, Counters)],
    before: &[(K, Counters)],
) -> Vec<(K, Counters)> {
    let before: HashMap<K, Counters> = before.iter().copied().collect();
    now.iter()
        .map(|(key, now)| {
            (
                *key,
                before.get(key).map_or(*now, |before| now.since(before)),
            )
        })
        .filter(|(_, counters)| !counters.is_zero())
        .collect()
}

/// Appends a range, or lets the last one grow by it.
fn join(ranges: &mut Vec<Range>, range: Range) {
    if let Some(last) = ranges.last_mut() {
        if last.start + last.count == range.start {
            last.count += range.count;
            return;
        }
        if range.start + range.count == last.start {
            last.start = range.start;
            last.count += range.count;
            return;
        }
    }
    ranges.push(range);
}

fn uptime_us() -> u64 {
    (proc::uptime_seconds() * 1e6) as u64
}

/// A number that no other run of an agent has.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one((std::process::id(), uptime_us()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_range() {
        let mut ranges = Vec::new();
        for (start, count) in [(8, 8), (16, 8), (0, 8), (100, 8), (92, 8), (24, 8)] {
            join(&mut ranges, Range { start, count });
        }
        let expected = [(0, 24), (92, 16), (24, 8)];
        assert_eq!(
            ranges,
            expected.map(|(start, count)| Range { start, count })
        );
    }

    #[test]
    fn reads_that_come_faster_than_they_are_told_leave_others_their_turn() {
        let turn = |waiting: usize| {
            let (mut taken, mut told) = (0, Vec::new());
            let take = |read: &mut Vec<u64>| {
                read.extend((taken < waiting).then_some(taken as u64));
                taken += 1;
            };
            let tell = |pages: Vec<u64>| {
                told.extend(pages);
                Ok(())
            };
            tell_references(&mut Vec::new(), take, tell).expect("told");
            told
        };
        assert!(turn(0).is_empty());
        assert_eq!(turn(1), [0_u64]);
        let many = turn(1000);
        assert!((1..100).contains(&many.len()), "{} messages", many.len());
    }

    #[test]
    fn only_what_changed_is_told() {
        let some = |accesses| Counters {
            accesses,
            ..Counters::default()
        };
        let before = [(1, some(5)), (2, some(6))];
        let now = [(1, some(5)), (2, some(9)), (3, some(1))];
        assert_eq!(changes(&now, &before), [(2, some(3)), (3, some(1))]);
    }
}
