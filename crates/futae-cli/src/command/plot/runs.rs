//! Results that were written before, as runs.

use anyhow::Context;
use futae_terminal::failure::Failure;
use futae_terminal::text_file::read_text;
use serde_json::Value;
use std::path::Path;

/// A simulation, as far as it is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What was asked for; empty where the file does not say.
    pub source: String,
    /// Policy and size in bytes, top down.
    pub levels: Vec<(String, u64)>,
    /// Misses of all levels together, from 0 to 1.
    pub miss_ratio: f64,
    /// Half of the 95 % interval of the miss ratio, where the file says it.
    pub half_width: Option<f64>,
    /// Bytes of all levels and of all of their copies.
    pub memory_bytes: u64,
    /// Reads of the store for each request, those for notices and preloads included; none where the file does not say.
    pub reads_per_request: Option<f64>,
    /// None where the file does not say.
    pub seed: Option<u64>,
    /// What else decides on the result, by the name of its column, as far as the file says.
    pub conditions: Vec<(&'static str, String)>,
}

/// Columns in which runs must be equal to be compared by their seeds, as CSV and JSON name them. Only JSON has links.
const CONDITIONS: [[&str; 2]; 6] = [
    ["all_requests", "requests"],
    ["warmup_requests", "warmup_requests"],
    ["block_bytes", "block_bytes"],
    ["write_mode", "write_mode"],
    ["guests", "guests"],
    ["links", "links"],
];

/// The runs of a file, CSV or JSON as its first character says.
pub fn read(path: &Path) -> Result<Vec<Run>, Failure> {
    let shown = path.display();
    let text = read_text(path).with_context(|| format!("cannot read {shown}"))?;
    let runs = match text.trim_start().starts_with('{') {
        true => of_json(&text),
        false => of_csv(&text),
    };
    match runs {
        Ok(runs) if runs.is_empty() => {
            Err(Failure::usage(format!("{shown} has no runs with requests")))
        }
        Ok(runs) => match runs.iter().find(|run| !is_ratio(run.miss_ratio)) {
            Some(run) => Err(Failure::usage(format!(
                "{shown}: a run has a miss ratio of {}; ratios are from 0 to 1",
                run.miss_ratio
            ))),
            None => Ok(runs),
        },
        Err(why) => Err(Failure::usage(format!(
            "{shown}: {why}; results are those of futae sweep, futae sim --csv or --json, or futae mrc --csv"
        ))),
    }
}

/// Whether a figure can be a ratio, but for its rounding. Others have no place in a chart, and text such as NaN is a figure in a CSV.
pub(super) fn is_ratio(figure: f64) -> bool {
    (-1e-9..=1.0 + 1e-9).contains(&figure)
}

/// All counts together, or the largest there is.
fn sum(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

fn of_json(text: &str) -> Result<Vec<Run>, String> {
    let report: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let runs = report["runs"].as_array().ok_or("it has no \"runs\"")?;
    let seed = report["seed"].as_u64();
    let source = json_source(&report);
    let of = |run: &Value| {
        let conditions = CONDITIONS
            .into_iter()
            .filter_map(|[_, name]| match &run[name] {
                Value::Null => None,
                // As CSV has it: JSON writes names of several words with underscores.
                Value::String(text) => Some((name, text.replace('_', "-"))),
                other => Some((name, other.to_string())),
            })
            .collect();
        // Of objects with sizes.
        if let (Some(policy), Some(bytes)) =
            (run["policy"].as_str(), run["capacity_bytes"].as_u64())
        {
            return Ok(run["miss_ratio"].as_f64().map(|miss_ratio| Run {
                source: source.clone(),
                levels: vec![(policy.to_owned(), bytes)],
                miss_ratio,
                half_width: None,
                memory_bytes: bytes,
                reads_per_request: None,
                seed,
                conditions,
            }));
        }
        let block = run["block_bytes"]
            .as_u64()
            .ok_or("a run has no block_bytes")?;
        let levels = run["levels"].as_array().ok_or("a run has no levels")?;
        let level = |level: &Value| {
            let policy = level["policy"].as_str().ok_or("a level has no policy")?;
            let blocks = level["capacity_blocks"]
                .as_u64()
                .ok_or("a level has no capacity_blocks")?;
            let copies = || level["copies"].as_u64().unwrap_or(1);
            let all = level["all_copies_blocks"].as_u64();
            let all = all.unwrap_or_else(|| blocks.saturating_mul(copies()));
            let level = (policy.to_owned(), blocks.saturating_mul(block));
            Ok::<_, String>((level, all.saturating_mul(block)))
        };
        let levels = levels.iter().map(level).collect::<Result<Vec<_>, _>>()?;
        let memory = sum(levels.iter().map(|level| level.1));
        let levels: Vec<(String, u64)> = levels.into_iter().map(|level| level.0).collect();
        let reads = READS
            .iter()
            .map(|name| run[name].as_u64())
            .collect::<Option<Vec<_>>>()
            .map(sum);
        Ok::<_, String>(run["miss_ratio"].as_f64().map(|miss_ratio| Run {
            source: source.clone(),
            memory_bytes: memory,
            levels,
            miss_ratio,
            half_width: None,
            reads_per_request: per_request(reads, run["requests"].as_u64()),
            seed,
            conditions,
        }))
    };
    let runs: Result<Vec<Option<Run>>, String> = runs.iter().map(of).collect();
    Ok(runs?.into_iter().flatten().collect())
}

/// What asked, as the column `source` of a CSV has it; of objects only the trace is named.
fn json_source(report: &Value) -> String {
    let sources = report["sources"].as_array();
    let sources = sources.or_else(|| report["trace"]["files"].as_array());
    let names = sources.into_iter().flatten().filter_map(Value::as_str);
    names.collect::<Vec<_>>().join(" + ")
}

/// The reads of the store, by what they are for.
const READS: [&str; 3] = ["store_reads", "notice_reads", "preload_reads"];

fn per_request(reads: Option<u64>, requests: Option<u64>) -> Option<f64> {
    let (reads, requests) = (reads?, requests.filter(|&requests| requests > 0)?);
    Some(reads as f64 / requests as f64)
}

/// What the row of a CSV says of [`CONDITIONS`].
fn conditions(names: &[String], row: &[String]) -> Vec<(&'static str, String)> {
    let of = |[column, name]: [&'static str; 2]| {
        let column = names.iter().position(|it| it == column)?;
        Some((name, row.get(column)?.clone()))
    };
    CONDITIONS.into_iter().filter_map(of).collect()
}

/// A row of a CSV whose cells may be quoted.
fn cells(line: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut is_quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                if let Some(last) = all.last_mut() {
                    last.push('"');
                }
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => all.push(String::new()),
            c => {
                if let Some(last) = all.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    all
}

fn of_csv(text: &str) -> Result<Vec<Run>, String> {
    let mut lines = text.lines();
    let names = cells(lines.next().unwrap_or_default());
    let column = |name: &str| names.iter().position(|it| it == name);
    // Of the latter, ratios of requests: bytes have a column of their own.
    for [name, bytes, ratio] in [
        ["method", "cache_bytes", "miss_ratio"],
        ["policy", "capacity_bytes", "hit_ratio"],
    ] {
        if column(bytes).is_some() {
            return of_one_level(&names, [name, bytes, ratio], lines);
        }
    }
    let needed = |name: &str| column(name).ok_or(format!("it has no column {name}"));
    let (policy, blocks, level) = (
        needed("policy")?,
        needed("capacity_blocks")?,
        needed("level")?,
    );
    let (block, ratio) = (needed("block_bytes")?, needed("all_miss_ratio")?);
    let (source, copies) = (column("source"), column("copies"));
    let all_copies = column("all_copies_blocks");
    let mut runs: Vec<Run> = Vec::new();
    for (at, line) in (2..).zip(lines) {
        let row = cells(line);
        let bad = |what: &str| format!("line {at}: {what}");
        let text = |column: usize| {
            row.get(column)
                .cloned()
                .ok_or_else(|| bad("cells are missing"))
        };
        let number = |column: usize| {
            text(column)?
                .parse::<u64>()
                .map_err(|error| bad(&error.to_string()))
        };
        if text(ratio)?.is_empty() {
            continue;
        }
        let level_of_run = (
            text(policy)?,
            number(blocks)?.saturating_mul(number(block)?),
        );
        let memory = match all_copies {
            Some(column) => number(column)?.saturating_mul(number(block)?),
            None => level_of_run.1.saturating_mul(copies.map_or(Ok(1), number)?),
        };
        match runs.last_mut() {
            Some(run) if number(level)? > 0 => {
                run.levels.push(level_of_run);
                run.memory_bytes = run.memory_bytes.saturating_add(memory);
            }
            _ => {
                let count = |name| column(name).map(number).transpose();
                let reads = READS
                    .map(count)
                    .into_iter()
                    .collect::<Result<Option<Vec<_>>, _>>()?;
                let reads = reads.map(sum);
                runs.push(Run {
                    source: source.map_or(Ok(String::new()), &text)?,
                    levels: vec![level_of_run],
                    miss_ratio: text(ratio)?.parse().map_err(|_| bad("no miss ratio"))?,
                    half_width: None,
                    memory_bytes: memory,
                    reads_per_request: per_request(reads, count("all_requests")?),
                    seed: count("seed")?,
                    conditions: conditions(&names, &row),
                });
            }
        }
    }
    Ok(runs)
}

/// A table in which each row has the bytes of one cache and its ratio: of `futae mrc --csv`, or of `futae sim --objects --csv`.
fn of_one_level<'a>(
    names: &[String],
    [name, bytes, ratio]: [&str; 3],
    lines: impl Iterator<Item = &'a str>,
) -> Result<Vec<Run>, String> {
    let column = |name: &str| {
        names
            .iter()
            .position(|it| it == name)
            .ok_or(format!("it has no column {name}"))
    };
    let is_of_hits = ratio == "hit_ratio";
    let (name, bytes, ratio) = (column(name)?, column(bytes)?, column(ratio)?);
    let [source, half, seed] = ["source", "half_width", "seed"].map(|name| column(name).ok());
    // A curve has a policy besides its method.
    let policy = column("policy").ok().filter(|&policy| policy != name);
    let run = |line: &str| {
        let row = cells(line);
        let memory_bytes = row.get(bytes)?.parse().ok()?;
        let ratio: f64 = row.get(ratio)?.parse().ok()?;
        let source = source.and_then(|source| row.get(source).cloned());
        let name = match policy {
            Some(policy) => format!("{}, {}", row.get(policy)?, row.get(name)?),
            None => row.get(name)?.clone(),
        };
        Some(Run {
            source: source.unwrap_or_default(),
            levels: vec![(name, memory_bytes)],
            miss_ratio: if is_of_hits { 1.0 - ratio } else { ratio },
            half_width: half.and_then(|half| row.get(half)?.parse().ok()),
            memory_bytes,
            reads_per_request: None,
            seed: seed.and_then(|seed| row.get(seed)?.parse().ok()),
            conditions: conditions(names, &row),
        })
    };
    lines
        .map(|line| run(line).ok_or(format!("{line:?} is no row of results")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_runs() {
        let csv = "cell,source,level,policy,capacity_blocks,block_bytes,all_miss_ratio\n\
                   0,a,0,\"2q(a=1,b=2)\",10,512,0.5\n1,a,0,lru,10,4096,0.25\n1,a,1,exclusive,20,4096,0.25\n";
        let runs = of_csv(csv).expect("runs");
        assert_eq!(runs[0].levels, [("2q(a=1,b=2)".to_owned(), 5120)]);
        assert_eq!(
            runs[1].levels,
            [("lru".to_owned(), 40960), ("exclusive".to_owned(), 81920)]
        );
        assert_eq!((runs.len(), runs[1].miss_ratio), (2, 0.25));
        let curve = of_csv("method,cache_blocks,cache_bytes,miss_ratio\nexact,1,4096,0.5\n")
            .expect("a curve");
        assert_eq!(curve[0].levels, [("exact".to_owned(), 4096)]);
    }

    #[test]
    fn figures_that_cannot_be_are_said_or_are_the_largest() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.csv");
        for (ratio, is_read) in [("0", true), ("1", true), ("nan", false), ("1e308", false)] {
            let csv = format!("method,cache_bytes,miss_ratio\nexact,4096,{ratio}\n");
            std::fs::write(&path, csv).expect("room");
            let said = read(&path).map_err(|failure| failure.to_string()).err();
            assert_eq!(said.is_none(), is_read, "{ratio}: {said:?}");
            assert!(said.is_none_or(|said| said.contains("from 0 to 1")));
        }
        let most = u64::MAX;
        let json = format!(
            "{{\"runs\":[{{\"block_bytes\":2,\"miss_ratio\":0.5,\"requests\":1,\"store_reads\":{most},\"notice_reads\":1,\
             \"preload_reads\":0,\"levels\":[{{\"policy\":\"lru\",\"capacity_blocks\":{most}}},\
             {{\"policy\":\"lru\",\"capacity_blocks\":1}}]}}]}}"
        );
        let csv = format!(
            "level,policy,capacity_blocks,block_bytes,all_miss_ratio,all_requests,store_reads,notice_reads,preload_reads\n\
             0,lru,{most},2,0.5,1,{most},1,0\n1,lru,1,2,0.5,1,{most},1,0\n"
        );
        for runs in [of_json(&json), of_csv(&csv)] {
            let runs = runs.expect("runs");
            let found = (runs[0].memory_bytes, runs[0].reads_per_request);
            assert_eq!(found, (most, Some(most as f64)));
        }
    }

    #[test]
    fn memory_and_reads_are_those_of_the_whole_run() {
        let csv = "level,policy,capacity_blocks,copies,block_bytes,all_miss_ratio,all_requests,store_reads,notice_reads,\
                   preload_reads\n0,lru,10,2,512,0.5,200,90,8,2\n1,exclusive,20,1,512,0.5,200,90,8,2\n";
        let json = r#"{"runs":[{"block_bytes":512,"miss_ratio":0.5,"requests":200,"store_reads":90,"notice_reads":8,
            "preload_reads":2,"levels":[{"policy":"lru","capacity_blocks":10,"copies":2},
            {"policy":"exclusive","capacity_blocks":20,"copies":1}]}]}"#;
        for runs in [of_csv(csv), of_json(json)] {
            let runs = runs.expect("runs");
            assert_eq!(runs.len(), 1);
            assert_eq!(
                (runs[0].memory_bytes, runs[0].reads_per_request),
                (40 * 512, Some(0.5))
            );
        }
        let differing = csv
            .replace("copies", "copies,all_copies_blocks")
            .replace("2,512", "2,13,512")
            .replace("1,512", "1,20,512");
        assert_eq!(of_csv(&differing).expect("runs")[0].memory_bytes, 33 * 512);
        let differing = json.replace("\"copies\":2", "\"copies\":2,\"all_copies_blocks\":13");
        assert_eq!(of_json(&differing).expect("runs")[0].memory_bytes, 33 * 512);
        let without = "level,policy,capacity_blocks,block_bytes,all_miss_ratio\n0,lru,10,512,0.5\n";
        assert_eq!(of_csv(without).expect("runs")[0].reads_per_request, None);
    }

    #[test]
    fn objects_with_sizes_have_bytes_and_a_ratio_of_requests() {
        let csv = "policy,capacity_bytes,requests,hits,hit_ratio,byte_miss_ratio,source\nlru,20000,8,2,0.25,0.5,a.csv\n";
        let mut run = Run {
            source: "a.csv".to_owned(),
            levels: vec![("lru".to_owned(), 20000)],
            miss_ratio: 0.75,
            half_width: None,
            memory_bytes: 20000,
            reads_per_request: None,
            seed: None,
            conditions: Vec::new(),
        };
        let found = of_csv(csv).expect("runs");
        assert_eq!(found, std::slice::from_ref(&run));
        let json = r#"{"runs":[{"policy":"lru","capacity_bytes":20000,"miss_ratio":0.75}]}"#;
        run.source.clear();
        assert_eq!(of_json(json).expect("runs"), std::slice::from_ref(&run));
        run.source = "a.csv".to_owned();
        let named = json.replace("{\"runs\"", "{\"trace\":{\"files\":[\"a.csv\"]},\"runs\"");
        assert_eq!(of_json(&named).expect("runs"), [run]);
    }

    #[test]
    fn a_run_in_json_is_the_run_in_csv() {
        let csv = "level,policy,capacity_blocks,block_bytes,all_miss_ratio,all_requests,guests,write_mode,seed,source\n\
                   0,lru,10,512,0.5,200,2,write-back,3,a + b\n";
        let json = r#"{"seed":3,"sources":["a","b"],"runs":[{"block_bytes":512,"miss_ratio":0.5,"requests":200,"guests":2,
            "write_mode":"write_back","levels":[{"policy":"lru","capacity_blocks":10}]}]}"#;
        assert_eq!(of_json(json), of_csv(csv));
        assert_eq!(of_csv(csv).expect("runs")[0].conditions.len(), 4);
    }

    #[test]
    fn what_are_no_results_is_refused() {
        assert!(of_csv("a,b\n1,2\n").expect_err("no").contains("policy"));
        assert!(of_csv("").is_err() && of_json("{}").is_err() && of_json("{").is_err());
        let cut = "level,policy,capacity_blocks,block_bytes,all_miss_ratio\n0,lru\n";
        assert!(of_csv(cut).expect_err("cut").contains("line 2"));
    }
}
