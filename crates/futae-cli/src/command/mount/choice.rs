//! Who chooses what stays: the policy, and flags for parameters of the policies that choose by
//! history or by hand.

use crate::defaults::MOUNT_POLICY;
use futae_policy::{Argument, Kind, PolicySpec};
use futae_terminal::failure::Failure;
use futae_terminal::text_file::read_text;
use futae_units::Size;
use std::path::{Path, PathBuf};

/// The policy and its parameters.
#[derive(clap::Args)]
pub struct Choice {
    /// Replacement policy; `futae policies` lists them
    #[arg(long, default_value = MOUNT_POLICY)]
    policy: String,
    /// lfu-history: length of the history, in accesses
    #[arg(long, value_name = "N")]
    history: Option<u32>,
    /// lfu-history: misses between reviews
    #[arg(long, value_name = "N")]
    review_every: Option<u32>,
    /// lfu-history: minimum difference of counts for a block to replace another
    #[arg(long, value_name = "N")]
    min_gain: Option<u32>,
    /// lfu-history: maximum number of replacements per review
    #[arg(long, value_name = "N")]
    swaps: Option<u32>,
    /// lfu-history: begin with the first blocks of the file
    #[arg(long)]
    prefill: bool,
    /// const: the blocks to keep, counted from 0, as numbers and ranges: 0-20,33
    #[arg(long, value_name = "BLOCKS", conflicts_with = "pin_file")]
    pin: Option<String>,
    /// const: a file that lists the blocks to keep, a number or a range per line
    #[arg(long, value_name = "FILE")]
    pin_file: Option<PathBuf>,
}

/// The blocks to keep, as ranges with both ends, in ascending order, apart from each other.
#[derive(Debug, PartialEq, Eq)]
pub struct Pins {
    /// The flag and what it was given.
    from: String,
    ranges: Vec<(u64, u64)>,
}

impl Choice {
    /// The policy as it was written, with the flags as its parameters.
    pub fn spec(&self) -> Result<(PolicySpec, Option<Pins>), Failure> {
        let mut spec: PolicySpec = self
            .policy
            .parse()
            .map_err(|error| Failure::usage(format!("--policy: {error}")))?;
        let number = |n: Option<u32>| n.map(|n| n.to_string());
        let flags = [
            ("--history", "history", number(self.history)),
            ("--review-every", "review", number(self.review_every)),
            ("--min-gain", "min_gain", number(self.min_gain)),
            ("--swaps", "swaps_per_review", number(self.swaps)),
            ("--prefill", "prefill", self.prefill.then(|| "true".into())),
        ];
        for (flag, key, value) in flags {
            if let Some(value) = value {
                give(&mut spec, flag, Kind::lfu_history, key, value)?;
            }
        }
        let pins = self.pins()?;
        if let Some(pins) = &pins {
            let flag = if self.pin.is_some() {
                "--pin"
            } else {
                "--pin-file"
            };
            give(&mut spec, flag, Kind::constant, "pin", pins.to_parameter())?;
        }
        Ok((spec, pins))
    }

    fn pins(&self) -> Result<Option<Pins>, Failure> {
        if let Some(text) = &self.pin {
            let parts = text.split([',', '+']).map(|part| (part, String::new()));
            return Pins::read(&format!("--pin {text}"), parts).map(Some);
        }
        let Some(path) = &self.pin_file else {
            return Ok(None);
        };
        let from = format!("--pin-file {}", path.display());
        let text = read_text(path).map_err(|error| Failure::usage(format!("{from}: {error}")))?;
        let lines = (1..).zip(text.lines()).map(|(number, line): (u32, _)| {
            let line = line.split('#').next().unwrap_or_default().trim();
            (line, format!(", line {number}"))
        });
        let lines = lines.filter(|(line, _)| !line.is_empty());
        Pins::read(&from, lines).map(Some)
    }
}

/// Adds the parameter that a flag stands for.
fn give(
    spec: &mut PolicySpec,
    flag: &str,
    policy: Kind,
    key: &str,
    value: String,
) -> Result<(), Failure> {
    let policy = policy.name();
    if spec.name != policy {
        return Err(Failure::usage(format!(
            "{flag} is for --policy {policy}, and the policy is {}; leave out {flag} or choose {policy}",
            spec.name
        )));
    }
    let is_it = |argument: &Argument| matches!(argument, Argument::Named(name, _) if name == key);
    if spec.arguments.iter().any(is_it) {
        return Err(Failure::usage(format!(
            "{flag} and --policy \"{spec}\" both say {key}; leave out one of them"
        )));
    }
    spec.arguments.push(Argument::Named(key.to_owned(), value));
    Ok(())
}

impl Pins {
    fn read<'a>(
        from: &str,
        parts: impl Iterator<Item = (&'a str, String)>,
    ) -> Result<Self, Failure> {
        let bad = |place: &str, problem: String| {
            Failure::usage(format!(
                "{from}{place}: {problem}; write block numbers and ranges such as 0-20"
            ))
        };
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (part, place) in parts {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.trim().parse(), last.trim().parse()) else {
                return Err(bad(&place, format!("{part:?} is no range of blocks")));
            };
            if first > last {
                return Err(bad(&place, format!("{part} ends before it begins")));
            }
            let overlaps = |&&(low, high): &&(u64, u64)| first <= high && low <= last;
            if let Some((low, high)) = ranges.iter().find(overlaps) {
                return Err(bad(&place, format!("{part} overlaps {low}-{high}")));
            }
            ranges.push((first, last));
        }
        if ranges.is_empty() {
            return Err(bad("", "no blocks are named".into()));
        }
        ranges.sort_unstable();
        let from = from.to_owned();
        Ok(Self { from, ranges })
    }

    fn to_parameter(&self) -> String {
        let range = |(first, last): &(u64, u64)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        };
        let ranges: Vec<_> = self.ranges.iter().map(range).collect();
        ranges.join("+")
    }

    /// Whether the cache has room for all of them.
    pub fn check_capacity(&self, capacity_blocks: u32, block_bytes: u64) -> Result<(), Failure> {
        let length = |(first, last): &(u64, u64)| (last - first).saturating_add(1);
        let lengths = self.ranges.iter().map(length);
        let pinned = lengths.fold(0, u64::saturating_add);
        if pinned <= u64::from(capacity_blocks) {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "{}: {pinned} blocks, but --cache holds {capacity_blocks} of {}; pin fewer or give it more",
            self.from,
            Size::Bytes(block_bytes)
        )))
    }

    /// Whether the source has all of them.
    pub fn check_source(
        &self,
        source: &Path,
        size_bytes: u64,
        block_bytes: u64,
    ) -> Result<(), Failure> {
        let blocks = size_bytes.div_ceil(block_bytes);
        match self.ranges.last() {
            Some(&(_, last)) if last >= blocks => Err(Failure::usage(format!(
                "{}: block {last} is beyond the end of {}, which has {blocks} blocks of {}",
                self.from,
                source.display(),
                Size::Bytes(block_bytes)
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(policy: &str) -> Choice {
        Choice {
            policy: policy.to_owned(),
            history: None,
            review_every: None,
            min_gain: None,
            swaps: None,
            prefill: false,
            pin: None,
            pin_file: None,
        }
    }

    fn said(choice: &Choice) -> String {
        match choice.spec() {
            Ok((spec, _)) => spec.to_string(),
            Err(failure) => format!("error: {failure}"),
        }
    }

    #[test]
    fn flags_are_parameters() {
        let mut paper = choice("lfu-history(min_gain=0)");
        (paper.history, paper.review_every) = (Some(100), Some(10));
        (paper.swaps, paper.prefill) = (Some(2), true);
        let written =
            "lfu-history(min_gain=0, history=100, review=10, swaps_per_review=2, prefill=true)";
        assert_eq!(said(&paper).replace(' ', ""), written.replace(' ', ""));
        let mut fixed = choice("const");
        fixed.pin = Some("33, 0-20".into());
        assert_eq!(said(&fixed), "const(pin=0-20+33)");
    }

    #[test]
    fn flags_of_another_policy_or_twice_are_refused() {
        let mut wrong = choice("lru");
        wrong.history = Some(5);
        assert!(said(&wrong).contains("--history is for --policy lfu-history"));
        wrong.policy = "lfu-history(history=7)".into();
        assert!(
            said(&wrong).contains("both say history"),
            "{}",
            said(&wrong)
        );
        let mut wrong = choice("arc");
        wrong.pin = Some("1".into());
        assert!(said(&wrong).contains("--pin is for --policy const"));
    }

    #[test]
    fn pins_that_cannot_be_meant_are_refused() {
        for (text, problem) in [
            ("0-3,2-5", "2-5 overlaps 0-3"),
            ("7,7", "7 overlaps 7-7"),
            ("5-3", "5-3 ends before it begins"),
            ("", "is no range"),
            ("1-2-3", "is no range"),
            ("-1", "is no range"),
            ("a", "\"a\" is no range"),
        ] {
            let mut wrong = choice("const");
            wrong.pin = Some(text.into());
            let said = said(&wrong);
            assert!(said.contains(problem) && said.contains("--pin"), "{said}");
        }
    }

    #[test]
    fn pins_fit_into_the_cache_and_the_source() {
        let mut fixed = choice("const");
        fixed.pin = Some("0-20,31".into());
        let pins = fixed.pins().ok().flatten().expect("pins");
        let (block, path) = (128 << 20, Path::new("disk.img"));
        assert!(pins.check_capacity(22, block).is_ok());
        let small = pins.check_capacity(21, block).expect_err("too small");
        assert!(small.to_string().contains("22 blocks"), "{small}");
        assert!(pins.check_source(path, 32 * block, block).is_ok());
        assert!(pins.check_source(path, 31 * block + 1, block).is_ok());
        let short = pins.check_source(path, 31 * block, block);
        let short = short.expect_err("beyond").to_string();
        assert!(short.contains("block 31 is beyond the end of disk.img"));
    }
}
