//! The files of a load: found, made and opened.

use super::map::Map;
use super::plan::{Layout, LoadPlan};
use super::stamp::{self, SECTOR};
use anyhow::{Context, anyhow};
use futae_engine::IoBuf;
use futae_terminal::failure::Failure;
use futae_units::Size;
use rustix::fs::{Advice, FallocateFlags, OFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes written at a time while a file is made.
const CHUNK: usize = 1 << 20;
/// The version of what was there from the start.
const FIRST_VERSION: u64 = 0;

/// Open files.
pub struct Files {
    /// Where they are and how they are divided.
    pub layout: Layout,
    files: Vec<(PathBuf, File)>,
    /// One a file, if they are read so.
    maps: Vec<Map>,
}

impl Files {
    /// Finds, makes and opens what a plan asks for. `progress` is given the fraction that is made;
    /// it says whether to go on.
    pub fn open(plan: &LoadPlan, progress: &mut dyn FnMut(f64) -> bool) -> Result<Self, Failure> {
        let was_there = plan.path.exists();
        let opened = Self::find(plan, progress);
        if opened.is_err() && !was_there {
            // A directory that was made for nothing; it stays if there is anything in it.
            let _ = fs::remove_dir(&plan.path);
        }
        opened
    }

    fn find(plan: &LoadPlan, progress: &mut dyn FnMut(f64) -> bool) -> Result<Self, Failure> {
        let paths = paths(plan)?;
        let file_bytes = plan.file_bytes.map_or_else(|| length_of(&paths), Ok)?;
        let (operation, file) = (Size::Bytes(plan.operation_bytes), Size::Bytes(file_bytes));
        if plan.operation_bytes > file_bytes {
            let message = format!("an operation of {operation} does not fit in a file of {file}");
            return Err(Failure::usage(message));
        }
        let layout = Layout {
            files: paths.len() as u32,
            file_bytes,
            operation_bytes: plan.operation_bytes,
        };
        let whole = paths.len() as f64;
        for (number, path) in (0..).zip(&paths) {
            let mut within = |share: f64| progress((f64::from(number) + share) / whole);
            prepare(plan, number, path, file_bytes, &mut within)?;
        }
        let open = |path: PathBuf| open(plan, &path).map(|file| (path, file));
        let files: Vec<_> = paths.into_iter().map(open).collect::<Result<_, _>>()?;
        let map = |(path, file): &(PathBuf, File)| Map::new(file, path, file_bytes);
        let mapped = if plan.map { &files[..] } else { &[] };
        let maps = mapped.iter().map(map).collect::<Result<_, _>>()?;
        Ok(Self {
            layout,
            files,
            maps,
        })
    }

    /// Reads from a file by its number, as the plan asks for.
    pub fn read(&self, number: u32, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self.maps.get(number as usize) {
            Some(map) => {
                map.read(offset, buffer);
                Ok(())
            }
            None => self.get(number).read_exact_at(buffer, offset),
        }
    }

    /// The pages of 4 KiB that the page cache holds, as ranges from the first page of the first file on; each file is a whole
    /// number of them.
    pub fn pages_in_memory(&self) -> anyhow::Result<Vec<[u64; 2]>> {
        let mut ranges: Vec<[u64; 2]> = Vec::new();
        let mut number = 0;
        for (path, file) in &self.files {
            let map = Map::new(file, path, self.layout.file_bytes)?;
            for is_there in map.pages_in_memory(path)? {
                match ranges.last_mut() {
                    Some(last) if is_there && last[1] == number => last[1] += 1,
                    _ if is_there => ranges.push([number, number + 1]),
                    _ => {}
                }
                number += 1;
            }
        }
        Ok(ranges)
    }

    /// A file by its number.
    pub fn get(&self, number: u32) -> &File {
        &self.files[number as usize].1
    }

    /// Where it is.
    pub fn path(&self, number: u32) -> &Path {
        &self.files[number as usize].0
    }

    /// Names of the files, in their order.
    pub fn names(&self) -> Vec<String> {
        let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into());
        let names = self.files.iter().map(|(path, _)| name(path));
        names.map(Option::unwrap_or_default).collect()
    }

    /// Brings everything that was written onto stable storage.
    pub fn sync(&self) -> anyhow::Result<()> {
        for (path, file) in &self.files {
            file.sync_data()
                .with_context(|| format!("{}: cannot be flushed", path.display()))?;
        }
        Ok(())
    }
}

/// Where the files are, or will be.
fn paths(plan: &LoadPlan) -> Result<Vec<PathBuf>, Failure> {
    let path = &plan.path;
    let shown = path.display();
    let is_directory = match fs::metadata(path) {
        Ok(metadata) => metadata.is_dir(),
        Err(error) if error.kind() == io::ErrorKind::NotFound && plan.create => {
            if plan.files.is_some() {
                fs::create_dir(path).with_context(|| format!("{shown}: cannot be made"))?;
            }
            plan.files.is_some()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(anyhow!("{shown} does not exist; --create makes it").into());
        }
        Err(error) => return Err(anyhow!("{shown}: {error}").into()),
    };
    match (is_directory, plan.files) {
        (true, files) => {
            let name = |number: u32| path.join(format!("load-{number:04}.dat"));
            Ok((0..files.unwrap_or(1)).map(name).collect())
        }
        (false, None | Some(1)) => Ok(vec![path.clone()]),
        (false, Some(files)) => Err(Failure::usage(format!(
            "{shown} is one file, and --files {files} asks for more; name a directory"
        ))),
    }
}

/// The length that all files have.
fn length_of(paths: &[PathBuf]) -> Result<u64, Failure> {
    let mut known = None;
    for path in paths {
        let shown = path.display();
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let message = format!("{shown} does not exist: --create and --file-size make it");
                return Err(anyhow!(message).into());
            }
            Err(error) => return Err(anyhow!("{shown}: {error}").into()),
        };
        let length = file
            .seek(SeekFrom::End(0))
            .with_context(|| format!("{shown}: its length is not known"))?;
        if known.is_some_and(|known| known != length) {
            let message = format!("{shown} is not as long as the others; give a --file-size");
            return Err(Failure::usage(message));
        }
        known = Some(length);
    }
    Ok(known.unwrap_or_default())
}

/// Makes a file if it is missing, and looks whether it can be used if it is not.
fn prepare(
    plan: &LoadPlan,
    number: u32,
    path: &Path,
    bytes: u64,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<(), Failure> {
    let shown = path.display();
    let found = OpenOptions::new()
        .read(true)
        .write(plan.overwrite)
        .open(path);
    match found {
        Ok(mut file) => {
            let length = file
                .seek(SeekFrom::End(0))
                .with_context(|| format!("{shown}: its length is not known"))?;
            let (is, wanted) = (Size::Bytes(length), Size::Bytes(bytes));
            if length < bytes {
                let message =
                    format!("{shown} has {is} and not {wanted}; remove it, or ask for less");
                return Err(anyhow!(message).into());
            }
            if plan.overwrite {
                return stamp_all(&file, path, number, bytes, progress);
            }
            if plan.writes > 0.0 {
                refuse_foreign(&file, path, number)?;
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && plan.create => {
            make(path, number, bytes, progress)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(anyhow!("{shown} does not exist; --create makes it").into())
        }
        Err(error) => Err(anyhow!("{shown}: {error}").into()),
    }
}

/// Somebody's data is not written over.
fn refuse_foreign(file: &File, path: &Path, number: u32) -> Result<(), Failure> {
    let mut sector = [0; SECTOR];
    let shown = path.display();
    file.read_exact_at(&mut sector, 0)
        .with_context(|| format!("{shown}: cannot be read"))?;
    stamp::check(&sector, number, 0, None).map_err(|_| {
        anyhow!("{shown} holds something else than a load's data; --overwrite destroys that").into()
    })
}

fn make(
    path: &Path,
    number: u32,
    bytes: u64,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<(), Failure> {
    let shown = path.display();
    if let Some(free) = free_bytes(path).filter(|free| *free < bytes) {
        let (size, free) = (Size::Bytes(bytes), Size::Bytes(free));
        let message = format!(
            "{shown}: no space for a file of {size} ({free} free); take less, or another place"
        );
        return Err(anyhow!(message).into());
    }
    let options = OpenOptions::new().write(true).create_new(true).open(path);
    let file = options.with_context(|| format!("{shown}: cannot be made"))?;
    // Not every file system can; then writing tells.
    let allocated = match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Err(error) if !matches!(error, Errno::OPNOTSUPP | Errno::NOSYS) => {
            Err(unwritten(path, bytes, error.into()).into())
        }
        _ => Ok(()),
    };
    let made = allocated.and_then(|()| stamp_all(&file, path, number, bytes, progress));
    if made.is_err() {
        // What is left of it is of no use; the first error is the one that counts.
        let _ = fs::remove_file(path);
    }
    made
}

fn stamp_all(
    file: &File,
    path: &Path,
    number: u32,
    bytes: u64,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<(), Failure> {
    let mut chunk = IoBuf::zeroed(CHUNK);
    let mut offset = 0;
    while offset < bytes {
        let length = (bytes - offset).min(CHUNK as u64) as usize;
        let chunk = &mut chunk.as_mut_slice()[..length];
        // A rest of less than a sector is no place for an operation.
        stamp::fill(chunk, number, offset, FIRST_VERSION);
        file.write_all_at(chunk, offset)
            .map_err(|error| unwritten(path, bytes, error))?;
        offset += length as u64;
        if !progress(offset as f64 / bytes as f64) {
            return Err(anyhow!("interrupted").into());
        }
    }
    file.sync_all()
        .map_err(|error| unwritten(path, bytes, error))?;
    // So that reads begin with the disk; only advice.
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
    Ok(())
}

/// What is free where a file would be, if that is known.
fn free_bytes(path: &Path) -> Option<u64> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let status = rustix::fs::statvfs(directory.unwrap_or(Path::new("."))).ok()?;
    status.f_bavail.checked_mul(status.f_frsize)
}

fn unwritten(path: &Path, bytes: u64, error: io::Error) -> anyhow::Error {
    let (shown, size) = (path.display(), Size::Bytes(bytes));
    if error.kind() == io::ErrorKind::StorageFull {
        return anyhow!("{shown}: no space for a file of {size}; take less, or another place");
    }
    anyhow!("{shown}: a file of {size} cannot be written: {error}")
}

fn open(plan: &LoadPlan, path: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.read(true).write(plan.writes > 0.0);
    if plan.direct {
        options.custom_flags(OFlags::DIRECT.bits() as i32);
    }
    options.open(path).map_err(|error| {
        let shown = path.display();
        if plan.direct && error.kind() == io::ErrorKind::InvalidInput {
            return anyhow!("{shown}: its file system refuses direct I/O; leave out --direct")
                .into();
        }
        anyhow!("{shown}: cannot be opened: {error}").into()
    })
}
