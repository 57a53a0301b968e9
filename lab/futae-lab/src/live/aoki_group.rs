//! Both readers in control groups of this machine. There is no agent that tells them apart: what each
//! reads is told by `aoki_reader`.

use super::aoki_pace::{MISS_COST, TRIAL_READS};
use super::aoki_race::Trials;
use super::aoki_reader::{Script, forget, read};
use super::aoki_systems::{self, FILES, LEAST, MIB, MOST, OVERHEAD, Outcome, Reader, TOTAL};
use super::cgroup::{Bound, Group};
use super::disk::Disk;
use super::process::{futae, run_json};
use anyhow::{Context, anyhow};
use futae_balance::Config;
use futae_balance::actuator::Actuator;
use futae_papers::{Options, Reproduction};
use futae_terminal::failure::Failure;
use futae_units::Size;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The share of memory beside the page cache that the reader takes itself.
const PROGRAM: u64 = 3 * MIB;
/// Half of it is how long a group may take to give memory back.
const PERIOD: Duration = Duration::from_secs(4);
/// All files, and the file system.
const DISK_BYTES: u64 = 2 * TOTAL + 192 * MIB;

/// Each guest's files and their sizes.
type Files = [[(PathBuf, u64); 2]; 2];

/// Runs every system.
pub fn run(
    choice: &'static str,
    options: &Options,
    progress: &dyn Fn(f64),
) -> Result<Reproduction, Failure> {
    let place = tempfile::Builder::new().prefix("futae-paper-").tempdir()?;
    let mnt = place.path().join("mnt");
    fs::create_dir(&mnt)?;
    let disk = Disk::new(&place.path().join("disk.img"), DISK_BYTES, &mnt)?;
    let _disk = disk.without_read_ahead()?;
    let files = make_files(&mnt)?;
    let reads = aoki_systems::reads(options);
    let parameters = vec![
        (
            "trial",
            format!(
                "{TRIAL_READS} page reads that hit, and a miss counts {MISS_COST}; who has read that waits for the other"
            ),
        ),
        (
            "readers",
            format!(
                "{choice} by 4 KiB, {reads} of each file, one thread each; files of 128 and 256 MiB on ext4, nothing is \
                 read ahead"
            ),
        ),
        (
            "guests",
            "two memory control groups, together 384 MiB, each at least 64 MiB, of which 25.6 MiB are no page \
             cache"
                .to_owned(),
        ),
    ];
    let simulated = aoki_systems::simulated(choice, options, 0)?;
    aoki_systems::compare(parameters, simulated, progress, &mut |system| {
        for (path, _) in files.iter().flatten() {
            forget(path)?;
        }
        one(place.path(), &files, system, choice, options)
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
    choice: &'static str,
    options: &Options,
) -> Result<Outcome, Failure> {
    let half = TOTAL / 2;
    let groups = [
        Group::new(&[Bound::Memory(half)])?,
        Group::new(&[Bound::Memory(half)])?,
    ];
    let _held = [
        groups[0].hold(OVERHEAD - PROGRAM)?,
        groups[1].hold(OVERHEAD - PROGRAM)?,
    ];
    let mut config = aoki_systems::head(system, PERIOD, TOTAL);
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
            choice,
            reads: aoki_systems::reads(options),
            seed: aoki_systems::seed(options, guest),
        };
        Box::new(move |race| read(&script, &groups[guest], &listeners[guest], race))
    });
    aoki_systems::race(&config, readers, options, Trials::Reads, || Ok(()))
}
