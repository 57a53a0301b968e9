//! Programs that store, what they were told, and what of it is there.

use crate::recorder::{Moment, Recorder};
use futae_policy::Prng;
use futae_tests::BLOCK;
use futae_tests::direct::{Buffer, Direct};
use futae_tests::tools::{run, text};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

/// Transactions, and files beside them.
pub const TRANSACTIONS: u64 = 120;
const FILES: u64 = 60;
/// In blocks of 4 KiB, a file that is written over and over.
const SCRIBBLE_BLOCKS: u64 = 1024;
/// Writes of two blocks of it after each transaction.
const SCRIBBLES: u64 = 4;
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/database.py");

/// A program, and how to find out what of it is there.
pub struct Load {
    /// Works in a directory, over a disk.
    pub work: fn(&Path, &Recorder) -> Promised,
    /// Fails unless everything is there that was promised by then.
    pub judge: fn(&Path, &Promised, Moment),
}

/// An SQLite database, files, and what nobody is promised.
pub const SQLITE: Load = Load { work, judge };

/// What programs have been told to be stored, and when.
#[derive(Default)]
pub struct Promised {
    pub transactions: Vec<Moment>,
    pub files: Vec<Moment>,
}

/// How many were promised by then.
pub fn stored(all: &[Moment], then: Moment) -> u64 {
    all.iter().filter(|&&at| at <= then).count() as u64
}

/// Ends a program that a test leaves behind.
pub struct Ending(pub Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn content(number: u64) -> Vec<u8> {
    let length = 500 + number * 977 % 20_000;
    (0..length)
        .map(|at| ((at / 5) ^ (number * 37)) as u8)
        .collect()
}

/// A file that is written past the page cache and never flushed.
pub struct Scribble {
    file: Direct,
    prng: Prng,
}

impl Scribble {
    pub fn new(directory: &Path) -> Self {
        let path = directory.join("scribble");
        fs::write(&path, vec![0; SCRIBBLE_BLOCKS as usize * BLOCK]).expect("written");
        let (file, prng) = (Direct::open(&path).expect("a file"), Prng::new(3));
        Self { file, prng }
    }

    pub fn write(&mut self) {
        for _ in 0..SCRIBBLES {
            let mut buffer = Buffer::new(2 * BLOCK);
            let at = self.prng.below(SCRIBBLE_BLOCKS - 1);
            buffer.get_mut().fill(at as u8);
            let written = self.file.write(at * BLOCK as u64, &buffer);
            written.expect("written");
        }
    }
}

/// A database, files, and what nobody is promised, written at the same time.
fn work(directory: &Path, disk: &Recorder) -> Promised {
    let database = directory.join("database");
    let mut writer = Command::new("python3");
    writer.args([PROGRAM, "write", text(&database), "0"]);
    writer.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut writer = Ending(writer.spawn().expect("python3 starts"));
    let lines = BufReader::new(writer.0.stdout.take().expect("piped")).lines();
    let mut scribble = Scribble::new(directory);
    thread::scope(|scope| {
        let files = scope.spawn(|| {
            let one = |number| {
                let path = directory.join(format!("file{number}"));
                let mut file = File::create(path).expect("a file");
                file.write_all(&content(number)).expect("written");
                file.sync_all().expect("stored");
                File::open(directory)
                    .and_then(|directory| directory.sync_all())
                    .expect("stored");
                disk.now()
            };
            (0..FILES).map(one).collect()
        });
        let mut transactions = Vec::new();
        for (number, line) in (0..TRANSACTIONS).zip(lines) {
            assert_eq!(line.expect("a line"), number.to_string());
            transactions.push(disk.now());
            scribble.write();
        }
        drop(writer);
        let files = files.join().expect("all files");
        Promised {
            transactions,
            files,
        }
    })
}

/// What was promised by then is there.
fn judge(directory: &Path, promised: &Promised, then: Moment) {
    for number in 0..stored(&promised.files, then) {
        let found = fs::read(directory.join(format!("file{number}")));
        let found = found.unwrap_or_else(|error| panic!("file {number} was stored: {error}"));
        assert!(found == content(number), "file {number} differs");
    }
    let database = directory.join("database");
    let checked = run("python3", &[PROGRAM, "check", text(&database)]).stdout;
    let checked = String::from_utf8_lossy(&checked).into_owned();
    let mut said = checked.lines();
    assert_eq!(said.next(), Some("ok"), "{checked}");
    let row: Vec<u64> = said
        .next()
        .expect("a row")
        .split(' ')
        .map(|word| word.parse().expect("a number"))
        .collect();
    let stored = stored(&promised.transactions, then);
    assert!(
        row[1] >= stored,
        "{stored} transactions were stored: {checked}"
    );
    assert_eq!(row[1], row[2] + 1, "a row is missing: {checked}");
}
