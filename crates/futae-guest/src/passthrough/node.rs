//! A file that the kernel knows.

use super::contents::Contents;
use super::place::{Key, is_known_nameless};
use crate::lock::locked;
use fuser::FileType;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A name of a file: its parent, and its name there. The kernel knows many files, so the tables share each name.
pub(crate) type Name = (u64, Arc<OsStr>);

/// A file that the kernel knows.
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) key: Key,
    pub(crate) kind: FileType,
    /// Its last known names.
    pub(super) names: Mutex<Vec<Name>>,
    pub(super) place: Mutex<Option<Arc<OwnedFd>>>,
    /// Whether `place` was used since the last examination.
    pub(super) used: AtomicBool,
    /// Its data, once it has been opened, until the cache drops the file.
    pub(super) contents: RwLock<Option<Arc<Contents>>>,
    had_contents: AtomicBool,
}

impl Node {
    /// A file that was just found at `place`.
    pub(super) fn new(id: u64, key: Key, kind: FileType, place: OwnedFd) -> Self {
        Self {
            id,
            key,
            kind,
            names: Mutex::default(),
            place: Mutex::new(Some(Arc::new(place))),
            used: AtomicBool::new(true),
            contents: RwLock::default(),
            had_contents: AtomicBool::new(false),
        }
    }

    pub(crate) fn contents(&self) -> Option<Arc<Contents>> {
        let contents = self.contents.read();
        contents.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn opened_as(&self, contents: &Arc<Contents>) {
        self.had_contents.store(true, Ordering::Relaxed);
        let mut known = self
            .contents
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *known = Some(Arc::clone(contents));
    }

    /// Whether it has ever been opened.
    pub(crate) fn had_contents(&self) -> bool {
        self.had_contents.load(Ordering::Relaxed)
    }

    pub(crate) fn names(&self) -> Vec<Name> {
        locked(&self.names).clone()
    }

    /// Its descriptor, if it has one, for use now.
    pub(super) fn known_place(&self) -> Option<Arc<OwnedFd>> {
        let place = locked(&self.place).clone();
        if place.is_some() {
            self.used.store(true, Ordering::Relaxed);
        }
        place
    }

    /// Whether the file that its descriptor leads to is known to have lost its last name.
    pub(super) fn is_deleted(&self) -> bool {
        let place = locked(&self.place).clone();
        place.is_some_and(|place| is_known_nameless(&place))
    }

    /// The node was found: passes the place to its contents, too.
    pub(super) fn is_at(&self, place: &Arc<OwnedFd>) {
        *locked(&self.place) = Some(Arc::clone(place));
        if let Some(contents) = self.contents() {
            contents.lower.found_again(place);
        }
    }

    /// Releases its descriptor.
    pub(super) fn give_up_place(&self) {
        *locked(&self.place) = None;
        if let Some(contents) = self.contents() {
            contents.give_up_place();
        }
    }
}
