//! What a machine said to be on stable storage before its power was cut, held against what is there afterwards.
//!
//! The machine writes blocks of a disk and files of a file system, which say their number and version. It says a line for each
//! group of them that a flush covered. After the next start it first says what it finds.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// A block of the disk, or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// By its number.
    Block(u64),
    /// By its number.
    File(u64),
}

/// A line of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// This version is in this place; `None` if the place holds parts of several.
    Found(Place, Option<u64>),
    /// It has said all that it found, and begins to write.
    Begins,
    /// These versions are on stable storage.
    Promised(Vec<(Place, u64)>),
    /// It writes no more, and why.
    Failed(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(number) => write!(f, "block {number}"),
            Self::File(number) => write!(f, "file {number}"),
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(place, Some(version)) => write!(f, "found {place} {version}"),
            Self::Found(place, None) => write!(f, "found {place} torn"),
            Self::Begins => f.write_str("begins"),
            Self::Promised(versions) => {
                f.write_str("promised")?;
                let mut each = versions.iter();
                each.try_for_each(|(place, version)| write!(f, " {place} {version}"))
            }
            Self::Failed(why) => write!(f, "failed {}", why.replace('\n', " ")),
        }
    }
}

impl FromStr for Said {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let said = match line.split_once(' ').unwrap_or((line, "")) {
            ("begins", "") => Some(Self::Begins),
            ("failed", why) => Some(Self::Failed(why.to_owned())),
            ("found", rest) => match rest.rsplit_once(' ') {
                Some((place, "torn")) => parse_place(place).map(|place| Self::Found(place, None)),
                _ => parse_version(rest).map(|(place, version)| Self::Found(place, Some(version))),
            },
            ("promised", rest) => {
                let words: Vec<_> = rest.split(' ').collect();
                let versions = words.chunks(3).map(|words| parse_version(&words.join(" ")));
                versions.collect::<Option<_>>().map(Self::Promised)
            }
            _ => None,
        };
        said.ok_or_else(|| format!("the machine says {line:?}"))
    }
}

fn parse_place(text: &str) -> Option<Place> {
    let (kind, number) = text.split_once(' ')?;
    let number = number.parse().ok()?;
    match kind {
        "block" => Some(Place::Block(number)),
        "file" => Some(Place::File(number)),
        _ => None,
    }
}

fn parse_version(text: &str) -> Option<(Place, u64)> {
    let (place, version) = text.rsplit_once(' ')?;
    Some((parse_place(place)?, version.parse().ok()?))
}

/// The newest version that was promised of each place.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    newest: HashMap<Place, u64>,
    /// Versions that were promised.
    pub made: u64,
    /// Places that were compared with what was promised of them.
    pub compared: u64,
}

impl Promises {
    /// Keeps what a line promises, and compares what it says to be found.
    ///
    /// # Panics
    ///
    /// If a place is torn, or holds an older version than was promised.
    pub fn take(&mut self, said: &Said) {
        match said {
            Said::Promised(versions) => {
                for &(place, version) in versions {
                    let newest = self.newest.entry(place).or_default();
                    *newest = version.max(*newest);
                    self.made += 1;
                }
            }
            Said::Found(place, found) => {
                let Some(found) = *found else {
                    panic!("{place} is torn");
                };
                if let Some(&promised) = self.newest.get(place) {
                    assert!(
                        found >= promised,
                        "{place} has version {found}, and {promised} was promised"
                    );
                    self.compared += 1;
                }
            }
            Said::Begins | Said::Failed(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const LINES: [&str; 7] = [
        "found block 7 12",
        "found file 3 torn",
        "begins",
        "promised block 7 13 file 3 1",
        "promised file 0 9",
        "failed flush: Input/output error (os error 5)",
        "failed ",
    ];

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for line in LINES {
            let said: Said = line.parse().expect(line);
            assert_eq!(said.to_string(), line);
        }
        for line in [
            "",
            "found",
            "found disk 1 1",
            "promised block 1",
            "begins 1",
        ] {
            line.parse::<Said>().expect_err(line);
        }
    }

    #[test]
    fn what_is_older_than_promised_or_torn_is_seen() {
        let found = |version| {
            let mut promises = Promises::default();
            promises.take(&Said::Promised(vec![
                (Place::Block(7), 12),
                (Place::Block(7), 11),
            ]));
            let said = Said::Found(Place::Block(7), version);
            let taken = catch_unwind(AssertUnwindSafe(|| promises.take(&said)));
            taken.map(|()| promises.compared).ok()
        };
        assert_eq!(found(Some(12)), Some(1));
        assert_eq!(found(Some(13)), Some(1));
        assert_eq!(found(Some(11)), None);
        assert_eq!(found(None), None);
    }
}
