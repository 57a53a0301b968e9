//! The data of regular files: each is a growing volume of the one cache, kept while the cache has
//! blocks of it and nobody needs its number.

use super::lower::{LowerFile, stat_of};
use super::node::{Key, Node, Nodes, locked};
use super::stat::Stamp;
use futae_engine::{Done, Engine, FileIo, Operation, PAGE_BYTES, Request, SetupError, Store};
use futae_policy::{Class, VolumeId};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Of the volumes that nobody has open, so many are given up at a time when there are no more
/// numbers: one in so many.
const GIVEN_UP: usize = 16;

/// The data of one file.
pub(crate) struct Contents {
    engine: Arc<Engine>,
    key: Key,
    volume: VolumeId,
    pub(crate) lower: Arc<LowerFile>,
    stamp: Mutex<Stamp>,
    /// Writes under way: the file changes, and it is us.
    writes: AtomicU32,
    /// Handles, and those who are about to have one.
    users: AtomicU32,
    last_used: AtomicU64,
    /// The volume is somebody else's now.
    is_gone: AtomicBool,
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

    fn stat(&self) -> Result<Stamp, Errno> {
        Ok(Stamp::of(&stat_of(&*self.lower.place()?)?))
    }

    /// Finds out whether somebody has changed the file past the mount, and forgets its blocks if
    /// so. True if it was changed.
    pub(crate) fn revalidate(&self) -> Result<bool, Errno> {
        let now = self.stat()?;
        if now == *locked(&self.stamp) || self.is_gone() {
            return Ok(false);
        }
        self.change(0, u64::MAX, || Ok(()))?;
        Ok(true)
    }

    /// What somebody has just seen of the file: as [`revalidate`](Self::revalidate) if that is not
    /// what is known and we are not writing it.
    pub(crate) fn notice(self: &Arc<Self>, seen: &Stamp) -> bool {
        let _use = self.in_use();
        let quiet = self.writes.load(Ordering::Acquire) == 0;
        quiet && *seen != *locked(&self.stamp) && self.revalidate().unwrap_or(false)
    }

    /// Our own change of attributes: what was known of the contents stays true.
    pub(crate) fn attributes_changed(&self, times_were_set: bool) {
        if let Ok(now) = self.stat() {
            let mut stamp = locked(&self.stamp);
            if now.has_contents_of(&stamp) || (times_were_set && now.size == stamp.size) {
                *stamp = now;
            }
        }
    }

    /// Changes the lower file past the cache, while nothing else is under way in the range.
    pub(crate) fn change(
        &self,
        offset: u64,
        length: u64,
        work: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.engine
            .change(self.volume, offset, length, || self.work(work))
    }

    /// The same for work that gives it another size.
    pub(crate) fn change_size(
        &self,
        size: u64,
        work: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.engine
            .change_size(self.volume, size, || self.work(work))
    }

    fn work(&self, work: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let result = work();
        let now = self.stat()?;
        *locked(&self.stamp) = now;
        result
    }

    pub(crate) fn submit(self: &Arc<Self>, operation: Operation, done: Done) {
        let writes = matches!(
            operation,
            Operation::Write { .. } | Operation::Append { .. }
        );
        let done = if writes {
            self.writes.fetch_add(1, Ordering::AcqRel);
            let contents = Arc::clone(self);
            Box::new(move |result| {
                if let Ok(now) = contents.stat() {
                    *locked(&contents.stamp) = now;
                }
                contents.writes.fetch_sub(1, Ordering::AcqRel);
                done(result);
            })
        } else {
            done
        };
        self.engine.submit(Request {
            volume: self.volume,
            client: futae_engine::ClientId(0),
            sequence: 0,
            operation,
            done,
        });
    }

    pub(crate) fn close(&self, reads: bool, writes: bool) {
        self.lower.close(reads, writes);
        self.users.fetch_sub(1, Ordering::AcqRel);
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
    clock: AtomicU64,
}

impl CachedFiles {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            io: FileIo::new(),
            known: Mutex::default(),
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
                .sweep(file, range.start..range.end.max(range.start + 1));
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
                let lower = Arc::new(LowerFile::new(self.io.clone()));
                lower.found(Arc::clone(place), nodes.path_of(node));
                let stamp = Stamp::of(&stat_of(place)?);
                let volume = self.volume(&mut known, Arc::clone(&lower) as _, class)?;
                let contents = Arc::new(Contents {
                    engine: Arc::clone(&self.engine),
                    key: node.key,
                    volume,
                    lower,
                    stamp: Mutex::new(stamp),
                    writes: AtomicU32::new(0),
                    users: AtomicU32::new(0),
                    last_used: AtomicU64::new(now),
                    is_gone: AtomicBool::new(false),
                });
                known.insert(node.key, Arc::clone(&contents));
                contents
            }
        };
        contents.users.fetch_add(1, Ordering::AcqRel);
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
        let mut known = locked(&self.known);
        let ours = known.get(&node.key);
        if contents.is_open() || !ours.is_some_and(|ours| Arc::ptr_eq(ours, &contents)) {
            return;
        }
        let links = place.and_then(|place| stat_of(place).ok());
        if let Some(place) = place {
            contents.lower.lost(place);
        }
        if links.is_some_and(|stat| stat.st_nlink == 0) {
            known.remove(&node.key);
            drop(known);
            contents.is_gone.store(true, Ordering::Release);
            self.engine.remove_volume(contents.volume);
        }
    }
}
