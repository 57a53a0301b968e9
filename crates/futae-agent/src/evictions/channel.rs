//! Evicted pages put together in batches and written to a channel disk.

use crate::proc;
use anyhow::{Context, bail};
use futae_agent_protocol::evicted_pages::{
    CHANNEL_BYTES, EvictedPage, EvictedPages, HEAD_BYTES, MAGIC, PAGES_MAX,
};
use futae_agent_protocol::{PAGE_BYTES, SECTOR_BYTES};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, pread, pwrite};
use std::path::{Path, PathBuf};

const PAGE: usize = PAGE_BYTES as usize;
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

    /// Puts a page in the batch, which `fill` copies; whether it did, and there was room.
    pub fn put(&mut self, page: EvictedPage, fill: impl FnOnce(&mut [u8]) -> bool) -> bool {
        let at = self.at + HEAD_BYTES + self.batch.pages.len() * PAGE;
        let is_put = self.batch.pages.len() < self.most && fill(&mut self.memory[at..at + PAGE]);
        if is_put {
            self.batch.pages.push(page);
        }
        is_put
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_no_channel_is_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("disk");
        std::fs::write(&path, vec![0; 8192]).expect("a file");
        let error = Channel::open(Some(&path), 1).err().expect("no channel");
        assert!(format!("{error:#}").contains("disk"), "{error:#}");
    }
}
