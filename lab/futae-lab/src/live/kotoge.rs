//! Kotoge and others, c. 2006, live: a web server over directory priority, over LRU, and with
//! `sendfile`.
//!
//! nginx serves files of 1 MiB from a `futae mount` of a tree with 5.7 MiB of cache; in the case of
//! `sendfile` from the plain directory, through a page cache of as much memory as is free in the
//! simulation, bounded by a memory cgroup. ab asks for all y files and then for all x priority files, a
//! connection each, as often as there are rounds. The files are on a disk of their own, which a
//! cgroup makes as slow that reading counts; the cases are those of `futae_papers::kotoge`.

use super::cgroup::{Bound, Group};
use super::disk::Disk;
use super::process::{Background, futae, status};
use super::web::WebServer;
use super::{Experiment, Options, kotoge_kernel};
use anyhow::{Context, anyhow};
use futae_papers::kotoge::{
    BLOCK_BYTES, CACHE_BLOCKS, CASES, FILE_BLOCKS, FREE_BLOCKS, PRINTED, ROUNDS, expected_hits,
};
use futae_papers::{Check, Grid, Progress, Reproduction, Source};
use futae_policy::Class;
use futae_terminal::failure::Failure;
use rustix::fs::Advice;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// The live experiments of this paper.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        paper: "kotoge-2006",
        figure: "live-web",
        title: "nginx over a tree with LRU and directory priority, and with sendfile",
        run,
    },
    Experiment {
        paper: "kotoge-2006",
        figure: "live-sendfile",
        title: "nginx with sendfile over a tree whose pages the kernel holds under directory priority",
        run: kotoge_kernel::run,
    },
];

pub(super) const FILE_BYTES: u64 = FILE_BLOCKS * BLOCK_BYTES;
/// What the disk reads in a second: 20 ms a file, as in the simulation.
pub(super) const DISK_BYTES_A_SECOND: u64 = 50 << 20;
const DISK_BYTES: u64 = 96 << 20;
/// What `sendfile` has.
const PAGE_CACHE_BYTES: u64 = FREE_BLOCKS as u64 * BLOCK_BYTES;
pub(super) const PRIORITY: &str = "hot";
const OTHERS: &str = "cold";

/// How files are kept, by the name of its column.
const METHODS: [&str; 3] = ["lru", "sendfile", "directory"];

/// What came of the priority files of one case by one method.
#[derive(Clone, Copy)]
pub(super) struct Served {
    pub(super) hit_ratio: f64,
    pub(super) mean_ms: f64,
}

/// Where everything is.
pub(super) struct Place {
    pub(super) site: PathBuf,
    pub(super) mountpoint: PathBuf,
    pub(super) server: PathBuf,
    pub(super) control: PathBuf,
    pub(super) disk: Disk,
    // Last, since the disk is in it.
    _directory: tempfile::TempDir,
}

impl Place {
    /// A disk with all files of all cases.
    pub(super) fn new() -> Result<Self, Failure> {
        let directory = tempfile::Builder::new().prefix("futae-paper-").tempdir()?;
        let path = |name: &str| directory.path().join(name);
        let (site, mountpoint) = (path("site"), path("mnt"));
        for path in [&site, &mountpoint] {
            fs::create_dir(path).with_context(|| path.display().to_string())?;
        }
        let disk = Disk::new(&path("disk.img"), DISK_BYTES, &site)?;
        let most = |of: fn((u64, u64)) -> u64| CASES.into_iter().map(of).max().unwrap_or(0);
        for (name, count) in [
            (PRIORITY, most(|case| case.0)),
            (OTHERS, most(|case| case.1)),
        ] {
            fs::create_dir(site.join(name))?;
            for number in 0..count {
                let path = site.join(format!("{name}/{number}"));
                let written = || -> std::io::Result<()> {
                    let mut file = File::create(&path)?;
                    file.write_all(&vec![number as u8; FILE_BYTES as usize])?;
                    file.sync_all()
                };
                // The image that the disk is in has no blocks yet.
                written().with_context(|| {
                    let (path, mib) = (path.display(), DISK_BYTES >> 20);
                    format!(
                        "{path}: cannot be written; the experiment needs {mib} MiB where TMPDIR is"
                    )
                })?;
            }
        }
        Ok(Self {
            site,
            mountpoint,
            server: path("server"),
            control: path("control.sock"),
            disk,
            _directory: directory,
        })
    }

    /// Nothing of the files is in the page cache from now on.
    pub(super) fn cool(&self) -> Result<(), Failure> {
        for name in [PRIORITY, OTHERS] {
            for entry in fs::read_dir(self.site.join(name))? {
                rustix::fs::fadvise(&File::open(entry?.path())?, 0, None, Advice::DontNeed)?;
            }
        }
        Ok(())
    }
}

fn run(options: &Options, progress: &Progress<'_>) -> Result<Reproduction, Failure> {
    let rounds = options.passes.unwrap_or(ROUNDS);
    WebServer::check()?;
    let place = Place::new()?;
    let all: u64 = CASES.iter().map(|case| case.0 + case.1).sum::<u64>() * 3 * rounds;
    let mut asked: u64 = 0;
    let mut count = || {
        if options.stopped.load(Ordering::Relaxed) {
            return Err(anyhow!("interrupted; everything was taken down"));
        }
        asked += 1;
        progress(asked as f64 / all as f64);
        Ok(())
    };
    let mut cases = Vec::new();
    for case in CASES {
        let mut served = Vec::new();
        for method in METHODS {
            served.push(serve(&place, method, case, rounds, &mut count)?);
        }
        cases.push(served);
    }
    Ok(report(rounds, &cases))
}

/// One case by one method.
fn serve(
    place: &Place,
    method: &str,
    case: (u64, u64),
    rounds: u64,
    count: &mut dyn FnMut() -> anyhow::Result<()>,
) -> Result<Served, Failure> {
    place.cool()?;
    let disk = Bound::Reading(place.disk.device(), DISK_BYTES_A_SECOND);
    if method == "sendfile" {
        let group = Group::new(&[disk, Bound::PageCache(PAGE_CACHE_BYTES)])?;
        let server = WebServer::start(&place.site, true, &group, &place.server)?;
        let mut read = 0.0;
        let mean_ms = ask_for_all(&server, case, rounds, count, &mut read)?;
        let asked = (rounds * case.0 * FILE_BYTES) as f64;
        return Ok(Served {
            hit_ratio: 1.0 - read / asked,
            mean_ms,
        });
    }
    let group = Group::new(&[disk])?;
    let _mount = mount(place, method, &group)?;
    let server = WebServer::start(&place.mountpoint, false, &group, &place.server)?;
    let mean_ms = ask_for_all(&server, case, rounds, count, &mut 0.0)?;
    Ok(Served {
        hit_ratio: hit_ratio(place)?,
        mean_ms,
    })
}

/// That of priority files, as the mount tells.
pub(super) fn hit_ratio(place: &Place) -> Result<f64, Failure> {
    let classes = status(&place.control)?.classes;
    let priority = classes
        .iter()
        .find(|one| one.class == Class::PROTECTED.number());
    let priority = priority.context("the cache has not seen a priority file")?;
    Ok(priority.hits as f64 / priority.requests as f64)
}

fn mount(place: &Place, policy: &str, group: &Group) -> Result<Background, Failure> {
    let block = format!("{BLOCK_BYTES}");
    let cache = format!("{CACHE_BLOCKS}blocks");
    let control = format!("unix:{}", place.control.display());
    let mut mount = futae(["mount", "--json", "--policy", policy, "--protect", PRIORITY])?;
    mount.args(["--block", &block, "--cache", &cache, "--control", &control]);
    mount.arg(&place.site).arg(&place.mountpoint);
    Ok(Background::start("futae mount", group.run(&mount))?.0)
}

/// All rounds; the mean response time of priority files, and in `read` what the server has had
/// read from disks for them.
pub(super) fn ask_for_all(
    server: &WebServer,
    (priority, others): (u64, u64),
    rounds: u64,
    count: &mut dyn FnMut() -> anyhow::Result<()>,
    read: &mut f64,
) -> Result<f64, Failure> {
    let mut total_ms = 0.0;
    for _ in 0..rounds {
        for number in 0..others {
            server.get(&format!("{OTHERS}/{number}"), FILE_BYTES)?;
            count()?;
        }
        let before = server.read_bytes()?;
        for number in 0..priority {
            total_ms += server.get(&format!("{PRIORITY}/{number}"), FILE_BYTES)?;
            count()?;
        }
        *read += server.read_bytes()? - before;
    }
    Ok(total_ms / (rounds * priority) as f64)
}

fn report(rounds: u64, cases: &[Vec<Served>]) -> Reproduction {
    let heads = ["case", "x", "y"].map(str::to_owned).into_iter();
    let hits = METHODS.map(|method| format!("hits, {method}"));
    let times = METHODS.map(|method| [format!("ms, {method}"), "printed".to_owned()]);
    let mut result = Grid::new(heads.chain(hits).chain(times.concat()));
    let mut checks = Vec::new();
    for (at, (served, printed)) in cases.iter().zip(PRINTED).enumerate() {
        let (number, (x, y)) = (at + 1, CASES[at]);
        let mut row = vec![number.to_string(), x.to_string(), y.to_string()];
        row.extend(served.iter().map(|one| format!("{:.2}", one.hit_ratio)));
        for (one, printed) in served.iter().zip(printed) {
            row.extend([format!("{:.1}", one.mean_ms), printed.to_string()]);
        }
        result.row(row);
        let expected = expected_hits(number, rounds);
        for ((method, one), expected) in METHODS.iter().zip(served).zip(expected) {
            // A page cache is no strict LRU; what it gives is only shown.
            if *method != "sendfile" {
                let name = format!("case {number}, {method}: hit ratio of priority files");
                let ratio = one.hit_ratio;
                checks.push(Check::within(
                    Source::Model,
                    name,
                    ratio,
                    expected,
                    expected,
                ));
            }
        }
    }
    // Where priority pays by the printed times.
    for (number, method) in [(2, 0), (3, 0), (3, 1)] {
        let served = &cases[number - 1];
        let slower = served[method].mean_ms - served[2].mean_ms;
        let name = format!(
            "case {number}: {} slower than directory, ms more",
            METHODS[method]
        );
        let above = f64::MIN_POSITIVE;
        checks.push(Check::within(Source::Published, name, slower, above, None));
    }
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    Reproduction {
        parameters: vec![
            (
                "cache",
                format!(
                    "futae mount, {CACHE_BLOCKS} blocks of 8 KiB ({})",
                    mib(u64::from(CACHE_BLOCKS) * BLOCK_BYTES)
                ),
            ),
            (
                "sendfile",
                format!(
                    "the plain directory through a page cache of {}, by a memory cgroup",
                    mib(PAGE_CACHE_BYTES)
                ),
            ),
            (
                "disk",
                format!(
                    "ext4 on a loop device, {} a second by a cgroup: 20 ms a file",
                    mib(DISK_BYTES_A_SECOND)
                ),
            ),
            ("files", "1 MiB each; x with priority, y without".to_owned()),
            (
                "rounds",
                format!("{rounds}, each all y files and then all x"),
            ),
            (
                "server",
                "nginx, one process; ab over loopback, a connection a file".to_owned(),
            ),
        ],
        result,
        published: vec![
            "mean response time of priority files in ms, cases 1 to 5: LRU 90 108 110 111 112",
            "sendfile 90 90 123 90 124",
            "directory priority 90 90 90 116 114",
        ],
        errata: vec![
            "the printed times hold 90 ms on the wire, which loopback does not have; only their order is compared",
            "x and y are not printed",
        ],
        checks,
        ..Reproduction::default()
    }
}
