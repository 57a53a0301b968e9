//! Runs in a guest whose power is cut: it writes, flushes, and says what is on stable storage since.
//!
//! usage: promiser PORT DISK DIRECTORY
//!
//! It says its lines, which are those of `futae_tests::promises`, to PORT. Some threads write blocks of DISK past the page cache,
//! one replaces files in DIRECTORY. It ends when one of them fails.

use futae_policy::Prng;
use futae_testkit::stamp::Stamp;
use futae_tests::BLOCK;
use futae_tests::direct::{Buffer, Direct};
use futae_tests::promises::{Place, Said};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::{SystemTime, UNIX_EPOCH};

/// Threads that write blocks, each to its own part of the disk.
const WRITERS: u64 = 3;
/// The most blocks of one write.
const RUN_BLOCKS_MAX: u64 = 8;
/// The most writes before a flush.
const WRITES_MAX: u64 = 12;
const FILES: u64 = 32;
/// The most blocks of a file.
const FILE_BLOCKS_MAX: u64 = 4;

/// The port, which takes one line at a time.
struct Port(Mutex<File>);

impl Port {
    fn say(&self, said: &Said) {
        let mut port = self.0.lock().unwrap_or_else(|broken| broken.into_inner());
        // Nobody can be told that the port takes nothing.
        let _ = port.write_all(format!("{said}\n").as_bytes());
    }
}

fn main() {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [port, disk, directory] = arguments.as_slice() else {
        eprintln!("usage: promiser PORT DISK DIRECTORY");
        std::process::exit(2);
    };
    let port = File::options().write(true).open(port);
    let port = port.unwrap_or_else(|error| {
        eprintln!("promiser: the port: {error}");
        std::process::exit(1);
    });
    let port = Port(Mutex::new(port));
    let Err(error) = run(&port, disk, directory);
    port.say(&Said::Failed(error.to_string()));
}

/// How one of the threads failed.
fn run(port: &Port, disk: &Path, directory: &Path) -> Result<std::convert::Infallible, io::Error> {
    let blocks = find_blocks(port, disk)?;
    let files = find_files(port, directory)?;
    port.say(&Said::Begins);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = seed.map_or(0, |time| time.as_nanos() as u64);
    let (failures, failed) = channel();
    std::thread::scope(|scope| {
        let count = blocks.len() as u64;
        for writer in 0..WRITERS {
            let part = count * writer / WRITERS..count * (writer + 1) / WRITERS;
            let versions = blocks[part.start as usize..part.end as usize].to_vec();
            let (failures, prng) = (failures.clone(), Prng::new(seed ^ writer));
            scope.spawn(move || {
                let result = write_blocks(port, disk, part.start, versions, prng);
                fail(&failures, result);
            });
        }
        let failures = failures.clone();
        let prng = Prng::new(seed ^ WRITERS);
        scope.spawn(move || {
            let result = write_files(port, directory, files, prng);
            fail(&failures, result);
        });
        let error = failed.recv();
        // The others would go on.
        port.say(&Said::Failed(
            error.map_or_else(|_| String::new(), |error| error.to_string()),
        ));
        std::process::exit(1);
    })
}

fn fail(failures: &Sender<io::Error>, result: Result<std::convert::Infallible, io::Error>) {
    let Err(error) = result;
    // The first one is enough.
    let _ = failures.send(error);
}

/// The versions that the disk has.
fn find_blocks(port: &Port, disk: &Path) -> io::Result<Vec<u64>> {
    let kind = fs::metadata(disk)?.file_type();
    if !kind.is_block_device() {
        return Err(io::Error::other(format!("{} is no disk", disk.display())));
    }
    let mut file = File::open(disk)?;
    let count = io::Seek::seek(&mut file, io::SeekFrom::End(0))? / BLOCK as u64;
    let direct = Direct::open(disk)?;
    let mut buffer = Buffer::new(BLOCK);
    let mut versions = Vec::new();
    for block in 0..count {
        direct.read(block * BLOCK as u64, &mut buffer)?;
        let found = version_in(block, buffer.get());
        port.say(&Said::Found(Place::Block(block), found));
        versions.push(found.unwrap_or(0));
    }
    Ok(versions)
}

/// The version of a place, if all of its blocks have one.
fn version_in(number: u64, bytes: &[u8]) -> Option<u64> {
    let mut stamps = bytes.chunks(BLOCK).map(|block| {
        let stamp = Stamp::read(block.get(..BLOCK)?)?;
        (stamp.block == number).then_some(stamp.version)
    });
    let first = stamps.next()??;
    stamps
        .all(|version| version == Some(first))
        .then_some(first)
}

fn write_blocks(
    port: &Port,
    disk: &Path,
    first: u64,
    mut versions: Vec<u64>,
    mut prng: Prng,
) -> Result<std::convert::Infallible, io::Error> {
    let direct = Direct::open(disk)?;
    loop {
        let mut unflushed = Vec::new();
        for _ in 0..=prng.below(WRITES_MAX) {
            let begin = prng.below(versions.len() as u64);
            let length = 1 + prng.below(RUN_BLOCKS_MAX.min(versions.len() as u64 - begin));
            let mut buffer = Buffer::new(BLOCK * length as usize);
            for (index, bytes) in (begin..).zip(buffer.get_mut().chunks_mut(BLOCK)) {
                let version = &mut versions[index as usize];
                *version += 1;
                let block = first + index;
                let version = *version;
                Stamp { block, version }.fill(bytes);
                unflushed.push((Place::Block(block), version));
            }
            direct.write((first + begin) * BLOCK as u64, &buffer)?;
        }
        direct.sync()?;
        port.say(&Said::Promised(unflushed));
    }
}

fn file_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("file-{number}"))
}

/// How many blocks a file of this version has.
fn file_blocks(version: u64) -> usize {
    1 + (version % FILE_BLOCKS_MAX) as usize
}

fn find_files(port: &Port, directory: &Path) -> io::Result<Vec<u64>> {
    let mut versions = Vec::new();
    for number in 0..FILES {
        let found = match fs::read(file_path(directory, number)) {
            Ok(bytes) => version_in(number, &bytes)
                .filter(|&version| bytes.len() == BLOCK * file_blocks(version)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(0),
            Err(error) => return Err(error),
        };
        port.say(&Said::Found(Place::File(number), found));
        versions.push(found.unwrap_or(0));
    }
    Ok(versions)
}

fn write_files(
    port: &Port,
    directory: &Path,
    mut versions: Vec<u64>,
    mut prng: Prng,
) -> Result<std::convert::Infallible, io::Error> {
    let new = directory.join("new");
    loop {
        let number = prng.below(FILES);
        let version = &mut versions[number as usize];
        *version += 1;
        let mut bytes = vec![0; BLOCK * file_blocks(*version)];
        for block in bytes.chunks_mut(BLOCK) {
            let (block_number, version) = (number, *version);
            Stamp {
                block: block_number,
                version,
            }
            .fill(block);
        }
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, file_path(directory, number))?;
        File::open(directory)?.sync_all()?;
        port.say(&Said::Promised(vec![(Place::File(number), *version)]));
    }
}
