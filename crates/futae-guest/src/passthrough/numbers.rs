//! The inode numbers of files in the mount.
//!
//! Numbers of files on the root's own device stay as they are; those of files on devices mounted below it are distinguished by
//! their upper bits. Two files can still come to the same number if the lower file system uses these bits itself. Then the file
//! that comes second gets a number of its own, for as long as the kernel knows it.

use super::place::Key;
use std::collections::HashMap;

/// The number of the tree's root, by the FUSE protocol.
pub(crate) const ROOT: u64 = 1;
/// The number of the device is mixed into the bits from here on.
const DEVICE_SHIFT: u32 = 48;
/// Where the numbers begin that are chosen for files whose own one is taken.
const CHOSEN_FROM: u64 = 3 << 62;

pub(super) struct Numbers {
    root: Key,
    /// The root's device, then those below it.
    devices: Vec<u64>,
    /// The numbers of files whose own one is taken.
    chosen: HashMap<Key, u64>,
    /// The next number to choose. None is chosen twice: a request for the file that had it may still be under way.
    next: u64,
}

impl Numbers {
    pub(super) fn new(root: Key) -> Self {
        Self {
            root,
            devices: vec![root.device],
            chosen: HashMap::new(),
            next: CHOSEN_FROM,
        }
    }

    /// The number of a file; `None` if its device is not known yet.
    pub(super) fn known(&self, key: Key) -> Option<u64> {
        if key == self.root {
            return Some(ROOT);
        }
        if let Some(&id) = self.chosen.get(&key) {
            return Some(id);
        }
        let device = self.devices.iter().position(|&it| it == key.device)? as u64;
        let apart = key.inode ^ (device << DEVICE_SHIFT);
        Some(if apart <= ROOT {
            apart | 1 << 63
        } else {
            apart
        })
    }

    /// The number of a file.
    pub(super) fn of(&mut self, key: Key) -> u64 {
        self.known(key).unwrap_or_else(|| {
            self.devices.push(key.device);
            self.known(key).unwrap_or(key.inode)
        })
    }

    /// Chooses a number for a file whose own one another file has.
    pub(super) fn choose(&mut self, key: Key, is_taken: impl Fn(u64) -> bool) -> u64 {
        let id = self.spare(is_taken);
        self.chosen.insert(key, id);
        id
    }

    /// A number that no file has, and none gets.
    pub(super) fn spare(&mut self, is_taken: impl Fn(u64) -> bool) -> u64 {
        loop {
            let id = self.next;
            self.next = id.checked_add(1).unwrap_or(CHOSEN_FROM);
            if !is_taken(id) {
                return id;
            }
        }
    }

    /// The kernel has forgotten a file.
    pub(super) fn forget(&mut self, key: Key) {
        self.chosen.remove(&key);
    }
}
