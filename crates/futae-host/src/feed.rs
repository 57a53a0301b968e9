//! What agents in guests tell of evicted pages, made into notices to the cache.
//!
//! Each feed is a socket that belongs to one export: whoever connects to it can affect that export's volume
//! and nothing else. It is a stream of [`futae_report`] frames. Notices are hints from somebody who may be wrong or
//! hostile: ranges beyond the volume are dropped, frames that were seen before too, and the reads that notices
//! cause are few at a time, so that requests that somebody waits for go first.

use crate::export::ExportTable;
use crate::{Export, HostError};
use futae_control::{Access, UnixSocket};
use futae_report::{
    Device, DeviceId, Frame, Message, Reason, Replay, SECTOR_BYTES, Stream, printable,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a feed's socket in a directory is called.
const SOCKET_NAME: &str = "agent.sock";
const READ_BYTES: usize = 64 << 10;
/// Blocks given to the cache at a time.
const BLOCKS_AT_ONCE: u64 = 32;
/// Store reads under way at which notices wait.
const READS_MAX: usize = 8;
/// How long they wait before they look again.
const PAUSE: Duration = Duration::from_millis(1);
/// How often at most; then the rest of what was told is dropped, since a store that does not answer must
/// neither end the feed nor gather reads.
const PAUSES_MAX: u32 = 1000;
/// Notices of one agent are at most this many steps in each span: half a million blocks a second.
const STEPS_A_SPAN: u32 = 512;
const SPAN: Duration = Duration::from_millis(32);

/// A socket on which the agent of one guest reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedOptions {
    /// The export that is the guest's disk.
    pub export: String,
    /// Where to listen.
    pub path: PathBuf,
    /// Who may connect.
    pub access: Access,
}

/// What came through a feed so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FeedReport {
    /// The export.
    pub export: String,
    /// Whether an agent is connected, has introduced itself, and has not fallen silent
    /// ([`SILENCE_SECONDS`](Self::SILENCE_SECONDS)).
    pub connected: bool,
    /// Time since the last frame that was believed, in seconds; none if there was none.
    #[serde(default)]
    pub last_frame_seconds: Option<f64>,
    /// The guest's name.
    pub guest: String,
    /// The disk of the guest that was taken for the export; empty if none was.
    pub disk: String,
    /// Messages received.
    pub frames: u64,
    /// Ranges of evicted pages on that disk.
    pub ranges: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Ranges that were beyond the volume, of another disk, or empty.
    pub refused_ranges: u64,
    /// Frames that had been received before.
    pub replayed_frames: u64,
    /// Frames that were damaged, of an unknown kind, or not frames.
    pub broken_frames: u64,
    /// Evictions of which the agent says that they were not told: too many at once, or no place known.
    pub untold_pages: u64,
}

impl FeedReport {
    /// An agent that has said nothing for this long, and for three of its periods, counts as gone: it reports
    /// every period.
    pub const SILENCE_SECONDS: f64 = 15.0;
    /// After this long it is gone whatever it calls a period.
    const SILENCE_SECONDS_MAX: f64 = 600.0;
}

/// What a feed has heard.
#[derive(Debug, Default)]
struct Heard {
    /// But for what depends on the time at which it is asked for.
    report: FeedReport,
    last: Option<Instant>,
    /// How often the agent reports, as it says.
    period_seconds: f64,
}

impl Heard {
    fn report(&self, now: Instant) -> FeedReport {
        let silence = self.last.map(|last| (now - last).as_secs_f64());
        let patience = (3.0 * self.period_seconds)
            .clamp(FeedReport::SILENCE_SECONDS, FeedReport::SILENCE_SECONDS_MAX);
        let speaks = silence.is_some_and(|silence| silence < patience);
        FeedReport {
            connected: self.report.connected && speaks,
            last_frame_seconds: silence,
            ..self.report.clone()
        }
    }
}

/// All feeds of a server; they end when this is dropped and the server's stop is told.
pub(crate) struct Feeds {
    heard: Vec<Arc<Mutex<Heard>>>,
    threads: Vec<JoinHandle<()>>,
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Feeds {
    /// Binds every socket, then begins to listen. `stop` becomes readable when all is to end.
    pub(crate) fn start(
        options: &[FeedOptions],
        exports: &Arc<ExportTable>,
        stop: BorrowedFd<'_>,
    ) -> Result<Self, HostError> {
        let mut ready = Vec::new();
        for feed in options {
            let unknown = || HostError::NoSuchExport {
                name: feed.export.clone(),
            };
            let export = exports.get(&feed.export).ok_or_else(unknown)?.clone();
            let socket = UnixSocket::bind_for(&feed.path, SOCKET_NAME, &feed.access)?;
            ready.push((export, socket, stop.try_clone_to_owned()?));
        }
        let mut feeds = Self {
            heard: Vec::new(),
            threads: Vec::new(),
        };
        for (export, socket, stop) in ready {
            let report = FeedReport {
                export: export.name.clone(),
                ..FeedReport::default()
            };
            let heard = Heard {
                report,
                ..Heard::default()
            };
            let heard = Arc::new(Mutex::new(heard));
            feeds.heard.push(Arc::clone(&heard));
            let mut feed = Feed::new(export, heard);
            let thread = std::thread::Builder::new().name("feed".into());
            feeds
                .threads
                .push(thread.spawn(move || feed.listen(&socket, &stop))?);
        }
        Ok(feeds)
    }

    /// What came through them.
    pub(crate) fn reports(&self) -> Vec<FeedReport> {
        let now = Instant::now();
        self.heard
            .iter()
            .map(|heard| lock(heard).report(now))
            .collect()
    }

    /// Whether an agent tells of this export.
    pub(crate) fn sees(&self, export: &str) -> bool {
        let tells = |report: &FeedReport| report.connected && report.export == export;
        self.reports().iter().any(tells)
    }

    /// Waits for the threads, which have been told to stop.
    pub(crate) fn join(self) {
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

struct Feed {
    export: Export,
    heard: Arc<Mutex<Heard>>,
    stream: Stream,
    replay: Replay,
    pace: Pace,
    disk: Option<DeviceId>,
}

impl Feed {
    fn new(export: Export, heard: Arc<Mutex<Heard>>) -> Self {
        Self {
            export,
            heard,
            stream: Stream::default(),
            replay: Replay::default(),
            pace: Pace::default(),
            disk: None,
        }
    }

    /// Takes one connection at a time; a new one takes the place of the old, which may be dead.
    fn listen(&mut self, socket: &UnixSocket, stop: &OwnedFd) {
        let mut connection: Option<OwnedFd> = None;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let mut fds = vec![
                PollFd::new(stop, PollFlags::IN),
                PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN),
            ];
            if let Some(connection) = &connection {
                fds.push(PollFd::new(connection, PollFlags::IN));
            }
            if poll(&mut fds, None).is_err() {
                continue;
            }
            let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            let (stopping, calling, speaking) = (is_ready(0), is_ready(1), is_ready(2));
            if stopping {
                return;
            }
            if let Some(speaker) = connection.as_ref().filter(|_| speaking) {
                match rustix::io::read(speaker, &mut buffer) {
                    Ok(count) if count > 0 => self.hear(&buffer[..count], stop),
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Ok(_) | Err(_) => {
                        connection = None;
                        self.hung_up();
                    }
                }
            }
            if calling {
                if let Ok(caller) = accept_with(socket.as_fd(), SocketFlags::CLOEXEC) {
                    self.hung_up();
                    connection = Some(caller);
                } else {
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    fn hung_up(&mut self) {
        self.stream.restart();
        self.disk = None;
        lock(&self.heard).report.connected = false;
    }

    fn hear(&mut self, bytes: &[u8], stop: &OwnedFd) {
        self.stream.feed(bytes);
        while let Some(frame) = self.stream.next_frame() {
            if has_stopped(stop) {
                return;
            }
            if self.is_new(&frame) {
                self.take(frame.message, stop);
            }
        }
        let health = self.stream.health();
        let report = &mut lock(&self.heard).report;
        report.frames = health.frames;
        report.broken_frames =
            health.broken_frames + health.unknown_frames + u64::from(health.skipped_bytes > 0);
    }

    /// Whether the frame is to be believed.
    fn is_new(&mut self, frame: &Frame) -> bool {
        let is_new = self.replay.is_new(frame);
        if is_new {
            lock(&self.heard).last = Some(Instant::now());
        } else {
            lock(&self.heard).report.replayed_frames += 1;
        }
        is_new
    }

    fn take(&mut self, message: Message, stop: &OwnedFd) {
        match message {
            Message::Hello(hello) => {
                let size = self.export.engine.volume_bytes(self.export.volume);
                let disk = disk_of(&hello.devices, &self.export.name, size);
                self.disk = disk.map(|disk| disk.id);
                let report = &mut lock(&self.heard).report;
                report.connected = true;
                report.guest = printable(&hello.guest);
                report.disk = disk.map(|disk| printable(&disk.name)).unwrap_or_default();
            }
            Message::Notices(notices) => {
                let is_ours =
                    self.disk == Some(notices.device) && notices.reason == Reason::Reclaim;
                if !is_ours {
                    lock(&self.heard).report.refused_ranges += notices.ranges.len() as u64;
                    return;
                }
                let ranges = notices.ranges.len();
                for (at, range) in notices.ranges.into_iter().enumerate() {
                    if !self.notice(range.start, range.count, stop) {
                        let left = (ranges - at - 1) as u64;
                        lock(&self.heard).report.refused_ranges += left;
                        return;
                    }
                }
            }
            Message::Sample(sample) => {
                let untold = sample.notices_lost.saturating_add(sample.notices_homeless);
                let mut heard = lock(&self.heard);
                heard.period_seconds = sample.period_us as f64 / 1e6;
                let report = &mut heard.report;
                report.untold_pages = report.untold_pages.saturating_add(untold);
            }
            Message::References(_) => {}
        }
    }

    /// Tells the cache of a range that the guest evicted, a few blocks at a time; false if the server stops, or
    /// the store does not keep up.
    fn notice(&mut self, start: u64, count: u64, stop: &OwnedFd) -> bool {
        let engine = Arc::clone(&self.export.engine);
        let size = engine.volume_bytes(self.export.volume);
        let bytes = |sectors: u64| sectors.checked_mul(SECTOR_BYTES);
        let end = start
            .checked_add(count)
            .and_then(bytes)
            .filter(|&end| end <= size);
        let (Some(mut at), Some(end), true) = (bytes(start), end, count > 0) else {
            lock(&self.heard).report.refused_ranges += 1;
            return true;
        };
        {
            let report = &mut lock(&self.heard).report;
            report.ranges += 1;
            report.bytes = report.bytes.saturating_add(end - at);
        }
        let step = BLOCKS_AT_ONCE * engine.block_bytes();
        while at < end {
            // Up to the next multiple, so that blocks are not cut in two.
            let next = ((at / step + 1) * step).min(end);
            if !self.pace.step(stop) || !wait_for_room(&self.export, stop) {
                return false;
            }
            engine.notice(self.export.volume, at, next - at);
            at = next;
        }
        true
    }
}

fn has_stopped(stop: &OwnedFd) -> bool {
    stops_within(stop, Duration::ZERO)
}

/// Whether the server stops within `time`.
fn stops_within(stop: &OwnedFd, time: Duration) -> bool {
    let time = rustix::event::Timespec::try_from(time).unwrap_or_default();
    let mut fds = [PollFd::new(stop, PollFlags::IN)];
    poll(&mut fds, Some(&time)).is_ok_and(|ready| ready > 0)
}

/// Until few store reads are under way; false if the server stops meanwhile, or they do not end.
fn wait_for_room(export: &Export, stop: &OwnedFd) -> bool {
    let is_full = || export.engine.reads_under_way() >= READS_MAX;
    let mut pauses = 0;
    while is_full() && pauses < PAUSES_MAX {
        if stops_within(stop, PAUSE) {
            return false;
        }
        pauses += 1;
    }
    pauses < PAUSES_MAX
}

/// Keeps an agent that tells of more than a disk can read from taking the cache's lock from others.
#[derive(Debug, Default)]
struct Pace {
    steps: u32,
    since: Option<Instant>,
}

impl Pace {
    /// Waits if steps come too quickly; false if the server stops.
    fn step(&mut self, stop: &OwnedFd) -> bool {
        if has_stopped(stop) {
            return false;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        self.steps += 1;
        if self.steps < STEPS_A_SPAN {
            return true;
        }
        *self = Self::default();
        let left = SPAN.saturating_sub(since.elapsed());
        left.is_zero() || !stops_within(stop, left)
    }
}

/// The disk of a guest that is an export: the one on which the host wrote the export's name, else the only
/// one that has its size. A serial number of virtio holds 20 bytes.
fn disk_of<'a>(disks: &'a [Device], export: &str, size: u64) -> Option<&'a Device> {
    const SERIAL_BYTES: usize = 20;
    let name = export.as_bytes();
    let name = &name[..name.len().min(SERIAL_BYTES)];
    let is_named = |disk: &&Device| !disk.serial.is_empty() && disk.serial.as_bytes() == name;
    if let Some(disk) = disks.iter().find(is_named) {
        return Some(disk);
    }
    let sectors = size.div_ceil(SECTOR_BYTES);
    let fits = |disk: &&Device| {
        disk.serial.is_empty() && (disk.sectors == sectors || disk.sectors == size / SECTOR_BYTES)
    };
    let mut alike = disks.iter().filter(fits);
    alike.next().filter(|_| alike.next().is_none())
}

/// For [`FeedOptions`] of every export beside a server's own socket: its name, made fit for a path.
#[must_use]
pub fn feed_path(beside: &Path, export: &str) -> PathBuf {
    let directory = if beside.is_dir() {
        beside
    } else {
        beside.parent().unwrap_or(beside)
    };
    directory.join(format!("{}.agent.sock", export.replace('/', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(minor: u32, serial: &str, sectors: u64) -> Device {
        let id = DeviceId { major: 254, minor };
        Device {
            id,
            name: format!("vd{minor}"),
            serial: serial.to_owned(),
            sectors,
        }
    }

    #[test]
    fn a_disk_is_found_by_its_serial_or_else_by_its_size() {
        let find =
            |disks: &[Device], name: &str| disk_of(disks, name, 8192).map(|disk| disk.id.minor);
        let disks = [disk(0, "", 16), disk(1, "vm1", 99), disk(2, "", 17)];
        assert_eq!(find(&disks, "vm1"), Some(1));
        assert_eq!(find(&disks, "vm2"), Some(0));
        assert_eq!(find(&[disk(0, "", 16), disk(1, "", 16)], "vm2"), None);
        assert_eq!(find(&[disk(0, "other", 16)], "vm2"), None);
        assert_eq!(
            find(
                &[disk(3, "a-name-of-more-than-", 1)],
                "a-name-of-more-than-20"
            ),
            Some(3)
        );
        assert_eq!(find(&[], ""), None);
    }

    #[test]
    fn an_agent_that_is_silent_is_gone() {
        let begin = Instant::now();
        let mut heard = Heard {
            last: Some(begin),
            ..Heard::default()
        };
        heard.report.connected = true;
        let connected = |heard: &Heard, seconds| {
            let report = heard.report(begin + Duration::from_secs(seconds));
            assert_eq!(report.last_frame_seconds, Some(seconds as f64));
            report.connected
        };
        assert!(connected(&heard, 14) && !connected(&heard, 16));
        heard.period_seconds = 60.0;
        assert!(connected(&heard, 170) && !connected(&heard, 190));
        heard.period_seconds = f64::MAX;
        assert!(!connected(&heard, 601), "whatever it says");
    }

    #[test]
    fn a_feed_has_its_place_beside_the_server() {
        let path = feed_path(Path::new("/run/futae/vm.sock"), "a/b");
        assert_eq!(path, Path::new("/run/futae/a_b.agent.sock"));
    }
}
