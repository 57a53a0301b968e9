//! What agents in guests tell of evicted pages, made into notices to the cache.
//!
//! Each feed is a socket that belongs to one export: whoever connects to it can affect that export's volume
//! and nothing else. It is a stream of [`futae_report`] frames. Notices are hints from somebody who may be wrong or
//! hostile: ranges beyond the volume are dropped, frames that were seen before too, and the reads that notices
//! cause are few at a time, so that requests that somebody waits for go first.

use crate::export::ExportTable;
use crate::{Export, HostError};
use futae_control::{Access, UnixSocket};
use futae_engine::{Operation, Request};
use futae_report::{Device, DeviceId, Frame, Message, Reason, SECTOR_BYTES, Stream};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a feed's socket in a directory is called.
const SOCKET_NAME: &str = "agent.sock";
const READ_BYTES: usize = 64 << 10;
/// Blocks given to the cache at a time.
const BLOCKS_AT_ONCE: u64 = 32;
/// Store reads under way at which notices wait.
const READS_MAX: usize = 8;
/// How long they wait before they look again.
const PAUSE: Duration = Duration::from_millis(1);
/// How often at most; then they go ahead, since a store that never answers must not end the feed.
const PAUSES_MAX: u32 = 1000;

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedReport {
    /// The export.
    pub export: String,
    /// Whether somebody is connected who has said who it is.
    pub connected: bool,
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

/// All feeds of a server; they end when this is dropped and the server's stop is told.
pub(crate) struct Feeds {
    reports: Vec<Arc<Mutex<FeedReport>>>,
    threads: Vec<JoinHandle<()>>,
}

fn lock(report: &Mutex<FeedReport>) -> MutexGuard<'_, FeedReport> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
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
            reports: Vec::new(),
            threads: Vec::new(),
        };
        for (export, socket, stop) in ready {
            let report = FeedReport {
                export: export.name.clone(),
                ..FeedReport::default()
            };
            let report = Arc::new(Mutex::new(report));
            feeds.reports.push(Arc::clone(&report));
            let mut feed = Feed::new(export, report);
            let thread = std::thread::Builder::new().name("feed".into());
            feeds
                .threads
                .push(thread.spawn(move || feed.listen(&socket, &stop))?);
        }
        Ok(feeds)
    }

    /// What came through them.
    pub(crate) fn reports(&self) -> Vec<FeedReport> {
        self.reports
            .iter()
            .map(|report| lock(report).clone())
            .collect()
    }

    /// Whether an agent tells of this export.
    pub(crate) fn sees(&self, export: &str) -> bool {
        let tells = |report: &FeedReport| report.connected && report.export == export;
        self.reports.iter().any(|report| tells(&lock(report)))
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
    report: Arc<Mutex<FeedReport>>,
    stream: Stream,
    /// The run of the agent and the number of its last frame.
    last: Option<(u64, u64)>,
    disk: Option<DeviceId>,
}

impl Feed {
    fn new(export: Export, report: Arc<Mutex<FeedReport>>) -> Self {
        Self {
            export,
            report,
            stream: Stream::default(),
            last: None,
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
        lock(&self.report).connected = false;
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
        let mut report = lock(&self.report);
        report.frames = health.frames;
        report.broken_frames =
            health.broken_frames + health.unknown_frames + u64::from(health.skipped_bytes > 0);
    }

    /// Whether the frame has a higher number than those before. A hello of another run of the agent
    /// begins anew; nothing counts before the first hello.
    fn is_new(&mut self, frame: &Frame) -> bool {
        let run = match (&frame.message, self.last) {
            (Message::Hello(hello), _) => hello.run,
            (_, Some((run, _))) => run,
            (_, None) => return false,
        };
        let is_new = self
            .last
            .is_none_or(|last| run != last.0 || frame.sequence > last.1);
        if is_new {
            self.last = Some((run, frame.sequence));
        } else {
            lock(&self.report).replayed_frames += 1;
        }
        is_new
    }

    fn take(&mut self, message: Message, stop: &OwnedFd) {
        match message {
            Message::Hello(hello) => {
                let size = self.export.engine.volume_bytes(self.export.volume);
                let disk = disk_of(&hello.devices, &self.export.name, size);
                self.disk = disk.map(|disk| disk.id);
                let mut report = lock(&self.report);
                report.connected = true;
                report.guest = hello.guest;
                report.disk = disk.map(|disk| disk.name.clone()).unwrap_or_default();
            }
            Message::Notices(notices) => {
                let is_ours =
                    self.disk == Some(notices.device) && notices.reason == Reason::Reclaim;
                if !is_ours {
                    lock(&self.report).refused_ranges += notices.ranges.len() as u64;
                    return;
                }
                for range in notices.ranges {
                    if !self.notice(range.start, range.count, stop) {
                        return;
                    }
                }
            }
            Message::Sample(sample) => {
                let untold = sample.notices_lost.saturating_add(sample.notices_homeless);
                let mut report = lock(&self.report);
                report.untold_pages = report.untold_pages.saturating_add(untold);
            }
            Message::References(_) => {}
        }
    }

    /// Tells the cache of a range that the guest evicted, a few blocks at a time; false if the server stops.
    fn notice(&self, start: u64, count: u64, stop: &OwnedFd) -> bool {
        let engine = &self.export.engine;
        let size = engine.volume_bytes(self.export.volume);
        let bytes = |sectors: u64| sectors.checked_mul(SECTOR_BYTES);
        let end = start
            .checked_add(count)
            .and_then(bytes)
            .filter(|&end| end <= size);
        let (Some(mut at), Some(end), true) = (bytes(start), end, count > 0) else {
            lock(&self.report).refused_ranges += 1;
            return true;
        };
        {
            let mut report = lock(&self.report);
            report.ranges += 1;
            report.bytes = report.bytes.saturating_add(end - at);
        }
        let step = BLOCKS_AT_ONCE * engine.block_bytes();
        while at < end {
            // Up to the next multiple, so that blocks are not cut in two.
            let next = ((at / step + 1) * step).min(end);
            if !wait_for_room(&self.export, stop) {
                return false;
            }
            let client = engine.join(self.export.volume);
            engine.submit(Request {
                volume: self.export.volume,
                client,
                sequence: 0,
                operation: Operation::Notice {
                    offset: at,
                    length: next - at,
                },
                done: Box::new(drop),
            });
            engine.leave(self.export.volume, client);
            at = next;
        }
        true
    }
}

fn has_stopped(stop: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(stop, PollFlags::IN)];
    poll(&mut fds, Some(&rustix::event::Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Until few store reads are under way; false if the server stops meanwhile.
fn wait_for_room(export: &Export, stop: &OwnedFd) -> bool {
    if has_stopped(stop) {
        return false;
    }
    for _ in 0..PAUSES_MAX {
        if export.engine.reads_under_way() < READS_MAX {
            return true;
        }
        let time = rustix::event::Timespec::try_from(PAUSE).unwrap_or_default();
        let mut fds = [PollFd::new(stop, PollFlags::IN)];
        if poll(&mut fds, Some(&time)).is_ok_and(|ready| ready > 0) {
            return false;
        }
    }
    true
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
    fn a_feed_has_its_place_beside_the_server() {
        let path = feed_path(Path::new("/run/futae/vm.sock"), "a/b");
        assert_eq!(path, Path::new("/run/futae/a_b.agent.sock"));
    }
}
