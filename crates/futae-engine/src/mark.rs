//! Unclean marks: they say, after a cache has ended, that it held data that was not on stable
//! storage.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A mark that survives the process and a power failure. Calls may block; the cache never makes two
/// at a time.
pub trait UncleanMark: Send + Sync {
    /// Sets the mark. It is on stable storage when this returns.
    ///
    /// # Errors
    ///
    /// The operating system's error; the state of the mark is then unknown.
    fn set(&self) -> io::Result<()>;

    /// Whether the mark may be set now. Until then nothing is kept.
    fn is_possible(&self) -> bool {
        true
    }

    /// What a server that had the store until now has lost, if it has left a mark. Asked before [`set`](Self::set).
    fn left(&self) -> Option<String> {
        None
    }

    /// Removes the mark, with the same durability. Removing an absent mark succeeds.
    ///
    /// # Errors
    ///
    /// As for [`set`](Self::set).
    fn clear(&self) -> io::Result<()>;
}

/// A mark file, which exists while the mark is set.
#[derive(Clone, Debug)]
pub struct MarkFile {
    path: PathBuf,
    note: String,
}

impl MarkFile {
    /// A mark at `path`; the file's content is `note`, for the operator.
    #[must_use]
    pub fn new(path: PathBuf, note: String) -> Self {
        Self { path, note }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the mark is set, and the time at which it was set if the file system reports it. An
    /// unreadable mark counts as set.
    ///
    /// # Errors
    ///
    /// The state of the mark cannot be determined.
    pub fn found(&self) -> io::Result<Option<Option<SystemTime>>> {
        match std::fs::symlink_metadata(&self.path) {
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
            Ok(about) => Ok(Some(about.modified().ok())),
        }
    }

    /// Checks that the mark can be set, without setting it. The probe file is not synced to the disk, so
    /// that clients of a restarted server do not wait for the disk.
    ///
    /// # Errors
    ///
    /// The reason why it cannot.
    pub fn probe(&self) -> io::Result<()> {
        let mut name = self.path.clone().into_os_string();
        name.push(".probe");
        let probe = PathBuf::from(name);
        // Before anything is changed in it, so that it has nothing to write.
        self.sync_directory()?;
        drop(create(&probe, "")?);
        std::fs::remove_file(&probe)
    }

    /// Removes a mark whose loss somebody has accepted, without waiting for the disk: after a power failure it may be there
    /// again, and is accepted again.
    ///
    /// # Errors
    ///
    /// What the operating system says. A mark that is not there is no error.
    pub fn forget(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if !is_missing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn sync_directory(&self) -> io::Result<()> {
        let directory = match self.path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        File::open(directory)?.sync_all()
    }
}

impl UncleanMark for MarkFile {
    fn set(&self) -> io::Result<()> {
        create(&self.path, &self.note)?.sync_all()?;
        self.sync_directory()
    }

    fn clear(&self) -> io::Result<()> {
        self.forget()?;
        self.sync_directory()
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Writes a small file. A symbolic link at the path is refused, since its target could be any file.
fn create(path: &Path, text: &str) -> io::Result<File> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let mut file = File::from(rustix::fs::open(path, flags, mode)?);
    file.write_all(text.as_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_set_found_and_cleared() {
        let directory = tempfile::tempdir().expect("a directory");
        let mark = MarkFile::new(directory.path().join(".disk.futae-unclean"), "since".into());
        mark.probe().expect("a directory that can be written");
        assert_eq!(mark.found().expect("known"), None);
        mark.set().expect("set");
        mark.set().expect("again");
        assert!(mark.found().expect("known").is_some());
        let note = std::fs::read_to_string(mark.path()).expect("a note");
        assert_eq!(note, "since");
        mark.clear().expect("cleared");
        mark.clear().expect("again");
        assert_eq!(mark.found().expect("known"), None);
        mark.set().expect("set");
        mark.forget().expect("removed");
        mark.forget().expect("again");
        assert_eq!(mark.found().expect("known"), None);
        let left = std::fs::read_dir(directory.path()).expect("a directory");
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn no_mark_is_written_through_a_link() {
        let directory = tempfile::tempdir().expect("a directory");
        let (victim, link) = (
            directory.path().join("victim"),
            directory.path().join("link"),
        );
        std::fs::write(&victim, "precious").expect("a file");
        std::os::unix::fs::symlink(&victim, &link).expect("a link");
        assert!(MarkFile::new(link, String::new()).set().is_err());
        assert_eq!(std::fs::read(&victim).expect("there"), b"precious");
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error_and_no_mark() {
        let mark = MarkFile::new("/proc/self/nowhere/mark".into(), String::new());
        assert!(mark.probe().is_err() && mark.set().is_err());
        assert_eq!(mark.found().expect("known"), None);
    }

    #[test]
    fn what_is_not_known_of_a_mark_is_an_error_and_never_no_mark() {
        let directory = tempfile::tempdir().expect("a directory");
        let mark = |name: &str| MarkFile::new(directory.path().join(name), String::new());
        let nameless = mark(&"x".repeat(300));
        assert!(nameless.found().is_err());
        assert!(nameless.forget().is_err() && nameless.clear().is_err());
        // Something else in its place, which is not removed.
        let other = mark("directory");
        std::fs::create_dir(other.path()).expect("a directory");
        assert!(other.forget().is_err() && other.clear().is_err());
        assert!(other.found().expect("known").is_some());
    }

    #[test]
    fn a_mark_is_not_gone_before_its_directory_says_so_on_stable_storage() {
        // No file can be there, and the directory cannot be synced.
        let mark = MarkFile::new("/proc/self/mark".into(), String::new());
        mark.forget().expect("it does not ask the disk");
        assert!(mark.clear().is_err());
        // The directory of a name alone is the one of the process.
        let here = MarkFile::new("no-such.futae-unclean".into(), String::new());
        here.clear().expect("nothing to remove");
    }

    #[test]
    fn the_owner_of_a_mark_can_read_it_and_set_it_again() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let mark = MarkFile::new(directory.path().join("mark"), String::new());
        mark.set().expect("set");
        let about = std::fs::metadata(mark.path()).expect("there");
        assert_eq!(about.permissions().mode() & 0o777, 0o600);
    }
}
