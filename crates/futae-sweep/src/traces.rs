//! Which trace files the results in a folder are of.

use crate::folder::write;
use crate::plan::Source;
use crate::{Plan, SweepError};
use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// How much of the beginning and of the end of a trace file is looked at.
const END_BYTES: u64 = 64 << 10;

/// Keeps in `file` which trace files a sweep is of. Those of which `has_results` must be the ones that are kept there
/// already; files that cannot be opened here are left out.
///
/// # Errors
///
/// A trace was changed, or `file` cannot be read or written.
pub fn hold(
    file: &Path,
    plan: &Plan,
    has_results: impl Fn(&str) -> bool,
) -> Result<(), SweepError> {
    let now = of_plan(plan);
    let lines = now.iter().map(|(name, is)| format!("{is} {name}\n"));
    let lines: String = lines.collect();
    let before = match fs::read_to_string(file) {
        Ok(before) if before == lines => return Ok(()),
        Ok(before) => before,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(why) => return Err(SweepError::file("cannot read", file, &why)),
    };
    let before = before.lines().filter_map(|line| line.split_once(' '));
    let before: HashMap<&str, &str> = before.map(|(is, name)| (name, is)).collect();
    let changed = now.iter().find(|(name, is)| {
        let then = before.get(name.as_str());
        then.is_some_and(|then| then != is) && has_results(name)
    });
    match changed {
        None => write(file, lines.as_bytes()),
        Some((name, _)) => Err(SweepError::Files(format!(
            "{name} was changed since the sweep began: remove the folder of the sweep and sweep again"
        ))),
    }
}

/// The trace files as the plan names them, and what tells each from another one.
fn of_plan(plan: &Plan) -> Vec<(String, String)> {
    let files = plan.sources.iter().flat_map(|source| match source {
        Source::Traces(names, paths) => names.iter().zip(paths).collect(),
        Source::Workload(..) => Vec::new(),
    });
    let known = |(name, path): (&String, &PathBuf)| Some((name.clone(), told_apart(path)?));
    files.filter_map(known).collect()
}

/// The length of a file, and a digest of its beginning and its end, so that a long trace is not read for it.
fn told_apart(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let facts = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let (mut ends, length) = (Vec::new(), facts.len());
    (&mut file).take(END_BYTES).read_to_end(&mut ends).ok()?;
    let end = SeekFrom::Start(length.saturating_sub(END_BYTES));
    file.seek(end).ok()?;
    file.take(END_BYTES).read_to_end(&mut ends).ok()?;
    let mut digest = DefaultHasher::new();
    ends.hash(&mut digest);
    Some(format!("{length}-{:016x}", digest.finish()))
}
