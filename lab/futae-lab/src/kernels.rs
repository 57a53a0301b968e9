//! `futae-lab kernels`: the policies that model Linux's page cache beside the kernels themselves.

pub mod guest;
pub mod model;
pub mod setup;
mod table;

use crate::interrupt;
use crate::live::guests::look_for_qemu;
use clap::builder::ValueParser;
use futae_machine::Kernel;
use futae_policy::{Kind, PolicySpec};
use futae_sim::LevelSpecError;
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_trace::WorkloadSpec;
use futae_units::Size;
use guest::{Machine, Measured};
use serde::Serialize;
use setup::{Bound, FileSystem, Lists, PAGE, Reads};
use std::collections::HashSet;
use std::io::Write;
use table::{Printer, Row};

/// Compare the models of Linux's page cache with kernels in guests
///
/// A guest reads a workload from its disk, page by page; `futae agent` counts its hits, and its
/// disk's own count of reads checks the agent. The same requests go through the model of the
/// kernel's lists, with the page cache's size as the guest had it. With --read-ahead the disk's own
/// count is compared: 1 minus the pages that came from it per read. Exits with 1 if a ratio differs
/// by more than --within.
#[derive(clap::Args)]
pub struct Args {
    /// Linux in the guests
    #[arg(long, value_name = "VERSION,...", value_delimiter = ',', default_value = "6.1,6.12", value_parser = ValueParser::new(kernel))]
    kernel: Vec<Kernel>,
    /// How the kernel orders its page cache: active and inactive lists, or generations (lru_gen); default is as the
    /// kernel comes
    #[arg(
        long,
        value_name = "LISTS,...",
        value_delimiter = ',',
        default_value = "default"
    )]
    lists: Vec<Lists>,
    /// What bounds the page cache: a memory cgroup, whose readers reclaim directly, or the guest's
    /// whole memory, for which a daemon reclaims in advance
    #[arg(
        long,
        value_name = "BOUND,...",
        value_delimiter = ',',
        default_value = "group"
    )]
    bound: Vec<Bound>,
    /// Workloads, as `futae sim` takes them; all stands for the six of the book: uniform, two
    /// Zipfs, a loop, a scan over a hot set, and a normal distribution that shifts
    #[arg(long, value_name = "WORKLOAD", default_value = "all")]
    workload: Vec<String>,
    /// Size of the page cache, about
    #[arg(long, value_name = "SIZE", default_value = "24MiB")]
    cache: Size,
    /// Size of the disk
    #[arg(long, value_name = "SIZE", default_value = "96MiB")]
    disk: Size,
    /// Limit of the guest kernel's readahead (`read_ahead_kb`); Linux comes with 128KiB
    #[arg(long, value_name = "SIZE", default_value = "0")]
    read_ahead: Size,
    /// A file of this file system on the disk is read, in place of the disk. The kernels here have large folios on XFS only
    #[arg(long, value_name = "NAME")]
    file_system: Option<FileSystem>,
    #[command(flatten)]
    reads: Reads,
    /// A model of the lists instead of the one with their name
    #[arg(long, value_name = "POLICY")]
    model: Option<PolicySpec>,
    /// Boot nothing: print what the models of each --kernel's two kinds of lists predict for a page cache of exactly --cache
    #[arg(long)]
    predict: bool,
    /// How far the hit ratios may be apart, in points
    #[arg(long, value_name = "POINTS", default_value_t = 1.0, value_parser = ValueParser::new(points))]
    within: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn kernel(text: &str) -> Result<Kernel, String> {
    match text {
        "6.1" => Ok(Kernel::Debian61),
        "6.12" => Ok(Kernel::Debian612),
        _ => Err("6.1 or 6.12".to_owned()),
    }
}

/// A bound of differences. No difference exceeds NaN, so that is refused.
fn points(text: &str) -> Result<f64, String> {
    let points = text.parse().ok();
    let points = points.filter(|points: &f64| points.is_finite() && *points >= 0.0);
    points.ok_or_else(|| "not a number of points, such as 1 or 0.5".to_owned())
}

/// Runs every cell, and prints a row when it is over.
pub fn run(args: &Args) -> Result<(), Failure> {
    let (cache, disk) = (bytes("cache", args.cache)?, bytes("disk", args.disk)?);
    if cache / PAGE > LevelSpecError::IDLE_BLOCKS_MAX {
        let (cache, most) = (args.cache, LevelSpecError::IDLE_BLOCKS_MAX);
        return Err(Failure::usage(format!(
            "--cache {cache}: a model has at most {most} pages of 4KiB"
        )));
    }
    let workloads = workloads(args)?;
    let read_ahead = args.read_ahead.bytes(PAGE);
    let read_ahead = read_ahead
        .map_err(|why| Failure::usage(format!("--read-ahead {}: {why}", args.read_ahead)))?;
    if args.predict {
        return predict(args, &workloads, cache / PAGE, read_ahead);
    }
    look_for_qemu("kernels")?;
    let stopped = interrupt::watch()?;
    let rows = interrupt::unless_stopped(
        &stopped,
        measure(args, &workloads, (cache, disk), read_ahead),
    )?;
    let far = rows
        .iter()
        .filter(|row| is_far(row, args.within, read_ahead > 0))
        .count();
    if far > 0 {
        let (all, within) = (rows.len(), args.within);
        let message = format!("{far} of {all} hit ratios differ by more than {within} points");
        return Err(anyhow::anyhow!(message).into());
    }
    Ok(())
}

/// What the difference of two ratios of reads may be off, in points: that of 0.508 and 0.498 comes out above 1.
const ROUNDING: f64 = 1e-9;

/// Whether a model or, where the disk reads nothing ahead, the agent differs by more than so many points.
fn is_far(row: &Row, within: f64, reads_ahead: bool) -> bool {
    let of_agent = match reads_ahead {
        true => 0.0,
        false => 100.0 * (row.guest_hit_ratio - row.disk_hit_ratio),
    };
    let differences = [row.difference_points, of_agent];
    let most = within + ROUNDING;
    // NaN is not near.
    !differences.iter().all(|points| points.abs() <= most)
}

/// Prints a row for each cell, as it is over.
fn measure(
    args: &Args,
    workloads: &[WorkloadSpec],
    (cache, disk): (u64, u64),
    read_ahead: u64,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let mut printer = Printer::new(args.json);
    for &kernel in &args.kernel {
        for &bound in &args.bound {
            let mut machine = Machine::boot(kernel, bound, cache, (disk, args.file_system))?;
            machine.read_ahead(read_ahead)?;
            for &lists in &args.lists {
                let generations = machine.choose(lists)?;
                for workload in workloads {
                    machine.begin(workload, args.reads.seed, true)?;
                    machine.read(args.reads.warmup)?;
                    let before = machine.look()?;
                    let resident = machine.read(args.reads.reads)?;
                    let measured = machine.end(&before, args.reads.reads)?;
                    let model = model(args, kernel, (generations, bound), read_ahead);
                    let lists = (generations, bound);
                    let row = row(
                        args,
                        &machine,
                        lists,
                        model,
                        workload,
                        (&measured, &resident),
                    )?;
                    printer.row(&row)?;
                    rows.push(row);
                }
            }
        }
    }
    printer.end(&rows)?;
    Ok(rows)
}

/// What a model says of a cache that nobody measures.
#[derive(Serialize)]
struct Predicted {
    workload: String,
    model: String,
    cache_pages: u64,
    model_hit_ratio: f64,
}

/// Prints what the models say.
fn predict(
    args: &Args,
    workloads: &[WorkloadSpec],
    pages: u64,
    read_ahead: u64,
) -> Result<(), Failure> {
    let disk = bytes("disk", args.disk)? / PAGE;
    let mut out = output();
    let mut all = Vec::new();
    for workload in workloads {
        for &bound in &args.bound {
            let mut models: Vec<PolicySpec> = Vec::new();
            for &kernel in &args.kernel {
                for generations in [false, true] {
                    let model = model(args, kernel, (generations, bound), read_ahead);
                    if !models.contains(&model) {
                        models.push(model);
                    }
                }
            }
            for model in models {
                let ratio =
                    model::simulate(&model, workload, (pages, disk), &args.reads)?.hit_ratio;
                if !args.json {
                    let percent = 100.0 * ratio;
                    writeln!(out, "{workload} | {model} | {pages} | {percent:.2}")?;
                }
                all.push(Predicted {
                    workload: workload.to_string(),
                    model: model.to_string(),
                    cache_pages: pages,
                    model_hit_ratio: ratio,
                });
            }
        }
    }
    if args.json {
        serde_json::to_writer_pretty(&mut out, &serde_json::json!({ "rows": all }))?;
        writeln!(out)?;
    }
    Ok(())
}

/// The model of a kernel's lists, unless another one is given.
fn model(
    args: &Args,
    kernel: Kernel,
    (generations, bound): (bool, Bound),
    read_ahead: u64,
) -> PolicySpec {
    args.model.clone().unwrap_or_else(|| {
        let model = model::of(kernel, generations, bound).reading_ahead(read_ahead / PAGE);
        model::on(args.file_system, model)
    })
}

fn row(
    args: &Args,
    machine: &Machine,
    (generations, bound): (bool, Bound),
    model: PolicySpec,
    workload: &WorkloadSpec,
    (measured, resident): (&Measured, &HashSet<u64>),
) -> Result<Row, Failure> {
    let disk = bytes("disk", args.disk)? / PAGE;
    let simulate =
        |model: &PolicySpec| model::simulate(model, workload, (measured.pages, disk), &args.reads);
    let simulated = simulate(&model)?;
    let lru = simulate(&PolicySpec::of(Kind::lru))?;
    let real = match model.reads_ahead() {
        true => measured.disk_hit_ratio,
        false => measured.hit_ratio,
    };
    let both = resident.intersection(&simulated.resident).count();
    Ok(Row {
        kernel: machine.release().to_owned(),
        lists: if generations { "generations" } else { "two" },
        bound: match bound {
            Bound::Group => "group",
            Bound::Memory => "memory",
        },
        file_system: args.file_system.map(FileSystem::name),
        workload: workload.to_string(),
        cache_pages: measured.pages,
        reads: measured.reads,
        guest_hit_ratio: measured.hit_ratio,
        disk_hit_ratio: measured.disk_hit_ratio,
        common_share: both as f64 / resident.len().max(1) as f64,
        model: model.to_string(),
        model_hit_ratio: simulated.hit_ratio,
        lru_hit_ratio: lru.hit_ratio,
        difference_points: 100.0 * (simulated.hit_ratio - real),
    })
}

/// The workloads, in proportion to the disk and the cache.
fn workloads(args: &Args) -> Result<Vec<WorkloadSpec>, Failure> {
    let disk = bytes("disk", args.disk)?;
    let every = (args.reads.reads / 4).max(1);
    let mut all = Vec::new();
    for text in &args.workload {
        let texts = match text.as_str() {
            "all" => vec![
                format!("uniform:{disk}"),
                format!("zipf(0.8):{disk}"),
                format!("zipf(1.1):{disk}"),
                // A third longer than the cache, so that no list that is served in turn has any of it.
                format!("loop:{}", pages(bytes("cache", args.cache)? * 4 / 3)),
                format!(
                    "mix(0.6*zipf(0.9):{}, 0.4*scan:{})",
                    pages(disk / 4),
                    pages(disk * 3 / 4)
                ),
                format!("shift(normal(0.1):{disk}, every={every})"),
            ],
            other => vec![other.to_owned()],
        };
        for text in texts {
            let parsed: Result<WorkloadSpec, _> = text.parse();
            let spec = parsed.map_err(|error| Failure::usage(format!("--workload: {error}")))?;
            let blocks = spec.blocks(PAGE).map_err(Failure::usage)?;
            if blocks * PAGE > disk {
                let message = format!("--workload {text}: the disk has {}", args.disk);
                return Err(Failure::usage(message));
            }
            all.push(spec);
        }
    }
    Ok(all)
}

/// Whole pages.
fn pages(bytes: u64) -> u64 {
    bytes / PAGE * PAGE
}

/// The bytes of a size that an option gives.
fn bytes(option: &str, size: Size) -> Result<u64, Failure> {
    let wrong = |why: String| Failure::usage(format!("--{option} {size}: {why}"));
    let bytes = size.bytes(PAGE).map_err(|why| wrong(why.to_string()))?;
    match bytes > 0 && bytes.is_multiple_of(PAGE) {
        true => Ok(bytes),
        false => Err(wrong(
            "at least one page of 4KiB, and whole pages".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(guest: f64, disk: f64, difference_points: f64) -> Row {
        Row {
            kernel: String::new(),
            lists: "two",
            bound: "group",
            file_system: None,
            workload: String::new(),
            cache_pages: 1,
            reads: 1,
            guest_hit_ratio: guest,
            disk_hit_ratio: disk,
            common_share: 1.0,
            model: String::new(),
            model_hit_ratio: guest,
            lru_hit_ratio: guest,
            difference_points,
        }
    }

    #[test]
    fn the_disk_checks_the_agent_unless_it_reads_ahead() {
        assert!(!is_far(&row(0.5, 0.5, 0.9), 1.0, false));
        assert!(is_far(&row(0.5, 0.5, -1.1), 1.0, false));
        let one_point = 100.0 * (0.508 - 0.498);
        assert!(one_point > 1.0 && !is_far(&row(0.498, 0.498, one_point), 1.0, false));
        // The agent and the model agree, and the disk has read more than that.
        assert!(is_far(&row(0.9, 0.5, 0.0), 1.0, false));
        assert!(!is_far(&row(0.9, 0.5, 0.0), 1.0, true));
        assert!(is_far(&row(f64::NAN, 0.5, f64::NAN), 1.0, true));
    }

    #[test]
    fn a_bound_of_points_can_be_exceeded() {
        assert_eq!((points("0.5"), points("0")), (Ok(0.5), Ok(0.0)));
        for text in ["nan", "inf", "-1", "", "1%"] {
            assert!(points(text).is_err(), "{text}");
        }
    }
}
