//! Reading directories.

use super::descriptors::Charge;
use super::errno::is_full;
use super::names::Known;
use super::place::magic;
use super::stat::{attributes, kind_of, without_attributes};
use super::state::{FRESH, OpenDirectory, Passthrough};
use crate::lock::locked;
use fuser::{FileAttr, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use rustix::fs::{AtFlags, FileType as LowerType, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of entries read at a time.
const ENTRIES_BYTES: usize = 32 << 10;
/// Descriptors per open directory: its own, and its place.
const OPEN_DESCRIPTORS: u64 = 2;

struct Entry {
    inode: u64,
    /// The offset of the next entry.
    next: u64,
    kind: FileType,
    name: OsString,
}

/// What was done with an entry.
enum Taken {
    Added,
    LeftOut,
    /// There was no room for it.
    Full,
}

impl Taken {
    /// From what fuser says of an entry that it is to add.
    fn of(is_full: bool) -> Self {
        if is_full { Self::Full } else { Self::Added }
    }
}

impl Passthrough {
    /// Charges a user for opening a directory; `None` if the user has too many open.
    pub(crate) fn charge_directory(&self, user: u32) -> Option<Charge<'_>> {
        self.descriptors.charge(user, OPEN_DESCRIPTORS)
    }

    pub(crate) fn open_directory(&self, id: u64, user: u32) -> Result<u64, Errno> {
        let place = self.nodes.place(&self.nodes.get(id)?)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // By its name `.` it would need permission to search it, too.
        let open = || rustix::fs::open(magic(&place), flags, Mode::empty());
        let file = Arc::new(std::sync::Mutex::new(self.nodes.with_room(open)?));
        let mut directories = locked(&self.directories);
        let handle = directories.next;
        directories.next += 1;
        directories
            .opened
            .insert(handle, OpenDirectory { user, file });
        Ok(handle)
    }

    pub(crate) fn close_directory(&self, handle: u64) {
        let closed = locked(&self.directories).opened.remove(&handle);
        if let Some(closed) = closed {
            drop(closed.file);
            self.descriptors.give_back(closed.user, OPEN_DESCRIPTORS);
        }
    }

    pub(crate) fn sync_directory(&self, handle: u64, data_only: bool) -> Result<(), Errno> {
        let opened = self.opened_directory(handle)?;
        let opened = locked(&opened);
        if data_only {
            rustix::fs::fdatasync(&*opened)
        } else {
            rustix::fs::fsync(&*opened)
        }
    }

    fn opened_directory(&self, handle: u64) -> Result<Arc<std::sync::Mutex<OwnedFd>>, Errno> {
        let directories = locked(&self.directories);
        let opened = directories.opened.get(&handle);
        opened.map(|it| Arc::clone(&it.file)).ok_or(Errno::BADF)
    }

    pub(crate) fn read_directory(
        &self,
        handle: u64,
        offset: u64,
        reply: &mut ReplyDirectory,
    ) -> Result<(), Errno> {
        let opened = self.opened_directory(handle)?;
        each_entry(&opened, offset, |entry| {
            let inode = INodeNo(entry.inode);
            let is_full = reply.add(inode, entry.next, entry.kind, &entry.name);
            Ok(Taken::of(is_full))
        })
    }

    /// Entries with their attributes; each counts as looked up by the kernel.
    pub(crate) fn read_directory_plus(
        &self,
        id: u64,
        handle: u64,
        offset: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<(), Errno> {
        let lookup = |name: &OsStr| self.lookup_node(id, name);
        self.each_entry_with_attributes((handle, offset), lookup, |entry, attributes, ttl| {
            let inode = attributes.ino;
            let generation = Generation(0);
            reply.add(inode, entry.next, &entry.name, ttl, attributes, generation)
        })
    }

    /// Passes entries on to `add`, until it says that it has no room.
    fn each_entry_with_attributes(
        &self,
        (handle, offset): (u64, u64),
        lookup: impl Fn(&OsStr) -> Known,
        mut add: impl FnMut(&Entry, &FileAttr, &Duration) -> bool,
    ) -> Result<(), Errno> {
        let opened = self.opened_directory(handle)?;
        each_entry(&opened, offset, |entry| {
            if entry.name == OsStr::new(".") || entry.name == OsStr::new("..") {
                // For these the kernel uses only the number and the kind, and knows the node already.
                let known = without_attributes(entry.inode, entry.kind);
                return Ok(Taken::of(add(entry, &known, &FRESH)));
            }
            match lookup(&entry.name) {
                Ok((node, stat)) => {
                    let is_full = add(entry, &attributes(&stat, node.id), &FRESH);
                    if is_full {
                        self.forget_node(node.id, 1);
                    }
                    Ok(Taken::of(is_full))
                }
                // It was removed meanwhile.
                Err(Errno::NOENT) => Ok(Taken::LeftOut),
                Err(errno) if is_full(errno) || errno == Errno::NOMEM => Err(errno),
                // It is there, and its name is shown. The kernel believes the rest at no time: it looks the name up again
                // when a program uses it, and the program gets the error. The number is not 0, by which libraries would
                // leave the entry out, and not that of a node, whose attributes the kernel would take these for.
                Err(_) => {
                    let unknown = without_attributes(self.nodes.spare_number(), entry.kind);
                    Ok(Taken::of(add(entry, &unknown, &Duration::ZERO)))
                }
            }
        })
    }
}

/// Passes entries from `offset` on to `take`, until it has enough or there are no more. An error after entries that were added
/// ends them there, since they count as given; the kernel asks for the rest, and gets the error then.
fn each_entry(
    opened: &std::sync::Mutex<OwnedFd>,
    offset: u64,
    mut take: impl FnMut(&Entry) -> Result<Taken, Errno>,
) -> Result<(), Errno> {
    let opened = locked(opened);
    rustix::fs::seek(&*opened, SeekFrom::Start(offset))?;
    let mut bytes = [MaybeUninit::uninit(); ENTRIES_BYTES];
    let mut entries = RawDir::new(&*opened, &mut bytes);
    let mut is_empty = true;
    while let Some(entry) = entries.next() {
        let taken = entry.and_then(|entry| {
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            take(&Entry {
                inode: entry.ino(),
                next: entry.next_entry_cookie(),
                kind: entry_kind(&opened, &name, entry.file_type()),
                name,
            })
        });
        match taken {
            Ok(Taken::Added) => is_empty = false,
            Ok(Taken::LeftOut) => {}
            Ok(Taken::Full) => break,
            Err(errno) if is_empty => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(())
}

/// The kind of an entry. File systems need not say it in a listing, as ext4 without `filetype` does not.
fn entry_kind(directory: &OwnedFd, name: &OsStr, listed: LowerType) -> FileType {
    if listed != LowerType::Unknown {
        return kind_of(listed);
    }
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    let found = stat.map(|stat| LowerType::from_raw_mode(stat.st_mode));
    kind_of(found.unwrap_or(LowerType::Unknown))
}

#[cfg(test)]
mod tests {
    use super::super::names::tests::tree;
    use super::super::numbers::ROOT;
    use super::*;
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// Names and whether they have attributes.
    type Listed = Vec<(String, bool)>;

    /// Reads the tree's root as the kernel does, where lookups of some names fail: all its entries, or those before an error.
    fn list(
        tree: &Passthrough,
        fails: impl Fn(&OsStr) -> Option<Errno>,
    ) -> (Listed, Option<Errno>) {
        let handle = tree.open_directory(ROOT, 0).expect("opened");
        let lookup = |name: &OsStr| match fails(name) {
            Some(errno) => Err(errno),
            None => tree.lookup_node(ROOT, name),
        };
        let (mut listed, mut offset) = (Vec::new(), 0);
        let error = loop {
            let before = offset;
            let added =
                tree.each_entry_with_attributes((handle, offset), lookup, |entry, about, ttl| {
                    offset = entry.next;
                    let name = entry.name.to_string_lossy().into_owned();
                    if !name.starts_with('.') {
                        assert_eq!(about.kind, entry.kind);
                        assert_ne!(about.ino, INodeNo(0));
                        let is_known = tree.nodes.get(about.ino.0).is_ok();
                        assert_eq!(is_known, *ttl == FRESH);
                        listed.push((name, is_known));
                    }
                    false
                });
            match added {
                Ok(()) if offset == before => break None,
                Ok(()) => {}
                Err(errno) => break Some(errno),
            }
        };
        tree.close_directory(handle);
        listed.sort();
        (listed, error)
    }

    #[test]
    fn a_kind_that_the_listing_does_not_say_is_looked_up() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("folder")).expect("made");
        std::os::unix::fs::symlink("folder", directory.path().join("link")).expect("made");
        let opened = OwnedFd::from(fs::File::open(directory.path()).expect("opened"));
        let kind = |name: &str| entry_kind(&opened, OsStr::new(name), LowerType::Unknown);
        assert_eq!(kind("folder"), FileType::Directory);
        assert_eq!(kind("link"), FileType::Symlink);
        assert_eq!(kind("gone"), FileType::RegularFile);
    }

    #[test]
    fn an_entry_whose_lookup_fails_is_not_left_out() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("a")).expect("made");
        fs::write(directory.path().join("b"), "").expect("written");
        let tree = tree(directory.path());
        let entries = |all: &[(&str, bool)]| -> Listed {
            let own = |(name, has): &(&str, bool)| ((*name).to_owned(), *has);
            all.iter().map(own).collect()
        };
        let both = |errno| {
            list(&tree, move |name| {
                (name == OsStr::new("a")).then_some(errno)
            })
        };
        for errno in [Errno::IO, Errno::ACCESS, Errno::STALE] {
            let expected = entries(&[("a", false), ("b", true)]);
            assert_eq!(both(errno), (expected, None));
        }
        // It has been removed.
        let expected = entries(&[("b", true)]);
        assert_eq!(both(Errno::NOENT), (expected, None));
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            let (listed, error) = list(&tree, |_| Some(errno));
            assert_eq!((listed, error), (Vec::new(), Some(errno)));
            let (listed, error) = both(errno);
            assert!(listed.len() < 2 && error == Some(errno), "{listed:?}");
        }
    }

    /// As on a plain directory: the right to read it is enough to list it.
    #[test]
    fn a_directory_that_may_be_read_but_not_searched_is_listed() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("a"), "").expect("written");
        let tree = tree(directory.path());
        let readable = fs::Permissions::from_mode(0o400);
        fs::set_permissions(directory.path(), readable).expect("set");
        // Modes count for root, too, without these capabilities of this thread.
        let own = capabilities(None).expect("known");
        let mut fewer = own;
        fewer
            .effective
            .remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, fewer).expect("given up");
        let listed = list(&tree, |_| None);
        set_capabilities(None, own).expect("taken again");
        assert_eq!(listed, (vec![("a".to_owned(), false)], None));
    }
}
