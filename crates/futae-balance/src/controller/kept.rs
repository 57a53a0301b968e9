//! What guests had before, in a file: when a balancer was killed, the next one still gives it back.

use super::guest::Guest;
use crate::actuator::Actuator;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The file's contents.
#[derive(Debug, Deserialize, Serialize)]
struct Contents {
    /// The boot in which guests had this; after another one they are as they were set up.
    boot: String,
    guests: Vec<Before>,
}

/// What a guest had.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Before {
    actuator: Actuator,
    /// What its actuator remembers.
    had: String,
}

impl Before {
    /// That of a guest, if it is known.
    pub(super) fn of(guest: &Guest) -> Option<Self> {
        Some(Self {
            actuator: guest.actuator.clone(),
            had: guest.remembered.clone()?,
        })
    }
}

/// The file, while a balancer runs.
pub(super) struct Kept {
    path: PathBuf,
    boot: String,
    /// What a balancer left that did not end by itself.
    earlier: Vec<Before>,
}

impl Kept {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let earlier = match fs::read(path) {
            Ok(text) => {
                let read = serde_json::from_slice(&text);
                let contents: Contents = read.map_err(|error| {
                    io::Error::other(format!(
                        "it is not what a balancer keeps ({error}); remove it"
                    ))
                })?;
                (contents.boot == boot).then_some(contents.guests)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self {
            path: path.to_owned(),
            boot,
            earlier: earlier.unwrap_or_default(),
        })
    }

    /// What the guest of an actuator had before an earlier balancer changed it.
    pub(super) fn had(&self, actuator: &Actuator) -> Option<String> {
        let mut earlier = self.earlier.iter();
        let known = earlier.find(|before| before.actuator.is_that_of(actuator))?;
        Some(known.had.clone())
    }

    /// Nothing is to be given back to this guest any more.
    pub(super) fn forget(&mut self, actuator: &Actuator) {
        self.earlier
            .retain(|before| !before.actuator.is_that_of(actuator));
    }

    /// Writes down what guests had, these and those of the earlier balancer that have not been seen yet.
    pub(super) fn write(&self, guests: &[Guest]) -> io::Result<()> {
        let is_seen = |before: &&Before| {
            let mut guests = guests.iter();
            guests.any(|guest| guest.actuator.is_that_of(&before.actuator))
        };
        let unseen = self.earlier.iter().filter(|before| !is_seen(before));
        let seen = guests.iter().filter_map(Before::of);
        self.replace(seen.chain(unseen.cloned()).collect())
    }

    /// All were given back what they had but these.
    pub(super) fn end(&self, left: Vec<Before>) -> io::Result<()> {
        if !left.is_empty() {
            return self.replace(left);
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn replace(&self, guests: Vec<Before>) -> io::Result<()> {
        let boot = self.boot.clone();
        let text = serde_json::to_vec(&Contents { boot, guests })?;
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory)?;
        }
        // Whole under its name, however this process ends.
        let new = self.path.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(new, &self.path)
    }

    /// What went wrong with the file.
    pub(super) fn problem(&self, error: &io::Error) -> String {
        format!("return_on_exit: {}: {error}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_to_be_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("kept.json");
        for text in ["", "{\"boot\":", "[]"] {
            fs::write(&path, text).expect("room");
            let refused = Kept::open(&path).map(drop).expect_err("no contents");
            assert!(refused.to_string().ends_with("; remove it"), "{refused}");
        }
        fs::remove_file(&path).expect("it is there");
        assert!(Kept::open(&path).is_ok(), "the next one makes it anew");
    }
}
