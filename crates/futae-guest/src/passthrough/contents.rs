//! The data of regular files: each is a growing volume of the one cache, kept while the cache has
//! blocks of it and nobody needs its number.

use super::data::errno_of;
use super::lower::{LowerFile, stat_of};
use super::node::{Key, Node, Nodes, locked};
use super::seen::Seen;
use super::stat::Stamp;
use futae_engine::{
    ClientId, Done, Engine, FileIo, Operation, PAGE_BYTES, Request, SetupError, Store,
};
use futae_policy::{Class, VolumeId};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Of the volumes that nobody has open, so many are given up at a time when there are no more
/// numbers: one in so many.
const GIVEN_UP: usize = 16;
/// Whose requests these are: all programs are one to the cache.
const NOBODY: ClientId = ClientId(0);

/// The data of one file.
pub(crate) struct Contents {
    engine: Arc<Engine>,
    key: Key,
    volume: VolumeId,
    pub(crate) lower: Arc<LowerFile>,
    /// Handles, and those who are about to have one.
    users: AtomicU32,
    last_used: AtomicU64,
    /// The volume is somebody else's now.
    is_gone: AtomicBool,
    /// The kernel knows the file no more, but somebody was still closing it.
    is_forgotten: AtomicBool,
}

impl Contents {
    pub(crate) fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Whether the cache has forgotten the file since; the next open makes it known again.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    /// Somebody uses it without having it open: its place is kept meanwhile.
    pub(crate) fn in_use(self: &Arc<Self>) -> InUse {
        self.users.fetch_add(1, Ordering::AcqRel);
        InUse(Arc::clone(self))
    }

    /// The place of the file has been given up, and is found again by its names when it is needed. While somebody has
    /// the file open it stays.
    pub(crate) fn give_up_place(&self) {
        self.lower.give_up(|| self.is_open());
    }

    /// Finds out whether somebody has changed the file past the mount, and forgets its blocks if
    /// so. True if it was changed.
    pub(crate) fn revalidate(&self) -> Result<bool, Errno> {
        let place = self.lower.place()?;
        if self.is_gone() || !self.lower.seen.is_changed(&place)? {
            return Ok(false);
        }
        self.change(0, u64::MAX, || Ok(()))?;
        Ok(true)
    }

    /// What somebody has just seen of the file: as [`revalidate`](Self::revalidate) if that is not
    /// what is known and we are not writing it.
    pub(crate) fn notice(self: &Arc<Self>, seen: &Stamp) -> bool {
        let _use = self.in_use();
        self.lower.seen.differs(seen) && self.revalidate().unwrap_or(false)
    }

    /// Our own change of attributes: what was known of the contents stays true.
    pub(crate) fn attributes_changed(&self, times_were_set: bool) {
        if let Ok(place) = self.lower.place() {
            self.lower.seen.attributes_changed(&place, times_were_set);
        }
    }

    /// Whether the cache has data of the file that are not below.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.is_gone() && self.engine.has_dirty(self.volume)
    }

    /// Brings everything that was written below, and waits.
    pub(crate) fn settle(&self) -> Result<(), Errno> {
        if !self.is_dirty() {
            return Ok(());
        }
        let settled = self.engine.wait(self.volume, NOBODY, Operation::Settle);
        settled.map(drop).map_err(|error| errno_of(&error))
    }

    /// Changes the lower file past the cache, while nothing else is under way in the range.
    pub(crate) fn change(
        &self,
        offset: u64,
        length: u64,
        work: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let change = || self.work(work);
        let changed = self.engine.change(self.volume, offset, length, change);
        changed.unwrap_or_else(|error| Err(errno_of(&error)))
    }

    /// The same for work that gives it another size.
    pub(crate) fn change_size(
        &self,
        size: u64,
        work: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let change = || self.work(work);
        let changed = self.engine.change_size(self.volume, size, change);
        changed.unwrap_or_else(|error| Err(errno_of(&error)))
    }

    fn work(&self, work: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let result = work();
        self.lower.seen.look(&*self.lower.place()?)?;
        result
    }

    pub(crate) fn submit(self: &Arc<Self>, operation: Operation, done: Done) {
        let writes = matches!(
            operation,
            Operation::Write { .. } | Operation::Append { .. }
        );
        let done = if writes {
            self.lower.seen.begin_write();
            let contents = Arc::clone(self);
            Box::new(move |result: Result<_, _>| {
                let place = contents.lower.place().ok();
                let seen = &contents.lower.seen;
                seen.end_write(place.as_deref(), result.is_ok());
                done(result);
            })
        } else {
            done
        };
        self.engine.submit(Request {
            volume: self.volume,
            client: NOBODY,
            sequence: 0,
            operation,
            done,
        });
    }

    /// Whether that was the last who had it open, and the kernel knows it no more.
    pub(crate) fn close(&self, reads: bool, writes: bool) -> bool {
        self.lower.close(reads, writes);
        let was_last = self.users.fetch_sub(1, Ordering::AcqRel) == 1;
        was_last && self.is_forgotten.load(Ordering::Acquire)
    }
}

/// As long as it is there, contents are in use.
pub(crate) struct InUse(Arc<Contents>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The files that the cache may have blocks of.
pub(crate) struct CachedFiles {
    engine: Arc<Engine>,
    io: FileIo,
    known: Mutex<HashMap<Key, Arc<Contents>>>,
    /// Files that the kernel has forgotten before we have closed them, by number: its requests are
    /// taken by several threads.
    closing: Mutex<HashMap<u64, Arc<Contents>>>,
    clock: AtomicU64,
}

impl CachedFiles {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            io: FileIo::new(),
            known: Mutex::default(),
            closing: Mutex::default(),
            clock: AtomicU64::new(0),
        }
    }

    /// How many they are.
    pub(crate) fn count(&self) -> u64 {
        locked(&self.known).len() as u64
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn io(&self) -> &FileIo {
        &self.io
    }

    /// A range of a lower file was changed past its store. What of it is no whole page at its ends was
    /// changed in the page cache, and is dropped from there soon.
    pub(crate) fn sweep(&self, file: File, range: Range<u64>) {
        let page = PAGE_BYTES as u64;
        if !range.start.is_multiple_of(page) || !range.end.is_multiple_of(page) {
            self.io
                .drop_page_cache(file, range.start..range.end.max(range.start + 1));
        }
    }

    /// Opens a file: its contents, and whether they were changed past the mount since they were
    /// seen last.
    pub(crate) fn open(
        &self,
        nodes: &Nodes,
        node: &Arc<Node>,
        (reads, writes): (bool, bool),
        class: Class,
    ) -> Result<(Arc<Contents>, bool), Errno> {
        let place = nodes.place(node)?;
        let contents = self.contents_of(nodes, node, &place, class)?;
        let opened = contents.lower.open(reads, writes);
        let changed = opened.and_then(|()| {
            let changed = contents.revalidate();
            changed.inspect_err(|_| contents.lower.close(reads, writes))
        });
        match changed {
            Ok(changed) => Ok((contents, changed)),
            Err(errno) => {
                contents.users.fetch_sub(1, Ordering::AcqRel);
                Err(errno)
            }
        }
    }

    /// Finds or makes the contents of a node, with one more user.
    fn contents_of(
        &self,
        nodes: &Nodes,
        node: &Arc<Node>,
        place: &Arc<OwnedFd>,
        class: Class,
    ) -> Result<Arc<Contents>, Errno> {
        let mut known = locked(&self.known);
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let contents = match known.get(&node.key) {
            Some(contents) => Arc::clone(contents),
            None => {
                let seen = Seen::new(place, self.engine.writes_back())?;
                let lower = Arc::new(LowerFile::new(self.io.clone(), seen));
                lower.found(Arc::clone(place), nodes.path_of(node));
                let volume = self.volume(&mut known, Arc::clone(&lower) as _, class)?;
                let contents = Arc::new(Contents {
                    engine: Arc::clone(&self.engine),
                    key: node.key,
                    volume,
                    lower,
                    users: AtomicU32::new(0),
                    last_used: AtomicU64::new(now),
                    is_gone: AtomicBool::new(false),
                    is_forgotten: AtomicBool::new(false),
                });
                known.insert(node.key, Arc::clone(&contents));
                contents
            }
        };
        contents.users.fetch_add(1, Ordering::AcqRel);
        contents.is_forgotten.store(false, Ordering::Release);
        contents.last_used.store(now, Ordering::Relaxed);
        drop(known);
        contents.lower.found(Arc::clone(place), nodes.path_of(node));
        self.engine.set_classes(&[(contents.volume, class)], false);
        node.opened_as(&contents);
        Ok(contents)
    }

    /// A volume for a file; those that were not used for long make room.
    fn volume(
        &self,
        known: &mut HashMap<Key, Arc<Contents>>,
        store: Arc<dyn Store>,
        class: Class,
    ) -> Result<VolumeId, Errno> {
        let add = || {
            self.engine
                .add_growing_volume("a file", Arc::clone(&store), class)
        };
        match add() {
            Ok(volume) => return Ok(volume),
            Err(SetupError::TooManyVolumes) => {}
            Err(_) => return Err(Errno::IO),
        }
        let mut unused: Vec<_> = known.values().filter(|it| !it.is_open()).cloned().collect();
        unused.sort_by_key(|contents| contents.last_used.load(Ordering::Relaxed));
        unused.truncate(unused.len() / GIVEN_UP + 1);
        for contents in unused {
            known.remove(&contents.key);
            contents.is_gone.store(true, Ordering::Release);
            self.engine.remove_volume(contents.volume);
        }
        add().map_err(|_| Errno::NFILE)
    }

    /// The kernel has forgotten a node. If the file has no name any more, so do we.
    pub(crate) fn forget(&self, node: &Node, place: Option<&Arc<OwnedFd>>) {
        let Some(contents) = node.contents() else {
            return;
        };
        locked(&self.closing).insert(node.id, Arc::clone(&contents));
        if self.forget_contents(&contents, place) {
            locked(&self.closing).remove(&node.id);
        }
    }

    /// The file of a number that the kernel has forgotten, if it is still open.
    pub(crate) fn closing(&self, id: u64) -> Option<Arc<Contents>> {
        locked(&self.closing).get(&id).cloned()
    }

    /// Nobody has a file open any more that the kernel has forgotten.
    pub(crate) fn closed(&self, id: u64, contents: &Arc<Contents>) {
        locked(&self.closing).remove(&id);
        let place = contents.lower.place().ok();
        self.forget_contents(contents, place.as_ref());
    }

    /// The kernel knows a file no more; false if somebody is still to close it, and says so again.
    fn forget_contents(&self, contents: &Arc<Contents>, place: Option<&Arc<OwnedFd>>) -> bool {
        let mut known = locked(&self.known);
        contents.is_forgotten.store(true, Ordering::Release);
        if contents.is_open() {
            return false;
        }
        let ours = known.get(&contents.key);
        if !ours.is_some_and(|ours| Arc::ptr_eq(ours, contents)) {
            return true;
        }
        let links = place.and_then(|place| stat_of(place).ok());
        if let Some(place) = place {
            contents.lower.lost(place);
        }
        if links.is_some_and(|stat| stat.st_nlink == 0) {
            known.remove(&contents.key);
            drop(known);
            contents.is_gone.store(true, Ordering::Release);
            self.engine.remove_volume(contents.volume);
        }
        true
    }

    /// Brings everything that was written to any file below. What could not be, by path.
    pub(crate) fn settle_all(&self) -> Vec<(PathBuf, Errno)> {
        let all: Vec<_> = locked(&self.known).values().cloned().collect();
        let failed = |contents: Arc<Contents>| {
            let errno = contents.settle().err()?;
            Some((contents.lower.path(), errno))
        };
        all.into_iter().filter_map(failed).collect()
    }
}
