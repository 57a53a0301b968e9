//! Where an output goes: what its name stands for, and a file that is whole under its name or not there.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
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

/// The name that a file is to have, and its temporary one. Without [`give`](Self::give) the file is removed.
pub struct Name {
    temporary: TempPath,
    path: PathBuf,
}

impl Name {
    pub fn give(self) -> io::Result<()> {
        self.temporary.persist(self.path).map_err(|e| e.error)
    }
}

fn begin(path: &Path) -> io::Result<(File, Name)> {
    let directory = directory_of(path);
    let there = path.symlink_metadata().ok().filter(Metadata::is_file);
    // Nobody else may open it before it has the rights of the one that it replaces.
    let mode = if there.is_some() { 0o600 } else { 0o666 };
    let (file, temporary) = tempfile::Builder::new()
        .prefix(".futae-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(directory)
        .map_err(|error| refusal(&error, directory))?
        .into_parts();
    if let Some(there) = there {
        take_rights(&file, &there);
    }
    let path = path.to_owned();
    Ok((file, Name { temporary, path }))
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
