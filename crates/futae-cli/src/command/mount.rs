//! `futae mount`: the upper cache, as one file in a directory.

mod choice;
mod orders;
mod state;
mod tree;

pub use orders::MountStatus;

use super::write_args::{StoreArgs, WriteArgs};
use crate::failure::Failure;
use anyhow::Context;
use choice::{Choice, Pins};
use futae_control::Control;
use futae_engine::{Engine, EngineOptions, EngineStatus, FileStore, HandDown, SetupError, Store};
use futae_guest::{
    Mount, MountError, MountOptions, Unmounted, check_mountpoint, default_file_name,
};
use futae_policy::{Class, PolicySpec, Shape};
use futae_trace::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Size, parse_block_bytes};
use futae_wire::NbdUri;
use futae_wire::nbd_store::NbdStore;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use state::StateArgs;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How often to look whether somebody else has unmounted it.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The largest blocks that are handed down without being asked to.
const HANDED_DOWN_BYTES_MAX: u64 = 1 << 20;
/// The unit of access of the paper behind `lfu-history`.
const JOIN_READS_BYTES: u64 = 1 << 20;

/// Mount a volume as one file, or a directory as a tree, cached in this process
#[derive(clap::Args)]
pub struct Args {
    /// A disk image, a block device, an NBD address (nbd://HOST/EXPORT,
    /// nbd+unix:///EXPORT?socket=PATH), or a directory
    source: String,
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
    /// What to tell the cache below of an evicted block: its data, a notice without data, or
    /// nothing. auto: its data if the source takes it and a block is not more than 1MiB
    #[arg(long, value_name = "WHAT", default_value = "auto")]
    hand_down: Tell,
    /// Name of the file; by default the source's or the export's own, or `disk`
    #[arg(long)]
    name: Option<String>,
    /// Refuse writes
    #[arg(long)]
    read_only: bool,
    /// Let the kernel's page cache hold the file as well: faster, but the data is in memory
    /// twice, and this cache does not see the reads that hit there
    #[arg(long)]
    kernel_cache: bool,
    /// Count reads that lie next to each other as one access to a block, up to SIZE: what the
    /// kernel sends of one request of the application. 0 counts each. By default 1MiB for
    /// lfu-history, whose history counts requests, otherwise 0
    #[arg(long, value_name = "SIZE")]
    join_reads: Option<String>,
    /// Threads that take requests from the kernel
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Take orders (status, resize) on this unix socket, unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    control: Option<String>,
    /// Write every decision of the cache to FILE
    #[arg(long, value_name = "FILE")]
    decision_log: Option<PathBuf>,
    /// Seed for policies that draw lots
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print JSON, one line at the start and one at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tree: tree::TreeArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Tell {
    Auto,
    Data,
    Notice,
    Nothing,
}

/// Mounts, and stays until SIGTERM, SIGINT or an unmount from elsewhere.
pub fn run(args: &Args) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    let is_tree = tree::is_tree(&args.source);
    if !is_tree {
        args.tree.refuse(&args.source)?;
    }
    // Before anything exists that a signal would leave behind.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    check_mountpoint(&args.mountpoint)?;
    if is_tree {
        let engine = new_engine(&plan.cache)?;
        return tree::run(args, &plan, &engine, &mut signals);
    }
    let (store, hand_down) = plan.open(args)?;
    let cache = EngineOptions {
        hand_down,
        ..plan.cache
    };
    let engine = new_engine(&cache)?;
    let volume = engine.add_volume(&plan.file_name, store, Class::NORMAL)?;
    if let Some(pins) = &plan.pins {
        let size_bytes = engine.volume_bytes(volume);
        pins.check_source(args.source.as_ref(), size_bytes, engine.block_bytes())?;
    }
    // Before the first request can come.
    let (mut state, warm_blocks) = args.state.recall(&engine, &args.source).unzip();
    engine.begin_loading();
    let options = MountOptions {
        mountpoint: args.mountpoint.clone(),
        file_name: plan.file_name.clone(),
        source: args.source.clone(),
        join_reads_bytes: plan.join_reads_bytes,
        kernel_cache: args.kernel_cache,
        threads: args.threads.map(usize::from),
    };
    let mount = Mount::start(Arc::clone(&engine), volume, &options).map_err(failure)?;
    let control = plan.control.map(|path| {
        let orders = orders::of_mount(
            &engine,
            &args.source,
            mount.path().to_owned(),
            plan.file_name,
        );
        Control::start(&path, orders)
    });
    let control = control.transpose()?;
    announce(
        args,
        &mount,
        &engine,
        hand_down,
        control.as_ref(),
        warm_blocks.unwrap_or_default(),
    )?;
    wait_for_the_end(&mut signals, || {
        if let Some(state) = &mut state {
            state.save_in_time(&engine);
        }
        mount.is_over()
    });
    drop(control);
    let granted = mount.longest_request_bytes();
    let ended = mount.unmount();
    engine.sync_log();
    if let Some(state) = &mut state {
        state.save(&engine);
    }
    let ended = ended?;
    warn_of_users(&args.mountpoint, ended);
    say_goodbye(args, &engine.status(), granted)
}

fn wait_for_the_end(signals: &mut Signals, mut is_over: impl FnMut() -> bool) {
    while signals.pending().next().is_none() && !is_over() {
        thread::sleep(LOOK_INTERVAL);
    }
}

fn warn_of_users(mountpoint: &Path, ended: Unmounted) {
    let point = mountpoint.display();
    if ended.is_in_use {
        eprintln!(
            "futae: {point} is still in use; it was detached, and its users get errors from now on"
        );
    } else if ended.was_busy {
        eprintln!("futae: {point} was in use; it was detached, and its users have ended since");
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
        MountError::Name { .. } => Failure::usage(error),
        other => other.into(),
    }
}

enum Source {
    Nbd(NbdUri),
    File(PathBuf),
}

/// What the arguments come to, before anything is opened.
struct Plan {
    source: Source,
    file_name: String,
    cache: EngineOptions,
    pins: Option<Pins>,
    join_reads_bytes: u64,
    control: Option<PathBuf>,
}

impl Plan {
    fn new(args: &Args) -> Result<Self, Failure> {
        let (policy, pins) = args.choice.spec()?;
        let policy = args.tree.policy(policy)?;
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
        let source = if args.source.contains("://") {
            Source::Nbd(args.source.parse().map_err(Failure::usage)?)
        } else {
            Source::File(args.source.clone().into())
        };
        let own_name = match &source {
            Source::Nbd(uri) => default_file_name(OsStr::new(&uri.export)),
            Source::File(path) => default_file_name(path.as_os_str()),
        };
        let cache = EngineOptions {
            block_bytes,
            capacity_blocks,
            policy,
            seed: args.seed,
            hand_down: HandDown::Nothing,
            decision_log: args.decision_log.clone(),
            write_back: args.writes.options(block_bytes)?,
        };
        let control = args.control.as_deref().map(orders::socket_path);
        Ok(Self {
            source,
            file_name: args.name.clone().unwrap_or(own_name),
            cache,
            pins,
            join_reads_bytes,
            control: control.transpose()?,
        })
    }

    /// Opens the source, and finds out what to tell it of evicted blocks.
    fn open(&self, args: &Args) -> Result<(Arc<dyn Store>, HandDown), Failure> {
        let path = match &self.source {
            Source::File(path) => path,
            Source::Nbd(uri) => return open_nbd(uri, args, self.cache.block_bytes),
        };
        if matches!(args.hand_down, Tell::Data | Tell::Notice) {
            return Err(Failure::usage(format!(
                "{}: there is no cache below a file or device; leave out --hand-down",
                path.display()
            )));
        }
        refuse_inside(path, &args.mountpoint)?;
        Ok((
            Arc::new(FileStore::open(path, args.read_only)?),
            HandDown::Nothing,
        ))
    }
}

/// The slots of a cache of the size that was asked for, which is at least one block.
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

/// The longest request that the application is taken to make.
fn join_reads_bytes(args: &Args, policy: &PolicySpec) -> Result<u64, Failure> {
    let Some(text) = &args.join_reads else {
        let counts_requests = policy.name == "lfu-history";
        return Ok(if counts_requests { JOIN_READS_BYTES } else { 0 });
    };
    match text.parse() {
        Ok(Size::Bytes(bytes)) => Ok(bytes),
        _ => Err(Failure::usage(format!(
            "--join-reads {text}: write a size such as 1MiB, or 0"
        ))),
    }
}

/// A source in the mountpoint would disappear behind the mount.
fn refuse_inside(source: &Path, mountpoint: &Path) -> Result<(), Failure> {
    let (Ok(source), Ok(mountpoint)) = (source.canonicalize(), mountpoint.canonicalize()) else {
        return Ok(());
    };
    if source.starts_with(&mountpoint) {
        let message = format!("{}: the source is in the mountpoint", source.display());
        return Err(Failure::usage(message));
    }
    Ok(())
}

fn open_nbd(
    uri: &NbdUri,
    args: &Args,
    block_bytes: u64,
) -> Result<(Arc<dyn Store>, HandDown), Failure> {
    // A large block would be copied and sent while somebody waits: only where that is asked for.
    let is_small = block_bytes <= HANDED_DOWN_BYTES_MAX;
    let wants_data = args.hand_down == Tell::Data || args.hand_down == Tell::Auto && is_small;
    let block_bytes = u32::try_from(block_bytes).context("the block is too large")?;
    let patience = args.store.patience()?;
    let wanted = wants_data.then_some(block_bytes);
    let mut store = NbdStore::connect_patiently(uri, wanted, patience)?;
    if args.read_only {
        store = store.read_only();
    }
    let hand_down = match args.hand_down {
        Tell::Auto | Tell::Data if store.takes_demotions() => HandDown::Data,
        Tell::Data => {
            return Err(anyhow::anyhow!(
                "{uri}: the server takes no evicted blocks of {}; use --hand-down auto",
                Size::Bytes(block_bytes.into())
            )
            .into());
        }
        Tell::Notice if store.takes_notices() => HandDown::Notice,
        Tell::Notice => {
            return Err(anyhow::anyhow!(
                "{uri}: the server does not offer CACHE, which notices need; use --hand-down auto"
            )
            .into());
        }
        Tell::Auto | Tell::Nothing => HandDown::Nothing,
    };
    Ok((Arc::new(store), hand_down))
}

fn announce(
    args: &Args,
    mount: &Mount,
    engine: &Engine,
    hand_down: HandDown,
    control: Option<&Control>,
    warm_blocks: u64,
) -> Result<(), Failure> {
    let status = engine.status();
    let volume = status.volumes.first().context("the cache has no volume")?;
    let granted = mount.granted();
    let hand_down = match hand_down {
        HandDown::Data => "data",
        HandDown::Notice => "notice",
        HandDown::Nothing => "nothing",
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let line = json!({
            "source": args.source,
            "path": mount.path(),
            "size_bytes": volume.size_bytes,
            "store": volume.store,
            "policy": status.policy,
            "block_bytes": status.block_bytes,
            "capacity_blocks": status.capacity_blocks,
            "hand_down": hand_down,
            "write_mode": args.writes.write_mode.name(),
            "warm_blocks": warm_blocks,
            "control": control.map(|control| format!("unix:{}", control.path().display())),
            "fuse": {
                "protocol": format!("{}.{}", granted.protocol.0, granted.protocol.1),
                "request_bytes": granted.request_bytes,
                "readahead_bytes": granted.readahead_bytes,
                "background_requests": granted.background_requests,
                "shared_mmap": granted.shared_mmap || args.kernel_cache,
                "kernel_cache": args.kernel_cache,
            },
        });
        writeln!(out, "{line}")?;
    } else {
        writeln!(
            out,
            "mounted {} at {} ({}; {} cache of {} blocks, evicted blocks hand down {hand_down})",
            args.source,
            mount.path().display(),
            Size::Bytes(volume.size_bytes),
            status.policy,
            Size::Bytes(status.block_bytes),
        )?;
    }
    out.flush()?;
    Ok(())
}

fn say_goodbye(args: &Args, status: &EngineStatus, longest: u32) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if args.json {
        let line = json!({ "status": status, "longest_request_bytes": longest });
        writeln!(out, "{line}")?;
        return Ok(());
    }
    let (requests, hits) = (status.counters.requests, status.counters.hits);
    let ratio = if requests == 0 {
        0.0
    } else {
        100.0 * hits as f64 / requests as f64
    };
    writeln!(
        out,
        "unmounted: {requests} blocks requested, {ratio:.1} % hits, {} store reads, {} demotions, \
         {} errors",
        status.store_reads, status.counters.demotions_out, status.errors
    )?;
    Ok(())
}
