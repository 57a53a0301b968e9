//! Where an output goes: what its name stands for, and a file that is whole under its name or not there.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// More links than a name may lead over on Linux.
const LINKS_MAX: usize = 40;

/// Where an output goes. A name that is a link goes on being one, also if what it leads to is yet to be made.
pub struct Destination(Place);

enum Place {
    /// A file with this name, which links lead to. It is replaced when all of it is written.
    File(PathBuf),
    /// What this process has open already, as `/dev/stdout` is.
    Descriptor(PathBuf),
    /// What is there and has to stay: a pipe, a terminal.
    Special(PathBuf),
}

impl Destination {
    /// What a name stands for.
    ///
    /// # Errors
    ///
    /// It leads over too many links.
    pub fn of(path: &Path) -> io::Result<Self> {
        let is_special = path.exists() && !path.is_file();
        let special = || Self(Place::Special(path.to_owned()));
        let descriptors = fs::canonicalize("/proc/self/fd").ok();
        let mut followed = path.to_owned();
        for _ in 0..=LINKS_MAX {
            let directory = directory_of(&followed).to_owned();
            if descriptors.is_some() && fs::canonicalize(&directory).ok() == descriptors {
                return Ok(Self(Place::Descriptor(followed)));
            }
            match fs::read_link(&followed) {
                Ok(target) => followed = directory.join(target),
                Err(_) if is_special => return Ok(special()),
                Err(_) => return Ok(Self(Place::File(followed))),
            }
        }
        Err(io::Error::other(format!(
            "it leads over more than {LINKS_MAX} links"
        )))
    }

    /// The directory of what waits until it can be written.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        match &self.0 {
            Place::File(path) => directory_of(path).to_owned(),
            Place::Descriptor(_) | Place::Special(_) => std::env::temp_dir(),
        }
    }

    /// Tries whether a file can be begun there, and leaves everything as it was.
    ///
    /// # Errors
    ///
    /// It cannot.
    pub fn check(&self) -> io::Result<()> {
        match &self.0 {
            Place::File(path) => begin(path).map(drop),
            // The reader of a pipe would take the end of this try for the end of the data.
            Place::Descriptor(_) | Place::Special(_) => Ok(()),
        }
    }

    /// Writes all of the output, in place of a file that may be there. The reader of a pipe may have read enough before the end.
    ///
    /// # Errors
    ///
    /// It cannot be written. A file that was there is then as it was.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let (mut file, name) = self.begin()?;
        match file.write_all(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
        name.map_or(Ok(()), Name::give)
    }

    /// Begins an output, with the name that it gets at its end, if it is a file.
    pub(super) fn begin(&self) -> io::Result<(File, Option<Name>)> {
        match &self.0 {
            Place::File(path) => begin(path).map(|(file, name)| (file, Some(name))),
            Place::Descriptor(path) => Ok((descriptor(path)?, None)),
            Place::Special(path) => Ok((File::options().write(true).open(path)?, None)),
        }
    }
}

/// The name that a file is to have. Without [`give`](Self::give) the file is removed.
pub struct Name {
    file: File,
    /// Its name until then. None where the file system makes files without names, of which nothing stays if the process is killed.
    temporary: Option<TempPath>,
    path: PathBuf,
    /// The file that it replaces.
    there: Option<Metadata>,
}

impl Name {
    pub fn give(self) -> io::Result<()> {
        let temporary = match self.temporary {
            Some(temporary) => temporary,
            // A link cannot replace a file, as a new name can.
            None => linked(&self.file, directory_of(&self.path))?,
        };
        if let Some(there) = &self.there {
            take_rights(&self.file, there);
        }
        temporary.persist(self.path).map_err(|e| e.error)
    }
}

fn begin(path: &Path) -> io::Result<(File, Name)> {
    let directory = directory_of(path);
    let there = path.symlink_metadata().ok().filter(Metadata::is_file);
    // Nobody else may open it before it has the rights of the one that it replaces.
    let mode = if there.is_some() { 0o600 } else { 0o666 };
    let (file, temporary) = match unnamed(directory, mode) {
        Some(file) => (file, None),
        None => {
            let named = named(directory, mode).map_err(|error| refusal(&error, directory))?;
            (named.0, Some(named.1))
        }
    };
    let name = Name {
        file: file.try_clone()?,
        temporary,
        path: path.to_owned(),
        there,
    };
    Ok((file, name))
}

const PREFIX: &str = ".futae-";

fn named(directory: &Path, mode: u32) -> io::Result<(File, TempPath)> {
    let permissions = Permissions::from_mode(mode);
    let mut builder = tempfile::Builder::new();
    let file = builder.prefix(PREFIX).permissions(permissions);
    Ok(file.tempfile_in(directory)?.into_parts())
}

/// A file that can get a name later, if the file system has such files.
fn unnamed(directory: &Path, mode: u32) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(directory, flags, Mode::from_raw_mode(mode)).ok()?;
    let file = File::from(file);
    // Where there is no /proc, it could get none.
    let is_linkable = open_path(&file).symlink_metadata().is_ok();
    is_linkable.then_some(file)
}

/// Gives a file without a name a temporary one.
fn linked(file: &File, directory: &Path) -> io::Result<TempPath> {
    let from = open_path(file);
    let link = |to: &Path| Ok(linkat(CWD, &from, CWD, to, AtFlags::SYMLINK_FOLLOW)?);
    let linked = tempfile::Builder::new()
        .prefix(PREFIX)
        .make_in(directory, link);
    Ok(linked
        .map_err(|error| refusal(&error, directory))?
        .into_temp_path())
}

fn open_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Gives a new file the owner and the mode of the one that it is to replace, as far as this process may and the file system has
/// them.
fn take_rights(file: &File, there: &Metadata) {
    let mut mode = there.mode() & 0o777;
    if fchown(file, None, Some(there.gid())).is_err() {
        // Its members are others now, and get no more than they had.
        mode &= 0o700 | ((mode >> 3) & 0o007);
    }
    // While the file is this process's, which may not change the mode of another's.
    let _ = file.set_permissions(Permissions::from_mode(mode));
    let _ = fchown(file, Some(there.uid()), None);
}

/// Why no file can be begun in a directory, without the temporary name of that file, which would only confuse.
fn refusal(error: &io::Error, directory: &Path) -> io::Error {
    if !directory.is_dir() {
        let message = format!("there is no directory {}", directory.display());
        return io::Error::new(error.kind(), message);
    }
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::from(error.kind()),
    }
}

/// What this process has open. Standard output and standard error are continued, so that what else is written to them keeps its
/// place. The others are written behind what they have.
fn descriptor(path: &Path) -> io::Result<File> {
    match path.file_name().and_then(|number| number.to_str()) {
        Some("1") => {
            io::stdout().flush()?;
            io::stdout().as_fd().try_clone_to_owned().map(File::from)
        }
        Some("2") => io::stderr().as_fd().try_clone_to_owned().map(File::from),
        _ => File::options().append(true).open(path),
    }
}

fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_in(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory");
        let names = entries.map(|entry| entry.expect("one").file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }

    /// So nothing is left of a process that is killed.
    #[test]
    fn a_file_has_no_name_before_its_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = directory.path();
        let path = directory.join("a");
        // Not every file system makes such files.
        let is_unnamed = unnamed(directory, 0o600).is_some();
        for text in ["one", "two"] {
            let there = names_in(directory);
            let destination = Destination::of(&path).expect("no links");
            let (mut file, name) = destination.begin().expect("begun");
            file.write_all(text.as_bytes()).expect("room");
            assert_eq!(names_in(directory) == there, is_unnamed);
            name.expect("a file").give().expect("given");
            assert_eq!(names_in(directory), ["a"]);
            assert_eq!(fs::read_to_string(&path).expect("there"), text);
        }
        let (_, name) = Destination::of(&path)
            .and_then(|it| it.begin())
            .expect("begun");
        drop(name);
        assert_eq!(fs::read_to_string(&path).expect("there"), "two");
    }

    #[test]
    fn a_file_system_without_such_files_has_a_temporary_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a");
        let (mut file, temporary) = named(directory.path(), 0o600).expect("begun");
        assert!(names_in(directory.path())[0].starts_with(PREFIX));
        file.write_all(b"one").expect("room");
        let name = Name {
            file,
            temporary: Some(temporary),
            path,
            there: None,
        };
        name.give().expect("given");
        assert_eq!(names_in(directory.path()), ["a"]);
    }
}
