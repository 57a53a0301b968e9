//! The files that the kernel knows, by their lower device and inode number, so that renames do not
//! matter. A node is reached through an `O_PATH` descriptor. The number of these is limited; a node
//! without one is found again by its names.

use super::contents::Contents;
use super::errno::is_full;
use super::node::Node;
use super::node_table::Table;
use super::numbers::{Numbers, ROOT};
use super::place::Key;
use super::stat::kind_in;
use crate::lock::locked;
use fuser::FileType;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The number of descriptors examined for release when one is opened.
const LOOKED_AT_MAX: usize = 64;
/// The number of descriptors released when none are left.
const GIVEN_UP: usize = 64;

/// All nodes.
pub(crate) struct Nodes {
    table: RwLock<Table>,
    /// Nodes with a descriptor, the least recently opened first.
    opened: Mutex<VecDeque<Arc<Node>>>,
    opened_max: usize,
    root: Arc<Node>,
    path: PathBuf,
}

impl Nodes {
    /// The root, already opened at `path`; at most `opened_max` descriptors are kept.
    pub(crate) fn new(root: OwnedFd, path: PathBuf, opened_max: usize) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(&root)?;
        let root = Arc::new(Node::new(ROOT, Key::of(&stat), FileType::Directory, root));
        let table = Table {
            nodes: HashMap::from([(ROOT, (Arc::clone(&root), 1))]),
            entries: HashMap::new(),
            numbers: Numbers::new(root.key),
        };
        Ok(Self {
            table: RwLock::new(table),
            opened: Mutex::default(),
            opened_max,
            root,
            path,
        })
    }

    fn read<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        look(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        change(&mut self.table.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// A node by its number.
    pub(crate) fn get(&self, id: u64) -> Result<Arc<Node>, Errno> {
        let node = self.read(|table| table.nodes.get(&id).map(|(node, _)| Arc::clone(node)));
        node.ok_or(Errno::STALE)
    }

    /// The last known node of a name.
    pub(crate) fn named(&self, parent: u64, name: &OsStr) -> Option<Arc<Node>> {
        let entry = (parent, Arc::from(name));
        self.read(|table| {
            let id = table.entries.get(&entry)?;
            table.nodes.get(id).map(|(node, _)| Arc::clone(node))
        })
    }

    /// All nodes with contents.
    pub(crate) fn with_contents(&self) -> Vec<Arc<Node>> {
        self.read(|table| {
            let nodes = table.nodes.values().map(|(node, _)| node);
            nodes
                .filter(|node| node.contents().is_some())
                .cloned()
                .collect()
        })
    }

    /// The node of a lower file, if the kernel knows it.
    pub(super) fn of_key(&self, key: Key) -> Option<Arc<Node>> {
        self.read(|table| {
            let (node, _) = table.nodes.get(&table.numbers.known(key)?)?;
            (node.key == key).then(|| Arc::clone(node))
        })
    }

    /// The cache has dropped a file.
    pub(crate) fn forget_contents(&self, key: Key, dropped: &Arc<Contents>) {
        if let Some(node) = self.of_key(key) {
            let mut known = node
                .contents
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            // It may have been opened again.
            known.take_if(|known| Arc::ptr_eq(known, dropped));
        }
    }

    /// The descriptor of a node, for short use.
    pub(crate) fn place(&self, node: &Arc<Node>) -> Result<Arc<OwnedFd>, Errno> {
        match node.known_place() {
            Some(place) => Ok(place),
            None => self.find_again(node),
        }
    }

    /// Opens a node without a descriptor by a name in its parent; `None` if that name does not lead to it.
    pub(super) fn open_again(
        &self,
        node: &Arc<Node>,
        parent: &OwnedFd,
        name: &OsStr,
    ) -> Result<Option<Arc<OwnedFd>>, Errno> {
        let (place, stat) = match self.with_room(|| find(parent, name)) {
            Ok(found) => found,
            Err(errno) if is_full(errno) => return Err(errno),
            Err(_) => return Ok(None),
        };
        if Key::of(&stat) != node.key || kind_in(&stat) != node.kind {
            return Ok(None);
        }
        let place = Arc::new(place);
        node.is_at(&place);
        self.note_opened(node);
        Ok(Some(place))
    }

    /// Looks up a name, which adds a reference of the kernel to the node.
    pub(crate) fn lookup(&self, parent: u64, name: &OsStr) -> Result<(Arc<Node>, Stat), Errno> {
        let directory = self.place(&self.get(parent)?)?;
        let (place, stat) = match self.with_room(|| find(&directory, name)) {
            Ok(found) => found,
            Err(errno) => {
                if errno == Errno::NOENT {
                    self.forget_name(parent, name);
                }
                return Err(errno);
            }
        };
        let (node, is_new) = self.write(|table| table.know(place, &stat, parent, name));
        if is_new {
            self.note_opened(&node);
        }
        Ok((node, stat))
    }

    /// Enforces the limit of descriptors: releases the earliest opened ones that were not used
    /// since, unless the file is open or has no name by which to find it.
    fn note_opened(&self, node: &Arc<Node>) {
        let mut opened = locked(&self.opened);
        opened.push_back(Arc::clone(node));
        for _ in 0..LOOKED_AT_MAX {
            if opened.len() <= self.opened_max {
                return;
            }
            let Some(oldest) = opened.pop_front() else {
                return;
            };
            let is_open = oldest.contents().is_some_and(|it| it.is_open());
            let keep = is_open
                || oldest.used.swap(false, Ordering::Relaxed)
                || locked(&oldest.names).is_empty();
            let is_known = self.read(|table| {
                let known = table.nodes.get(&oldest.id);
                known.is_some_and(|(node, _)| Arc::ptr_eq(node, &oldest))
            });
            if keep && is_known {
                opened.push_back(oldest);
            } else {
                oldest.give_up_place();
            }
        }
    }

    /// Runs an operation that opens a file. If no descriptor is available, releases those of files
    /// that are not open, and runs it once more.
    pub(crate) fn with_room<T>(
        &self,
        mut open: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match open() {
            Err(errno) if is_full(errno) => {
                self.make_room();
                open()
            }
            result => result,
        }
    }

    /// Releases descriptors of files that are not open, the least recently opened first.
    fn make_room(&self) {
        let mut opened = locked(&self.opened);
        let mut given_up = 0;
        opened.retain(|node| {
            if locked(&node.place).is_none() {
                return false;
            }
            let is_open = node.contents().is_some_and(|it| it.is_open());
            if given_up == GIVEN_UP || is_open || locked(&node.names).is_empty() {
                return true;
            }
            node.give_up_place();
            given_up += 1;
            false
        });
    }

    /// The largest number of nodes with a descriptor.
    pub(super) fn places_max(&self) -> usize {
        self.opened_max
    }

    /// The nodes that have a descriptor, but for the root.
    pub(super) fn with_places(&self) -> Vec<Arc<Node>> {
        locked(&self.opened).iter().cloned().collect()
    }

    /// The number of nodes, and of those with a descriptor.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let nodes = self.read(|table| table.nodes.len());
        (nodes as u64, locked(&self.opened).len() as u64)
    }

    /// The kernel drops `times` references to a node. Returns the node and its descriptor if these
    /// were the last.
    pub(crate) fn forget(&self, id: u64, times: u64) -> Option<(Arc<Node>, Option<Arc<OwnedFd>>)> {
        self.write(|table| {
            let (_, known) = table.nodes.get_mut(&id)?;
            *known = known.saturating_sub(times);
            if *known > 0 || id == ROOT {
                return None;
            }
            let (node, _) = table.nodes.remove(&id)?;
            table.unname_all(&node);
            table.numbers.forget(node.key);
            let place = locked(&node.place).take();
            Some((node, place))
        })
    }

    /// A name was removed.
    pub(crate) fn forget_name(&self, parent: u64, name: &OsStr) {
        self.write(|table| table.unname(parent, name));
    }

    /// A name was renamed, or two names were exchanged.
    pub(crate) fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), exchange: bool) {
        self.write(|table| {
            let moved = table.entries.get(&(from.0, Arc::from(from.1))).copied();
            let other = table.entries.get(&(to.0, Arc::from(to.1))).copied();
            table.unname(from.0, from.1);
            table.unname(to.0, to.1);
            if let Some(moved) = moved {
                table.name(moved, to.0, to.1);
            }
            if let Some(other) = other.filter(|_| exchange) {
                table.name(other, from.0, from.1);
            }
        });
    }

    /// The path of a node in the lower tree, for messages.
    pub(crate) fn path_of(&self, node: &Node) -> PathBuf {
        self.read(|table| {
            let mut parts = Vec::new();
            let mut names = node.names();
            while let (Some((parent, name)), true) = (names.pop(), parts.len() < 256) {
                parts.push(name);
                names = match table.nodes.get(&parent) {
                    Some((parent, _)) => parent.names(),
                    None => Vec::new(),
                };
            }
            let mut path = self.path.clone();
            path.extend(parts.iter().rev().map(AsRef::<OsStr>::as_ref));
            path
        })
    }

    /// The root.
    pub(crate) fn root(&self) -> &Arc<Node> {
        &self.root
    }

    /// The number of a lower file in the mount.
    pub(crate) fn id_of(&self, stat: &Stat) -> u64 {
        let key = Key::of(stat);
        let known = self.read(|table| table.numbers.known(key));
        known.unwrap_or_else(|| self.write(|table| table.numbers.of(key)))
    }

    /// A number for a file that cannot be looked up. No node has it.
    pub(crate) fn spare_number(&self) -> u64 {
        self.write(|table| {
            let nodes = &table.nodes;
            table.numbers.spare(|id| nodes.contains_key(&id))
        })
    }
}

/// Opens what a name refers to, without following a symbolic link.
fn find(directory: &OwnedFd, name: &OsStr) -> Result<(OwnedFd, Stat), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let stat = rustix::fs::statat(&place, "", AtFlags::EMPTY_PATH)?;
    Ok((place, stat))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn nodes_of(directory: &Path) -> Nodes {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let root = rustix::fs::open(directory, flags, Mode::empty()).expect("opened");
        Nodes::new(root, directory.to_owned(), 16).expect("a root")
    }

    /// Has all nodes give up their descriptors.
    fn give_up_all(nodes: &Nodes) {
        while nodes.counts().1 > 0 {
            let mut answers = vec![Ok(()), Err(Errno::MFILE)];
            let opened = nodes.with_room(|| answers.pop().expect("not a third time"));
            assert_eq!(opened, Ok(()));
        }
    }

    #[test]
    fn without_descriptors_known_files_give_up_theirs_and_are_found_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let nodes = nodes_of(directory.path());
        let names = ["a", "b", "c"].map(OsStr::new);
        let known = names.map(|name| {
            std::fs::write(directory.path().join(name), "x").expect("written");
            nodes.lookup(ROOT, name).expect("found").0
        });
        assert_eq!(nodes.counts().1, 3);
        for full in [Errno::MFILE, Errno::NFILE] {
            let mut answers = vec![Ok(()), Err(full)];
            let opened = nodes.with_room(|| answers.pop().expect("not a third time"));
            assert_eq!((opened, nodes.counts().1), (Ok(()), 0));
            for node in &known {
                nodes.place(node).expect("found again");
            }
            assert_eq!(nodes.counts().1, 3);
        }
        let mut asked = 0;
        let refused = nodes.with_room(|| {
            asked += 1;
            Err::<(), _>(Errno::ACCESS)
        });
        assert_eq!(
            (refused, asked, nodes.counts().1),
            (Err(Errno::ACCESS), 1, 3)
        );
    }

    /// Directories in each other, so many that a call for each exceeds the stack of the thread that looks for the last one.
    #[test]
    fn a_directory_deeper_than_the_stack_is_found_again() {
        const DEPTH: usize = 3000;
        const STACK_BYTES: usize = 128 << 10;
        let directory = tempfile::tempdir().expect("a directory");
        let (above, below, name) = ("above", "below", OsStr::new("d"));
        let [above, below] = [above, below].map(|name| directory.path().join(name));
        // From the deepest one up, so that no path is longer than may be.
        std::fs::create_dir(&above).expect("made");
        for _ in 0..DEPTH {
            std::fs::create_dir(&below).expect("made");
            std::fs::rename(&above, below.join(name)).expect("moved");
            std::fs::rename(&below, &above).expect("moved");
        }
        let nodes = nodes_of(&above);
        let mut deepest = Arc::clone(nodes.root());
        for _ in 0..DEPTH {
            deepest = nodes.lookup(deepest.id, name).expect("found").0;
        }
        give_up_all(&nodes);
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            let found = thread.spawn_scoped(scope, || nodes.place(&deepest).map(drop));
            let found = found.expect("a thread").join();
            assert_eq!(found.expect("no panic"), Ok(()));
        });
        assert!(nodes.counts().1 < 64, "{:?}", nodes.counts());
        // Removing the directory would need a descriptor for each.
        while above.join(name).exists() {
            std::fs::rename(above.join(name), &below).expect("moved");
            std::fs::remove_dir(&above).expect("removed");
            std::fs::rename(&below, &above).expect("moved");
        }
    }

    /// Another program moves a directory out of its parent, and then the parent into it.
    #[test]
    fn stale_names_that_form_a_circle_are_not_followed_around() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |path: &str| directory.path().join(path);
        std::fs::create_dir_all(at("a/b")).expect("made");
        let nodes = nodes_of(directory.path());
        let lookup = |parent, name| nodes.lookup(parent, OsStr::new(name)).expect("found").0;
        let a = lookup(ROOT, "a");
        let b = lookup(a.id, "b");
        std::fs::rename(at("a/b"), at("c")).expect("moved");
        std::fs::rename(at("a"), at("c/a")).expect("moved");
        assert!(Arc::ptr_eq(&lookup(ROOT, "c"), &b));
        assert!(Arc::ptr_eq(&lookup(b.id, "a"), &a));
        for node in [&a, &b] {
            give_up_all(&nodes);
            nodes.place(node).expect("found again");
        }
        // No name leads to them any more.
        give_up_all(&nodes);
        std::fs::rename(at("c"), at("d")).expect("moved");
        assert_eq!(nodes.place(&a).map(drop), Err(Errno::STALE));
        assert_eq!(nodes.place(&b).map(drop), Err(Errno::STALE));
        assert!(Arc::ptr_eq(&lookup(ROOT, "d"), &b));
        give_up_all(&nodes);
        nodes.place(&a).expect("found by the new name of the other");
    }

    /// What a lookup finds, with other attributes than the file has that was made for it.
    fn look_up(nodes: &Nodes, name: &str, change: impl Fn(&mut Stat)) -> (Arc<Node>, Stat) {
        let directory = nodes.place(nodes.root()).expect("the root");
        let name = OsStr::new(name);
        let (place, mut stat) = find(&directory, name).expect("found");
        change(&mut stat);
        let (node, is_new) = nodes.write(|table| table.know(place, &stat, ROOT, name));
        if is_new {
            nodes.note_opened(&node);
        }
        (node, stat)
    }

    #[test]
    fn two_files_that_come_to_one_number_have_two() {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["a", "b", "c"] {
            std::fs::write(directory.path().join(name), name).expect("written");
        }
        let nodes = nodes_of(directory.path());
        let own = nodes.root().key.device;
        let (inode, devices) = (77, [own, own + 1, own + 2]);
        // The lower file system uses the bits that tell devices apart.
        let file = |name, device: usize| {
            look_up(&nodes, name, move |stat| {
                stat.st_dev = devices[device];
                stat.st_ino = inode ^ ((device as u64) << 48);
            })
        };
        let (a, stat_a) = file("a", 0);
        let (b, stat_b) = file("b", 1);
        let (c, stat_c) = file("c", 2);
        assert_eq!(a.id, inode);
        let all = [(&a, &stat_a), (&b, &stat_b), (&c, &stat_c)];
        for (node, stat) in all {
            assert_eq!(nodes.id_of(stat), node.id);
            assert!(Arc::ptr_eq(&nodes.get(node.id).expect("known"), node));
        }
        assert_eq!(all.map(|(node, _)| node.id == inode), [true, false, false]);
        assert_ne!(b.id, c.id);
        // Each stays as long as it is known, and the number that is free goes to who comes next.
        assert!(nodes.forget(a.id, 1).is_some());
        assert!(Arc::ptr_eq(&file("b", 1).0, &b));
        assert!(nodes.forget(c.id, 1).is_some());
        assert_eq!(file("c", 2).0.id, inode);
        assert_ne!(file("a", 0).0.id, inode);
        assert!(nodes.forget(b.id, 2).is_some());
    }

    #[test]
    fn a_file_of_another_kind_with_the_number_of_one_that_is_gone_is_another_node() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("name");
        std::fs::create_dir(&path).expect("made");
        let nodes = nodes_of(directory.path());
        let (gone, first) = look_up(&nodes, "name", |_| ());
        look_up(&nodes, "name", |_| ());
        give_up_all(&nodes);
        std::fs::remove_dir(&path).expect("removed");
        std::fs::write(&path, "data").expect("written");
        // As file systems give numbers again.
        let (node, _) = look_up(&nodes, "name", |stat| stat.st_ino = first.st_ino);
        assert_eq!((node.id, node.kind), (gone.id, FileType::RegularFile));
        assert_eq!(node.names(), [(ROOT, Arc::from(OsStr::new("name")))]);
        let named = nodes.named(ROOT, OsStr::new("name")).expect("named");
        assert!(Arc::ptr_eq(&named, &node));
        assert_eq!(nodes.place(&gone).map(drop), Err(Errno::STALE));
        // The kernel forgets both, one after the other.
        assert!(nodes.forget(node.id, 2).is_none());
        assert!(nodes.forget(node.id, 1).is_some());
    }
}
