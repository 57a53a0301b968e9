//! Evicted pages on their way to the host, with their data: put together in batches, written to a channel
//! disk, and kept within a budget of processor time.

use crate::extents::{Pages, Places};
use crate::proc;
use anyhow::{Context, bail};
use futae_agent_protocol::evicted_pages::{
    CHANNEL_BYTES, EvictedPage, EvictedPages, HEAD_BYTES, MAGIC, PAGES_MAX,
};
use futae_agent_protocol::{PAGE_BYTES, SECTOR_BYTES};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, pread, pwrite};
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PAGE: usize = PAGE_BYTES as usize;
/// How much of the budget may be saved up, and how long a debt or a failure holds pages back.
const BUDGET_WINDOW: Duration = Duration::from_secs(1);

/// A channel disk that is open.
pub struct Channel {
    path: PathBuf,
    disk: OwnedFd,
    /// Room for one batch; it begins at a page because [`Self::at`] is left out.
    memory: Vec<u8>,
    at: usize,
    batch: EvictedPages,
    /// Pages of a batch at most, so that the kernel sends it in one piece.
    most: usize,
}

impl Channel {
    /// Opens the channel that is named, or looks for one among the guest's disks.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn open(named: Option<&Path>, run: u64) -> anyhow::Result<Self> {
        if let Some(path) = named {
            return Self::open_disk(path, run).with_context(|| path.display().to_string());
        }
        for disk in proc::disks() {
            let path = Path::new("/dev").join(&disk.name);
            if disk.sectors == CHANNEL_BYTES / SECTOR_BYTES
                && let Ok(channel) = Self::open_disk(&path, run)
            {
                return Ok(channel);
            }
        }
        bail!(
            "no disk of this machine is a channel; give it the export EXPORT.evictions of futae serve --evictions-disk"
        );
    }

    fn open_disk(path: &Path, run: u64) -> anyhow::Result<Self> {
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let disk = rustix::fs::open(path, flags, Mode::empty())?;
        let memory = vec![0; (2 + PAGES_MAX) * PAGE];
        let at = memory.as_ptr().align_offset(PAGE);
        let mut channel = Self {
            most: pages_at_once(path),
            path: path.to_owned(),
            disk,
            memory,
            at,
            batch: EvictedPages {
                run,
                ..EvictedPages::default()
            },
        };
        let head = &mut channel.memory[at..at + HEAD_BYTES];
        if pread(&channel.disk, &mut *head, 0)? < MAGIC.len() || !head.starts_with(&MAGIC) {
            bail!("it is no channel for evictions");
        }
        Ok(channel)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Pages of a batch.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// Puts a page in the batch, if its place is known; whether it is.
    pub fn put(&mut self, pages: Pages, data: &[u8], places: &mut Places) -> bool {
        let mut place = None;
        places.find(&[pages], |device, range| {
            let is_whole = range.count == PAGE_BYTES / SECTOR_BYTES;
            place = is_whole.then_some(EvictedPage {
                device,
                sector: range.start,
            });
        });
        let Some(place) =
            place.filter(|_| self.batch.pages.len() < self.most && data.len() == PAGE)
        else {
            return false;
        };
        let at = self.at + HEAD_BYTES + self.batch.pages.len() * PAGE;
        self.memory[at..at + PAGE].copy_from_slice(data);
        self.batch.pages.push(place);
        true
    }

    /// Writes the batch; how many pages it had. The write's answer says that the host has taken it.
    ///
    /// # Errors
    ///
    /// If the disk fails. The pages are forgotten.
    pub fn send(&mut self) -> Result<usize, Errno> {
        let count = self.batch.pages.len();
        if count == 0 {
            return Ok(0);
        }
        self.batch.sequence += 1;
        let bytes = &mut self.memory[self.at..self.at + HEAD_BYTES + count * PAGE];
        if let Some(head) = bytes.first_chunk_mut() {
            self.batch.encode(head);
        }
        self.batch.pages.clear();
        match pwrite(&self.disk, bytes, 0) {
            Ok(written) if written == bytes.len() => Ok(count),
            Ok(_) => Err(Errno::IO),
            Err(error) => Err(error),
        }
    }
}

/// Pages of a batch that a disk takes in one piece, as its queue says.
fn pages_at_once(disk: &Path) -> usize {
    let limit = |name: &str, pages: &dyn Fn(usize) -> usize| {
        let device = disk.file_name().unwrap_or_default();
        let path = Path::new("/sys/block")
            .join(device)
            .join("queue")
            .join(name);
        let text = std::fs::read_to_string(path).ok();
        text.and_then(|text| text.trim().parse().ok())
            .map_or(PAGES_MAX, pages)
    };
    // One piece of the batch is the head.
    let segments = limit("max_segments", &|segments| segments.saturating_sub(1));
    let bytes = limit("max_sectors_kb", &|kib| {
        (kib * 1024 / PAGE).saturating_sub(1)
    });
    segments.min(bytes).clamp(1, PAGES_MAX)
}

/// What evicted pages may cost.
pub struct Budget {
    /// Processor time a second.
    share: f64,
    balance: Duration,
    debt: Duration,
    at: Instant,
    spent: Duration,
}

impl Budget {
    /// A share of all processors.
    #[must_use]
    pub fn new(share: f64) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            share: share * processors as f64,
            balance: Duration::ZERO,
            debt: Duration::ZERO,
            at: Instant::now(),
            spent: Duration::ZERO,
        }
    }

    /// Whether pages may still be sent with their data, `spent` processor time having gone into them so far.
    pub fn allows(&mut self, spent: Duration, now: Instant) -> bool {
        let earned = now.duration_since(self.at).mul_f64(self.share);
        let cost = spent.saturating_sub(self.spent);
        (self.at, self.spent) = (now, spent);
        let most = BUDGET_WINDOW.mul_f64(self.share);
        let (plus, minus) = (self.balance + earned, self.debt + cost);
        self.balance = plus.saturating_sub(minus).min(most);
        self.debt = minus.saturating_sub(plus).min(most);
        self.debt.is_zero()
    }
}

/// Processor time of the calling thread so far.
#[must_use]
pub fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_is_spent_comes_back_with_time() {
        let mut budget = Budget {
            share: 0.1,
            ..Budget::new(1.0)
        };
        let begin = budget.at;
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let ms = Duration::from_millis;
        assert!(budget.allows(ms(0), at(100)), "10 ms are saved");
        assert!(budget.allows(ms(10), at(100)), "and spent");
        assert!(!budget.allows(ms(30), at(100)), "20 ms too many");
        assert!(!budget.allows(ms(30), at(200)));
        assert!(budget.allows(ms(30), at(300)), "earned back");
        assert!(budget.allows(ms(30), at(1_000_000)));
        assert!(
            budget.allows(ms(130), at(1_000_000)),
            "a second's worth is kept"
        );
        assert!(!budget.allows(ms(131), at(1_000_000)), "and no more");
    }

    #[test]
    fn a_disk_that_is_no_channel_is_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("disk");
        std::fs::write(&path, vec![0; 8192]).expect("a file");
        let error = Channel::open(Some(&path), 1).err().expect("no channel");
        assert!(format!("{error:#}").contains("disk"), "{error:#}");
    }
}
