//! The data of regular files. Each file is a growing volume of the one cache, kept while the cache
//! has blocks of it and no other file needs its number.

use super::access::Access;
use super::appends::Appends;
use super::errno::errno_of;
use super::lower::LowerFile;
use super::place::Key;
use super::stat::Stamp;
use crate::kept_by_kernel::FilePages;
use crate::mapped::MappedPages;
use crate::under_way::UnderWay;
use futae_engine::{Asked, ClientId, Done, Engine, Latencies, Operation, Request};
use futae_policy::VolumeId;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The bit of `users` that says that the volume was given up.
pub(super) const GONE: u32 = 1 << 31;

/// The data of one file.
pub(crate) struct Contents {
    pub(super) engine: Arc<Engine>,
    pub(super) key: Key,
    pub(super) volume: VolumeId,
    pub(crate) lower: Arc<LowerFile>,
    /// How long requests for files of this tree take.
    pub(super) latencies: Arc<Latencies>,
    /// Its pages in the kernel's page cache, if that holds the blocks.
    pub(super) pages: Option<FilePages>,
    /// Its pages in the kernel's page cache, if that is bypassed.
    pub(super) mapped: Arc<MappedPages>,
    pub(super) appends: Appends,
    /// Number of open handles, and of opens in progress; with [`GONE`], the number of the volume is or will be another file's.
    pub(super) users: AtomicU32,
    pub(super) last_used: AtomicU64,
    /// The kernel forgot the file while a handle was still being closed.
    pub(super) is_forgotten: AtomicBool,
    /// Number of changes of the lower file, by this mount or found by [`revalidate`](Self::revalidate), that the cache has followed.
    pub(super) changes: AtomicU64,
}

impl Contents {
    pub(crate) fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Whether the cache has dropped the file since; the next open adds it again.
    pub(crate) fn is_gone(&self) -> bool {
        self.users.load(Ordering::Acquire) & GONE != 0
    }

    pub(crate) fn is_open(&self) -> bool {
        self.users.load(Ordering::Acquire) & !GONE > 0
    }

    /// Registers a user without an open handle: the file's place and its volume are kept meanwhile. `None` if the volume was
    /// given up.
    pub(crate) fn in_use(self: &Arc<Self>) -> Option<InUse> {
        let one_more = |users: u32| (users & GONE == 0).then_some(users + 1);
        let users = self
            .users
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        users.is_ok().then(|| InUse(Arc::clone(self)))
    }

    /// Gives up the volume if nobody uses the file; [`is_gone_now`](Self::is_gone_now) is to follow.
    pub(super) fn give_up_unused(&self) -> bool {
        let given_up = self
            .users
            .compare_exchange(0, GONE, Ordering::AcqRel, Ordering::Acquire);
        given_up.is_ok()
    }

    /// Gives up the place of the file, which is found again by its names when needed. It stays
    /// while the file is open.
    pub(crate) fn give_up_place(&self) {
        self.lower.give_up(|| self.is_open());
    }

    /// Checks whether another program has changed the lower file, and drops its blocks from the
    /// cache if so. Returns true if it was changed.
    pub(crate) fn revalidate(&self) -> Result<bool, Errno> {
        let place = self.lower.place()?;
        if self.is_gone() || !self.lower.seen.is_changed(&place)? {
            return Ok(false);
        }
        self.pages_are_stale();
        let before = self.size();
        self.exclusively(0, u64::MAX, || Ok(()))?;
        if self.size() < before {
            self.appends.was_cut();
        }
        Ok(true)
    }

    /// The size of the file as the cache knows it.
    pub(super) fn size(&self) -> u64 {
        self.engine.volume_bytes(self.volume)
    }

    /// Compares a stamp just read with the last known one. If they differ and no write of this
    /// mount is under way, does the same as [`revalidate`](Self::revalidate).
    pub(crate) fn notice(self: &Arc<Self>, seen: &Stamp) -> bool {
        let Some(_use) = self.in_use() else {
            return false;
        };
        self.lower.seen.differs(seen) && self.revalidate().unwrap_or(false)
    }

    /// Whether another program has changed the lower file, as far as that can be told: not while a write of this mount is under
    /// way.
    pub(crate) fn was_changed_elsewhere(&self) -> bool {
        !self.is_gone()
            && self
                .lower
                .place()
                .is_ok_and(|place| self.lower.seen.differs_now(&place))
    }

    /// The kernel's pages of the file, if any, are stale.
    pub(crate) fn pages_are_stale(&self) {
        if let Some(pages) = &self.pages {
            pages.are_stale();
        }
    }

    /// `None` if the open file bypasses the kernel's page cache, otherwise whether its pages there
    /// are valid.
    pub(crate) fn pages_are_true(&self) -> Option<bool> {
        self.pages.as_ref().map(FilePages::are_true)
    }

    /// Whether its pages in the kernel's page cache, if it has any, are those of the file with this number.
    pub(super) fn has_pages_of(&self, inode: u64) -> bool {
        self.pages.as_ref().is_none_or(|pages| pages.are_of(inode))
    }

    /// The number of its volume was given up.
    pub(super) fn is_gone_now(&self) {
        self.users.fetch_or(GONE, Ordering::AcqRel);
        self.engine.remove_volume(self.volume);
        if let Some(pages) = &self.pages {
            pages.end();
        }
    }

    /// Called before futae's own change of attributes.
    pub(crate) fn attributes_will_change(&self) {
        if let Ok(place) = self.lower.place() {
            self.lower.seen.attributes_will_change(&place);
        }
    }

    /// futae's own change of attributes: the contents are unchanged.
    pub(crate) fn attributes_changed(&self, times_were_set: bool) {
        if let Ok(place) = self.lower.place() {
            self.lower.seen.attributes_changed(&place, times_were_set);
        }
    }

    /// Whether the cache has dirty data of the file.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.is_gone() && self.engine.has_dirty(self.volume)
    }

    /// Writes all dirty data to the lower file, and waits.
    pub(crate) fn settle(&self) -> Result<(), Errno> {
        if !self.is_dirty() {
            return Ok(());
        }
        let settled = self
            .engine
            .wait(self.volume, ClientId::NOBODY, Operation::Settle);
        settled.map(drop).map_err(|error| errno_of(&error))
    }

    /// Changes the lower file directly, while nothing else is under way in the range.
    pub(crate) fn change(
        &self,
        offset: u64,
        length: u64,
        work: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.follow_changes()?;
        self.exclusively(offset, length, work)
    }

    /// Follows a change by another program, if there is one: after a change of a part of the file by this mount, it could not be
    /// told from that.
    fn follow_changes(&self) -> Result<(), Errno> {
        if self.was_changed_elsewhere() {
            self.revalidate()?;
        }
        Ok(())
    }

    fn exclusively(
        &self,
        offset: u64,
        length: u64,
        work: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let change = || self.work(work);
        let changed = self.engine.change(self.volume, offset, length, change);
        changed.unwrap_or_else(|error| Err(errno_of(&error)))
    }

    /// The same for work that changes its size.
    pub(crate) fn change_size(
        &self,
        size: u64,
        work: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.follow_changes()?;
        let change = || self.work(work);
        let changed = self.engine.change_size(self.volume, size, change);
        changed.unwrap_or_else(|error| Err(errno_of(&error)))
    }

    /// How many changes of the file the cache has followed. A read that is submitted after this sees the file as it is after
    /// these changes: each counts while the engine holds back the requests for its range.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn work(&self, work: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        // Before others can see the file as unchanged.
        self.changes.fetch_add(1, Ordering::AcqRel);
        let result = work();
        self.appends.file_has_changed();
        self.lower.seen.look(&*self.lower.place()?)?;
        result
    }

    pub(crate) fn submit(self: &Arc<Self>, operation: Operation, done: Done) {
        let asked = match &operation {
            Operation::Read { length, .. } => Some((Asked::Read, *length)),
            Operation::Write { data, .. } | Operation::Append { data, .. } => {
                Some((Asked::Write, data.len() as u64))
            }
            _ => None,
        };
        let done = match asked {
            // Who calls has it measured, if it is to be.
            None => done,
            Some((Asked::Write, bytes)) => self.written(bytes, done),
            Some((asked, bytes)) => self.measured(asked, bytes, done),
        };
        self.engine.submit(Request {
            volume: self.volume,
            client: ClientId::NOBODY,
            sequence: 0,
            operation,
            done,
        });
    }

    /// A write begins now: it is measured until it is done, and its change of the file's stamp is known to be futae's own.
    fn written(self: &Arc<Self>, bytes: u64, done: Done) -> Done {
        self.lower.seen.begin_write();
        let under_way = UnderWay::begin(&self.latencies, Asked::Write, bytes);
        let contents = Arc::clone(self);
        Box::new(move |result| {
            let place = contents.lower.place().ok();
            let seen = &contents.lower.seen;
            seen.end_write(place.as_deref(), result.is_ok());
            under_way.end(result.is_err());
            done(result);
        })
    }

    /// Has a request that begins now measured until it is done.
    pub(crate) fn measured(&self, asked: Asked, bytes: u64, done: Done) -> Done {
        let under_way = UnderWay::begin(&self.latencies, asked, bytes);
        Box::new(move |result| {
            under_way.end(result.is_err());
            done(result);
        })
    }

    /// Closes a handle. Returns whether it was the last one of a file that the kernel has
    /// forgotten, apart from one that is kept open.
    pub(crate) fn close(&self, access: Access) -> bool {
        self.lower.close(access.reads, access.writes);
        // Either this sees that the file is forgotten, or who forgets it sees that it is closed.
        self.users.fetch_sub(1, Ordering::SeqCst);
        !self.is_used() && self.is_forgotten()
    }

    /// Whether the kernel has forgotten the file.
    pub(super) fn is_forgotten(&self) -> bool {
        self.is_forgotten.load(Ordering::SeqCst)
    }
}

/// Marks contents as in use while it lives.
pub(crate) struct InUse(Arc<Contents>);

impl InUse {
    pub(crate) fn of(&self) -> &Arc<Contents> {
        &self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}
