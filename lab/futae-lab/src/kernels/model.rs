//! The same requests through a model of the kernel.

use super::setup::{Bound, FileSystem, PAGE, Reads};
use futae_machine::Kernel;
use futae_policy::{
    Access, AccessKind, Argument, BlockId, HashIndex, Kind, Level, Outcome, PolicySpec, Shape,
};
use futae_terminal::failure::Failure;
use futae_trace::WorkloadSpec;
use std::collections::HashSet;

/// What a model came to.
pub struct Simulated {
    /// 1 less the pages that came from the disk for each read.
    pub hit_ratio: f64,
    /// Pages in its cache at the end.
    pub resident: HashSet<u64>,
}

/// Reads of a guest from one look at its group's memory.stat to the next, about; a look brings the group's statistics up to date. The agent looks
/// five times a second, the laboratory twice, and a guest reads some 2,000 pages.
const READS_BETWEEN_LOOKS: u32 = 300;

/// The model of a kernel's lists.
pub fn of(kernel: Kernel, generations: bool, bound: Bound) -> PolicySpec {
    let kind = if generations {
        Kind::mglru
    } else {
        Kind::linux
    };
    let argument = match (bound, generations, kernel) {
        (Bound::Group, true, _) => Some(("reclaim", "group".to_owned())),
        (Bound::Group, false, Kernel::Debian612) => Some(("late", READS_BETWEEN_LOOKS.to_string())),
        _ => None,
    };
    let mut model = PolicySpec::of(kind);
    let argument = argument.map(|(name, value)| Argument::Named(name.to_owned(), value));
    model.arguments.extend(argument);
    model
}

/// A model with the folios that the kernels here have on this file system.
pub fn on(file_system: Option<FileSystem>, mut model: PolicySpec) -> PolicySpec {
    if file_system == Some(FileSystem::Xfs) && model.reads_ahead() {
        let large = Argument::Named("folios".to_owned(), "large".to_owned());
        model.arguments.push(large);
    }
    model
}

/// Runs the requests that a guest was given, with the pages of its cache and of its disk.
pub fn simulate(
    policy: &PolicySpec,
    workload: &WorkloadSpec,
    (pages, disk_pages): (u64, u64),
    args: &Reads,
) -> Result<Simulated, Failure> {
    let slots = u32::try_from(pages).map_err(anyhow::Error::new)?;
    let shape = Shape {
        slots,
        seed: args.seed,
    };
    let built = futae_policy::build(policy, &shape).map_err(anyhow::Error::new)?;
    let mut level = Level::new(built, HashIndex::default(), slots);
    let mut requests = workload
        .generator(PAGE, args.seed)
        .map_err(anyhow::Error::new)?;
    let mut from_disk = 0_u64;
    for number in 0..args.warmup + args.reads {
        let block = BlockId::on_first(requests.next_block().0);
        let is_hit = matches!(level.access(&Access::read(block)), Outcome::Hit(_));
        let mut read = u64::from(!is_hit);
        while let Some(ahead) = level.review() {
            if ahead.index() < disk_pages {
                read += 1;
                level.access(&Access::of(ahead, AccessKind::Preload));
            }
        }
        if number >= args.warmup {
            from_disk += read;
        }
    }
    let resident = level.order().into_iter().map(BlockId::index).collect();
    Ok(Simulated {
        hit_ratio: 1.0 - from_disk as f64 / args.reads.max(1) as f64,
        resident,
    })
}
