//! Creating files as the calling user, so that owner, group and inherited group are correct from
//! the start. Also which set-id bits a change by a user clears.

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::fs::{FileType, Stat};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// While this value lives, this thread creates files as another user. The kernel has already
/// checked that user's permission against the mode, so this thread keeps the capability to write
/// any directory.
pub(crate) struct Caller {
    own: Option<(Uid, Gid, Option<CapabilitySets>)>,
}

impl Caller {
    /// Assumes the user and group; only root can. Other users' mounts are private, so nothing
    /// changes for them.
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
            // If this fails, the lower file system checks permissions again.
            let _ = set_capabilities(None, sets);
        }
        Self {
            own: Some((user, group, before)),
        }
    }
}

/// Set-user-ID and set-group-ID bits, which changes by other users clear.
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_RUNS: u32 = 0o010;

/// The process that asks for a change.
#[derive(Clone, Copy)]
pub(crate) struct Asker {
    user: u32,
    group: u32,
    process: u32,
}

impl Asker {
    pub(crate) fn of(request: &fuser::Request) -> Self {
        Self::new([request.uid(), request.gid(), request.pid()])
    }

    /// From user, group and process.
    pub(crate) fn new([user, group, process]: [u32; 3]) -> Self {
        Self {
            user,
            group,
            process,
        }
    }

    pub(crate) fn owns(self, stat: &Stat) -> bool {
        self.user == stat.st_uid
    }

    /// The set-user-ID and set-group-ID bits that a file loses when this process changes its data
    /// or its owner, as in Linux. Root keeps them.
    pub(crate) fn takes_from(self, stat: &Stat) -> u32 {
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let has = stat.st_mode & (SET_USER | SET_GROUP);
        if self.user == 0 || !is_file || has == 0 {
            return 0;
        }
        // If the group may not execute a file, the bit has another meaning for the group's members.
        let is_kept = has & SET_GROUP != 0
            && stat.st_mode & GROUP_RUNS == 0
            && (self.group == stat.st_gid || self.has_group(stat.st_gid));
        has & if is_kept {
            SET_USER
        } else {
            SET_USER | SET_GROUP
        }
    }

    /// The set-group-ID bit, if the file or directory loses it when this process sets its access control list, as in Linux.
    pub(crate) fn takes_by_list(self, stat: &Stat) -> u32 {
        let is_kept = self.user == 0 || self.group == stat.st_gid || self.has_group(stat.st_gid);
        if is_kept { 0 } else { stat.st_mode & SET_GROUP }
    }

    /// Whether a group is among the process's supplementary groups. The kernel does not pass them,
    /// so a process that has exited has none.
    fn has_group(self, group: u32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process));
        let status = status.unwrap_or_default();
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
        let mut groups = groups.unwrap_or_default().split_ascii_whitespace();
        groups.any(|word| word.parse() == Ok(group))
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
