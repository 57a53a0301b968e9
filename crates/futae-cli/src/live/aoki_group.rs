//! Both readers in control groups of this machine. There is no agent that tells them apart: what each
//! reads is told by `aoki_reader`.

use super::Options;
use super::aoki::{self, FILES, LEAST, MIB, MOST, Outcome, Reader, TOTAL};
use super::aoki_reader::{Script, forget, read};
use super::cgroup::{Bound, Group};
use super::process::{futae, run_json};
use crate::failure::Failure;
use anyhow::{Context, anyhow};
use futae_allocate::Config;
use futae_allocate::actuator::Actuator;
use futae_papers::Reproduction;
use futae_trace::Size;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TRIAL: Duration = Duration::from_secs(1);
/// Page reads of each file, as a multiple of the larger file's pages.
const PASSES: u64 = 50;

/// Each guest's files and their sizes.
type Files = [[(PathBuf, u64); 2]; 2];

/// Runs every system.
pub fn run(options: &Options<'_>, progress: &dyn Fn(f64)) -> Result<Reproduction, Failure> {
    let place = tempfile::Builder::new().prefix("futae-paper-").tempdir()?;
    let files = make_files(place.path())?;
    let reads = aoki::reads(options, PASSES);
    let parameters = vec![
        (
            "readers",
            format!(
                "{} by 4 KiB, {reads} of each file, one thread each; files of 128 and 256 MiB",
                aoki::CHOICE
            ),
        ),
        (
            "guests",
            "two memory control groups, together 384 MiB, each at least 64 MiB, page cache and programs".to_owned(),
        ),
    ];
    aoki::compare(parameters, TRIAL, progress, &mut |system| {
        for (path, _) in files.iter().flatten() {
            forget(path)?;
        }
        one(place.path(), &files, system, reads, options)
    })
}

fn make_files(place: &Path) -> Result<Files, Failure> {
    let file = |guest: usize, number: usize| -> Result<(PathBuf, u64), Failure> {
        let path = place.join(format!("g{}-{}", guest + 1, number + 1));
        let bytes = FILES[guest][number];
        let mut load = futae(["load", "--create", "--json", "--operations", "1"])?;
        load.args(["--file-size", &Size::Bytes(bytes).to_string()])
            .arg(&path);
        run_json("making a file", load)?;
        Ok((path, bytes))
    };
    Ok([[file(0, 0)?, file(0, 1)?], [file(1, 0)?, file(1, 1)?]])
}

fn one(
    place: &Path,
    files: &Files,
    system: &str,
    reads: u64,
    options: &Options<'_>,
) -> Result<Outcome, Failure> {
    let half = TOTAL / 2;
    let groups = [
        Group::new(&[Bound::Memory(half)])?,
        Group::new(&[Bound::Memory(half)])?,
    ];
    let mut config = aoki::head(system, TRIAL, TOTAL);
    let mut listeners = Vec::new();
    for (number, group) in (1..).zip(&groups) {
        let socket = place.join(format!("{system}-{number}.sock"));
        let (kind, path) = match group.memory() {
            Some(Actuator::Cgroup1 { path }) => ("cgroup1", path),
            Some(Actuator::Cgroup2 { path }) => ("cgroup2", path),
            _ => return Err(anyhow!("a control group without memory").into()),
        };
        config += &format!(
            "[[guest]]\nname = \"G{number}\"\nminimum = \"{}MiB\"\nmaximum = \"{}MiB\"\n\
             start = \"{}MiB\"\nagent = {{ connect = {:?} }}\n\
             actuator = {{ kind = \"{kind}\", path = {path:?} }}\n",
            LEAST / MIB,
            MOST / MIB,
            half / MIB,
            socket.display().to_string()
        );
        listeners.push(UnixListener::bind(&socket).with_context(|| socket.display().to_string())?);
    }
    let config = Config::parse(&config)?;
    let (groups, listeners) = (&groups, &listeners);
    let readers = [0, 1].map(|guest: usize| -> Reader<'_> {
        let script = Script {
            files: files[guest].clone(),
            reads,
            seed: aoki::seed(options, guest),
        };
        Box::new(move |begin, over| read(&script, &groups[guest], &listeners[guest], begin, over))
    });
    aoki::race(&config, readers, options, || Ok(()))
}
