//! Directory priority under a web server with `sendfile on`: a tree whose pages the kernel holds, beside the ordinary mount without
//! `sendfile` and beside the kernel's own page cache of the same size.

use super::cgroup::{Bound, Group};
use super::kotoge_site::{
    Count, DISK_BYTES_A_SECOND, FILE_BYTES, PRIORITY, Place, Served, ask_for_all, from_page_cache,
    hit_ratio, serve_all,
};
use super::process::{Background, futae};
use super::web::WebServer;
use anyhow::{Context, anyhow};
use futae_papers::kotoge::{BLOCK_BYTES, CACHE_BLOCKS, CASES, simulated_hits};
use futae_papers::{Check, Grid, Options, Progress, Reproduction, Source};
use futae_policy::PolicySpec;
use futae_terminal::failure::Failure;

/// A block is a page of the kernel.
const PAGE_BYTES: u64 = 4096;
/// Pages of the cache: as many bytes as in the other experiments.
const CACHE_PAGES: u32 = CACHE_BLOCKS * (BLOCK_BYTES / PAGE_BYTES) as u32;
/// Under both mounts: `directory` around a policy that takes marks.
const POLICY: &str = "directory(sieve)";
/// How far a hit ratio may be from the simulated one.
const TOLERANCE: f64 = 0.01;

/// How files are kept, by the name of its column.
const METHODS: [&str; 3] = ["mount", "kernel", "page cache"];

/// Runs all cases by all methods.
pub fn run(options: &Options, progress: &Progress<'_>) -> Result<Reproduction, Failure> {
    let (rounds, cases) = serve_all(options, progress, METHODS, serve)?;
    report(rounds, &cases)
}

fn serve(
    place: &Place,
    method: &str,
    case: (u64, u64),
    rounds: u64,
    count: Count<'_>,
) -> Result<Served, Failure> {
    place.cool()?;
    let disk = Bound::Reading(place.disk.device(), DISK_BYTES_A_SECOND);
    if method == "page cache" {
        let bytes = u64::from(CACHE_PAGES) * PAGE_BYTES;
        let group = Group::new(&[disk, Bound::PageCache(bytes)])?;
        return from_page_cache(place, &group, case, rounds, count);
    }
    let in_kernel = method == "kernel";
    let group = Group::new(&[disk])?;
    let _mount = mount(place, in_kernel, &group)?;
    let server = WebServer::start(&place.mountpoint, in_kernel, &group, &place.server)?;
    let mean_ms = ask_for_all(&server, case, rounds, count, &mut 0.0)?;
    Ok(Served {
        hit_ratio: hit_ratio(place)?,
        mean_ms,
    })
}

fn mount(place: &Place, in_kernel: bool, group: &Group) -> Result<Background, Failure> {
    let cache = format!("{CACHE_PAGES}blocks");
    let control = format!("unix:{}", place.control.display());
    let residency = if in_kernel { "kernel" } else { "futae" };
    let mut mount = futae(["mount", "--json", "--policy", POLICY, "--protect", PRIORITY])?;
    mount.args(["--cache", &cache, "--control", &control]);
    mount.args(["--residency", residency]);
    mount.arg(&place.site).arg(&place.mountpoint);
    let (mount, ready) = Background::start("futae mount", group.run(&mount))?;
    if ready["residency"] != residency {
        let missing = anyhow!("the page cache cannot be watched here; `futae mount` says why");
        return Err(missing.into());
    }
    Ok(mount)
}

fn report(rounds: u64, cases: &[Vec<Served>]) -> Result<Reproduction, Failure> {
    let heads = ["case", "x", "y"].map(str::to_owned).into_iter();
    let hits = METHODS.map(|method| format!("hits, {method}"));
    let times = METHODS.map(|method| format!("ms, {method}"));
    let mut result = Grid::new(
        heads
            .chain(["hits, simulated".to_owned()])
            .chain(hits)
            .chain(times),
    );
    let mut checks = Vec::new();
    let policy: PolicySpec = POLICY.parse().context("the policy")?;
    for (at, served) in cases.iter().enumerate() {
        let (number, (x, y)) = (at + 1, CASES[at]);
        let expected = simulated_hits(
            &policy,
            CACHE_PAGES,
            (x, y),
            FILE_BYTES / PAGE_BYTES,
            rounds,
        )?;
        let mut row = vec![number.to_string(), x.to_string(), y.to_string()];
        row.push(format!("{expected:.3}"));
        row.extend(served.iter().map(|one| format!("{:.3}", one.hit_ratio)));
        row.extend(served.iter().map(|one| format!("{:.1}", one.mean_ms)));
        result.row(row);
        // The kernel's own page cache is no simulated one; what it gives is only shown.
        for (method, one) in METHODS.iter().zip(served).take(2) {
            let name = format!("case {number}, {method}: hit ratio of priority files");
            let (least, most) = (expected - TOLERANCE, expected + TOLERANCE);
            let ratio = one.hit_ratio;
            checks.push(Check::within(Source::Model, name, ratio, least, most));
        }
    }
    Ok(Reproduction {
        parameters: vec![
            ("cache", format!("{CACHE_PAGES} pages of 4 KiB in each of the three")),
            (
                "mount",
                format!("futae mount --policy {POLICY}, sendfile off"),
            ),
            (
                "kernel",
                format!("futae mount --policy {POLICY} --residency kernel, sendfile on"),
            ),
            (
                "page cache",
                "the plain directory under the kernel's own policy, by a memory cgroup, sendfile on"
                    .to_owned(),
            ),
            (
                "disk",
                "ext4 on a loop device, 50 MiB a second by a cgroup: 20 ms a file".to_owned(),
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
        errata: vec!["x and y are not printed"],
        checks,
        ..Reproduction::default()
    })
}
