//! Which trace files and plug-ins the results in a folder are of.

use crate::plan::Source;
use crate::whole_file::write;
use crate::{Cell, Plan, SweepError};
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// How much of the beginning and of the end of a trace file is looked at.
const END_BYTES: u64 = 64 << 10;
/// The same of a plug-in, which is short: all of it, since what a change of a line changes is in its middle.
const LIBRARY_BYTES: u64 = u64::MAX;

/// Keeps in `file` which trace files and plug-ins a sweep is of. Those of which `has_results` must be the ones that are kept there
/// already. Of files that cannot be opened here what is kept there stays.
///
/// # Errors
///
/// A trace or a plug-in was changed, or `file` cannot be read or written.
pub fn hold(
    file: &Path,
    plan: &Plan,
    has_results: impl Fn(&str) -> bool,
) -> Result<(), SweepError> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(why) => return Err(SweepError::file("cannot read", file, &why)),
    };
    let before = text.lines().filter_map(|line| line.split_once(' '));
    let before: HashMap<&str, &str> = before.map(|(is, name)| (name, is)).collect();
    let mut lines = String::new();
    for (name, path, end_bytes) in files(plan) {
        let then = before.get(name).copied();
        let now = told_apart(path, end_bytes);
        if let (Some(then), Some(now)) = (then, &now)
            && then != now
            && has_results(name)
        {
            return Err(SweepError::Files(format!(
                "{name} was changed since the sweep began: remove the folder of the sweep and sweep again"
            )));
        }
        if let Some(is) = now.as_deref().or(then) {
            lines += &format!("{is} {name}\n");
        }
    }
    match lines == text {
        true => Ok(()),
        false => write(file, lines.as_bytes()),
    }
}

/// The trace files and then the plug-ins as the plan names them, where they are, and how much of their ends is looked at.
fn files(plan: &Plan) -> impl Iterator<Item = (&str, &Path, u64)> {
    let each = plan.sources.iter().map(|source| match source {
        Source::Traces(names, paths) => (&names[..], &paths[..]),
        Source::Workload(..) => Default::default(),
    });
    let traces = each.flat_map(|(names, paths): (&[String], &[PathBuf])| {
        let paths = paths.iter().map(PathBuf::as_path);
        let files = names.iter().zip(paths);
        files.map(|(name, path)| (name.as_str(), path, END_BYTES))
    });
    let libraries: BTreeSet<&str> = plan.cells.iter().flat_map(Cell::libraries).collect();
    let library = |name| (name, Path::new(name), LIBRARY_BYTES);
    traces.chain(libraries.into_iter().map(library))
}

/// The length of a file, and a digest of its beginning and its end, so that a long trace is not read for it.
fn told_apart(path: &Path, end_bytes: u64) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let facts = file.metadata().ok().filter(fs::Metadata::is_file)?;
    let (mut ends, length) = (Vec::new(), facts.len());
    (&mut file).take(end_bytes).read_to_end(&mut ends).ok()?;
    let end = SeekFrom::Start(length.saturating_sub(end_bytes));
    file.seek(end).ok()?;
    file.take(end_bytes).read_to_end(&mut ends).ok()?;
    let mut digest = DefaultHasher::new();
    ends.hash(&mut digest);
    Some(format!("{length}-{:016x}", digest.finish()))
}
