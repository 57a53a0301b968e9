//! `futae mount`: the upper cache, as one file in a directory.

mod orders;

pub use orders::MountStatus;

use crate::failure::Failure;
use anyhow::Context;
use futae_control::Control;
use futae_engine::{Engine, EngineOptions, EngineStatus, FileStore, HandDown, SetupError, Store};
use futae_guest::{Mount, MountError, MountOptions, check_mountpoint, default_file_name};
use futae_policy::{Class, PolicySpec, Shape};
use futae_trace::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Size, parse_block_bytes};
use futae_wire::NbdUri;
use futae_wire::nbd_store::NbdStore;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How often to look whether somebody else has unmounted it.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Mount a volume as one file, cached in this process
#[derive(clap::Args)]
pub struct Args {
    /// A disk image, a block device, or an NBD address (nbd://HOST/EXPORT,
    /// nbd+unix:///EXPORT?socket=PATH)
    source: String,
    /// An empty directory
    mountpoint: PathBuf,
    /// Memory for the cache, e.g. 2GiB
    #[arg(long, value_name = "SIZE")]
    cache: String,
    /// Size of a block, a power of two from 4KiB to 256MiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    block: String,
    /// Who chooses what stays; `futae policies` lists them
    #[arg(long, default_value = "lru")]
    policy: String,
    /// What to tell the cache below of an evicted block: its data, a notice without data, or
    /// nothing. auto: its data if the source takes it
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
    // Before anything exists that a signal would leave behind.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    check_mountpoint(&args.mountpoint)?;
    let (store, hand_down) = plan.open(args)?;
    let cache = EngineOptions {
        hand_down,
        ..plan.cache
    };
    let engine = Engine::new(&cache).map_err(|error| match error {
        SetupError::Policy(_) | SetupError::Size(_) | SetupError::NeedsFuture(_) => {
            Failure::usage(error)
        }
        other => other.into(),
    })?;
    let volume = engine.add_volume(&plan.file_name, store, Class::NORMAL)?;
    let options = MountOptions {
        mountpoint: args.mountpoint.clone(),
        file_name: plan.file_name.clone(),
        source: args.source.clone(),
        kernel_cache: args.kernel_cache,
        threads: args.threads.map(usize::from),
    };
    let mount = Mount::start(Arc::clone(&engine), volume, &options).map_err(failure)?;
    let control = plan.control.map(|path| {
        let orders = orders::of_file(&engine, &args.source, &mount, plan.file_name);
        Control::start(&path, orders)
    });
    let control = control.transpose()?;
    announce(args, &mount, &engine, hand_down, control.as_ref())?;
    while signals.pending().next().is_none() && !mount.is_over() {
        thread::sleep(LOOK_INTERVAL);
    }
    drop(control);
    let granted = mount.longest_request_bytes();
    let ended = mount.unmount();
    engine.sync_log();
    let ended = ended?;
    let point = args.mountpoint.display();
    if ended.is_in_use {
        eprintln!(
            "futae: {point} is still in use; it was detached, and its users get errors from now on"
        );
    } else if ended.was_busy {
        eprintln!("futae: {point} was in use; it was detached, and its users have ended since");
    }
    say_goodbye(args, &engine.status(), granted)
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
    control: Option<PathBuf>,
}

impl Plan {
    fn new(args: &Args) -> Result<Self, Failure> {
        let policy: PolicySpec = args.policy.parse().map_err(Failure::usage)?;
        let shape = Shape {
            slots: 16,
            seed: args.seed,
        };
        futae_policy::build(&policy, &shape).map_err(Failure::usage)?;
        let block_bytes = parse_block_bytes(&args.block, BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
            .map_err(|error| Failure::usage(format!("--block: {error}")))?;
        let blocks = args
            .cache
            .parse()
            .and_then(|size: Size| size.blocks(block_bytes))
            .map_err(|error| Failure::usage(format!("--cache: {error}")))?;
        let capacity_blocks = u32::try_from(blocks).map_err(|_| {
            let most = u32::MAX;
            Failure::usage(format!(
                "--cache: {blocks} blocks, but a cache has at most {most}; use a larger --block"
            ))
        })?;
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
        };
        let control = args.control.as_deref().map(orders::socket_path);
        Ok(Self {
            source,
            file_name: args.name.clone().unwrap_or(own_name),
            cache,
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
    let wants_data = matches!(args.hand_down, Tell::Auto | Tell::Data);
    let block_bytes = u32::try_from(block_bytes).context("the block is too large")?;
    let mut store = NbdStore::connect(uri, wants_data.then_some(block_bytes))?;
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
