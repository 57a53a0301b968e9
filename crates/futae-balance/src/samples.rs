//! What guests did and had, period by period, written down for `futae balance --advise`: a line of JSON for each period.

use futae_allocate::Activity;
use futae_allocate::replay::Past;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Sizes at which a curve is written down, beside size 0.
const SIZES: u32 = 32;
/// A miss ratio of 1, as it is written.
const ALL: f64 = 10_000.0;
/// How every line begins.
const LINE_START: &[u8] = b"{\"time\":";

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
    /// Bytes that it might have at most; none in files of earlier versions.
    #[serde(default)]
    pub maximum: Option<u64>,
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
    /// What a guest did and had, and might have at most.
    #[must_use]
    pub fn new(name: &str, has: Option<u64>, maximum: u64, did: Option<Activity>) -> Self {
        Self {
            name: name.to_owned(),
            has,
            maximum: Some(maximum),
            hits: did.map(|did| did.hits),
            misses: did.map(|did| did.misses),
            cache: did.and_then(|did| did.cache),
            pressure: did.and_then(|did| did.pressure),
            curve_step: 0,
            curve: Vec::new(),
        }
    }

    /// With the curve that `ratios` says for sizes in bytes, up to the maximum.
    #[must_use]
    pub fn with_curve(mut self, ratios: impl FnOnce(&[u64]) -> Vec<f64>) -> Self {
        self.curve_step = (self.maximum.unwrap_or(0) / u64::from(SIZES)).max(1);
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
pub struct Samples {
    file: File,
    /// Bytes of whole lines; none for a pipe or a device, which cannot be cut.
    whole: Option<u64>,
}

impl Samples {
    /// Adds to a file, which is made if it is not there. A line that a program left incomplete is cut off.
    ///
    /// # Errors
    ///
    /// What the operating system says; an incomplete line that is none of a period.
    pub fn append(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let found = file.metadata()?;
        let mut samples = Self { file, whole: None };
        if found.is_file() {
            let whole = whole_bytes(&File::open(path)?, found.len())?;
            samples.whole = Some(whole);
            if whole < found.len() {
                samples.cut()?;
            }
        }
        Ok(samples)
    }

    /// Adds a period, as one write: of a reader, or of a program that is killed, a line is there or is not.
    ///
    /// # Errors
    ///
    /// What the operating system says. What was written of the line is taken back, as far as that is possible.
    pub fn add(&mut self, period: &Period) -> io::Result<()> {
        let mut line = serde_json::to_string(period)?;
        line.push('\n');
        let written = self.file.write_all(line.as_bytes());
        match (&written, &mut self.whole) {
            (Ok(()), Some(whole)) => *whole += line.len() as u64,
            // The caller hears why the line is missing. If a part of it stays, the next reader leaves that out.
            (Err(_), _) => {
                let _ = self.cut();
            }
            (Ok(()), None) => {}
        }
        written
    }

    /// Takes back an incomplete line.
    fn cut(&self) -> io::Result<()> {
        self.whole.map_or(Ok(()), |whole| self.file.set_len(whole))
    }
}

/// Bytes of a file up to the end of its last whole line.
fn whole_bytes(file: &File, length: u64) -> io::Result<u64> {
    let mut whole = length;
    let mut block = [0; 4096];
    while whole > 0 {
        let start = whole.saturating_sub(block.len() as u64);
        let part = &mut block[..(whole - start) as usize];
        file.read_exact_at(part, start)?;
        let end = part.iter().rposition(|&byte| byte == b'\n');
        whole = end.map_or(start, |at| start + at as u64 + 1);
        if end.is_some() {
            break;
        }
    }
    // What is not ours is not cut.
    let mut begin = [0; LINE_START.len()];
    let got = file.read_at(&mut begin, whole)?;
    if !LINE_START.starts_with(&begin[..got]) {
        let problem = "its last line is incomplete, and none that futae balance --record wrote";
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    Ok(whole)
}

/// Reads periods, one after the other.
#[derive(Debug)]
pub struct Periods<R> {
    input: R,
    number: u64,
    is_cut_off: bool,
}

/// Reads periods, one after the other. A last line without an end is left out: it was cut off as it was written.
///
/// # Errors
///
/// A line that cannot be read, by its number.
pub fn read<R: BufRead>(input: R) -> Periods<R> {
    Periods {
        input,
        number: 0,
        is_cut_off: false,
    }
}

impl<R> Periods<R> {
    /// The number of the last line, if it was left out because it is cut off. Known at the end.
    #[must_use]
    pub fn left_out(&self) -> Option<u64> {
        self.is_cut_off.then_some(self.number)
    }
}

impl<R: BufRead> Iterator for Periods<R> {
    type Item = Result<Period, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let got = self.input.read_until(b'\n', &mut line);
            self.number += 1;
            let number = self.number;
            match got {
                Ok(0) => {
                    self.number -= 1;
                    return None;
                }
                Ok(_) if line.trim_ascii().is_empty() => {}
                Ok(_) if !line.ends_with(b"\n") => {
                    self.is_cut_off = true;
                    return None;
                }
                Ok(_) => {
                    let what = "is no period that futae balance --record wrote";
                    let read = serde_json::from_slice(&line);
                    return Some(read.map_err(|error| format!("line {number} {what}: {error}")));
                }
                Err(error) => return Some(Err(format!("line {number}: {error}"))),
            }
        }
    }
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
        let known = GuestPeriod::new("db", Some(1 << 30), 320, Some(did));
        let known = known.with_curve(|sizes| {
            sizes
                .iter()
                .map(|&size| 1.0 - size as f64 / 320.0)
                .collect()
        });
        let period = Period {
            time: 12.5,
            guests: vec![known, GuestPeriod::new("web", None, 320, None)],
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

    fn line(time: f64) -> String {
        let period = Period {
            time,
            guests: vec![GuestPeriod::new("db", Some(1 << 30), 1 << 30, None)],
        };
        serde_json::to_string(&period).expect("JSON") + "\n"
    }

    #[test]
    fn an_incomplete_last_line_is_left_out_and_named() {
        let whole = line(1.0) + &line(2.0);
        let next = line(3.0);
        for length in 1..next.len() {
            let text = format!("{whole}{}", &next[..length]);
            let mut periods = read(text.as_bytes());
            let good: Result<Vec<_>, _> = periods.by_ref().collect();
            assert_eq!(good.expect("good").len(), 2, "{text}");
            assert_eq!(periods.left_out(), Some(3), "{text}");
        }
        let mut periods = read(whole.as_bytes());
        assert_eq!(periods.by_ref().flatten().count(), 2);
        assert_eq!(periods.left_out(), None);
    }

    #[test]
    fn an_incomplete_last_line_is_cut_before_more_is_added() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("samples");
        let more = Period {
            time: 3.0,
            guests: Vec::new(),
        };
        // Of no line, of the second one, and of one longer than what is read at a time.
        let long = line(2.0).replace("db", &"d".repeat(10_000));
        for (whole, tail) in [
            (String::new(), &line(1.0)[..5]),
            (line(1.0), &line(2.0)[..20]),
            (line(1.0), long.trim_end()),
            (line(1.0) + &long, ""),
        ] {
            std::fs::write(&path, format!("{whole}{tail}")).expect("a file");
            let mut samples = Samples::append(&path).expect("ours");
            samples.add(&more).expect("written");
            let text = std::fs::read_to_string(&path).expect("read");
            let added = serde_json::to_string(&more).expect("JSON");
            assert_eq!(text, format!("{whole}{added}\n"));
        }
        std::fs::write(&path, "total = \"1GiB\"\nlast").expect("a file");
        let error = Samples::append(&path).expect_err("not ours").to_string();
        assert!(error.contains("none that futae balance"), "{error}");
        let kept = std::fs::read_to_string(&path).expect("read");
        assert!(kept.ends_with("last"), "{kept}");
    }
}
