//! `futae mount`: the upper cache, as files in a directory.

mod announce;
mod choice;
pub mod helper;
mod open;
mod orders;
mod residency;
mod transport;
mod tree;
mod tree_state;

pub use orders::{MountStatus, TreeStatus};

use super::container;
use super::observe_args::{Observe, ObserveArgs};
use super::otlp::{OtlpArgs, OtlpPlan, Tracing};
use super::state::{Sourced, StateArgs, StateFile, name_of};
use super::volumes::{ClassNames, VolumeSpec};
use super::write_args::{StoreArgs, WriteArgs};
use crate::failure::Failure;
use announce::{announce, at, say_goodbye};
use choice::{Choice, Pins};
use futae_control::{Access, Control};
use futae_engine::{Engine, EngineOptions, OnEviction, SetupError};
use futae_guest::{FileAccess, MountError, MountOptions, ShownFile, Unmounted, check_mountpoint};
use futae_log::LogArgs;
use futae_policy::{PolicySpec, Shape, Trait};
use futae_units::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Size, parse_block_bytes};
use open::Tell;
use residency::{HitOrder, Residency};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tracing::{info, warn};
use transport::Transport;

/// Interval of checks for an unmount by another program.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The unit of access of the paper behind `lfu-history`.
const JOIN_READS_BYTES: u64 = 1 << 20;

/// Mount volumes as files, or a directory as a tree, cached in this process
#[derive(clap::Args)]
pub struct Args {
    /// A disk image, a block device, an NBD address (nbd://HOST/EXPORT,
    /// nbd+unix:///EXPORT?socket=PATH), or a directory. Or several volumes in one cache, each a file named
    /// NAME: `NAME=SOURCE[,class=local|remote|CLASS][,protected][,read-only]`, as `futae serve --export` has them
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
    /// An empty directory
    mountpoint: PathBuf,
    /// Memory for the cache, e.g. 2GiB
    #[arg(long, value_name = "SIZE")]
    cache: String,
    /// Size of a block, a power of two from 4KiB to 256MiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    block: String,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    writes: WriteArgs,
    #[command(flatten)]
    store: StoreArgs,
    /// What is sent to the cache below when a block is evicted: its data (demote), its number
    /// (notice), or nothing (none). auto: its data if the source accepts it and blocks are at most
    /// 1MiB
    #[arg(long, value_name = "WHAT", default_value = "auto", alias = "hand-down")]
    on_eviction: Tell,
    /// Name of the file of a single source; by default the source's or the export's own, or `disk`
    #[arg(long)]
    name: Option<String>,
    /// Refuse writes
    #[arg(long)]
    read_only: bool,
    /// Allow other users to open the files, with permissions, owner and group as in
    /// --allow-other=mode=0660,group=kvm. Without a value, all users may read. Users other than root need
    /// user_allow_other in /etc/fuse.conf. Not for trees, whose files have permissions of their own
    #[arg(long, value_name = "ACCESS", num_args = 0..=1, require_equals = true, default_missing_value = "mode=0644")]
    allow_other: Option<String>,
    /// Cache the file in the kernel's page cache too. Reads are faster, but the data is in memory twice, and this
    /// cache does not see reads that hit the page cache
    #[arg(long)]
    kernel_cache: bool,
    /// Where the blocks are held: in the memory of this process (futae), or in the kernel's page cache of the mount, where
    /// hits have the kernel's speed and --policy decides what stays (kernel). kernel needs root, eBPF and Linux 6.12, and a
    /// policy that does not depend on the order of hits
    #[arg(long, value_name = "WHERE", default_value = "futae")]
    residency: Residency,
    /// With --residency kernel, the kernel counts the hits of a page between two misses, but not
    /// their order. exact: accept only policies that do not depend on that order. approximate:
    /// accept any policy, and spread the hits evenly over that time
    #[arg(long, value_name = "HOW", default_value = "exact")]
    hit_order: HitOrder,
    /// Count adjacent reads as one access to a block, up to SIZE: the kernel splits long requests of applications.
    /// 0 counts each read [default: 1MiB for lfu-history, which counts requests, but 0 with --residency kernel; otherwise 0]
    #[arg(long, value_name = "SIZE")]
    join_reads: Option<String>,
    /// Threads that take requests from the kernel
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Transport of requests from the kernel: FUSE over io_uring (ring), /dev/fuse (device), or io_uring where the
    /// kernel has it enabled (auto)
    #[arg(long, value_name = "HOW", default_value = "auto")]
    transport: Transport,
    /// Unix socket for orders (status, resize, policy): unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    control: Option<String>,
    #[command(flatten)]
    observe: ObserveArgs,
    #[command(flatten)]
    otlp: OtlpArgs,
    /// Log every decision of the cache to FILE
    #[arg(long, value_name = "FILE")]
    decision_log: Option<PathBuf>,
    /// Seed of randomised policies
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print JSON, one line at the start and one at the end
    #[arg(long)]
    json: bool,
    /// Go on in the background once the files are there, for mount.futae
    #[arg(long, hide = true)]
    detached: bool,
    #[command(flatten)]
    tree: tree::TreeArgs,
    /// The log.
    #[command(flatten)]
    pub log: LogArgs,
}

impl Args {
    /// The sources as given on the command line.
    fn source(&self) -> String {
        self.sources.join(", ")
    }
}

/// Mounts, and runs until SIGTERM, SIGINT or an unmount by another program.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.detached {
        helper::detach();
    }
    let plan = Plan::new(args)?;
    args.residency.check(args, &plan)?;
    let is_tree = tree::is_tree(&args.sources);
    if !is_tree {
        args.tree.refuse(&args.source())?;
    }
    // Before anything exists that a signal would leave behind.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    check_mountpoint(&args.mountpoint)?;
    if is_tree {
        let engine = new_engine(&plan.cache)?;
        args.hit_order.set(&engine);
        return tree::run(args, &plan, &engine, &mut signals);
    }
    let (stores, on_eviction) = open::open(args, &plan.volumes, plan.cache.block_bytes)?;
    let cache = EngineOptions {
        on_eviction,
        ..plan.cache
    };
    let engine = new_engine(&cache)?;
    args.hit_order.set(&engine);
    engine.name_classes(&plan.classes.0);
    let tracing = plan.otlp.as_ref().map(Tracing::start).transpose()?;
    let (mut shown, mut sources) = (Vec::new(), Vec::<Sourced>::new());
    for (spec, store) in plan.volumes.iter().zip(stores) {
        let name = spec.name.clone();
        let volume = engine.add_volume(&name, store, plan.classes.class_of(spec))?;
        if let Some(tracing) = &tracing {
            engine.latencies(volume).watch(tracing.watcher(&name));
        }
        if let Some(pins) = &plan.pins {
            let size_bytes = engine.volume_bytes(volume);
            pins.check_source(args.source().as_ref(), size_bytes, engine.block_bytes())?;
        }
        container::warn_of(&name, &spec.source);
        sources.push((volume, name_of(&spec.source)));
        shown.push(ShownFile { volume, name });
    }
    // Before the first request can come.
    let mut state = args.state.path().map(StateFile::open).transpose()?;
    let recall = |state: &mut StateFile| state.recall(&engine, &sources);
    let warm_blocks = state.as_mut().map_or(0, recall);
    // The kernel is given pages that nobody has read once it is watched.
    if args.residency == Residency::Futae {
        engine.begin_loading();
    }
    let options = MountOptions {
        mountpoint: args.mountpoint.clone(),
        source: args.source(),
        join_reads_bytes: plan.join_reads_bytes,
        kernel_cache: args.kernel_cache,
        threads: args.threads.map(usize::from),
        transport: args.transport.into(),
        access: plan.access,
    };
    let joins = options.join_reads_bytes > 0;
    let (mount, residency) = args
        .residency
        .start(&engine, &shown, &options, on_eviction)?;
    engine.begin_loading();
    let names: Vec<String> = shown.into_iter().map(|file| file.name).collect();
    let observing = {
        let look = orders::looking(&engine, names.clone());
        let caches = vec![Arc::clone(&engine)];
        plan.observe.start(false, look, move || caches.clone())?
    };
    let control = plan.control.map(|path| {
        let orders = orders::of_mount(&engine, &args.source(), at(&mount), names, joins, || None);
        Control::start(&path, orders)
    });
    let control = control.transpose()?;
    announce(
        args,
        &plan.volumes,
        &mount,
        &engine,
        (on_eviction, residency),
        control.as_ref(),
        warm_blocks,
    )?;
    if args.detached {
        helper::let_go()?;
    }
    wait_for_the_end(&mut signals, || {
        if let Some(state) = state.as_mut().filter(|it| it.is_due(args.state.every())) {
            state.save(&engine, &sources);
        }
        mount.is_over()
    });
    drop((control, observing));
    let longest = mount.longest_request_bytes();
    let ended = mount.unmount();
    if let Some(tracing) = tracing {
        tracing.end();
    }
    engine.sync_log();
    if let Some(state) = &mut state {
        state.save(&engine, &sources);
    }
    let ended = ended?;
    warn_of_users(&args.mountpoint, ended);
    say_goodbye(args, &engine.status(), longest)
}

fn wait_for_the_end(signals: &mut Signals, mut is_over: impl FnMut() -> bool) {
    while signals.pending().next().is_none() && !is_over() {
        thread::sleep(LOOK_INTERVAL);
    }
}

fn warn_of_users(mountpoint: &Path, ended: Unmounted) {
    let point = mountpoint.display();
    if ended.is_in_use {
        warn!("{point} is still in use; it was detached, and its users get errors from now on");
    } else if ended.was_busy {
        info!("{point} was in use; it was detached, and its users have ended since");
    }
}

fn new_engine(cache: &EngineOptions) -> Result<Arc<Engine>, Failure> {
    Engine::new(cache).map_err(|error| match error {
        SetupError::Policy(_) | SetupError::Size(_) | SetupError::NeedsFuture(_) => {
            Failure::usage(error)
        }
        other => other.into(),
    })
}

fn failure(error: MountError) -> Failure {
    match error {
        MountError::Name { .. } | MountError::NameTwice { .. } => Failure::usage(error),
        other => other.into(),
    }
}

/// What the arguments come to, before anything is opened.
struct Plan {
    volumes: Vec<VolumeSpec>,
    classes: ClassNames,
    cache: EngineOptions,
    pins: Option<Pins>,
    join_reads_bytes: u64,
    control: Option<PathBuf>,
    observe: Observe,
    otlp: Option<OtlpPlan>,
    access: Option<FileAccess>,
}

impl Plan {
    fn new(args: &Args) -> Result<Self, Failure> {
        let (policy, pins) = args.choice.spec()?;
        let mut policy = args.tree.policy(policy)?;
        let volumes = open::volumes(args)?;
        let classes = ClassNames::new(&volumes, &mut policy)?;
        futae_control::lives_without_evictions(&policy, orders::NO_CACHE_ABOVE)
            .map_err(|problem| Failure::usage(format!("--policy {}: {problem}", policy.name)))?;
        if volumes.len() > 1 && policy.has(Trait::ChoosesByNumber) {
            return Err(Failure::usage(format!(
                "--policy {} keeps blocks of a single source; mount the sources one by one",
                policy.name
            )));
        }
        args.state.check()?;
        let shape = Shape {
            slots: 16,
            seed: args.seed,
        };
        futae_policy::build(&policy, &shape)
            .map_err(|error| Failure::usage(format!("--policy: {error}")))?;
        let block_bytes = parse_block_bytes(&args.block, BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
            .map_err(|error| Failure::usage(format!("--block: {error}")))?;
        let capacity_blocks = capacity_blocks(&args.cache, block_bytes)?;
        if let Some(pins) = &pins {
            pins.check_capacity(capacity_blocks, block_bytes)?;
        }
        let join_reads_bytes = join_reads_bytes(args, &policy)?;
        let cache = EngineOptions {
            block_bytes,
            capacity_blocks,
            policy,
            seed: args.seed,
            on_eviction: OnEviction::None,
            decision_log: args.decision_log.clone(),
            write_back: args
                .writes
                .options_or(block_bytes, args.residency.write_back())?,
        };
        let control = args.control.as_deref().map(orders::socket_path);
        Ok(Self {
            volumes,
            classes,
            cache,
            pins,
            join_reads_bytes,
            access: args.allow_other.as_deref().map(access).transpose()?,
            control: control.transpose()?,
            observe: args.observe.plan(false)?,
            otlp: args.otlp.plan()?,
        })
    }
}

/// The number of slots for `--cache`, at least one.
fn capacity_blocks(cache: &str, block_bytes: u64) -> Result<u32, Failure> {
    let wrong = |error| Failure::usage(format!("--cache: {error}"));
    let size: Size = cache.parse().map_err(wrong)?;
    if size
        .bytes(block_bytes)
        .is_ok_and(|bytes| bytes < block_bytes)
    {
        let block = Size::Bytes(block_bytes);
        return Err(Failure::usage(format!(
            "--cache {cache} is less than one block of {block}; give it more, or choose a smaller --block"
        )));
    }
    let blocks = size.blocks(block_bytes).map_err(wrong)?;
    u32::try_from(blocks).map_err(|_| {
        let most = u32::MAX;
        Failure::usage(format!(
            "--cache: {blocks} blocks, but a cache has at most {most}; use a larger --block"
        ))
    })
}

/// Who may open the files.
fn access(text: &str) -> Result<FileAccess, Failure> {
    let wrong = |problem: String| Failure::usage(format!("--allow-other {text}: {problem}"));
    // As of a socket, where the options follow an address.
    let options = format!(",{text}");
    let (rest, access) = Access::take_from(&options).map_err(wrong)?;
    if !rest.is_empty() {
        let problem = "write mode=OCTAL, owner=NAME and group=NAME with commas between them";
        return Err(wrong(problem.to_owned()));
    }
    let Access { mode, owner, group } = access;
    Ok(FileAccess { mode, owner, group })
}

/// The longest request that the application is taken to make.
fn join_reads_bytes(args: &Args, policy: &PolicySpec) -> Result<u64, Failure> {
    let Some(text) = &args.join_reads else {
        // The kernel shows pages.
        let counts = policy.counts_requests() && args.residency == Residency::Futae;
        return Ok(if counts { JOIN_READS_BYTES } else { 0 });
    };
    match text.parse() {
        Ok(Size::Bytes(bytes)) => Ok(bytes),
        _ => Err(Failure::usage(format!(
            "--join-reads {text}: write a size such as 1MiB, or 0"
        ))),
    }
}
