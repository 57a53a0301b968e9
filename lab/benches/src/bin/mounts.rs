//! `mounts`: reading cached data through futae's mounts, beside libfuse's `passthrough_ll` and the
//! plain file, in turns.

use anyhow::{Context, ensure};
use clap::Parser;
use futae_bench::mounts::{LOADS, Sample, Way, make, measure, mount, warm_up};
use futae_bench::process::Nursery;
use futae_bench::report::Spread;
use futae_units::Size;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Compare reads of cached data through mounts, in one run and in turns
#[derive(Parser)]
struct Args {
    /// The futae program; give several as NAME=PATH
    #[arg(long, value_name = "[NAME=]PATH", required = true)]
    futae: Vec<String>,
    /// libfuse's example passthrough_ll; without it futae and the plain file are measured alone
    #[arg(long, value_name = "PATH")]
    passthrough: Option<PathBuf>,
    /// Size of the file
    #[arg(long, default_value = "256MiB")]
    size: Size,
    /// How often each is measured
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Seconds of one measurement
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
}

/// Where the kernel says whether mounts can have FUSE over io_uring.
const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";

/// What is compared: both have no copy of the data in the kernel above, or both have one.
const PAIRS: [(&str, &str); 12] = [
    ("a tree", PAST),
    ("a file", PAST),
    ("a file, --kernel-cache", KEPT),
    ("a file, --residency kernel", "a file, --kernel-cache"),
    ("a file, --residency kernel", "a file"),
    ("a tree, by ring", PAST),
    ("a file, by ring", PAST),
    ("a file, --kernel-cache, by ring", KEPT),
    (
        "a file, --residency kernel, by ring",
        "a file, --kernel-cache, by ring",
    ),
    ("a file, --residency kernel, by ring", "a file, by ring"),
    ("a tree, by ring", "a tree"),
    ("a file, by ring", "a file"),
];
const PAST: &str = "passthrough_ll, cache=never";
const KEPT: &str = "passthrough_ll, cache=always";

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    ensure!(args.rounds > 0, "--rounds: at least one");
    let bytes = args.size.bytes(1)?;
    ensure!(bytes >= 16 << 20, "--size: at least 16MiB");
    let directory = tempfile::Builder::new().prefix("futae-bench-").tempdir()?;
    let nursery = Nursery::new(directory.path().to_owned())?;
    let ways = ways(&args, bytes, directory.path(), &nursery)?;
    for way in &ways {
        warm_up(way, bytes)?;
    }
    let time = Duration::from_secs_f64(args.seconds);
    let mut samples = vec![vec![Vec::new(); ways.len()]; LOADS.len()];
    for round in 0..args.rounds {
        for (load, samples) in LOADS.iter().zip(&mut samples) {
            for turn in 0..ways.len() {
                let which = (turn + round as usize) % ways.len();
                let speed = measure(&ways[which], load, bytes, time, round)?;
                samples[which].push(speed);
            }
        }
    }
    report(&ways, &samples);
    Ok(())
}

fn ways(args: &Args, bytes: u64, place: &Path, nursery: &Nursery) -> anyhow::Result<Vec<Way>> {
    let site = place.join("site");
    fs::create_dir(&site)?;
    let plain = site.join("file");
    make(&plain, bytes)?;
    let mut ways = vec![Way {
        name: "the plain file".to_owned(),
        path: plain.clone(),
        shown_by: None,
    }];
    let has_rings = fs::read_to_string(RINGS).is_ok_and(|said| said.trim() == "Y");
    if !has_rings {
        println!("no FUSE over io_uring: {RINGS} does not say Y");
    }
    // With room to spare.
    let cache = Size::Bytes(bytes + (16 << 20)).to_string();
    for (at, named) in args.futae.iter().enumerate() {
        let (name, program) = named.split_once('=').unwrap_or(("futae", named));
        let sources = [
            ("a tree", &site, &[][..]),
            ("a file", &plain, &["--name", "file"]),
            (
                "a file, --kernel-cache",
                &plain,
                &["--name", "file", "--kernel-cache"],
            ),
            (
                "a file, --residency kernel",
                &plain,
                &[
                    "--name",
                    "file",
                    "--residency",
                    "kernel",
                    "--policy",
                    "sieve",
                ],
            ),
        ];
        let transports = [("device", ""), ("ring", ", by ring")];
        let ways_of_it = transports.into_iter().take(if has_rings { 2 } else { 1 });
        let all = ways_of_it.flat_map(|how| sources.map(|source| (how, source)));
        for (number, ((transport, by), (what, source, options))) in all.enumerate() {
            let path = place.join(format!("futae-{at}-{number}/file"));
            let mut command = Command::new(program);
            command
                .arg("mount")
                .arg(source)
                .arg(path.parent().context("a place")?);
            command
                .args(["--cache", &cache, "--read-only"])
                .args(["--transport", transport])
                .args(options);
            ways.push(mount(
                nursery,
                &format!("{name}, {what}{by}"),
                &mut command,
                path,
            )?);
        }
    }
    let Some(passthrough) = &args.passthrough else {
        println!("no passthrough_ll: futae and the plain file are measured alone");
        return Ok(ways);
    };
    for (number, (name, options)) in [(PAST, ",cache=never"), (KEPT, ",cache=always")]
        .into_iter()
        .enumerate()
    {
        let path = place.join(format!("passthrough-{number}/file"));
        let mut command = Command::new(passthrough);
        command.arg("-f").arg("-o");
        command.arg(format!("source={}{options}", site.display()));
        command.arg(path.parent().context("a place")?);
        ways.push(mount(nursery, name, &mut command, path)?);
    }
    Ok(ways)
}

/// `samples` are by load and way.
fn report(ways: &[Way], samples: &[Vec<Vec<Sample>>]) {
    let heads = LOADS.map(|load| load.name).join(" | ");
    println!("\nThousand reads a second, or MiB a second in order: median (lowest–highest):\n");
    println!("| way | {heads} |\n|---|---|---|---|---|");
    for (at, way) in ways.iter().enumerate() {
        let cells = LOADS.iter().zip(samples).map(|(load, samples)| {
            let unit = if load.in_order { 1.0 } else { 1e-3 };
            let digits = if load.in_order { 0 } else { 1 };
            shown(samples[at].iter().map(|one| one.per_second * unit), digits)
        });
        println!(
            "| {} | {} |",
            way.name,
            cells.collect::<Vec<_>>().join(" | ")
        );
    }
    println!("\nOne by the other in the same round:\n");
    println!("| ratio | {heads} |\n|---|---|---|---|---|");
    for (at, way) in ways.iter().enumerate() {
        let what = way.name.split_once(", ").map_or("", |(_, what)| what);
        let others = PAIRS
            .iter()
            .filter(|pair| pair.0 == what && way.name != pair.1);
        let program = way.name.split_once(", ").map_or("", |(name, _)| name);
        let others = others.filter_map(|(_, other)| {
            let named = |one: &Way| one.name == *other || one.name == format!("{program}, {other}");
            ways.iter().position(named)
        });
        for other in others {
            let cells = samples.iter().map(|samples| {
                let pairs = samples[at].iter().zip(&samples[other]);
                shown(
                    pairs.map(|(one, other)| one.per_second / other.per_second),
                    2,
                )
            });
            let (one, other) = (&way.name, &ways[other].name);
            println!(
                "| {one} / {other} | {} |",
                cells.collect::<Vec<_>>().join(" | ")
            );
        }
    }
    println!("\nProcessor µs for a read, of the process that shows the file:\n");
    println!("| way | {heads} |\n|---|---|---|---|---|");
    for (at, way) in ways
        .iter()
        .enumerate()
        .filter(|(_, way)| way.shown_by.is_some())
    {
        let cells = samples.iter().map(|samples| {
            let one = |sample: &Sample| sample.cpu_seconds * 1e6;
            shown(samples[at].iter().map(one), 1)
        });
        println!(
            "| {} | {} |",
            way.name,
            cells.collect::<Vec<_>>().join(" | ")
        );
    }
}

fn shown(numbers: impl Iterator<Item = f64>, digits: usize) -> String {
    let Spread {
        median,
        lowest,
        highest,
    } = Spread::of(numbers);
    format!("{median:.digits$} ({lowest:.digits$}–{highest:.digits$})")
}
