//! Programs that depend on a file system being one, and find out when it is not.

use crate::tools::{run, text};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const EXERCISE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/exercise.py");
const DATABASE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/database.py");

/// Random operations on a file, through maps and calls; what it holds at the end, if its size is
/// fixed.
///
/// # Panics
///
/// At the first difference from a copy in memory.
pub fn exercise(file: &Path, operations: u32, seed: u32, fixed: bool) -> Vec<u8> {
    let mut python = Command::new("python3");
    python.args([EXERCISE, text(file)]);
    python.args([operations.to_string(), seed.to_string()]);
    if fixed {
        python.arg("fixed");
    }
    let output = python.output().expect("python3 starts");
    assert!(
        output.status.success(),
        "seed {seed}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let said = output.stdout.iter().position(|&byte| byte == b'\n');
    output.stdout[said.expect("a line") + 1..].to_vec()
}

/// An SQLite database over which what is below it is killed, round after round, and what SQLite has
/// said to be stored.
#[derive(Default)]
pub struct Database {
    /// The last transaction of each round that was committed.
    stored: Vec<u64>,
}

impl Database {
    /// One more round of transactions, during which `kill` ends what the file is on.
    ///
    /// # Panics
    ///
    /// If no transaction was committed.
    pub fn write(&mut self, file: &Path, mut kill: impl FnMut()) {
        let round = self.stored.len() as u64;
        let mut writer = Command::new("python3");
        writer.args([DATABASE, "write", text(file), &round.to_string()]);
        writer.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut writer = writer.spawn().expect("python3 starts");
        let lines = BufReader::new(writer.stdout.take().expect("piped")).lines();
        let numbers = lines.map_while(|line| line.ok()?.parse::<u64>().ok());
        let mut last = None;
        for number in numbers {
            last = Some(number);
            // In the middle of one of the next.
            if number == 40 + 17 * round {
                kill();
            }
        }
        self.stored.push(last.expect("a transaction was committed"));
        // It has failed, as it was to.
        let _ = writer.wait();
    }

    /// Whatever SQLite has said to be stored is there, and the database is whole.
    ///
    /// # Panics
    ///
    /// If not.
    pub fn check(&self, file: &Path) {
        let checked = run("python3", &[DATABASE, "check", text(file)]).stdout;
        let checked = String::from_utf8_lossy(&checked).into_owned();
        let mut said = checked.lines();
        assert_eq!(said.next(), Some("ok"), "{checked}");
        let number = |word: &str| word.parse().expect("a number");
        let rows: Vec<Vec<u64>> = said
            .map(|line| line.split(' ').map(number).collect())
            .collect();
        assert_eq!(rows.len(), self.stored.len(), "{checked}");
        for (row, &stored) in rows.iter().zip(&self.stored) {
            assert!(row[2] >= stored, "{stored} was stored: {checked}");
            assert_eq!(row[1], row[2] + 1, "a row is missing: {checked}");
        }
    }
}
