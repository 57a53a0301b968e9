//! Kotoge and others, c. 2006, live: a web server over directory priority, over LRU, and with
//! `sendfile`.
//!
//! nginx serves files of 1 MiB from a `futae mount` of a tree with 5.7 MiB of cache; in the case of
//! `sendfile` from the plain directory, through a page cache of as much memory as is free in the
//! simulation, bounded by a memory cgroup. ab asks for all y files and then for all x priority files, a
//! connection each, as often as there are rounds. The files are on a disk of their own, which a
//! cgroup makes as slow that reading counts; the cases are those of `futae_papers::kotoge`.

use super::cgroup::{Bound, Group};
use super::experiment::Experiment;
use super::kotoge_kernel;
use super::kotoge_site::{
    Count, DISK_BYTES_A_SECOND, PRIORITY, Place, Served, ask_for_all, from_page_cache, hit_ratio,
    serve_all,
};
use super::process::{Background, futae};
use super::web::WebServer;
use futae_papers::kotoge::{BLOCK_BYTES, CACHE_BLOCKS, CASES, FREE_BLOCKS, PRINTED, expected_hits};
use futae_papers::{Check, Grid, Options, Progress, Reproduction, Source};
use futae_terminal::failure::Failure;

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

/// What `sendfile` has.
const PAGE_CACHE_BYTES: u64 = FREE_BLOCKS as u64 * BLOCK_BYTES;
/// How files are kept, by the name of its column.
const METHODS: [&str; 3] = ["lru", "sendfile", "directory"];

fn run(options: &Options, progress: &Progress<'_>) -> Result<Reproduction, Failure> {
    let (rounds, cases) = serve_all(options, progress, METHODS, serve)?;
    Ok(report(rounds, &cases))
}

/// One case by one method.
fn serve(
    place: &Place,
    method: &str,
    case: (u64, u64),
    rounds: u64,
    count: Count<'_>,
) -> Result<Served, Failure> {
    place.cool()?;
    let disk = Bound::Reading(place.disk.device(), DISK_BYTES_A_SECOND);
    if method == "sendfile" {
        let group = Group::new(&[disk, Bound::PageCache(PAGE_CACHE_BYTES)])?;
        return from_page_cache(place, &group, case, rounds, count);
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

fn mount(place: &Place, policy: &str, group: &Group) -> Result<Background, Failure> {
    let block = format!("{BLOCK_BYTES}");
    let cache = format!("{CACHE_BLOCKS}blocks");
    let control = format!("unix:{}", place.control.display());
    let mut mount = futae(["mount", "--json", "--policy", policy, "--protect", PRIORITY])?;
    mount.args(["--block", &block, "--cache", &cache, "--control", &control]);
    mount.arg(&place.site).arg(&place.mountpoint);
    Ok(Background::start("futae mount", group.run(&mount))?.0)
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
