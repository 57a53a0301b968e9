//! Attributes of files, plain and extended.

use super::caller::Asker;
use super::contents::Contents;
use super::node::Node;
use super::place::{magic, stat_of};
use super::stat::{Stamp, time_to_set};
use super::state::Passthrough;
use fuser::{FileType, TimeOrNow};
use rustix::fs::{
    AtFlags, Gid, Mode, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

/// Prefix of attributes of the root that futae itself answers.
const OWN_PREFIX: &str = "user.futae.";
/// Names that Linux lists to administrators only.
const TRUSTED_PREFIX: &[u8] = b"trusted.";
/// The access control list of a file, which may take its set-group-ID bit away.
const ACCESS_LIST: &str = "system.posix_acl_access";
/// The attribute of the root that holds the path of the mount's control socket.
pub(crate) const CONTROL: &str = "user.futae.control";
/// The longest attribute value and list of names, limited by the kernel.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// A change of attributes.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) mode: Option<u32>,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: Option<TimeOrNow>,
    pub(crate) modified: Option<TimeOrNow>,
    /// The process that asks, if it is not futae itself.
    pub(crate) asker: Option<Asker>,
}

impl Wanted {
    fn touches_data_or_owner(&self) -> bool {
        let times = self.accessed.is_some() || self.modified.is_some();
        // A change of nothing is a `chown` to the present owner.
        let is_chown = self.user.is_some() || self.group.is_some();
        self.size.is_some() || is_chown || (self.mode.is_none() && !times)
    }

    /// The set-id bits that a file loses by this change.
    fn takes_away(&self, before: &Stat) -> u32 {
        let Some(asker) = self.asker.filter(|_| self.touches_data_or_owner()) else {
            return 0;
        };
        // An empty change either precedes a change of data by its asker, or is a `chown` without
        // effect on files of other users.
        let is_nothing = self.size.is_none() && self.user.is_none() && self.group.is_none();
        if is_nothing && self.mode.is_none() && !asker.owns(before) {
            return 0;
        }
        asker.takes_from(before)
    }
}

impl Passthrough {
    pub(crate) fn attributes_of(&self, id: u64) -> Result<Stat, Errno> {
        let node = self.nodes.get(id)?;
        let stat = self.stat(&node)?;
        if let Some(contents) = node.contents() {
            contents.notice(&Stamp::of(&stat));
        }
        Ok(stat)
    }

    pub(crate) fn set_attributes(&self, id: u64, wanted: &Wanted) -> Result<Stat, Errno> {
        let node = self.nodes.get(id)?;
        let place = self.nodes.place(&node)?;
        self.attributes_will_change(&node);
        let before = stat_of(&place)?;
        let lost = wanted.takes_away(&before);
        // The owner first: the lower kernel then clears bits that the mode restores.
        if wanted.user.is_some() || wanted.group.is_some() {
            let (user, group) = (
                wanted.user.map(Uid::from_raw),
                wanted.group.map(Gid::from_raw),
            );
            rustix::fs::chownat(&*place, "", user, group, AtFlags::EMPTY_PATH)?;
        }
        if wanted.mode.is_some() || lost != 0 {
            // The kernel's request covers some of the bits only.
            let mode = wanted.mode.unwrap_or(before.st_mode) & 0o7777 & !lost;
            rustix::fs::chmod(magic(&place), Mode::from_raw_mode(mode))?;
        }
        if let Some(size) = wanted.size {
            // What was changed until here is not taken for another program's change.
            self.attributes_changed(&node, false);
            self.set_size(&node, size)?;
        }
        if wanted.modified.is_some()
            && let Some(contents) = self.contents_of(&node)
        {
            // A later write-back would change the times.
            contents.settle()?;
        }
        if wanted.accessed.is_some() || wanted.modified.is_some() {
            let times = Timestamps {
                last_access: time(wanted.accessed),
                last_modification: time(wanted.modified),
            };
            rustix::fs::utimensat(&*place, "", &times, AtFlags::EMPTY_PATH)?;
        }
        self.attributes_changed(&node, wanted.modified.is_some());
        self.stat(&node)
    }

    /// What the cache has of a file, also if the kernel has forgotten the file and found it again, and it was not opened since. It
    /// may have dirty data, if that could not be written.
    fn contents_of(&self, node: &Node) -> Option<Arc<Contents>> {
        node.contents().or_else(|| self.files.known(node.key))
    }

    fn set_size(&self, node: &Arc<Node>, size: u64) -> Result<(), Errno> {
        if node.kind != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        let place = self.nodes.place(node)?;
        let cut = || {
            let file = self.writable(node, &place)?;
            rustix::fs::ftruncate(&file, size)?;
            self.files.sweep(file, size..size);
            Ok(())
        };
        let contents = self.contents_of(node);
        let Some(used) = contents.and_then(|contents| contents.in_use()) else {
            return cut();
        };
        let contents = Arc::clone(used.of());
        contents.lower.found_again(&place);
        contents.change_size(size, cut)?;
        drop(used);
        // What was dirty may have been cut off.
        self.finish_kept_open(&contents);
        Ok(())
    }

    /// Called before futae's own change of attributes.
    pub(crate) fn attributes_will_change(&self, node: &Arc<Node>) {
        if let Some(contents) = node.contents() {
            let _use = contents.in_use();
            if let Ok(place) = self.nodes.place(node) {
                contents.lower.found_again(&place);
            }
            contents.attributes_will_change();
        }
    }

    /// Called after futae's own change of attributes.
    pub(crate) fn attributes_changed(&self, node: &Arc<Node>, times_were_set: bool) {
        if let Some(contents) = node.contents() {
            let _use = contents.in_use();
            // Without a place, the file is checked at its next open.
            if let Ok(place) = self.nodes.place(node) {
                contents.lower.found_again(&place);
            }
            contents.attributes_changed(times_were_set);
        }
    }

    /// A request other than one for the mode has changed it: the kernel has to ask for it again.
    pub(crate) fn mode_changed(&self, node: &Node) {
        if let Some(notifier) = self.notifier.get() {
            // If the kernel does not know the file, it has no attributes of it.
            let _ = notifier.inval_inode(fuser::INodeNo(node.id), -1, 0);
        }
    }

    pub(crate) fn xattr(&self, id: u64, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let node = self.nodes.get(id)?;
        if let Some(own) = self.own_xattr(&node, name) {
            return own;
        }
        let place = self.nodes.place(&node)?;
        let mut value = vec![0; XATTR_BYTES_MAX];
        let length = rustix::fs::getxattr(magic(&place), name, &mut value[..])?;
        value.truncate(length);
        Ok(value)
    }

    fn own_xattr(&self, node: &Node, name: &OsStr) -> Option<Result<Vec<u8>, Errno>> {
        let is_own = Arc::as_ptr(self.nodes.root()) == std::ptr::from_ref(node)
            && name.as_encoded_bytes().starts_with(OWN_PREFIX.as_bytes());
        is_own.then(|| {
            let control = self.control.get().filter(|_| name == CONTROL);
            control
                .map(|path| path.clone().into_os_string().into_vec())
                .ok_or(Errno::NODATA)
        })
    }

    /// The names, each ended by a zero byte. Those that only an administrator may see are for root.
    pub(crate) fn xattr_names(&self, id: u64, uid: u32) -> Result<Vec<u8>, Errno> {
        let place = self.nodes.place(&self.nodes.get(id)?)?;
        let mut names = vec![0; XATTR_BYTES_MAX];
        let length = rustix::fs::listxattr(magic(&place), &mut names[..])?;
        names.truncate(length);
        if uid != 0 {
            let all = names.split_inclusive(|&byte| byte == 0);
            names = all
                .filter(|name| !name.starts_with(TRUSTED_PREFIX))
                .flatten()
                .copied()
                .collect();
        }
        Ok(names)
    }

    pub(crate) fn set_xattr(
        &self,
        id: u64,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        asker: Asker,
    ) -> Result<(), Errno> {
        let node = self.nodes.get(id)?;
        if self.own_xattr(&node, name).is_some() {
            return Err(Errno::PERM);
        }
        let place = self.nodes.place(&node)?;
        self.attributes_will_change(&node);
        let flags = XattrFlags::from_bits_retain(flags as u32);
        rustix::fs::setxattr(magic(&place), name, value, flags)?;
        if name == ACCESS_LIST {
            // As in Linux, where this process may do more than the one that asks.
            let stat = stat_of(&place)?;
            let lost = asker.takes_by_list(&stat);
            if lost != 0 {
                let mode = Mode::from_raw_mode(stat.st_mode & 0o7777 & !lost);
                rustix::fs::chmod(magic(&place), mode)?;
                self.mode_changed(&node);
            }
        }
        self.attributes_changed(&node, false);
        Ok(())
    }

    pub(crate) fn remove_xattr(&self, id: u64, name: &OsStr) -> Result<(), Errno> {
        let node = self.nodes.get(id)?;
        if self.own_xattr(&node, name).is_some() {
            return Err(Errno::PERM);
        }
        let place = self.nodes.place(&node)?;
        self.attributes_will_change(&node);
        rustix::fs::removexattr(magic(&place), name)?;
        self.attributes_changed(&node, false);
        Ok(())
    }
}

/// The name of the attribute that holds the path of a mount's control socket.
#[must_use]
pub fn control_attribute() -> OsString {
    CONTROL.into()
}

fn time(wanted: Option<TimeOrNow>) -> Timespec {
    let (tv_sec, tv_nsec) = match wanted {
        None => (0, UTIME_OMIT),
        Some(TimeOrNow::Now) => (0, UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => {
            let (seconds, nanos) = time_to_set(time);
            (seconds, nanos as _)
        }
    };
    Timespec { tv_sec, tv_nsec }
}
