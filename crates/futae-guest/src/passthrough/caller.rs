//! Making files as the one who asks for them: owner, group and inherited group come out right when
//! the file is made, not by a change afterwards.

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// While it lives, this thread makes files as somebody else. The kernel has already judged by the
/// file's mode whether that one may, so this thread keeps the right to write any directory.
pub(crate) struct Caller {
    own: Option<(Uid, Gid, Option<CapabilitySets>)>,
}

impl Caller {
    /// Becomes the one with these numbers; only root can, and for others nothing changes: their
    /// mount is theirs alone.
    pub(crate) fn become_one(user: u32, group: u32) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        let own_group = rustix::process::getegid().as_raw();
        if !is_root || (user == 0 && group == own_group) {
            return Self { own: None };
        }
        let before = capabilities(None).ok();
        let group = setfsgid(Gid::from_raw(group));
        let user = setfsuid(Uid::from_raw(user));
        if let Some(mut sets) = before {
            sets.effective
                .remove(CapabilitySet::FSETID | CapabilitySet::FOWNER | CapabilitySet::CHOWN);
            // Where it fails, the lower file system judges once more.
            let _ = set_capabilities(None, sets);
        }
        Self {
            own: Some((user, group, before)),
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let Some((user, group, capabilities)) = self.own.take() else {
            return;
        };
        setfsuid(user);
        setfsgid(group);
        if let Some(sets) = capabilities {
            let _ = set_capabilities(None, sets);
        }
    }
}
