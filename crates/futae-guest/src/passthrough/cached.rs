//! The files whose blocks the cache holds: looked up on open, dropped when unused.

use super::appends::Appends;
use super::contents::Contents;
use super::lower::LowerFile;
use super::node::Node;
use super::nodes::Nodes;
use super::place::{Key, is_nameless};
use super::seen::Seen;
use crate::kept_by_kernel::{FilePages, KernelKeeper};
use crate::lock::locked;
use futae_engine::{Engine, FileIo, PAGE_BYTES, SetupError, Store};
use futae_policy::{Class, VolumeId};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// When volume numbers run out, one in this many of the volumes without an open file is dropped.
const GIVEN_UP: usize = 16;

/// The files whose blocks the cache may hold.
pub(crate) struct CachedFiles {
    engine: Arc<Engine>,
    /// The kernel's page cache, if it holds the blocks.
    keeper: Option<Arc<KernelKeeper>>,
    io: FileIo,
    known: Mutex<HashMap<Key, Arc<Contents>>>,
    /// Files that the kernel has forgotten before futae has closed them, by number: several threads
    /// take the kernel's requests.
    closing: Mutex<HashMap<u64, Arc<Contents>>>,
    clock: AtomicU64,
}

impl CachedFiles {
    pub(crate) fn new(engine: Arc<Engine>, keeper: Option<Arc<KernelKeeper>>) -> Self {
        Self {
            engine,
            keeper,
            io: FileIo::new(),
            known: Mutex::default(),
            closing: Mutex::default(),
            clock: AtomicU64::new(0),
        }
    }

    /// What the cache has of a file.
    pub(crate) fn known(&self, key: Key) -> Option<Arc<Contents>> {
        locked(&self.known).get(&key).cloned()
    }

    /// Their number.
    pub(crate) fn count(&self) -> u64 {
        locked(&self.known).len() as u64
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn io(&self) -> &FileIo {
        &self.io
    }

    /// A range of a lower file was changed without its store. The partial pages at its ends were
    /// changed in the page cache, and are dropped from there soon.
    pub(crate) fn sweep(&self, file: File, range: Range<u64>) {
        let page = PAGE_BYTES as u64;
        if !range.start.is_multiple_of(page) || !range.end.is_multiple_of(page) {
            self.io
                .drop_page_cache(file, range.start..range.end.max(range.start + 1));
        }
    }

    /// Opens a file. Returns its contents, and whether another program has changed them since they
    /// were last checked.
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

    /// All files.
    pub(super) fn all(&self) -> Vec<Arc<Contents>> {
        locked(&self.known).values().cloned().collect()
    }

    /// Finds or creates the contents of a node, and adds a user.
    fn contents_of(
        &self,
        nodes: &Nodes,
        node: &Arc<Node>,
        place: &Arc<OwnedFd>,
        class: Class,
    ) -> Result<Arc<Contents>, Errno> {
        let mut known = locked(&self.known);
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        // The kernel may know the file by another number than before. Its pages of then are not the file's any more.
        let renumbered = |it: &Arc<Contents>| !it.is_open() && !it.has_pages_of(node.id);
        let former = known.get(&node.key).filter(|it| renumbered(it)).cloned();
        if let Some(former) = former {
            known.remove(&node.key);
            former.is_gone_now();
        }
        let contents = match known.get(&node.key) {
            Some(contents) => Arc::clone(contents),
            None => {
                let seen = Seen::new(place, self.engine.writes_back())?;
                let lower = Arc::new(LowerFile::new(self.io.clone(), seen));
                lower.found(Arc::clone(place), nodes.path_of(node));
                let store = Arc::clone(&lower) as _;
                let volume = self.volume(&mut known, node.key, store, class)?;
                let pages = self.keeper.as_ref();
                let pages = pages.map(|keeper| FilePages::new(keeper, node.id, volume));
                let contents = Arc::new(Contents {
                    engine: Arc::clone(&self.engine),
                    key: node.key,
                    volume,
                    lower,
                    latencies: self.engine.latencies(volume),
                    pages,
                    mapped: Arc::default(),
                    appends: Appends::default(),
                    users: AtomicU32::new(0),
                    last_used: AtomicU64::new(now),
                    is_forgotten: AtomicBool::new(false),
                    changes: AtomicU64::new(0),
                });
                if node.had_contents() {
                    // The kernel may have pages of it that were not tracked while it had another
                    // volume.
                    contents.pages_are_stale();
                }
                known.insert(node.key, Arc::clone(&contents));
                contents
            }
        };
        contents.users.fetch_add(1, Ordering::AcqRel);
        contents.is_forgotten.store(false, Ordering::SeqCst);
        contents.last_used.store(now, Ordering::Relaxed);
        drop(known);
        contents.lower.found(Arc::clone(place), nodes.path_of(node));
        self.engine.set_classes(&[(contents.volume, class)], false);
        node.opened_as(&contents);
        Ok(contents)
    }

    /// A volume for a file; long unused ones make room.
    fn volume(
        &self,
        known: &mut HashMap<Key, Arc<Contents>>,
        key: Key,
        store: Arc<dyn Store>,
        class: Class,
    ) -> Result<VolumeId, Errno> {
        let name = key.to_string();
        let add = || {
            self.engine
                .add_growing_volume(&name, Arc::clone(&store), class)
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
            if contents.give_up_unused() {
                known.remove(&contents.key);
                contents.is_gone_now();
            }
        }
        add().map_err(|_| Errno::NFILE)
    }

    /// Drops this many of the files that nobody uses, the ones used least recently first, with their blocks.
    pub(crate) fn drop_unused(&self, nodes: &Nodes, count: u64) {
        let mut known = locked(&self.known);
        let mut unused: Vec<_> = known.values().filter(|it| !it.is_open()).cloned().collect();
        unused.sort_by_key(|contents| contents.last_used.load(Ordering::Relaxed));
        unused.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        unused.retain(|contents| contents.give_up_unused());
        for contents in &unused {
            known.remove(&contents.key);
        }
        drop(known);
        for contents in unused {
            contents.is_gone_now();
            nodes.forget_contents(contents.key, &contents);
        }
    }

    /// The kernel has forgotten a node. If the file has no name any more, its contents are dropped,
    /// too.
    pub(crate) fn forget(&self, node: &Node, place: Option<&Arc<OwnedFd>>) {
        // A file that is kept open may have been forgotten and found again without being opened.
        let known = || self.known(node.key);
        let Some(contents) = node.contents().or_else(known) else {
            // Its size may have been changed.
            if self.io.keeps_open(node.key.device, node.key.inode) && is_nameless(place) {
                self.let_go(node.key);
            }
            return;
        };
        locked(&self.closing).insert(node.id, Arc::clone(&contents));
        if self.forget_contents(&contents, place) {
            locked(&self.closing).remove(&node.id);
        }
    }

    /// The file with a number that the kernel has forgotten, if it is still open.
    pub(crate) fn closing(&self, id: u64) -> Option<Arc<Contents>> {
        locked(&self.closing).get(&id).cloned()
    }

    /// A file that the kernel has forgotten was closed for the last time.
    pub(crate) fn closed(&self, id: u64, contents: &Arc<Contents>) {
        let place = contents.lower.place().ok();
        if self.forget_contents(contents, place.as_ref()) {
            locked(&self.closing).remove(&id);
        }
    }

    /// The kernel has forgotten a file. Returns false if it is still open; closing it calls this
    /// again.
    fn forget_contents(&self, contents: &Arc<Contents>, place: Option<&Arc<OwnedFd>>) -> bool {
        let mut known = locked(&self.known);
        contents.is_forgotten.store(true, Ordering::SeqCst);
        if contents.is_used() {
            return false;
        }
        let ours = known.get(&contents.key);
        if !ours.is_some_and(|ours| Arc::ptr_eq(ours, contents)) {
            return true;
        }
        // Its node may have given up its place. That of an open file stays.
        let own = contents.lower.place().ok();
        let is_nameless = is_nameless(place.or(own.as_ref()));
        if !is_nameless && contents.is_kept_open() {
            // Its dirty data can still be written.
            return false;
        }
        if let Some(place) = place {
            contents.lower.lost(place);
        }
        if is_nameless {
            known.remove(&contents.key);
            drop(known);
            contents.is_gone_now();
            contents.end_kept_open();
            self.let_go(contents.key);
        }
        true
    }

    /// A file without names is not used any more: its space becomes free now.
    fn let_go(&self, key: Key) {
        self.io.let_go(key.device, key.inode);
    }

    /// Writes all dirty data of all files to the lower file system. Returns the files for which
    /// that failed.
    pub(crate) fn settle_all(&self) -> Vec<(PathBuf, Errno)> {
        let failed = |contents: Arc<Contents>| {
            let errno = contents.settle().err()?;
            Some((contents.lower.path(), errno))
        };
        self.all().into_iter().filter_map(failed).collect()
    }
}
