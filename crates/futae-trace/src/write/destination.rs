//! What the name of an output stands for.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// More links than a name may lead over on Linux.
const LINKS_MAX: usize = 40;

/// Where a trace goes.
pub enum Destination {
    /// A file with this name, which links lead to.
    File(PathBuf),
    /// What is there and has to stay: a pipe, a terminal, or what this process has open already, as `/dev/stdout` is.
    Open(File),
}

impl Destination {
    pub fn of(path: &Path) -> io::Result<Self> {
        if let Some(file) = open_here(path) {
            return Ok(Self::Open(file?));
        }
        if path.exists() && !path.is_file() {
            return Ok(Self::Open(File::options().write(true).open(path)?));
        }
        // A name that is a link goes on being one.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Ok(Self::File(path))
    }

    /// The directory of what waits until it can be written.
    pub fn directory(&self) -> PathBuf {
        match self {
            Self::File(path) => directory_of(path).to_owned(),
            Self::Open(_) => std::env::temp_dir(),
        }
    }
}

fn directory_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// What a name such as `/dev/stdout` leads to: what this process has open. None if it leads elsewhere.
///
/// Standard output and standard error are continued, so that what else is written to them keeps its place. The others are
/// written behind what they have.
#[must_use]
pub fn open_here(path: &Path) -> Option<io::Result<File>> {
    let open = fs::canonicalize("/proc/self/fd").ok()?;
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let directory = directory_of(&path).to_owned();
        if fs::canonicalize(&directory).is_ok_and(|directory| directory == open) {
            let continued = match path.file_name().and_then(|number| number.to_str()) {
                Some("1") => io::stdout().as_fd().try_clone_to_owned().map(File::from),
                Some("2") => io::stderr().as_fd().try_clone_to_owned().map(File::from),
                _ => File::options().append(true).open(&path),
            };
            return Some(continued);
        }
        path = directory.join(fs::read_link(&path).ok()?);
    }
    None
}

/// Why no file can be begun in a directory, without the temporary name of that file.
pub fn refusal(error: &io::Error, directory: &Path) -> io::Error {
    if !directory.is_dir() {
        let message = format!("there is no directory {}", directory.display());
        return io::Error::new(error.kind(), message);
    }
    io::Error::from(error.kind())
}
