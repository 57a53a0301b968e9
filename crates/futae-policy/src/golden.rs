//! Golden miss counts on real traces: exact rows of a truth table, and the counts of another tool.
//!
//! The traces are not part of the repository. The tests look for them in the directory that
//! `FUTAE_TRACES` names, or in `../shared/traces` beside the checkout. If they are absent, the
//! tests report that and pass.

use crate::{Access, AccessKind, BlockId, DenseIndex, Level, Outcome, PolicySpec, Shape, build};
use futae_testkit::need::{Need, skip};
use std::collections::HashMap;
use std::path::PathBuf;

/// A trace with its blocks numbered densely from 0.
struct Trace {
    blocks: Vec<u64>,
    next_uses: Vec<u64>,
    distinct: usize,
}

impl Trace {
    fn new(ids: impl Iterator<Item = u64>) -> Self {
        let mut numbers = HashMap::new();
        let blocks: Vec<u64> = ids
            .map(|id| {
                let next = numbers.len() as u64;
                *numbers.entry(id).or_insert(next)
            })
            .collect();
        let mut seen = vec![Access::UNKNOWN; numbers.len()];
        let mut next_uses = vec![Access::UNKNOWN; blocks.len()];
        for (at, &block) in blocks.iter().enumerate().rev() {
            next_uses[at] = std::mem::replace(&mut seen[block as usize], at as u64);
        }
        Self {
            blocks,
            next_uses,
            distinct: numbers.len(),
        }
    }

    /// Misses in a level below another, which sends it its misses and its evictions, with directives if it gives any.
    fn misses_below(&self, upper: &str, above: u32, text: &str, slots: u32) -> u64 {
        let level = |text: &str, slots| {
            let spec: PolicySpec = text.parse().expect("a policy string");
            let policy = build(&spec, &Shape { slots, seed: 1 }).expect("a known policy");
            Level::new(policy, DenseIndex::new(self.distinct), slots)
        };
        let (mut upper, mut lower) = (level(upper, above), level(text, slots));
        for &block in &self.blocks {
            let read = Access::read(BlockId::on_first(block));
            let outcome = upper.access(&read);
            let mut send = |access: Access| {
                let directive = upper.directive(access.block);
                directive.iter().for_each(|told| lower.direct(told));
                let is_demotion = access.kind == AccessKind::Demotion;
                if !is_demotion || directive.is_none_or(|told| told.is_kept) {
                    lower.access(&access);
                }
            };
            if !matches!(outcome, Outcome::Hit(_)) {
                send(read);
            }
            if let Outcome::Admitted {
                evicted: Some(victim),
                ..
            } = outcome
            {
                send(Access::of(victim.block, AccessKind::Demotion));
            }
        }
        lower.counters().misses
    }

    fn misses(&self, text: &str, slots: u32) -> u64 {
        let spec: PolicySpec = text.parse().expect("a policy string");
        let policy = build(&spec, &Shape { slots, seed: 1 }).expect("a known policy");
        let mut level = Level::new(policy, DenseIndex::new(self.distinct), slots);
        for (&block, &next_use) in self.blocks.iter().zip(&self.next_uses) {
            let mut access = Access::read(BlockId::on_first(block));
            access.next_use = next_use;
            level.access(&access);
            crate::contract::carry_out_reviews(&mut level);
        }
        level.counters().misses
    }
}

fn directory() -> PathBuf {
    std::env::var_os("FUTAE_TRACES").map_or_else(
        || {
            PathBuf::from(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../../shared/traces"
            ))
        },
        PathBuf::from,
    )
}

fn bytes_of(file: &str) -> Option<Vec<u8>> {
    let path = directory().join(file);
    let packed = std::fs::read(&path)
        .map_err(|error| skip(Need::Traces, &format!("{}: {error}", path.display())))
        .ok()?;
    Some(zstd::decode_all(packed.as_slice()).expect("a zstd file"))
}

/// Start addresses of a vscsi version 1 trace: records of 32 bytes, the address at byte 16.
fn vscsi_starts(file: &str) -> Option<Trace> {
    let bytes = bytes_of(file)?;
    let start = |record: &[u8]| u64::from_le_bytes(record[16..24].try_into().expect("8 bytes"));
    Some(Trace::new(bytes.chunks_exact(32).map(start)))
}

/// Start addresses of an ARC trace: lines of which the first field is the address.
fn lis_starts(file: &str) -> Option<Trace> {
    let text = String::from_utf8(bytes_of(file)?).expect("text");
    let start = |line: &str| line.split_ascii_whitespace().next()?.parse().ok();
    Some(Trace::new(text.lines().filter_map(start)))
}

fn equals_truth(file: &str, trace: Option<Trace>) {
    let (Some(trace), Ok(truth)) = (
        trace,
        std::fs::read_to_string(directory().join("truth.tsv")),
    ) else {
        return;
    };
    let mut rows = 0;
    for row in truth.lines() {
        let fields: Vec<&str> = row.split('\t').collect();
        let [of, policy, slots, requests, misses, view, ..] = fields[..] else {
            continue;
        };
        if of != file || view != "start_lba" {
            continue;
        }
        let text = match policy {
            "opt_bypass" => "opt(bypass=true)",
            other => other,
        };
        assert_eq!(trace.blocks.len().to_string(), requests);
        let got = trace.misses(text, slots.parse().expect("a number"));
        assert_eq!(got.to_string(), misses, "{row}");
        rows += 1;
    }
    println!("{file}: {rows} rows equal");
    assert!(rows > 0, "{file}: no rows");
}

#[test]
fn cloudphysics_equals_its_truth() {
    let file = "cloudphysics.vscsi.zst";
    equals_truth(file, vscsi_starts(file));
}

#[test]
fn arc_p3_equals_its_truth() {
    let file = "arc-P3.lis.zst";
    equals_truth(file, lis_starts(file));
}

/// libCacheSim 0.3.5 on the same requests with 4,897 slots, to the four digits that it prints. Its
/// LFU drops the counts of evicted blocks; its S3-FIFO fills the main queue first.
#[test]
fn equals_libcachesim() {
    let Some(trace) = vscsi_starts("cloudphysics.vscsi.zst") else {
        return;
    };
    for (text, ratio) in [
        ("fifo", "0.8054"),
        ("lru", "0.8049"),
        ("clock", "0.8044"),
        ("lfu-in-cache", "0.7907"),
        ("sieve", "0.7907"),
        ("s3-fifo(fill_main=true)", "0.7553"),
        ("2q", "0.7742"),
        ("arc", "0.7728"),
        ("lirs", "0.7518"),
        ("opt", "0.6290"),
    ] {
        let misses = trace.misses(text, 4897);
        let got = format!("{:.4}", misses as f64 / trace.blocks.len() as f64);
        assert_eq!(got, ratio, "{text}");
    }
}

/// Misses on the same requests, for policies without an independent count to compare with, so that
/// a change is detected. Beside them are libCacheSim's counts, if it has the policy; the cards
/// explain differences.
#[test]
fn misses_do_not_change() {
    let Some(trace) = vscsi_starts("cloudphysics.vscsi.zst") else {
        return;
    };
    let mut changed = Vec::new();
    for (text, misses, _libcachesim) in [
        ("lfu", 87_748, None),
        ("s3-fifo", 85_691, Some(".7553")),
        ("w-tinylfu", 90_159, Some(".7763")),
        ("lecar", 91_267, Some(".8049")),
        ("lhd", 91_740, Some(".8040")),
        ("random", 90_373, Some(".7930")),
        ("mq", 87_329, None),
        ("slru", 90_040, None),
        ("car", 88_080, None),
        ("linux", 90_783, None),
        ("mglru", 91_428, None),
        ("mglru(reclaim=group)", 91_428, None),
        ("lrfu", 91_602, None),
        ("hyperbolic", 91_425, None),
        ("gdsf", 91_388, None),
        ("two-handed-clock", 91_568, None),
        ("fifo-second-chance", 91_597, None),
        ("cost", 91_597, None),
        ("slru(segments=4)", 90_040, None),
        ("slru(segments=4,fill=true)", 90_010, None),
        ("clock2q-plus", 88_922, None),
        ("clock2q-plus(ghost=0.9)", 85_597, None),
        ("cacheus", 87_088, None),
        ("clock-pro", 85_960, None),
        ("lru-k", 84_718, None),
        ("lru-k(history=0)", 90_040, None),
        ("lfuda", 91_389, None),
        ("lrb", 91_464, None),
        ("3l-cache", 90_451, None),
        ("gl-cache", 90_750, None),
        ("ulc", 88_504, None),
        ("inferred", 92_607, None),
    ] {
        let got = trace.misses(text, 4897);
        if got != misses {
            changed.push((text, got));
        }
    }
    assert!(changed.is_empty(), "{changed:?}");
}

/// Misses of a level below one of half as many slots, which demotes its evictions.
#[test]
fn misses_below_another_level_do_not_change() {
    let Some(trace) = vscsi_starts("cloudphysics.vscsi.zst") else {
        return;
    };
    let mut changed = Vec::new();
    for (upper, text, misses) in [
        ("lru", "lru", 91_628),
        ("lru", "exclusive", 88_690),
        ("lru", "bidifilter", 84_408),
        ("lru", "promote(promote=0.33)", 90_403),
        ("ulc(below=4897)", "directed", 83_507),
    ] {
        let got = trace.misses_below(upper, 2448, text, 4897);
        if got != misses {
            changed.push((text, got));
        }
    }
    assert!(changed.is_empty(), "{changed:?}");
}
