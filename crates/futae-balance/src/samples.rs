//! What guests did and had, period by period, written down for `futae balance --advise`: a line of JSON for each period.

use futae_allocate::Activity;
use futae_allocate::replay::Past;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::path::Path;

/// Sizes at which a curve is written down, beside size 0.
const SIZES: u32 = 32;
/// A miss ratio of 1, as it is written.
const ALL: f64 = 10_000.0;

/// One period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Period {
    /// When it ended, in seconds since 1970.
    pub time: f64,
    /// The guests.
    pub guests: Vec<GuestPeriod>,
}

/// One guest in a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GuestPeriod {
    /// Its name.
    pub name: String,
    /// Bytes that it had; none if it was out of sight.
    pub has: Option<u64>,
    /// Pages that it found in its page cache; none if its agent was silent.
    pub hits: Option<u64>,
    /// Pages that it waited for.
    pub misses: Option<u64>,
    /// Bytes that were page cache or could be.
    pub cache: Option<u64>,
    /// The share of the period in which all tasks waited for memory.
    pub pressure: Option<f64>,
    /// Bytes between two sizes of the curve, whose first is 0; 0 if no curve was known.
    #[serde(default)]
    pub curve_step: u64,
    /// Miss ratios at these sizes, in ten thousandths.
    #[serde(default)]
    pub curve: Vec<u16>,
}

impl GuestPeriod {
    /// What a guest did and had.
    #[must_use]
    pub fn new(name: &str, has: Option<u64>, did: Option<Activity>) -> Self {
        Self {
            name: name.to_owned(),
            has,
            hits: did.map(|did| did.hits),
            misses: did.map(|did| did.misses),
            cache: did.and_then(|did| did.cache),
            pressure: did.and_then(|did| did.pressure),
            curve_step: 0,
            curve: Vec::new(),
        }
    }

    /// With the curve that `ratios` says for sizes in bytes, up to `most`.
    #[must_use]
    pub fn with_curve(mut self, most: u64, ratios: impl FnOnce(&[u64]) -> Vec<f64>) -> Self {
        self.curve_step = (most / u64::from(SIZES)).max(1);
        let sizes: Vec<u64> = (0..=u64::from(SIZES))
            .map(|at| at * self.curve_step)
            .collect();
        let written = |ratio: f64| (ratio.clamp(0.0, 1.0) * ALL).round() as u16;
        self.curve = ratios(&sizes).into_iter().map(written).collect();
        self
    }

    /// The same, for an allocator; none if nothing can be said of the guest.
    #[must_use]
    pub fn past(&self) -> Option<Past> {
        let activity = Activity {
            hits: self.hits?,
            misses: self.misses?,
            cache: self.cache,
            pressure: self.pressure,
        };
        Some(Past {
            has: self.has?,
            activity,
            curve_step: self.curve_step,
            curve: self
                .curve
                .iter()
                .map(|&ratio| f64::from(ratio) / ALL)
                .collect(),
        })
    }
}

/// The file to which periods are added.
#[derive(Debug)]
pub struct Samples(File);

impl Samples {
    /// Adds to a file, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub fn append(path: &Path) -> io::Result<Self> {
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map(Self)
    }

    /// Adds a period, as one write: of a reader, or of a program that is killed, a line is there or is not.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub fn add(&mut self, period: &Period) -> io::Result<()> {
        let mut line = serde_json::to_string(period)?;
        line.push('\n');
        self.0.write_all(line.as_bytes())
    }
}

/// Reads periods, one after the other.
///
/// # Errors
///
/// A line that cannot be read, by its number.
pub fn read(input: impl BufRead) -> impl Iterator<Item = Result<Period, String>> {
    let lines = input.lines().zip(1..);
    lines.filter_map(|(line, number)| {
        let read = |line: String| {
            let what = "is no period that futae balance --record wrote";
            serde_json::from_str(&line).map_err(|error| format!("line {number} {what}: {error}"))
        };
        match line {
            Ok(line) if line.trim().is_empty() => None,
            Ok(line) => Some(read(line)),
            Err(error) => Some(Err(format!("line {number}: {error}"))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let did = Activity {
            hits: 5,
            misses: 2,
            cache: Some(1 << 20),
            pressure: None,
        };
        let known = GuestPeriod::new("db", Some(1 << 30), Some(did));
        let known = known.with_curve(320, |sizes| {
            sizes
                .iter()
                .map(|&size| 1.0 - size as f64 / 320.0)
                .collect()
        });
        let period = Period {
            time: 12.5,
            guests: vec![known, GuestPeriod::new("web", None, None)],
        };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("samples");
        for _ in 0..2 {
            let mut samples = Samples::append(&path).expect("a file");
            samples.add(&period).expect("written");
        }
        let text = std::fs::read(&path).expect("read");
        let periods: Result<Vec<_>, _> = read(&text[..]).collect();
        assert_eq!(periods.expect("good"), [period.clone(), period.clone()]);
        let past = period.guests[0].past().expect("known");
        assert_eq!((past.curve_step, past.curve.len()), (10, 33));
        assert!((past.curve[8] - 0.75).abs() < 1e-9 && past.activity == did);
        assert_eq!(period.guests[1].past(), None);
        let wrong = read(&b"{}\n\nno\n"[..]).collect::<Result<Vec<_>, _>>();
        let wrong = wrong.expect_err("not JSON");
        assert!(wrong.starts_with("line 1 is no period"), "{wrong}");
    }
}
