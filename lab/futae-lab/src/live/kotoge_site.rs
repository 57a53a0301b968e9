//! The web site of the experiments, and the clients that ask for its files.

use super::cgroup::Group;
use super::disk::Disk;
use super::process::status;
use super::web::WebServer;
use anyhow::{Context, anyhow};
use futae_papers::kotoge::{BLOCK_BYTES, CASES, FILE_BLOCKS, ROUNDS};
use futae_papers::{Options, Progress};
use futae_policy::Class;
use futae_terminal::failure::Failure;
use rustix::fs::Advice;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

pub(super) const FILE_BYTES: u64 = FILE_BLOCKS * BLOCK_BYTES;
/// What the disk reads in a second: 20 ms a file, as in the simulation.
pub(super) const DISK_BYTES_A_SECOND: u64 = 50 << 20;
const DISK_BYTES: u64 = 96 << 20;
pub(super) const PRIORITY: &str = "hot";
const OTHERS: &str = "cold";

/// Counts a file that was asked for; an error if all is to end.
pub(super) type Count<'a> = &'a mut dyn FnMut() -> anyhow::Result<()>;

/// Serves one case by one method.
type Serve = fn(&Place, &str, (u64, u64), u64, Count<'_>) -> Result<Served, Failure>;

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

/// Serves all cases by all methods. Returns the number of rounds, and for each case what came of each method.
pub(super) fn serve_all<const N: usize>(
    options: &Options,
    progress: &Progress<'_>,
    methods: [&str; N],
    serve: Serve,
) -> Result<(u64, Vec<Vec<Served>>), Failure> {
    let rounds = options.passes.unwrap_or(ROUNDS);
    WebServer::check()?;
    let place = Place::new()?;
    let all: u64 = CASES.iter().map(|case| case.0 + case.1).sum::<u64>() * N as u64 * rounds;
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
        for method in methods {
            served.push(serve(&place, method, case, rounds, &mut count)?);
        }
        cases.push(served);
    }
    Ok((rounds, cases))
}

/// One case from the plain directory, by `sendfile`.
pub(super) fn from_page_cache(
    place: &Place,
    group: &Group,
    case: (u64, u64),
    rounds: u64,
    count: Count<'_>,
) -> Result<Served, Failure> {
    let server = WebServer::start(&place.site, true, group, &place.server)?;
    let mut read = 0.0;
    let mean_ms = ask_for_all(&server, case, rounds, count, &mut read)?;
    let asked = (rounds * case.0 * FILE_BYTES) as f64;
    Ok(Served {
        hit_ratio: 1.0 - read / asked,
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

/// All rounds; the mean response time of priority files, and in `read` what the server has had
/// read from disks for them.
pub(super) fn ask_for_all(
    server: &WebServer,
    (priority, others): (u64, u64),
    rounds: u64,
    count: Count<'_>,
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
