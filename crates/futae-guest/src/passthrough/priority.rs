//! Which directories are designated, and so which files are protected: those directly in a
//! designated directory, by any of their names (Kotoge and others, c. 2006, section 2). A directory is known by its
//! device and inode number, so a rename takes its designation along. The path for which protection was asked for is remembered:
//! a directory that replaces the first one there is designated, too.

use super::node::Node;
use super::nodes::Nodes;
use super::place::Key;
use super::place::{magic, stat_of};
use crate::lock::locked;
use futae_policy::Class;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The largest number of directories above a file that are examined.
const DEPTH_MAX: usize = 1024;

struct Directory {
    /// Kept open, so that no other directory gets its inode number.
    place: OwnedFd,
    /// Its last known path in the source.
    path: PathBuf,
}

#[derive(Default)]
struct Designated {
    directories: HashMap<Key, Directory>,
    /// The paths, from the root on, for which protection was asked for, whether or not there is a directory now.
    asked: BTreeSet<PathBuf>,
    /// Removed directories of these paths. Until another one has come, none may get the inode number of the first: the kernel
    /// would not look its name up for a moment, and its coming would not be seen.
    removed: HashMap<PathBuf, OwnedFd>,
}

/// What has become of the designated directories, with their paths in the source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A directory has come to a path for which protection was asked for.
    Came(PathBuf),
    Moved {
        from: PathBuf,
        to: PathBuf,
    },
    Removed(PathBuf),
}

/// The designated directories.
pub(crate) struct Priority {
    designated: Mutex<Designated>,
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
        let place = directory(root, path)?;
        let key = Key::of(&stat_of(&place)?);
        let asked = path_below(root, &place, path)?;
        let path = path_of(&place)?;
        let mut designated = locked(&self.designated);
        designated.asked.insert(asked);
        designated
            .directories
            .insert(key, Directory { place, path });
        Ok(())
    }

    /// Ends the designation of a directory and of its path; false if neither was designated.
    pub(crate) fn unprotect(&self, root: &OwnedFd, path: &Path) -> Result<bool, Errno> {
        let place = match directory(root, path) {
            // The last directory of this path was removed, and the next one is not to be designated.
            Err(Errno::NOENT) if locked(&self.designated).asked.remove(path) => return Ok(true),
            place => place?,
        };
        let key = Key::of(&stat_of(&place)?);
        let asked = path_below(root, &place, path)?;
        let mut designated = locked(&self.designated);
        let was_asked = designated.asked.remove(&asked);
        Ok(designated.directories.remove(&key).is_some() || was_asked)
    }

    /// Whether any directory is designated, or would be.
    pub(crate) fn is_used(&self) -> bool {
        let designated = locked(&self.designated);
        !designated.directories.is_empty() || !designated.asked.is_empty()
    }

    /// Whether a name that leads to this directory, or to nothing, tells that designated directories were replaced, renamed or
    /// removed. The answer may be wrongly true.
    pub(crate) fn is_news(&self, name: &OsStr, found: Option<Key>) -> bool {
        let designated = locked(&self.designated);
        let is_named = |path: &PathBuf| path.file_name() == Some(name);
        match found.and_then(|key| designated.directories.get(&key)) {
            Some(known) => !is_named(&known.path),
            None => {
                let mut known = designated.directories.values();
                designated.asked.iter().any(is_named) || known.any(|it| is_named(&it.path))
            }
        }
    }

    /// Looks where the designated directories are now, and designates those that have come to their paths. Removed ones end:
    /// nobody can name them any more, and their descriptors keep their inodes.
    pub(crate) fn look_again(&self, root: &OwnedFd) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut designated = locked(&self.designated);
        let Designated {
            directories,
            asked,
            removed,
        } = &mut *designated;
        let is_removed =
            |it: &mut Directory| !stat_of(&it.place).is_ok_and(|stat| stat.st_nlink > 0);
        let root_path = path_of(root).unwrap_or_default();
        for (_, Directory { place, path }) in directories.extract_if(|_, it| is_removed(it)) {
            changes.push(Change::Removed(path.clone()));
            if path
                .strip_prefix(&root_path)
                .is_ok_and(|it| asked.contains(it))
            {
                removed.insert(path, place);
            }
        }
        for directory in directories.values_mut() {
            if let Ok(to) = path_of(&directory.place)
                && to != directory.path
            {
                let from = std::mem::replace(&mut directory.path, to.clone());
                changes.push(Change::Moved { from, to });
            }
        }
        for path in &*asked {
            let Ok(place) = directory(root, path) else {
                continue;
            };
            let (Ok(stat), Ok(path)) = (stat_of(&place), path_of(&place)) else {
                continue;
            };
            removed.remove(&path);
            directories.entry(Key::of(&stat)).or_insert_with(|| {
                changes.push(Change::Came(path.clone()));
                Directory { place, path }
            });
        }
        changes
    }

    /// The last known paths of the designated directories.
    pub(crate) fn paths(&self) -> Vec<String> {
        let designated = locked(&self.designated);
        let paths = designated.directories.values().map(|it| &it.path);
        let mut paths: Vec<_> = paths.map(|path| path.display().to_string()).collect();
        paths.sort();
        paths
    }

    /// The paths, from the root on, at which the next directory will be designated.
    pub(crate) fn absent(&self, root: &OwnedFd) -> Vec<String> {
        let designated = locked(&self.designated);
        let asked = designated.asked.iter();
        let absent = asked.filter(|path| directory(root, path).is_err());
        absent.map(|path| path.display().to_string()).collect()
    }

    /// The class of a file's blocks.
    pub(crate) fn class_of(&self, nodes: &Nodes, node: &Node) -> Class {
        let designated = locked(&self.designated);
        if designated.directories.is_empty() {
            return Class::NORMAL;
        }
        let mut parents: Vec<u64> = node.names().into_iter().map(|name| name.0).collect();
        for _ in 0..DEPTH_MAX {
            let Some(parent) = parents.pop() else { break };
            let Ok(parent) = nodes.get(parent) else {
                continue;
            };
            if designated.directories.contains_key(&parent.key) {
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

/// Where a directory is now.
fn path_of(place: &OwnedFd) -> Result<PathBuf, Errno> {
    let path = std::fs::read_link(magic(place));
    path.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// The path of a directory from the root on, free of symbolic links, which other directories may be given later.
fn path_below(root: &OwnedFd, place: &OwnedFd, path: &Path) -> Result<PathBuf, Errno> {
    let real = path_of(place)?;
    let below = real.strip_prefix(path_of(root)?);
    Ok(below.unwrap_or(path).to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir, remove_dir, rename};

    #[test]
    fn a_directory_that_replaces_a_designated_one_is_designated() {
        let source = tempfile::tempdir().expect("a directory");
        let at = |name: &str| source.path().join(name);
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let root = rustix::fs::open(source.path(), flags, Mode::empty()).expect("opened");
        let priority = Priority::new(false);
        create_dir(at("p")).expect("made");
        priority.protect(&root, Path::new("p")).expect("protected");
        assert_eq!(priority.look_again(&root), []);
        let (hot, other) = (OsStr::new("p"), OsStr::new("q"));
        assert!(priority.is_news(hot, None) && !priority.is_news(other, None));

        remove_dir(at("p")).expect("removed");
        assert_eq!(priority.look_again(&root), [Change::Removed(at("p"))]);
        assert_eq!(priority.look_again(&root), []);
        assert_eq!(priority.absent(&root), ["p"]);
        create_dir(at("p")).expect("made again");
        assert_eq!(priority.look_again(&root), [Change::Came(at("p"))]);

        create_dir(at("new")).expect("made");
        rename(at("p"), at("old")).expect("renamed");
        rename(at("new"), at("p")).expect("renamed");
        let (from, to) = (at("p"), at("old"));
        let changes = [Change::Moved { from, to }, Change::Came(at("p"))];
        assert_eq!(priority.look_again(&root), changes);
        let both = [at("old"), at("p")].map(|path| path.display().to_string());
        assert_eq!(priority.paths(), both);

        assert_eq!(priority.unprotect(&root, Path::new("p")), Ok(true));
        remove_dir(at("p")).expect("removed");
        create_dir(at("p")).expect("made again");
        assert_eq!(priority.look_again(&root), []);
        assert_eq!(priority.unprotect(&root, Path::new("p")), Ok(false));
        assert_eq!(priority.unprotect(&root, Path::new("old")), Ok(true));
    }
}
