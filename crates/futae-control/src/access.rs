//! Who may connect to a unix socket: the mode, the owner and the group of its file.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, chmod, chownat, fstat, openat};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::Path;

/// What is wrong with an option.
pub type Problem = String;

/// The mode, the owner and the group of a socket's file. By default only the user that runs the program
/// may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The permissions; to connect takes the permission to write.
    pub mode: u32,
    /// The owner, if it is not the user that runs the program.
    pub owner: Option<u32>,
    /// The group, if it is not that of the program.
    pub group: Option<u32>,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            mode: 0o600,
            owner: None,
            group: None,
        }
    }
}

impl Access {
    /// Takes `,mode=OCTAL`, `,owner=NAME` and `,group=NAME` from the end of `text`, in any order: what is
    /// left, and the access. Names are those of `/etc/passwd` and `/etc/group`; numbers are always understood.
    ///
    /// # Errors
    ///
    /// A value that is no mode, or a name that nobody has.
    pub fn take_from(text: &str) -> Result<(&str, Self), Problem> {
        let (mut rest, mut access) = (text, Self::default());
        while let Some((before, option)) = rest.rsplit_once(',') {
            match option.split_once('=') {
                Some(("mode", mode)) => access.mode = parse_mode(mode)?,
                Some(("owner", name)) => {
                    access.owner = Some(number_of("user", name, "/etc/passwd")?);
                }
                Some(("group", name)) => {
                    access.group = Some(number_of("group", name, "/etc/group")?);
                }
                _ => break,
            }
            rest = before;
        }
        Ok((rest, access))
    }

    /// Gives the socket at `path` its owner, its group and then its mode. Nobody can connect before
    /// somebody listens, so there is no moment at which others could.
    pub(crate) fn apply(&self, path: &Path) -> io::Result<()> {
        // By a descriptor of the file itself, so that nothing that is put in its place is changed.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(CWD, path, flags, Mode::empty())?;
        if !rustix::fs::FileType::from_raw_mode(fstat(&file)?.st_mode).is_socket() {
            return Err(Errno::NOTSOCK.into());
        }
        if self.owner.is_some() || self.group.is_some() {
            let (owner, group) = (self.owner.map(Uid::from_raw), self.group.map(Gid::from_raw));
            chownat(&file, "", owner, group, AtFlags::EMPTY_PATH)?;
        }
        set_mode(&file, self.mode)
    }
}

/// The mode of a file of which there is only a descriptor of its place.
fn set_mode(file: &OwnedFd, mode: u32) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let place = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Ok(chmod(place, Mode::from_raw_mode(mode))?)
}

fn parse_mode(text: &str) -> Result<u32, Problem> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| format!("mode={text}: write permissions in octal, such as 0660"))
}

/// The number of a user or a group.
fn number_of(what: &str, name: &str, table: &str) -> Result<u32, Problem> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let known = fs::read_to_string(table).unwrap_or_default();
    let found = known.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        is_it.then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    found.ok_or_else(|| format!("{table} has no {what} {name:?}; write another, or a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_from_the_end() {
        let read = |text| Access::take_from(text).expect("valid");
        let plain = Access::default();
        assert_eq!(read("unix:/a,b"), ("unix:/a,b", plain));
        let (rest, access) = read("unix:/a,b,mode=0660,owner=root,group=7");
        assert_eq!(rest, "unix:/a,b");
        assert_eq!(access.mode, 0o660);
        assert_eq!((access.owner, access.group), (Some(0), Some(7)));
        for text in ["x,mode=9", "x,mode=7777", "x,owner=no such user", "x,mode="] {
            assert!(Access::take_from(text).is_err(), "{text}");
        }
    }
}
