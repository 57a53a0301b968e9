//! From pages of files to sectors of disks.
//!
//! A page of a block device lies where its number says. A file of ext4 or XFS is opened by its handle
//! (inode and generation, no path needed) and asked for its extents, which are remembered for a few
//! seconds. What cannot be placed for certain is left out: deleted files, file systems on anything
//! but one disk, compressed, unwritten or not yet allocated extents.

use crate::proc;
use crate::system::{self, Extent};
use futae_agent_protocol::{DeviceId, PAGE_BYTES, Range, SECTOR_BYTES};
use rustix::fd::AsFd;
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long extents are believed.
const BELIEF: Duration = Duration::from_secs(2);
/// Files whose extents are remembered.
const FILES_MAX: usize = 4096;
/// Extents of one file that are looked at; what lies behind them finds no place.
const EXTENTS_MAX: usize = 16_384;
/// The mounts are read again for an unknown device, but not more often than this.
const RESCAN: Duration = Duration::from_secs(1);

/// Extents that do not say where data lies: unknown, not yet allocated, encoded, encrypted, not aligned,
/// inline, in a tail, unwritten.
const USELESS: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800;
const LAST: u32 = 0x1;

/// Pages of one file that left the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// The device of the file system, or the block device itself, as the kernel packs it.
    pub device: u32,
    /// Generation of the inode.
    pub generation: u32,
    /// Its number.
    pub inode: u64,
    /// The first page.
    pub index: u64,
    /// How many.
    pub pages: u32,
    /// Whether these are pages of the block device, not of a file.
    pub is_device: bool,
}

struct Mount {
    path: PathBuf,
    is_xfs: bool,
}

/// Remembers mounts, disks and extents.
#[derive(Default)]
pub struct Places {
    mounts: HashMap<u32, Mount>,
    scanned: Option<Instant>,
    disks: HashMap<u32, Option<(DeviceId, u64)>>,
    files: HashMap<(u32, u64, u32), (Instant, Vec<Extent>)>,
}

impl Places {
    /// Calls `put` with the place of each page that has one, in order. Returns how many have none.
    pub fn find(&mut self, left: &[Pages], mut put: impl FnMut(DeviceId, Range)) -> u64 {
        let mut homeless = 0;
        for pages in left {
            let disk = self.disks.entry(pages.device);
            let disk = disk.or_insert_with(|| proc::place_on_disk(proc::device_id(pages.device)));
            let Some((disk, begin)) = *disk else {
                homeless += u64::from(pages.pages);
                continue;
            };
            let (start, length) = (
                pages.index.saturating_mul(PAGE_BYTES),
                u64::from(pages.pages) * PAGE_BYTES,
            );
            let mut found = 0;
            let mut at = |physical: u64, length: u64| {
                found += length;
                put(
                    disk,
                    Range {
                        start: begin + physical / SECTOR_BYTES,
                        count: length / SECTOR_BYTES,
                    },
                );
            };
            if pages.is_device {
                at(start, length);
            } else if let Some(extents) = self.extents(pages) {
                cut(extents, start, length, at);
            }
            homeless += (length - found.min(length)) / PAGE_BYTES;
        }
        homeless
    }

    /// Forgets the disks: one may have come or gone.
    pub fn forget_disks(&mut self) {
        self.disks.clear();
    }

    fn extents(&mut self, pages: &Pages) -> Option<&[Extent]> {
        let key = (pages.device, pages.inode, pages.generation);
        let is_fresh = |(since, _): &(Instant, _)| since.elapsed() < BELIEF;
        if !self.files.get(&key).is_some_and(is_fresh) {
            if self.files.len() >= FILES_MAX {
                self.files.retain(|_, entry| is_fresh(entry));
                if self.files.len() >= FILES_MAX {
                    self.files.clear();
                }
            }
            // A file that is gone is remembered, too, as one without extents.
            let extents = self.read_extents(pages).unwrap_or_default();
            self.files.insert(key, (Instant::now(), extents));
        }
        self.files.get(&key).map(|(_, extents)| extents.as_slice())
    }

    fn read_extents(&mut self, pages: &Pages) -> Option<Vec<Extent>> {
        let mount = self.mount(pages.device)?;
        // Opened anew each time, so that the agent keeps nobody from unmounting.
        let directory = File::open(&mount.path).ok()?;
        let inode = pages.inode;
        let (low, high) = (inode as u32, (inode >> 32) as u32);
        let file = if mount.is_xfs {
            // FILEID_INO32_GEN with XFS_FILEID_TYPE_64FLAG: struct xfs_fid64.
            system::open_by_handle(directory.as_fd(), 0x81, &[low, high, pages.generation])
        } else {
            // FILEID_INO32_GEN.
            system::open_by_handle(directory.as_fd(), 1, &[low, pages.generation])
        };
        let file = file.ok()?;
        let mut all: Vec<Extent> = Vec::new();
        let mut start = 0;
        while all.len() < EXTENTS_MAX {
            let some = system::extents(file.as_fd(), start).ok()?;
            let Some(last) = some.last().copied() else {
                break;
            };
            all.extend_from_slice(&some);
            let next = last.logical.saturating_add(last.length);
            if last.flags & LAST != 0 || next <= start {
                break;
            }
            start = next;
        }
        Some(all)
    }

    fn mount(&mut self, device: u32) -> Option<&Mount> {
        let may_scan = self.scanned.is_none_or(|since| since.elapsed() >= RESCAN);
        let is_there = |mount: &Mount| mount.path.exists();
        if may_scan && !self.mounts.get(&device).is_some_and(is_there) {
            self.mounts = mounts_in(&proc::text("/proc/self/mountinfo"));
            self.scanned = Some(Instant::now());
        }
        self.mounts.get(&device)
    }
}

/// The part of `extents` that holds `length` bytes of the file from `start` on.
fn cut(extents: &[Extent], start: u64, length: u64, mut at: impl FnMut(u64, u64)) {
    let end = start + length;
    let first = extents.partition_point(|extent| extent.logical + extent.length <= start);
    for extent in &extents[first..] {
        if extent.logical >= end {
            break;
        }
        let from = extent.logical.max(start);
        let to = (extent.logical + extent.length).min(end);
        let physical = extent.physical + (from - extent.logical);
        let is_whole = [from, to, physical].iter().all(|at| at % SECTOR_BYTES == 0);
        if extent.flags & USELESS == 0 && is_whole {
            at(physical, to - from);
        }
    }
}

/// File systems whose files can be opened by handle and lie on one device, by that device.
fn mounts_in(text: &str) -> HashMap<u32, Mount> {
    let mut mounts = HashMap::new();
    for line in text.lines() {
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        let fields: Vec<&str> = before.split(' ').collect();
        let (Some(device), Some(path)) = (fields.get(2), fields.get(4)) else {
            continue;
        };
        let kind = after.split(' ').next().unwrap_or("");
        if !matches!(kind, "ext2" | "ext3" | "ext4" | "xfs") {
            continue;
        }
        let number = device.split_once(':').and_then(|(major, minor)| {
            Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
        });
        if let Some(number) = number {
            let mount = Mount {
                path: unescaped(path).into(),
                is_xfs: kind == "xfs",
            };
            mounts.entry(number).or_insert(mount);
        }
    }
    mounts
}

/// Spaces and the like in a path of mountinfo are written as three octal digits.
fn unescaped(path: &str) -> String {
    let mut pieces = path.split('\\');
    let mut whole = pieces.next().unwrap_or("").to_owned();
    for piece in pieces {
        let byte = piece
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte {
            Some(byte) => {
                whole.push(char::from(byte));
                whole.push_str(&piece[3..]);
            }
            None => {
                whole.push('\\');
                whole.push_str(piece);
            }
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(logical: u64, physical: u64, length: u64, flags: u32) -> Extent {
        Extent::new(logical, physical, length, flags)
    }

    fn cuts(extents: &[Extent], start: u64, length: u64) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        cut(extents, start, length, |physical, length| {
            found.push((physical, length));
        });
        found
    }

    #[test]
    fn pages_are_found_across_extents_and_holes() {
        let page = PAGE_BYTES;
        let extents = [
            extent(0, 100 * page, 4 * page, 0),
            extent(4 * page, 50 * page, 2 * page, 0),
            // A hole of two pages, then one extent that was never written.
            extent(8 * page, 60 * page, 2 * page, 0x800),
            extent(10 * page, 70 * page, page, LAST),
        ];
        assert_eq!(cuts(&extents, page, page), [(101 * page, page)]);
        assert_eq!(
            cuts(&extents, 3 * page, 4 * page),
            [(103 * page, page), (50 * page, 2 * page)]
        );
        assert_eq!(cuts(&extents, 6 * page, 4 * page), []);
        assert_eq!(cuts(&extents, 9 * page, 9 * page), [(70 * page, page)]);
        assert_eq!(cuts(&[], 0, page), []);
    }

    #[test]
    fn mounts_are_found_by_device() {
        let text = "30 1 254:0 / / rw - ext4 /dev/root rw\n\
            31 30 0:22 / /proc rw - proc proc rw\n\
            32 30 7:3 / /mnt/a\\040b rw shared:1 - xfs /dev/loop3 rw\nbroken\n";
        let mounts = mounts_in(text);
        assert_eq!(mounts.len(), 2);
        let loop3 = &mounts[&(7 << 20 | 3)];
        assert_eq!(
            (loop3.path.to_str(), loop3.is_xfs),
            (Some("/mnt/a b"), true)
        );
    }

    #[test]
    fn a_path_that_is_no_text_hides_no_other_mount() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("mountinfo");
        let text = b"30 1 254:0 / /mnt/M\xfcsik rw - ext4 /dev/sda rw\n31 1 254:1 / / rw - ext4 /dev/sdb rw\n";
        std::fs::write(&path, text).expect("room");
        let mounts = mounts_in(&proc::text(&path));
        let root = mounts
            .get(&(254 << 20 | 1))
            .and_then(|mount| mount.path.to_str());
        assert_eq!(root, Some("/"));
    }

    #[test]
    fn pages_of_a_device_that_is_no_disk_have_no_place() {
        let left = [Pages {
            device: 0xfff << 20,
            pages: 3,
            is_device: true,
            ..Pages::default()
        }];
        let mut places = Places::default();
        assert_eq!(places.find(&left, |_, _| panic!("no place")), 3);
    }
}
