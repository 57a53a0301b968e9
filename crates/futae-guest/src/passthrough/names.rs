//! Operations on names: look up, create, remove, rename.

use super::caller::Caller;
use super::node::Node;
use super::place::{magic, stat_of};
use super::state::Passthrough;
use fuser::FileType;
use rustix::fs::{AtFlags, FileType as LowerType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// The attribute that holds a directory's default access list for new files.
const DEFAULT_ACL: &str = "system.posix_acl_default";
/// The mode that a process other than root needs until it has opened the file that it creates.
const OWN_ACCESS: u32 = 0o600;

/// The mode and the owner of a new file.
#[derive(Clone, Copy)]
pub(crate) struct Making {
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

impl Making {
    /// The mode in a directory: a default access list replaces the umask.
    fn mode_in(&self, directory: &OwnedFd) -> Mode {
        let has_list = rustix::fs::getxattr(magic(directory), DEFAULT_ACL, &mut [0; 0][..]).is_ok();
        let mode = if has_list {
            self.mode
        } else {
            self.mode & !self.umask
        };
        Mode::from_raw_mode(mode & 0o7777)
    }
}

/// A node that was looked up, and its attributes.
pub(super) type Known = Result<(Arc<Node>, Stat), Errno>;

impl Passthrough {
    pub(crate) fn lookup_node(&self, parent: u64, name: &OsStr) -> Known {
        let found = self.nodes.lookup(parent, name);
        let directory = match &found {
            Ok((node, _)) if node.kind == FileType::Directory => Some(Some(node.key)),
            Err(Errno::NOENT) => Some(None),
            _ => None,
        };
        if directory.is_some_and(|key| self.priority.is_news(name, key)) {
            self.look_at_designated();
        }
        let (node, stat) = found?;
        self.weigh();
        if let Some(contents) = node.contents() {
            contents.notice(&super::stat::Stamp::of(&stat));
            if contents.lower.seen.writes_back() {
                return match self.stat(&node) {
                    Ok(stat) => Ok((node, stat)),
                    Err(errno) => {
                        // The kernel does not count a lookup that fails.
                        self.forget_node(node.id, 1);
                        Err(errno)
                    }
                };
            }
        }
        Ok((node, stat))
    }

    fn directory(&self, id: u64) -> Result<Arc<OwnedFd>, Errno> {
        self.nodes.place(&self.nodes.get(id)?)
    }

    pub(crate) fn make_node(&self, parent: u64, name: &OsStr, what: Making, device: u32) -> Known {
        let directory = self.directory(parent)?;
        let kind = LowerType::from_raw_mode(what.mode);
        let device = super::stat::decode_device(device);
        let mode = what.mode_in(&directory);
        let caller = Caller::become_one(what.user, what.group);
        rustix::fs::mknodat(&*directory, name, kind, mode, device)?;
        drop(caller);
        self.lookup_node(parent, name)
    }

    pub(crate) fn make_directory(&self, parent: u64, name: &OsStr, what: Making) -> Known {
        let directory = self.directory(parent)?;
        let mode = what.mode_in(&directory);
        let caller = Caller::become_one(what.user, what.group);
        rustix::fs::mkdirat(&*directory, name, mode)?;
        drop(caller);
        self.lookup_node(parent, name)
    }

    pub(crate) fn make_symlink(
        &self,
        parent: u64,
        name: &OsStr,
        target: &Path,
        (user, group): (u32, u32),
    ) -> Known {
        let directory = self.directory(parent)?;
        let caller = Caller::become_one(user, group);
        rustix::fs::symlinkat(target, &*directory, name)?;
        drop(caller);
        self.lookup_node(parent, name)
    }

    /// Creates a regular file, to be opened next.
    ///
    /// The kernel sends this request if it knows no file of that name, and treats the answer as a
    /// new file, which its creator may open. A file that another program has created meanwhile must
    /// not be opened this way. `ESTALE` makes the kernel look the name up again, check the file's
    /// mode and owner, and open it in the ordinary way.
    pub(crate) fn make_file(
        &self,
        parent: u64,
        name: &OsStr,
        what: Making,
        exclusively: bool,
    ) -> Known {
        let directory = self.directory(parent)?;
        let mode = what.mode_in(&directory);
        let is_root = rustix::process::geteuid().is_root();
        let at_first = if is_root {
            mode
        } else {
            mode | Mode::from_raw_mode(OWN_ACCESS)
        };
        let caller = Caller::become_one(what.user, what.group);
        let common = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let flags = common | OFlags::CREATE | OFlags::EXCL;
        let make = || rustix::fs::openat(&*directory, name, flags, at_first);
        let made = self.nodes.with_room(make);
        drop(caller);
        match made {
            Ok(made) => {
                // While its descriptor is open, its inode number is not reused.
                let own = stat_of(&made)?;
                let (node, stat) = self.lookup_node(parent, name)?;
                if (stat.st_dev, stat.st_ino) == (own.st_dev, own.st_ino) {
                    return Ok((node, stat));
                }
                // Another file was moved to the name meanwhile.
                self.forget_node(node.id, 1);
                Err(Errno::STALE)
            }
            Err(Errno::EXIST) if !exclusively => Err(Errno::STALE),
            Err(errno) => Err(errno),
        }
    }

    /// Gives a file that was created for a process other than root its requested mode.
    pub(crate) fn settle_mode(&self, node: &Arc<Node>, parent: u64, what: Making) {
        if rustix::process::geteuid().is_root() {
            return;
        }
        let mode = self.directory(parent).map(|at| what.mode_in(&at));
        if let (Ok(mode), Ok(place)) = (mode, self.nodes.place(node)) {
            // It was created with a superset of this mode, which stays if the call fails.
            let _ = rustix::fs::chmod(magic(&place), mode);
            self.attributes_changed(node, false);
        }
    }

    pub(crate) fn link_node(&self, id: u64, parent: u64, name: &OsStr) -> Known {
        let node = self.nodes.get(id)?;
        let place = self.nodes.place(&node)?;
        let directory = self.directory(parent)?;
        self.attributes_will_change(&node);
        let flags = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, magic(&place), &*directory, name, flags)?;
        let known = self.nodes.lookup(parent, name)?;
        self.attributes_changed(&known.0, false);
        self.judge_again(&known.0);
        Ok(known)
    }

    pub(crate) fn remove(&self, parent: u64, name: &OsStr, flags: AtFlags) -> Result<(), Errno> {
        let directory = self.directory(parent)?;
        let node = self.nodes.named(parent, name);
        if let Some(node) = &node {
            // Without a name, only its descriptor leads to it.
            let _ = self.nodes.place(node);
            self.attributes_will_change(node);
        }
        rustix::fs::unlinkat(&*directory, name, flags)?;
        self.nodes.forget_name(parent, name);
        if let Some(node) = node {
            self.attributes_changed(&node, false);
            self.judge_again(&node);
        }
        if flags.contains(AtFlags::REMOVEDIR) && self.priority.is_used() {
            self.look_at_designated();
        }
        Ok(())
    }

    pub(crate) fn move_name(
        &self,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: u32,
    ) -> Result<(), Errno> {
        let (old, new) = (self.directory(from.0)?, self.directory(to.0)?);
        let flags = RenameFlags::from_bits_retain(flags);
        let both = [from, to].map(|(parent, name)| self.nodes.named(parent, name));
        if let Some(replaced) = &both[1] {
            let _ = self.nodes.place(replaced);
        }
        for node in both.iter().flatten() {
            self.attributes_will_change(node);
        }
        rustix::fs::renameat_with(&*old, from.1, &*new, to.1, flags)?;
        self.nodes
            .rename(from, to, flags.contains(RenameFlags::EXCHANGE));
        let is_directory = |node: &Arc<Node>| node.kind == FileType::Directory;
        if both.iter().flatten().any(is_directory) && self.priority.is_used() {
            self.look_at_designated();
        }
        for node in both.into_iter().flatten() {
            self.attributes_changed(&node, false);
            if node.kind == FileType::Directory && self.priority.is_recursive() {
                self.judge_all_again(false);
            } else {
                self.judge_again(&node);
            }
        }
        Ok(())
    }

    pub(crate) fn target_of(&self, id: u64) -> Result<Vec<u8>, Errno> {
        let place = self.nodes.place(&self.nodes.get(id)?)?;
        let target = rustix::fs::readlinkat(&*place, "", Vec::new())?;
        Ok(target.into_bytes())
    }

    /// The kernel forgets a node.
    pub(crate) fn forget_node(&self, id: u64, times: u64) {
        if let Some((node, place)) = self.nodes.forget(id, times) {
            self.files.forget(&node, place.as_ref());
            self.weigh();
        }
    }

    /// The attributes of the lower file, as programs are to see them.
    pub(crate) fn stat(&self, node: &Arc<Node>) -> Result<Stat, Errno> {
        let place = self.nodes.place(node)?;
        match node.contents() {
            Some(contents) => contents.lower.seen.stat(&place),
            None => stat_of(&place),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::access::Access;
    use super::super::weight::FileTable;
    use super::*;
    use futae_engine::{Engine, EngineOptions, IoBuf, OnEviction, Operation, WriteBackOptions};
    use std::os::unix::fs::PermissionsExt;

    /// The tree of a directory, which is not mounted.
    pub(crate) fn tree(source: &Path) -> Passthrough {
        tree_with(source, None)
    }

    pub(in crate::passthrough) fn tree_with(
        source: &Path,
        write_back: Option<WriteBackOptions>,
    ) -> Passthrough {
        let engine = Engine::new(&EngineOptions {
            block_bytes: 4096,
            capacity_blocks: 16,
            policy: "lru".parse().expect("a policy"),
            seed: 0,
            on_eviction: OnEviction::None,
            decision_log: None,
            write_back,
        });
        let root = rustix::fs::open(source, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
        let priority = super::super::priority::Priority::new(false);
        let (known, users) = (64, 64);
        let shares = super::super::descriptors::Shares { known, users };
        let (engine, root) = (engine.expect("an engine"), root.expect("a directory"));
        Passthrough::new((engine, None), root, source.to_owned(), shares, priority).expect("a tree")
    }

    /// The kernel treats the answer as a file that the caller has just created, and does not check
    /// its mode.
    #[test]
    fn a_file_that_has_come_from_below_is_not_opened_as_a_new_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let tree = tree(directory.path());
        let secret = directory.path().join("secret");
        std::fs::write(&secret, "root's").expect("written");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&secret, private).expect("private");
        let anybody = Making {
            user: 65534,
            group: 65534,
            mode: 0o100_644,
            umask: 0,
        };
        for (exclusively, refusal) in [(false, Errno::STALE), (true, Errno::EXIST)] {
            let made = tree.make_file(1, OsStr::new("secret"), anybody, exclusively);
            assert_eq!(made.map(drop), Err(refusal));
        }
        tree.make_file(1, OsStr::new("other"), anybody, false)
            .expect("made");
    }

    /// The partial page at its end went through the lower page cache, from which it is dropped later.
    #[test]
    fn a_file_without_names_is_not_kept_open_once_it_is_closed() {
        let directory = tempfile::tempdir().expect("a directory");
        let tree = Arc::new(tree(directory.path()));
        let name = OsStr::new("file");
        let what = Making {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
            mode: 0o100_644,
            umask: 0,
        };
        let flags = OFlags::WRONLY.bits() as i32;
        for is_closed_first in [true, false] {
            let made = tree.make_and_open(1, name, what, flags);
            let (node, _, _) = made.expect("made");
            let (done, is_done) = std::sync::mpsc::channel();
            let operation = Operation::Write {
                offset: 0,
                data: IoBuf::copy_of(&[1; 5000]),
                fua: false,
            };
            let writer = crate::mapped::Writer::of(fuser::WriteFlags::empty());
            tree.write(node.id, (writer, 0), operation, move |result| {
                done.send(result).expect("the test waits");
            });
            is_done.recv().expect("answered").expect("written");
            let is_kept = || tree.files.io().keeps_open(node.key.device, node.key.inode);
            let remove = || tree.remove(1, name, AtFlags::empty()).expect("removed");
            let close = || tree.close_file(node.id, Access::of(flags).handle(what.user));
            if is_closed_first {
                close();
                remove();
                assert!(is_kept());
                tree.forget_node(node.id, 1);
            } else {
                remove();
                tree.forget_node(node.id, 1);
                assert!(is_kept());
                close();
            }
            assert!(!is_kept(), "closed first: {is_closed_first}");
        }
    }

    /// The kernel forgets files only when it is short of memory.
    #[test]
    fn beyond_its_share_the_table_drops_what_the_cache_knows_of_files() {
        const FILES: u64 = 512;
        let directory = tempfile::tempdir().expect("a directory");
        let tree = Arc::new(tree(directory.path()));
        let read_only = Access::of(0);
        let mut opened = Vec::new();
        for number in 0..FILES {
            let name = number.to_string();
            std::fs::write(directory.path().join(&name), &name).expect("written");
            let (node, _) = tree.lookup_node(1, OsStr::new(&name)).expect("found");
            tree.open_file(&node, read_only).expect("opened");
            opened.push(Arc::downgrade(&node.contents().expect("opened")));
            if number > 0 {
                tree.close_file(node.id, read_only.handle(0));
            }
        }
        let table = FileTable::of(&tree.nodes, &tree.files);
        assert_eq!(
            table.known_files,
            FILES + 1,
            "the kernel has forgotten none"
        );
        assert!(table.cached_files < FILES / 4, "{table:?}");
        let live = opened.iter().filter(|it| it.strong_count() > 0).count() as u64;
        assert_eq!(live, table.cached_files, "the memory of the others is free");
        let is_there = |at: usize| opened[at].upgrade().is_some_and(|it| !it.is_gone());
        assert!(is_there(0), "it is open");
        assert!(
            !is_there(1) && is_there(opened.len() - 1),
            "the oldest go first"
        );
        // One that was dropped is there again.
        let (node, _) = tree.lookup_node(1, OsStr::new("1")).expect("found");
        tree.open_file(&node, read_only).expect("opened");
        assert!(
            node.contents()
                .is_some_and(|it| !it.is_gone() && it.is_open())
        );
    }
}
