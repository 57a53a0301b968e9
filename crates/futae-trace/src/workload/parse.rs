//! The grammar of workload specs: `name(argument, key=value):SIZE`, where an argument may be a
//! number or, after a weight or a count and `*`, another workload.

use super::piece::{Piece, Problem, arguments, closing};
use super::region::Region;
use super::spec::Family;
use super::{WorkloadErrorKind, workloads};
use futae_units::Size;

/// How deep workloads may be nested.
pub const DEPTH_MAX: usize = 8;

/// A spec taken apart at its own level; the workloads among its arguments are still text.
pub struct Raw<'a> {
    pub name: Piece<'a>,
    /// Arguments without a key.
    pub plain: Vec<Piece<'a>>,
    keyed: Vec<(Piece<'a>, Piece<'a>)>,
    size: Option<Piece<'a>>,
    depth: usize,
}

/// Reads a whole workload.
pub fn family(piece: Piece<'_>, depth: usize) -> Result<Family, Problem> {
    let piece = piece.trim();
    if depth > DEPTH_MAX {
        return Err((piece.at, WorkloadErrorKind::TooDeep));
    }
    let raw = Raw::read(piece, depth)?;
    let name = raw.name.text;
    let found = workloads().iter().find(|w| w.name == name).ok_or_else(|| {
        let near = match name {
            // As other programs name their standard input.
            "-" => Some("/dev/stdin".to_owned()),
            name => near(name, workloads().iter().map(|w| w.name)),
        };
        (
            raw.name.at,
            WorkloadErrorKind::Unknown {
                name: name.to_owned(),
                near,
            },
        )
    })?;
    (found.parse)(&raw)
}

/// The candidate that `name` is a likely misspelling or abbreviation of.
fn near<'c>(name: &str, candidates: impl Iterator<Item = &'c str>) -> Option<String> {
    let lower = name.to_lowercase();
    candidates
        .map(|c| {
            (
                if lower.starts_with(c) {
                    0
                } else {
                    strsim::damerau_levenshtein(&lower, c)
                },
                c,
            )
        })
        .filter(|(distance, c)| *distance <= (c.len() / 3).max(1))
        .min()
        .map(|(_, c)| c.to_owned())
}

impl<'a> Raw<'a> {
    fn read(piece: Piece<'a>, depth: usize) -> Result<Self, Problem> {
        let text = piece.text;
        let end = text.find(['(', ')', ':', ',']).unwrap_or(text.len());
        let name = piece.cut(0..end);
        let mut rest = Piece {
            text: &text[end..],
            at: piece.at + end,
        };
        let (mut plain, mut keyed) = (Vec::new(), Vec::new());
        if rest.text.starts_with('(') {
            let close = closing(rest.text).ok_or((rest.at, WorkloadErrorKind::Brackets))?;
            for argument in arguments(rest.cut(1..close)) {
                match argument.split_once('=') {
                    Some(pair) => keyed.push(pair),
                    None => plain.push(argument),
                }
            }
            rest = rest.cut(close + 1..rest.text.len());
        }
        let size = match rest.text.chars().next() {
            None => None,
            Some(':') => Some(rest.cut(1..rest.text.len())),
            Some(')') => return Err((rest.at, WorkloadErrorKind::Brackets)),
            Some(_) => return Err(unexpected(rest, "`:SIZE` or the end")),
        };
        Ok(Self {
            name,
            plain,
            keyed,
            size,
            depth,
        })
    }

    /// The parameters of a family that has no other than the region's own.
    pub fn simple(&self) -> Result<Region, Problem> {
        self.plain_at_most(0)?;
        self.region()
    }

    /// The region that the workload works on: its size and its share of writes.
    pub fn region(&self) -> Result<Region, Problem> {
        self.keys(&["writes"])?;
        let writes = match self.key("writes") {
            Some(piece) => {
                piece.number("a share of writes from 0 to 1", |w| (0.0..=1.0).contains(w))?
            }
            None => 0.0,
        };
        let size = self
            .size
            .ok_or_else(|| self.missing("a size, as in `:10GiB`"))?;
        match size.text.parse::<Size>() {
            Ok(Size::Percent(_)) => Err((
                size.at,
                WorkloadErrorKind::Value {
                    text: size.text.to_owned(),
                    expected: "a size in bytes or blocks",
                },
            )),
            Ok(size) => Ok(Region { size, writes }),
            Err(e) => Err((size.at, e.into())),
        }
    }

    /// The parts of a workload made of others: each a number, `*` and a workload.
    pub fn parts<T: std::str::FromStr>(
        &self,
        expected: &'static str,
        allowed: impl Fn(&T) -> bool,
    ) -> Result<Vec<(T, Family)>, Problem> {
        self.no_size()?;
        if self.plain.is_empty() {
            return Err(self.missing("at least one part, as in `3*uniform:1GiB`"));
        }
        let part = |piece: &Piece<'a>| {
            let (number, workload) = piece
                .split_once('*')
                .ok_or_else(|| unexpected(*piece, "a number, `*` and a workload"))?;
            Ok((number.number(expected, &allowed)?, self.inner(workload)?))
        };
        self.plain.iter().map(part).collect()
    }

    /// Whether parts share their blocks (`space=shared`) or stand side by side (`space=apart`).
    pub fn shared(&self) -> Result<bool, Problem> {
        self.keys(&["space"])?;
        match self.key("space") {
            None => Ok(false),
            Some(piece) => match piece.text {
                "shared" => Ok(true),
                "apart" => Ok(false),
                _ => Err(unexpected(piece, "`shared` or `apart`")),
            },
        }
    }

    /// The workload that is written inside this one.
    pub fn inner(&self, piece: Piece<'_>) -> Result<Family, Problem> {
        family(piece, self.depth + 1)
    }

    /// Refuses more than `count` arguments without a key.
    pub fn plain_at_most(&self, count: usize) -> Result<(), Problem> {
        match self.plain.get(count) {
            Some(extra) => Err(unexpected(*extra, "`)` or `key=value`")),
            None => Ok(()),
        }
    }

    /// Refuses a size, for workloads whose parts have theirs.
    pub fn no_size(&self) -> Result<(), Problem> {
        match self.size {
            Some(size) => Err(unexpected(size, "nothing: the parts have the sizes")),
            None => Ok(()),
        }
    }

    /// Refuses keys other than these, and any key twice.
    pub fn keys(&self, known: &[&str]) -> Result<(), Problem> {
        for (i, (key, _)) in self.keyed.iter().enumerate() {
            let name = key.text.to_owned();
            if !known.contains(&key.text) {
                let workload = self.name.text.to_owned();
                let near = near(&name, known.iter().copied());
                let kind = WorkloadErrorKind::UnknownParameter {
                    workload,
                    name,
                    near,
                };
                return Err((key.at, kind));
            }
            if self.keyed[..i]
                .iter()
                .any(|(earlier, _)| earlier.text == key.text)
            {
                return Err((key.at, WorkloadErrorKind::Twice { name }));
            }
        }
        Ok(())
    }

    /// The value of `key=value`.
    pub fn key(&self, key: &str) -> Option<Piece<'a>> {
        self.keyed
            .iter()
            .find(|(name, _)| name.text == key)
            .map(|(_, value)| *value)
    }

    /// The error that something is not there.
    pub fn missing(&self, what: &'static str) -> Problem {
        let workload = self.name.text.to_owned();
        (self.name.at, WorkloadErrorKind::Missing { workload, what })
    }
}

fn unexpected(piece: Piece<'_>, expected: &'static str) -> Problem {
    let found = piece.text.to_owned();
    (piece.at, WorkloadErrorKind::Unexpected { found, expected })
}
