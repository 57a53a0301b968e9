//! The plan of a sweep: what its file says, and the cells that come of it.

use crate::SweepError;
use crate::levels::{level, product};
use futae_policy::PolicySpec;
use futae_sim::objects::Lives;
use futae_sim::queueing::LatencyModel;
use futae_sim::run::{ClosedLoop, Think, ViewChoice};
use futae_sim::study::{ObjectStudy, Warmup};
use futae_sim::{LevelSpec, Link, WriteMode};
use futae_trace::{Columns, Format, TraceOptions, WorkloadSpec, is_url};
use futae_units::{BLOCK_BYTES_MAX, SIMULATED_BLOCK_BYTES_MIN, Size, parse_block_bytes};
use serde::Deserialize;
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Cells that a sweep may have: what is kept of each in memory is small, but not nothing.
const CELLS_MAX: usize = 1_000_000;

/// The file, as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    traces: Vec<Files>,
    #[serde(default)]
    workloads: Vec<String>,
    #[serde(default)]
    policies: Vec<String>,
    #[serde(default)]
    sizes: Vec<String>,
    #[serde(default)]
    levels: Vec<Vec<String>>,
    #[serde(default = "one_seed")]
    seeds: Vec<u64>,
    #[serde(default = "usual_block")]
    block: String,
    format: Option<String>,
    columns: Option<String>,
    #[serde(default)]
    skip_bad: bool,
    view: Option<String>,
    link: Option<String>,
    write_mode: Option<String>,
    guests: Option<u32>,
    warmup: Option<u64>,
    requests: Option<u64>,
    think: Option<String>,
    latency: Option<String>,
    #[serde(default)]
    objects: bool,
    ttl: Option<String>,
    admit_size_max: Option<String>,
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

fn usual_block() -> String {
    "4KiB".to_owned()
}

/// A trace file, or one for each guest.
#[derive(Deserialize)]
#[serde(untagged)]
enum Files {
    One(String),
    Guests(Vec<String>),
}

/// What is asked of the caches of a cell.
#[derive(Debug)]
pub enum Source {
    /// A trace file for each guest: names as written, and where they are.
    Traces(Vec<String>, Vec<PathBuf>),
    /// A workload, which each guest has a copy of.
    Workload(WorkloadSpec, String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Traces(names, _) => f.write_str(&names.join(" + ")),
            Self::Workload(_, name) => f.write_str(name),
        }
    }
}

/// One simulation of the sweep.
#[derive(Debug)]
pub struct Cell {
    /// The number of its source in the plan.
    pub source: usize,
    /// What the source is called.
    pub source_name: String,
    /// The seed.
    pub seed: u64,
    /// The levels, top down.
    pub levels: Vec<LevelSpec>,
}

impl Cell {
    /// Its levels in one text, top down.
    pub fn hierarchy(&self) -> String {
        named(&self.levels)
    }

    /// The paths of its levels' plug-ins.
    pub(crate) fn libraries(&self) -> impl Iterator<Item = &str> {
        let levels = self.levels.iter();
        levels.flat_map(|level| level.policy.libraries())
    }
}

/// Levels in one text, top down.
fn named(levels: &[LevelSpec]) -> String {
    let levels: Vec<String> = levels.iter().map(ToString::to_string).collect();
    levels.join(" > ")
}

/// Refuses what a plan has twice.
fn once(what: &str, all: impl Iterator<Item = String>) -> Result<(), SweepError> {
    let mut seen = HashSet::new();
    for one in all {
        if !seen.insert(one.clone()) {
            return Err(SweepError::plan(format!(
                "the {what} {one} is in the plan twice"
            )));
        }
    }
    Ok(())
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hierarchy = self.hierarchy();
        write!(
            f,
            "{} under {hierarchy}, seed {}",
            self.source_name, self.seed
        )
    }
}

/// Objects that differ in size: how long they live, and which are placed.
#[derive(Clone, Copy, Debug)]
pub struct Objects {
    /// How long they live.
    pub lives: Lives,
    /// Larger objects are not placed: a size in bytes.
    pub admit_size_max: Option<Size>,
}

/// A plan, all of it checked but for the trace files.
#[derive(Debug)]
pub struct Plan {
    /// What is asked for.
    pub sources: Vec<Source>,
    /// By source, then seed, then hierarchy.
    pub cells: Vec<Cell>,
    /// How trace files are read, with the size of a block.
    pub options: TraceOptions,
    /// What of a trace's request is a block.
    pub view: ViewChoice,
    /// Between all levels, where it is asked for.
    pub link: Option<Link>,
    /// When written data goes to the store.
    pub write_mode: WriteMode,
    /// Guests of workloads.
    pub guests: u32,
    /// Requests before counting begins.
    pub warmup: Option<u64>,
    /// Requests that are counted.
    pub requests: Option<u64>,
    /// Think times and latencies, where guests with traces wait for their answers.
    pub closed: Option<ClosedLoop>,
    /// What of objects that differ in size is asked for, if the requests are for those.
    pub objects: Option<Objects>,
    /// All that decides what cells there are and what comes of them, as text.
    pub manifest: String,
}

impl Plan {
    /// A plan from text in TOML. Names of traces are relative to `folder`.
    ///
    /// # Errors
    ///
    /// It is no plan.
    pub fn of_toml(text: &str, folder: &Path) -> Result<Self, SweepError> {
        Self::of_file(&toml::from_str(text).map_err(SweepError::plan)?, folder)
    }

    /// As [`of_toml`](Self::of_toml), in JSON.
    ///
    /// # Errors
    ///
    /// It is no plan.
    pub fn of_json(text: &str, folder: &Path) -> Result<Self, SweepError> {
        Self::of_file(
            &serde_json::from_str(text).map_err(SweepError::plan)?,
            folder,
        )
    }

    /// What a result may not be meant to be: an exclusive cache at the top is asked, but nobody demotes to it.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let mut tops = self.cells.iter().filter_map(|cell| cell.levels.first());
        let top = tops.find(|top| top.policy.lives_on_demotions())?;
        Some(format!(
            "{top} keeps only what the level above demotes to it, and there is none, so it hits nothing; name the upper \
             level first, such as levels = [[\"lru:1GiB\", \"{top}\"]]"
        ))
    }

    /// The study of one cell of objects.
    pub(crate) fn object_study(&self, caches: Vec<LevelSpec>, seed: u64) -> ObjectStudy {
        ObjectStudy {
            caches,
            lives: self.objects.map_or(Lives::Trace, |objects| objects.lives),
            admit_size_max: self.objects.and_then(|objects| objects.admit_size_max),
            seed,
            warmup: self.warmup.map(Warmup::Requests),
            requests: self.requests,
            threads: 1,
        }
    }

    fn of_file(file: &File, folder: &Path) -> Result<Self, SweepError> {
        let sources = sources(file, folder)?;
        let hierarchies = hierarchies(file)?;
        // Two rows of one run would count as two runs.
        once("source", sources.iter().map(Source::to_string))?;
        once("seed", file.seeds.iter().map(u64::to_string))?;
        once("hierarchy", hierarchies.iter().map(|levels| named(levels)))?;
        let counts = [sources.len(), file.seeds.len(), hierarchies.len()];
        let count = counts.iter().try_fold(1usize, |all, &n| all.checked_mul(n));
        let Some(count) = count.filter(|&count| count <= CELLS_MAX) else {
            let message = format!("a sweep has at most {CELLS_MAX} cells; make several plans");
            return Err(SweepError::plan(message));
        };
        if count == 0 {
            return Err(SweepError::plan(
                "there is nothing to simulate: give traces or workloads, seeds, and policies with sizes or levels",
            ));
        }
        let mut cells = Vec::with_capacity(count);
        for (at, source) in sources.iter().enumerate() {
            for &seed in &file.seeds {
                cells.extend(hierarchies.iter().map(|levels| Cell {
                    source: at,
                    source_name: source.to_string(),
                    seed,
                    levels: levels.clone(),
                }));
            }
        }
        let block = parse_block_bytes(&file.block, SIMULATED_BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        let options = TraceOptions {
            format: parsed::<Format>(file.format.as_deref())?,
            columns: parsed::<Columns>(file.columns.as_deref())?,
            unit_bytes: block.map_err(SweepError::plan)?,
            skip_bad: file.skip_bad,
            ..TraceOptions::default()
        };
        let manifest = manifest(file, &cells);
        Ok(Self {
            sources,
            cells,
            options,
            view: parsed(file.view.as_deref())?.unwrap_or_default(),
            link: parsed(file.link.as_deref())?,
            write_mode: parsed(file.write_mode.as_deref())?.unwrap_or_default(),
            guests: file.guests.unwrap_or(1),
            warmup: file.warmup,
            requests: file.requests,
            closed: closed(file)?,
            objects: objects(file, &hierarchies)?,
            manifest,
        })
    }
}

/// Every option and every cell. Two plans that come to the same may be written differently.
fn manifest(file: &File, cells: &[Cell]) -> String {
    let mut text = format!(
        "version {:?}\nblock {:?}\nformat {:?}\ncolumns {:?}\nskip_bad {:?}\nview {:?}\nlink {:?}\nwrite_mode {:?}\n\
         guests {:?}\nwarmup {:?}\nrequests {:?}\n",
        env!("CARGO_PKG_VERSION"),
        file.block,
        file.format,
        file.columns,
        file.skip_bad,
        file.view,
        file.link,
        file.write_mode,
        file.guests,
        file.warmup,
        file.requests,
    );
    if file.think.is_some() {
        text += &format!("think {:?}\nlatency {:?}\n", file.think, file.latency);
    }
    if file.objects {
        text += &format!(
            "objects\nttl {:?}\nadmit_size_max {:?}\n",
            file.ttl, file.admit_size_max
        );
    }
    for (at, cell) in cells.iter().enumerate() {
        text += &format!("cell {at} {cell}\n");
    }
    text
}

fn parsed<T: FromStr<Err: fmt::Display>>(text: Option<&str>) -> Result<Option<T>, SweepError> {
    text.map(str::parse).transpose().map_err(SweepError::plan)
}

fn closed(file: &File) -> Result<Option<ClosedLoop>, SweepError> {
    let think = parsed::<Think>(file.think.as_deref())?;
    let model = parsed::<LatencyModel>(file.latency.as_deref())?;
    match (think, model) {
        (None, None) => Ok(None),
        (Some(_), _) if !file.workloads.is_empty() => Err(SweepError::plan(
            "think is for traces; make a plan of its own for the workloads",
        )),
        (Some(think), Some(model)) => Ok(Some(ClosedLoop { think, model })),
        _ => Err(SweepError::plan(
            "think needs latency, such as \"upper=1us,store=100us\", and latency needs think",
        )),
    }
}

fn objects(file: &File, hierarchies: &[Vec<LevelSpec>]) -> Result<Option<Objects>, SweepError> {
    let of_objects = [
        ("ttl", file.ttl.is_some()),
        ("admit_size_max", file.admit_size_max.is_some()),
    ];
    let others = [
        ("workloads", !file.workloads.is_empty()),
        ("link", file.link.is_some()),
        ("write_mode", file.write_mode.is_some()),
        ("guests", file.guests.is_some()),
        ("think", file.think.is_some()),
    ];
    let has = |all: &[(&'static str, bool)]| all.iter().find(|it| it.1).map(|it| it.0);
    if !file.objects {
        return match has(&of_objects) {
            Some(key) => Err(SweepError::plan(format!("{key} is for objects = true"))),
            None => Ok(None),
        };
    }
    if let Some(key) = has(&others) {
        return Err(SweepError::plan(format!(
            "objects = true is for traces and single caches; make a plan of its own for {key}"
        )));
    }
    let several = |files: &Files| matches!(files, Files::Guests(names) if names.len() > 1);
    if file.traces.iter().any(several) {
        return Err(SweepError::plan(
            "objects = true is for one trace at a time, and here are guests",
        ));
    }
    if let Some(levels) = hierarchies.iter().find(|levels| levels.len() != 1) {
        return Err(SweepError::plan(format!(
            "objects = true is for caches of one level, and here are {}",
            levels.len()
        )));
    }
    let lives = parsed::<Lives>(file.ttl.as_deref())?;
    let admit_size_max = parsed::<Size>(file.admit_size_max.as_deref())?;
    if let Some(other @ (Size::Percent(_) | Size::Blocks(_))) = admit_size_max {
        return Err(SweepError::plan(format!(
            "admit_size_max = \"{other}\" is no size of an object: give bytes, such as \"1MiB\""
        )));
    }
    Ok(Some(Objects {
        lives: lives.unwrap_or_default(),
        admit_size_max,
    }))
}

fn sources(file: &File, folder: &Path) -> Result<Vec<Source>, SweepError> {
    let mut all = Vec::new();
    for trace in &file.traces {
        let names = match trace {
            Files::One(name) => vec![name.clone()],
            Files::Guests(names) => names.clone(),
        };
        if names.is_empty() {
            return Err(SweepError::plan("a list of guests' traces is empty"));
        }
        let path = |name: &String| match is_url(name) {
            true => name.into(),
            false => folder.join(name),
        };
        let paths = names.iter().map(path).collect();
        all.push(Source::Traces(names, paths));
    }
    for name in &file.workloads {
        let workload = name.parse().map_err(SweepError::plan)?;
        all.push(Source::Workload(workload, name.clone()));
    }
    let of_files = [
        ("format", file.format.is_some()),
        ("columns", file.columns.is_some()),
        ("skip_bad", file.skip_bad),
        ("view", file.view.is_some()),
    ];
    if file.traces.is_empty()
        && let Some((key, _)) = of_files.iter().find(|key| key.1)
    {
        return Err(SweepError::plan(format!(
            "{key} is for trace files, and the plan has none"
        )));
    }
    if file.guests == Some(0) {
        return Err(SweepError::plan("guests = 0: no guest makes requests"));
    }
    if file.guests.is_some_and(|guests| guests > 1) && !file.traces.is_empty() {
        return Err(SweepError::plan(
            "guests is for workloads; guests with traces are a list in the list: traces = [[\"a\", \"b\"]]",
        ));
    }
    Ok(all)
}

/// The levels of each run: each policy with each size, then each list of levels with each of their sizes.
fn hierarchies(file: &File) -> Result<Vec<Vec<LevelSpec>>, SweepError> {
    if file.policies.is_empty() != file.sizes.is_empty() {
        return Err(SweepError::plan(
            "policies need sizes, and sizes need policies",
        ));
    }
    let mut all = Vec::new();
    for policy in &file.policies {
        policy.parse::<PolicySpec>().map_err(SweepError::plan)?;
        for size in &file.sizes {
            all.push(vec![level(policy, size)?]);
        }
    }
    for levels in &file.levels {
        all.extend(product(levels)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Plan, String> {
        Plan::of_toml(text, Path::new("x")).map_err(|why| why.to_string())
    }

    #[test]
    fn a_plan_is_the_product_of_its_lists() {
        let plan = parse(
            "traces = ['a.csv', ['b.csv', '/c.csv']]\nworkloads = ['zipf(1.0):1MiB']\nseeds = [1, 2]\n\
             policies = ['lru', '2q(k_in=0.25)']\nsizes = ['1%', '10blocks']\n\
             levels = [['lru:1%,2%', 'exclusive:10%,20%,30%']]\n",
        )
        .expect("a plan");
        assert_eq!(plan.cells.len(), 3 * 2 * (2 * 2 + 2 * 3));
        assert_eq!(plan.cells[4].hierarchy(), "lru:1% > exclusive:10%");
        assert_eq!(plan.cells[20].source_name, "b.csv + /c.csv");
        let Source::Traces(_, paths) = &plan.sources[1] else {
            panic!("traces come first");
        };
        assert_eq!(paths, &[PathBuf::from("x/b.csv"), "/c.csv".into()]);
    }

    #[test]
    fn a_plan_that_cannot_be_meant_is_refused() {
        let bad = [
            ("", "nothing to simulate"),
            ("polices = []", "unknown field"),
            (
                "workloads = ['zipf(1.0):1MiB']\npolicies = ['lru']",
                "sizes",
            ),
            (
                "workloads = ['u:1MiB']\npolicies = ['lru']\nsizes = ['1%']",
                "u",
            ),
            ("traces = ['a']\nlevels = [['lru']]", "POLICY:SIZE"),
            ("traces = ['a']\nlevels = [['lur:1%']]", "did you mean lru"),
            ("traces = [[]]\nlevels = [['lru:1%']]", "empty"),
            ("traces = ['a']\nlevels = [['lru:1%']]\nguests = 2", "list"),
            (
                "workloads = ['loop:1MiB']\nlevels = [['lru:1%']]\nview = 'start'",
                "view is for trace files",
            ),
            (
                "traces = ['a']\nlevels = [['lru:1%']]\nthink = '0'",
                "latency",
            ),
            (
                "traces = ['a']\nlevels = [['lru:1%']]\nthink = 'soon'\nlatency = 'store=1us'",
                "neither recorded",
            ),
            (
                "traces = ['a']\nlevels = [['lru:1%']]\nttl = '1h'",
                "objects",
            ),
            (
                "traces = ['a']\nlevels = [['lru:1%', 'lru:2%']]\nobjects = true",
                "one level",
            ),
            (
                "traces = [['a', 'b']]\nlevels = [['lru:1%']]\nobjects = true",
                "guests",
            ),
            (
                "workloads = ['loop:1MiB']\nlevels = [['lru:1%']]\nobjects = true",
                "for workloads",
            ),
            (
                "traces = ['a']\nlevels = [['lru:1%']]\nobjects = true\nadmit_size_max = '3%'",
                "give bytes",
            ),
            (
                "traces = ['a']\nlevels = [['lru:1%']]\nobjects = true\nttl = 'soon'",
                "neither none",
            ),
            (
                "workloads = ['loop:1MiB']\nlevels = [['lru:1%']]\nthink = '0'\nlatency = 'store=1us'",
                "for traces",
            ),
        ];
        for (text, expected) in bad {
            let error = parse(text).map(|_| ()).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_cache_that_hits_nothing_is_warned_of() {
        let warning = |level: &str| {
            let text = format!("workloads = ['loop:1MiB']\nlevels = [{level}]");
            parse(&text).expect("a plan").warning()
        };
        assert_eq!(warning("['lru:1%', 'exclusive:1%']"), None);
        let found = warning("['lru:1%', 'exclusive:1%'], ['exclusive:2%']");
        assert!(found.is_some_and(|it| it.starts_with("exclusive:2% keeps only")));
    }

    #[test]
    fn a_plan_in_json_is_the_same_plan() {
        let toml = "traces = ['a']\npolicies = ['lru']\nsizes = ['1%']\nwarmup = 3\nblock = '512'";
        let json = r#"{"traces":["a"],"policies":["lru"],"sizes":["1%"],"warmup":3,"block":"512"}"#;
        let json = Plan::of_json(json, Path::new("x")).expect("a plan");
        assert_eq!(parse(toml).expect("a plan").manifest, json.manifest);
        assert!(Plan::of_json("{\"polices\":[]}", Path::new("")).is_err());
    }
}
