//! Memory that outlives the process: a file on tmpfs or hugetlbfs that holds the frames of a cache.
//! Beside each frame is an entry that names its block and holds a keyed hash of its content.
//!
//! An entry is *open* (no block) or *sealed*. These invariants hold at every moment, also between
//! any two stores to this memory, where a kill may occur:
//!
//! - A frame is written only while its entry is open: [`MemoryFile::unseal`] precedes every write,
//!   in [`crate::arena::Arena::frame_mut`].
//! - An entry is sealed word by word, the block last. A half-written entry is open, and an entry
//!   that does not match the content of its frame is refused because of its hash.

mod layout;
mod map;
mod place;
mod volumes;
#[cfg(test)]
mod watch;

use crate::SetupError;
use futae_policy::Slot;
use layout::{ENTRY_WORDS, Layout, MAGIC, VERSION, header};
use map::Words;
use map::frames as map_frames;
use memmap2::MmapMut;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::compiler_fence;
pub use volumes::{Known, Row, Rows};
#[cfg(test)]
pub use watch::at_every_store;

/// Words of the keys.
pub const KEY_WORDS: usize = 8;
const ROW_SHIFT: u32 = 48;
/// Entries sealed after the order was last saved rank behind all saved ones.
const ORDER_SAVED_MAX: u64 = 1 << 40;

/// The content of a sealed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The volume.
    pub row: Row,
    /// The index of the block in its volume.
    pub index: u64,
    /// The hash of the block's content at its place.
    pub mac: [u64; 2],
    /// The rank: a higher one is kept longer.
    pub order: u64,
}

/// A file that holds a cache's frames.
pub struct MemoryFile {
    file: File,
    path: PathBuf,
    layout: Layout,
    head: Words,
    index: Vec<Words>,
    slots: u32,
    /// All slots below this number have memory, except those whose frames were released one by one; none from it on has.
    filled: u32,
    /// The reason why the file was empty, if it was.
    empty: Option<String>,
    is_made: bool,
    next_order: u64,
    /// Dropped with the file.
    _companion: Option<Box<dyn Send>>,
}

impl MemoryFile {
    /// Opens or creates the file at `path` for a cache of `slots` blocks of `block_bytes`, and
    /// allocates its memory. The content is kept if a cache with the same parameters has written it
    /// since the machine was booted. Otherwise it is discarded, and [`empty`](Self::empty) gives
    /// the reason. The file becomes that of `heir`, the user that this process is about to become,
    /// if there is one.
    ///
    /// # Errors
    ///
    /// The file is on a disk, belongs to a user other than this process's and `heir`, or is in use,
    /// or there is not enough memory.
    pub fn open(
        path: &Path,
        block_bytes: u64,
        slots: u32,
        heir: Option<u32>,
    ) -> Result<Self, SetupError> {
        let (file, is_made) = place::open(path).map_err(refused(path))?;
        let opened = Self::of_file(file, path, block_bytes, slots, heir);
        if opened.is_err() && is_made {
            // Nothing is in it, and it would take memory.
            let _ = std::fs::remove_file(path);
        }
        Ok(Self { is_made, ..opened? })
    }

    /// Checks that a file can be created at `path`: its directory exists and is in memory.
    ///
    /// # Errors
    ///
    /// It does not, or is on a disk.
    pub fn check_directory(path: &Path) -> Result<(), SetupError> {
        place::check_directory(path).map_err(refused(path))
    }

    /// Creates unnamed memory (memfd), whose descriptor another process can keep.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn unnamed() -> Result<File, SetupError> {
        place::unnamed().map_err(SetupError::Size)
    }

    /// Whether an open file is that of a user from whom [`of_file`](Self::of_file) takes one.
    ///
    /// # Errors
    ///
    /// The file's owner cannot be read.
    pub fn is_of(file: &File, heir: Option<u32>) -> Result<bool, SetupError> {
        place::is_of(file, heir).map_err(SetupError::Size)
    }

    /// As [`open`](Self::open), for an open file; `path` is for messages.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn of_file(
        file: File,
        path: &Path,
        block_bytes: u64,
        slots: u32,
        heir: Option<u32>,
    ) -> Result<Self, SetupError> {
        let refused = refused(path);
        let failed = |error: io::Error| refused(format!("cannot be used as memory: {error}"));
        let page_bytes = place::check(&file, heir).map_err(refused)?;
        place::hand_to(&file, heir);
        let layout = Layout::new(block_bytes as usize, page_bytes);
        let length = file.metadata().map_err(failed)?.len();
        if !may_be_ours(&file).map_err(failed)? {
            return Err(refused(
                "is there and no memory file of futae; remove it, or name another file".to_owned(),
            ));
        }
        let mut empty = None;
        if length < layout.head_bytes() as u64 {
            empty = Some("it is new".to_owned());
        } else {
            let head = Words::map(&file, 0, layout.head_bytes()).map_err(failed)?;
            if let Err(why) = is_ours(&head, block_bytes, length, &layout) {
                empty = Some(why);
            }
        }
        if empty.is_some() {
            // The file then reads as zeroes.
            file.set_len(0).map_err(failed)?;
        } else if layout.file_bytes(slots) < length {
            file.set_len(layout.file_bytes(slots)).map_err(failed)?;
        }
        let head_bytes = layout.head_bytes() as u64;
        take(&file, 0, head_bytes).map_err(|errno| no_room(path, head_bytes, errno))?;
        let head = Words::map(&file, 0, layout.head_bytes()).map_err(failed)?;
        head.at(header::BLOCK_BYTES).store(block_bytes, Relaxed);
        Ok(Self {
            file,
            path: path.to_owned(),
            layout,
            head,
            index: Vec::new(),
            slots: 0,
            filled: 0,
            empty,
            is_made: false,
            next_order: ORDER_SAVED_MAX,
            _companion: None,
        })
    }

    /// Drops `companion` when this memory is not used any more: its cache is gone.
    #[must_use]
    pub fn with_companion(self, companion: impl Send + 'static) -> Self {
        Self {
            _companion: Some(Box::new(companion)),
            ..self
        }
    }

    /// The reason why the file was empty, if it was.
    #[must_use]
    pub fn empty(&self) -> Option<&str> {
        self.empty.as_deref()
    }

    /// Whether [`open`](Self::open) has created the file.
    #[must_use]
    pub fn is_made(&self) -> bool {
        self.is_made
    }

    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The keys of its hashes, unless the file was empty.
    pub fn keys(&self) -> Option<[u64; KEY_WORDS]> {
        if self.empty.is_some() {
            return None;
        }
        Some(std::array::from_fn(|at| {
            self.head.at(header::KEYS + at).load(Relaxed)
        }))
    }

    /// Makes the empty file valid, with hashes under these keys.
    pub fn begin(&mut self, keys: [u64; KEY_WORDS]) {
        let boot = place::boot().unwrap_or_default();
        let put = |at: usize, word| self.head.at(at).store(word, Relaxed);
        for (at, word) in keys.into_iter().enumerate() {
            put(header::KEYS + at, word);
        }
        for (at, word) in boot.into_iter().enumerate() {
            put(header::BOOT + at, word);
        }
        put(header::VERSION, VERSION);
        compiler_fence(Release);
        self.head.at(header::MAGIC).store(MAGIC, Release);
    }

    /// Number of frames per mapping.
    pub fn frames_per_segment(&self) -> usize {
        self.layout.frames_per_segment
    }

    /// Allocates memory for at most `most` of the slots below `slots` that never had any, or have given it back by
    /// [`release_unused`](Self::release_unused). Returns whether all of them have some now.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn allocate_some(&mut self, slots: u32, most: u32) -> Result<bool, SetupError> {
        let end = slots.min(self.filled.saturating_add(most));
        // A write to a page that cannot be allocated kills the process.
        let from = match self.filled {
            0 => 0,
            filled => self.layout.file_bytes(filled),
        };
        let bytes = self.layout.file_bytes(end).saturating_sub(from);
        if bytes > 0 {
            let left = self.layout.file_bytes(slots) - from;
            take(&self.file, from, bytes).map_err(|errno| no_room(&self.path, left, errno))?;
        }
        self.filled = self.filled.max(end);
        Ok(self.filled >= slots)
    }

    /// Allocates memory for all slots below `slots`, as [`allocate_some`](Self::allocate_some) does, and maps it; `segments` are
    /// the mappings of all frames so far.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn reserve(&mut self, slots: u32, segments: &mut Vec<MmapMut>) -> Result<(), SetupError> {
        let bytes = self.layout.file_bytes(slots);
        self.allocate_some(slots, u32::MAX)?;
        if slots <= self.slots {
            return Ok(());
        }
        let failed = |source| SetupError::Memory { bytes, source };
        // A partial segment is mapped again.
        let whole = self.slots as usize / self.layout.frames_per_segment;
        segments.truncate(whole);
        self.index.truncate(whole);
        for segment in whole..self.layout.segments(slots) {
            let (at, index_bytes) = (self.layout.segment_at(segment), self.layout.index_bytes());
            let frames = self.layout.frames_of(segment, slots);
            let frames_bytes = self.layout.frames_bytes(frames);
            let index = Words::map(&self.file, at, index_bytes).map_err(failed)?;
            // Entries of slots from a time when the cache was larger.
            for unused in frames..self.layout.frames_per_segment {
                index.at(unused * ENTRY_WORDS).store(0, Relaxed);
            }
            let frames = map_frames(&self.file, at + index_bytes as u64, frames_bytes);
            segments.push(frames.map_err(failed)?);
            self.index.push(index);
        }
        self.slots = slots;
        let slots = u64::from(slots);
        self.head.at(header::SLOTS).store(slots, Relaxed);
        Ok(())
    }

    /// Allocates memory for frames that were released.
    ///
    /// # Errors
    ///
    /// There is not enough memory. All of them are as before.
    pub fn fill(&self, slots: &[Slot]) -> Result<(), SetupError> {
        let bytes = self.layout.frame_bytes as u64;
        for (filled, &slot) in slots.iter().enumerate() {
            let at = self.frame_at(slot);
            if let Err(errno) = take(&self.file, at, bytes) {
                slots[..filled].iter().for_each(|&slot| self.release(slot));
                return Err(no_room(&self.path, slots.len() as u64 * bytes, errno));
            }
        }
        Ok(())
    }

    /// Returns the memory of an unused frame to the kernel. Nothing may be written to it before [`fill`](Self::fill).
    pub fn release(&self, slot: Slot) {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (at, bytes) = (self.frame_at(slot), self.layout.frame_bytes as u64);
        // If this fails, the frame keeps its memory; no data is lost.
        let _ = retry_on_intr(|| fallocate(&self.file, mode, at, bytes));
    }

    /// Returns the memory of the frames from `from` on to the kernel, of at most `most` of them; none was ever used. Returns
    /// whether that was all.
    pub fn release_unused(&mut self, from: u32, most: u32) -> bool {
        let first = from.max(self.filled.saturating_sub(most));
        for slot in first..self.filled {
            self.release(Slot(slot));
        }
        self.filled = self.filled.min(first);
        let is_all = self.filled <= from;
        if is_all {
            // Behind all slots is what was begun for a larger cache that had no room. If this fails, it stays; no data is lost.
            let _ = self.file.set_len(self.layout.file_bytes(self.slots));
        }
        is_all
    }

    fn frame_at(&self, slot: Slot) -> u64 {
        let (segment, frame) = self.layout.place(slot);
        let at = self.layout.segment_at(segment) + self.layout.index_bytes() as u64;
        at + (frame * self.layout.frame_bytes) as u64
    }

    fn entry(&self, slot: Slot) -> (&Words, usize) {
        let (segment, frame) = self.layout.place(slot);
        (&self.index[segment], frame * ENTRY_WORDS)
    }

    /// Opens the entry of a slot: the frame and the block's store may then be written to.
    #[inline]
    pub fn unseal(&self, slot: Slot) {
        let (words, at) = self.entry(slot);
        words.at(at).store(0, Release);
        // Keeps the store before all later ones of this process.
        compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Seals the entry of a slot: the frame holds what `entry` says, and no write to it or to the
    /// block's store is under way. The order is that in which entries are sealed.
    pub fn seal(&mut self, slot: Slot, entry: &Entry) {
        self.next_order += 1;
        self.unseal(slot);
        let (words, at) = self.entry(slot);
        words.at(at + 1).store(entry.mac[0], Relaxed);
        words.at(at + 2).store(entry.mac[1], Relaxed);
        words.at(at + 3).store(self.next_order, Relaxed);
        compiler_fence(Release);
        let block = (u64::from(entry.row.0) + 1) << ROW_SHIFT | entry.index;
        words.at(at).store(block, Release);
    }

    /// The entry of a slot, if it is sealed.
    pub fn sealed(&self, slot: Slot) -> Option<Entry> {
        let (words, at) = self.entry(slot);
        let block = words.at(at).load(Relaxed);
        let row = u16::try_from((block >> ROW_SHIFT).checked_sub(1)?).ok()?;
        Some(Entry {
            row: Row(row),
            index: block & ((1 << ROW_SHIFT) - 1),
            mac: [1, 2].map(|word| words.at(at + word).load(Relaxed)),
            order: words.at(at + 3).load(Relaxed),
        })
    }

    /// Sets the rank of a slot's block, below `ORDER_SAVED_MAX`.
    pub fn set_order(&self, slot: Slot, order: u64) {
        let (words, at) = self.entry(slot);
        words.at(at + 3).store(order, Relaxed);
    }

    /// Number of slots that have frames.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The volumes in the file.
    pub fn rows(&self) -> Rows<'_> {
        Rows(&self.head)
    }
}

/// Why the file at `path` cannot be used.
fn refused(path: &Path) -> impl Fn(String) -> SetupError + Copy {
    move |problem| SetupError::Open {
        path: path.to_owned(),
        problem,
    }
}

/// Whether a file is empty or begins as a memory file does, also one that was not finished. Anything else may be somebody's
/// data.
fn may_be_ours(file: &File) -> io::Result<bool> {
    let mut begin = [0; 8];
    let got = file.read_at(&mut begin, 0)?;
    let word = u64::from_le_bytes(begin);
    Ok(got == 0 || (got == begin.len() && (word == 0 || word == MAGIC)))
}

/// Checks that a file belongs to a cache with these parameters and was written since the machine
/// was booted.
fn is_ours(head: &Words, block_bytes: u64, length: u64, layout: &Layout) -> Result<(), String> {
    let word = |at: usize| head.at(at).load(Relaxed);
    if word(header::MAGIC) != MAGIC {
        return Err("it holds no cache, or one that was not made to its end".to_owned());
    }
    if word(header::VERSION) != VERSION {
        return Err(format!(
            "its layout is version {}, and this futae reads version {VERSION}",
            word(header::VERSION)
        ));
    }
    let of = word(header::BLOCK_BYTES);
    if of != block_bytes {
        return Err(format!(
            "its blocks have {of} bytes, and those of this cache {block_bytes}"
        ));
    }
    let boot = [0, 1].map(|at| word(header::BOOT + at));
    if boot == [0; 2] || place::boot() != Some(boot) {
        return Err("it was written before the machine was started".to_owned());
    }
    let slots = u32::try_from(word(header::SLOTS)).unwrap_or(u32::MAX);
    if length < layout.file_bytes(slots) {
        return Err(format!("it was cut to {length} bytes"));
    }
    Ok(())
}

/// Allocates memory for a part of the file, so that no later access to it fails. A signal interrupts that on hugetlbfs, and on
/// tmpfs before Linux 6.8: a stop by a debugger or a container's pause, for example.
fn take(file: &File, from: u64, bytes: u64) -> Result<(), Errno> {
    retry_on_intr(|| fallocate(file, FallocateFlags::empty(), from, bytes))
}

fn no_room(path: &Path, bytes: u64, errno: Errno) -> SetupError {
    SetupError::Open {
        path: path.to_owned(),
        problem: format!(
            "there is no room for {bytes} bytes: {errno}; choose a smaller --cache, or give its file system more \
             room (tmpfs: mount -o remount,size=...; hugetlbfs: sysctl vm.nr_hugepages=...)"
        ),
    }
}
