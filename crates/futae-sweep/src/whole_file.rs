//! Files that are whole under their names, or not there, in a folder that several processes may share.
//!
//! A file gets its name when all of it is written, and until then has another one, which stays if the process is killed. Its
//! writer holds a lock of it, so the next process can tell what is left over from what another one is writing. Where the file
//! system has no locks, left-over files stay.

use crate::SweepError;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// How the names of a sweep's unfinished files begin. Those of other commands begin otherwise, and have no locks.
const UNFINISHED: &str = ".futae-sweep-";
/// How often a file is begun again that another process took for left over before it was locked.
const BEGINNINGS_MAX: u32 = 8;

/// Writes a file that is whole under its name, or not there.
///
/// # Errors
///
/// It cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), SweepError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut begun = 0;
    let written = loop {
        begun += 1;
        match begin(folder).and_then(|file| finish(file, path, bytes)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && begun < BEGINNINGS_MAX => {}
            outcome => break outcome,
        }
    };
    written.map_err(|why| SweepError::file("cannot write", path, &why))
}

fn begin(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let file = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    // Without locks nobody removes it either.
    let _ = flock(&file, FlockOperation::LockExclusive);
    Ok(file)
}

fn finish(mut file: tempfile::NamedTempFile, path: &Path, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Removes the unfinished files of a folder that no process is writing.
///
/// # Errors
///
/// The folder cannot be read.
pub fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_unfinished = name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes());
        if !is_unfinished || !entry.file_type()?.is_file() {
            continue;
        }
        if let Some(_lock) = lock_left_over(&entry.path()) {
            // Another process may have removed it meanwhile.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// Locks a file if no process has its lock. A writer that has yet to take it waits, and then finds the name gone.
fn lock_left_over(path: &Path) -> Option<File> {
    let file = OpenOptions::new().write(true).open(path).ok()?;
    let is_free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    is_free.then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_being_written_is_not() {
        let place = tempfile::tempdir().expect("a directory");
        let left_over = place.path().join(".futae-sweep-AbCdEf");
        fs::write(&left_over, "[[\"0\",").expect("half a file");
        fs::write(place.path().join("000001.json"), "[]").expect("a cell");
        let other = begin(place.path()).expect("another process begins");
        let lock = lock_left_over(&left_over).expect("nobody has it");
        assert!(lock_left_over(&left_over).is_none(), "it is held");
        drop(lock);
        remove_unfinished(place.path()).expect("a folder");
        assert!(!left_over.exists());
        assert!(other.path().exists(), "it is being written");
        finish(other, &place.path().join("000002.json"), b"[]").expect("written");
        let mut names: Vec<_> = fs::read_dir(place.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["000001.json", "000002.json"]);
    }
}
