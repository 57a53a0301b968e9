//! Results that were written before, as runs.

use crate::failure::Failure;
use anyhow::Context;
use serde_json::Value;
use std::fs;
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
}

/// The runs of a file, CSV or JSON as its first character says.
pub fn read(path: &Path) -> Result<Vec<Run>, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let runs = match text.trim_start().starts_with('{') {
        true => of_json(&text),
        false => of_csv(&text),
    };
    match runs {
        Ok(runs) if runs.is_empty() => {
            Err(Failure::usage(format!("{shown} has no runs with requests")))
        }
        Ok(runs) => Ok(runs),
        Err(why) => Err(Failure::usage(format!(
            "{shown}: {why}; results are those of futae sweep, futae sim --csv or --json, or futae mrc --csv"
        ))),
    }
}

fn of_json(text: &str) -> Result<Vec<Run>, String> {
    let report: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let runs = report["runs"].as_array().ok_or("it has no \"runs\"")?;
    let of = |run: &Value| {
        let block = run["block_bytes"]
            .as_u64()
            .ok_or("a run has no block_bytes")?;
        let levels = run["levels"].as_array().ok_or("a run has no levels")?;
        let level = |level: &Value| {
            let policy = level["policy"].as_str().ok_or("a level has no policy")?;
            let blocks = level["capacity_blocks"]
                .as_u64()
                .ok_or("a level has no capacity_blocks")?;
            Ok::<_, String>((policy.to_owned(), blocks.saturating_mul(block)))
        };
        let levels = levels.iter().map(level).collect::<Result<_, _>>()?;
        Ok::<_, String>(run["miss_ratio"].as_f64().map(|miss_ratio| Run {
            source: String::new(),
            levels,
            miss_ratio,
        }))
    };
    let runs: Result<Vec<Option<Run>>, String> = runs.iter().map(of).collect();
    Ok(runs?.into_iter().flatten().collect())
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
    if column("method").is_some() {
        return of_curve(&names, lines);
    }
    let needed = |name: &str| column(name).ok_or(format!("it has no column {name}"));
    let (policy, blocks, level) = (
        needed("policy")?,
        needed("capacity_blocks")?,
        needed("level")?,
    );
    let (block, ratio) = (needed("block_bytes")?, needed("all_miss_ratio")?);
    let source = column("source");
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
        match runs.last_mut() {
            Some(run) if number(level)? > 0 => run.levels.push(level_of_run),
            _ => runs.push(Run {
                source: source.map_or(Ok(String::new()), &text)?,
                levels: vec![level_of_run],
                miss_ratio: text(ratio)?.parse().map_err(|_| bad("no miss ratio"))?,
            }),
        }
    }
    Ok(runs)
}

/// The table of `futae mrc --csv`.
fn of_curve<'a>(
    names: &[String],
    lines: impl Iterator<Item = &'a str>,
) -> Result<Vec<Run>, String> {
    let column = |name: &str| {
        names
            .iter()
            .position(|it| it == name)
            .ok_or(format!("it has no column {name}"))
    };
    let (method, bytes, ratio) = (
        column("method")?,
        column("cache_bytes")?,
        column("miss_ratio")?,
    );
    let run = |line: &str| {
        let row = cells(line);
        Some(Run {
            source: String::new(),
            levels: vec![(row.get(method)?.clone(), row.get(bytes)?.parse().ok()?)],
            miss_ratio: row.get(ratio)?.parse().ok()?,
        })
    };
    lines
        .map(|line| run(line).ok_or(format!("{line:?} is no row of a curve")))
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
    fn what_are_no_results_is_refused() {
        assert!(of_csv("a,b\n1,2\n").expect_err("no").contains("policy"));
        assert!(of_csv("").is_err() && of_json("{}").is_err() && of_json("{").is_err());
        let cut = "level,policy,capacity_blocks,block_bytes,all_miss_ratio\n0,lru\n";
        assert!(of_csv(cut).expect_err("cut").contains("line 2"));
    }
}
