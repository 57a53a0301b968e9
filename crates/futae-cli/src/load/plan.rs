//! What is asked for, and where each operation goes.

use super::pace::Pace;
use futae_terminal::failure::Failure;
use futae_trace::{BlockRequest, Generator, WorkloadSpec};
use futae_units::Size;
use std::path::PathBuf;
use std::time::Duration;

/// When a load ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this many operations.
    Operations(u64),
    /// After so long.
    Time(Duration),
}

/// A load, before its files are looked at.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// A directory of files, or one file or block device.
    pub path: PathBuf,
    /// How many files; none: one.
    pub files: Option<u32>,
    /// Bytes of each file; none: as long as they are.
    pub file_bytes: Option<u64>,
    /// Bytes that one operation reads or writes, a multiple of 512.
    pub operation_bytes: u64,
    /// How the next place is chosen, without a size; with `workload`, what that is called.
    pub choice: String,
    /// What is asked for in place of a choice among all places; its blocks are the first places.
    pub workload: Option<WorkloadSpec>,
    /// The share of writes among the operations, from 0 to 1.
    pub writes: f64,
    /// Threads, each of which has one operation under way.
    pub threads: usize,
    /// When it ends.
    pub until: Until,
    /// How long operations shall take; none: as long as they take.
    pub pace: Option<Pace>,
    /// Seed of all randomness.
    pub seed: u64,
    /// Operations of the sequence that were done before, by another run.
    pub skip: u64,
    /// Past the kernel's page cache.
    pub direct: bool,
    /// Read through maps of the files.
    pub map: bool,
    /// A read operation reads its place twice.
    pub read_twice: bool,
    /// Check what is read.
    pub verify: bool,
    /// Make files that are missing.
    pub create: bool,
    /// Write over files that hold something else.
    pub overwrite: bool,
    /// Where to write the operations as a trace.
    pub record: Option<PathBuf>,
}

/// Families of workloads that a load can choose its places by.
const CHOICES: [&str; 5] = ["uniform", "zipf", "normal", "loop", "scan"];

/// The workload of `size` that a choice comes to: its blocks are the places of operations.
pub fn choice(choice: &str, writes: f64, size: Size) -> Result<WorkloadSpec, Failure> {
    let name = choice.split('(').next().unwrap_or_default().trim();
    if choice.contains(':') {
        let message = format!("--choice {choice}: give it without a size; the files have theirs");
        return Err(Failure::usage(message));
    }
    if !CHOICES.contains(&name) {
        let message = format!(
            "--choice {choice}: there are uniform, zipf(EXPONENT), normal(SIGMA), loop and scan"
        );
        return Err(Failure::usage(message));
    }
    let text = match choice.trim().strip_suffix(')') {
        _ if writes == 0.0 => format!("{choice}:{size}"),
        Some(begin) => format!("{begin}, writes={writes}):{size}"),
        None => format!("{choice}(writes={writes}):{size}"),
    };
    text.parse()
        .map_err(|error| Failure::usage(format!("--choice: {error}")))
}

/// Files of equal size, divided into places for one operation each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How many.
    pub files: u32,
    /// Bytes of each that are used.
    pub file_bytes: u64,
    /// Bytes of an operation.
    pub operation_bytes: u64,
}

impl Layout {
    /// Places in one file; what is left at its end is not used.
    fn places_a_file(&self) -> u64 {
        self.file_bytes / self.operation_bytes
    }

    /// Places in all files.
    pub fn places(&self) -> u64 {
        self.places_a_file() * u64::from(self.files)
    }

    /// The file and offset of a place.
    pub fn at(&self, place: u64) -> (u32, u64) {
        let each = self.places_a_file();
        // There are no more files than a number has room for.
        let file = (place / each) as u32;
        (file, place % each * self.operation_bytes)
    }

    /// A workload, if it has no more blocks than there are places.
    fn fitting(&self, spec: &WorkloadSpec) -> Result<WorkloadSpec, Failure> {
        let blocks = spec.blocks(self.operation_bytes).map_err(Failure::usage)?;
        if blocks > self.places() {
            let places = self.places();
            let message = format!(
                "--workload {spec}: it has {blocks} places, and the files have {places}; give it a smaller size"
            );
            return Err(Failure::usage(message));
        }
        Ok(spec.clone())
    }

    /// The operations that a plan asks for.
    pub fn draws(&self, plan: &LoadPlan) -> Result<Generator, Failure> {
        let size = self.places().checked_mul(self.operation_bytes);
        let size = size.ok_or_else(|| Failure::usage("the files together are too large"))?;
        let spec = match &plan.workload {
            Some(spec) => self.fitting(spec)?,
            None => choice(&plan.choice, plan.writes, Size::Bytes(size))?,
        };
        let draws = spec.generator(self.operation_bytes, plan.seed);
        let mut draws = draws.map_err(Failure::usage)?;
        draws
            .by_ref()
            .take(usize::try_from(plan.skip).unwrap_or(usize::MAX))
            .for_each(drop);
        Ok(draws)
    }
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Its number, from 0.
    pub number: u64,
    /// Which of all places.
    pub place: u64,
    /// Which file.
    pub file: u32,
    /// Where in that file.
    pub offset: u64,
    /// Whether it writes.
    pub is_write: bool,
}

impl Operation {
    /// The operation that a request of the workload stands for.
    pub fn new(number: u64, request: BlockRequest, layout: &Layout) -> Self {
        let (file, offset) = layout.at(request.block());
        Self {
            number,
            place: request.block(),
            file,
            offset,
            is_write: request.is_write(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, writes: f64) -> Option<String> {
        let size = Size::Bytes(1 << 20);
        choice(text, writes, size).ok().map(|spec| spec.to_string())
    }

    #[test]
    fn a_choice_becomes_a_workload_of_the_files_size() {
        assert_eq!(shown("uniform", 0.0).as_deref(), Some("uniform:1MiB"));
        let mixed = shown("zipf(1.2)", 0.25);
        assert_eq!(mixed.as_deref(), Some("zipf(1.2, writes=0.25):1MiB"));
        let mixed = shown("loop", 0.5);
        assert_eq!(mixed.as_deref(), Some("loop(writes=0.5):1MiB"));
        for wrong in [
            "unifrom",
            "uniform:1GiB",
            "zipf(x)",
            "normal",
            "mix(1*loop:1MiB)",
        ] {
            assert_eq!(shown(wrong, 0.0), None, "{wrong}");
        }
    }

    #[test]
    fn a_workload_must_fit_the_files() {
        let layout = Layout {
            files: 1,
            file_bytes: 1 << 20,
            operation_bytes: 4 << 10,
        };
        let fits = |text: &str| layout.fitting(&text.parse().expect("a workload")).is_ok();
        assert!(fits("mix(0.5*zipf(1.0):512KiB, 0.5*scan:512KiB)"));
        assert!(!fits("mix(0.5*zipf(1.0):512KiB, 0.5*scan:516KiB)"));
    }

    #[test]
    fn places_go_through_one_file_after_the_other() {
        let layout = Layout {
            files: 3,
            file_bytes: 10 << 10,
            operation_bytes: 4 << 10,
        };
        assert_eq!(layout.places(), 6);
        let all: Vec<_> = (0..6).map(|place| layout.at(place)).collect();
        assert_eq!(
            all,
            [(0, 0), (0, 4096), (1, 0), (1, 4096), (2, 0), (2, 4096)]
        );
    }
}
