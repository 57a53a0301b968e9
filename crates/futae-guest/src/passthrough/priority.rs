//! Which directories are designated, and so which files are protected: those directly in a
//! designated directory, by any of their names (Kotoge and others, c. 2006, section 2). A directory is known by its
//! device and inode number, so a rename takes its designation along.

use super::node::{Node, Nodes};
use super::place::Key;
use super::place::stat_of;
use crate::lock::locked;
use futae_policy::Class;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Mutex;

/// The largest number of directories above a file that are examined.
const DEPTH_MAX: usize = 1024;

/// The designated directories.
pub(crate) struct Priority {
    /// Each with a descriptor, so that no other directory gets its inode number.
    designated: Mutex<HashMap<Key, OwnedFd>>,
    /// Whether files in subdirectories are protected as well.
    recursive: bool,
}

impl Priority {
    pub(crate) fn new(recursive: bool) -> Self {
        Self {
            designated: Mutex::default(),
            recursive,
        }
    }

    /// Designates a directory by its path from the root on.
    pub(crate) fn protect(&self, root: &OwnedFd, path: &Path) -> Result<(), Errno> {
        let directory = directory(root, path)?;
        let key = Key::of(&stat_of(&directory)?);
        self.forget_removed();
        locked(&self.designated).insert(key, directory);
        Ok(())
    }

    /// Ends the designation; false if the directory was not designated.
    pub(crate) fn unprotect(&self, root: &OwnedFd, path: &Path) -> Result<bool, Errno> {
        let key = Key::of(&stat_of(&directory(root, path)?)?);
        Ok(locked(&self.designated).remove(&key).is_some())
    }

    /// Ends the designation of directories that were removed: nobody can name them any more, and their descriptors
    /// keep their inodes.
    fn forget_removed(&self) {
        let is_there = |fd: &OwnedFd| stat_of(fd).is_ok_and(|stat| stat.st_nlink > 0);
        locked(&self.designated).retain(|_, fd| is_there(fd));
    }

    /// The current paths of the designated directories.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.forget_removed();
        let designated = locked(&self.designated);
        let path = |fd: &OwnedFd| std::fs::read_link(super::place::magic(fd));
        let paths = designated.values().filter_map(|fd| path(fd).ok());
        let mut paths: Vec<_> = paths.map(|path| path.display().to_string()).collect();
        paths.sort();
        paths
    }

    /// The class of a file's blocks.
    pub(crate) fn class_of(&self, nodes: &Nodes, node: &Node) -> Class {
        let designated = locked(&self.designated);
        if designated.is_empty() {
            return Class::NORMAL;
        }
        let mut parents: Vec<u64> = node.names().into_iter().map(|name| name.0).collect();
        for _ in 0..DEPTH_MAX {
            let Some(parent) = parents.pop() else { break };
            let Ok(parent) = nodes.get(parent) else {
                continue;
            };
            if designated.contains_key(&parent.key) {
                return Class::PROTECTED;
            }
            if self.recursive {
                parents.extend(parent.names().into_iter().map(|name| name.0));
            }
        }
        Class::NORMAL
    }

    pub(crate) fn is_recursive(&self) -> bool {
        self.recursive
    }
}

/// Opens a directory in the tree; the path cannot lead outside.
fn directory(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let directory = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?;
    let kind = FileType::from_raw_mode(stat_of(&directory)?.st_mode);
    if kind == FileType::Directory {
        Ok(directory)
    } else {
        Err(Errno::NOTDIR)
    }
}
