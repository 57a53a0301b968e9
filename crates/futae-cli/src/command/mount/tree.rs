//! `futae mount DIRECTORY`: a whole tree, with the data of its files in the cache.

use super::args::{Args, Tell};
use super::detached;
use super::end::{wait_for_the_end, warn_of_users};
use super::orders::{TreeStatus, looking, of_mount};
use super::plan::Plan;
use super::residency::Residency;
use super::tree_state::TreeState;
use crate::command::otlp::Tracing;
use crate::command::state::StateFile;
use anyhow::Context;
use futae_control::{Control, Orders};
use futae_engine::{ClassStatus, Engine, EngineStatus};
use futae_guest::{MountError, TreeHandle, TreeMount, TreeOptions};
use futae_policy::{Class, Kind, PolicySpec, Trait};
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_units::Size;
use serde::Deserialize;
use serde_json::{Value, json};
use signal_hook::iterator::Signals;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The largest blocks: larger ones are loaded in pieces, which is for single files only.
const BLOCK_BYTES_MAX: u64 = 1 << 20;

/// Whether what is mounted is a tree: one source, and a directory.
pub fn is_tree(sources: &[String]) -> bool {
    matches!(sources, [only] if Path::new(only).is_dir())
}

/// Mounts, and stays until SIGTERM, SIGINT or an unmount from elsewhere.
pub fn run(
    args: &Args,
    plan: &Plan,
    engine: &Arc<Engine>,
    signals: &mut Signals,
) -> Result<(), Failure> {
    refuse_options(args, plan)?;
    let block_bytes = engine.block_bytes();
    if block_bytes > BLOCK_BYTES_MAX {
        return Err(Failure::usage(format!(
            "--block {}: files of a tree are cached in blocks of at most {}",
            Size::Bytes(block_bytes),
            Size::Bytes(BLOCK_BYTES_MAX)
        )));
    }
    // The kernel is given pages that nobody has read once it is watched.
    if args.residency == Residency::Futae {
        engine.begin_loading();
    }
    let tracing = plan.otlp.as_ref().map(Tracing::start).transpose()?;
    if let Some(tracing) = &tracing {
        engine
            .tree_latencies()
            .watch(tracing.watcher(&args.source()));
    }
    let source = PathBuf::from(args.source());
    refuse_nested(&source, &args.mountpoint)?;
    let options = TreeOptions {
        source,
        mountpoint: args.mountpoint.clone(),
        protect: args.tree.protect.clone(),
        recursive: args.tree.recursive,
        read_only: args.read_only,
        threads: args.threads.map(usize::from),
        transport: args.transport.into(),
    };
    let state = args.state.path().map(StateFile::open).transpose()?;
    // The socket comes first: a mounted tree lets its callers decide on the modes of new files,
    // and this one is to have the user's.
    let handle: Arc<OnceLock<Arc<TreeHandle>>> = Arc::default();
    let path = plan.control.clone().unwrap_or_else(default_socket);
    let orders = orders(args, engine, &handle);
    let look = looking(engine, vec![args.source()]);
    let caches = vec![Arc::clone(engine)];
    let observing = plan.observe.start(false, look, move || caches.clone())?;
    let control = Control::start(&path, orders)?;
    let mount = args.residency.start_tree(engine, &options);
    let mount = mount.map_err(failure)?;
    mount.handle().set_control(control.path().to_owned());
    // Nobody else sets it.
    let _ = handle.set(mount.handle());
    let handle = mount.handle();
    let begin = |file| TreeState::begin(file, &args.state, engine, &handle);
    let mut state = state.map(begin).transpose()?;
    announce(args, &mount, engine, &control)?;
    if args.detached {
        detached::let_go()?;
    }
    wait_for_the_end(signals, || {
        if let Some(state) = &mut state {
            state.look();
        }
        mount.is_over()
    });
    drop((control, observing));
    // Hits in the page cache that the mount has not counted yet: its pages leave with it.
    engine.hear();
    if let Some(state) = state {
        state.end();
    }
    let ended = mount.unmount();
    if let Some(tracing) = tracing {
        tracing.end();
    }
    engine.sync_log();
    warn_of_users(&args.mountpoint, ended?);
    say_goodbye(args, &engine.status(), &handle)
}

fn failure(error: MountError) -> Failure {
    match error {
        MountError::Protect { .. } => Failure::usage(error),
        other => other.into(),
    }
}

/// Options that mean nothing for a tree.
fn refuse_options(args: &Args, plan: &Plan) -> Result<(), Failure> {
    let of_policy = format!("--policy {}", plan.cache.policy.name);
    let asked = [
        (plan.pins.is_some(), "--pin"),
        (plan.cache.policy.has(Trait::ChoosesByNumber), &of_policy),
        (args.join_reads.is_some(), "--join-reads"),
        (args.name.is_some(), "--name"),
        (args.kernel_cache, "--kernel-cache"),
        (args.allow_other.is_some(), "--allow-other"),
        (
            matches!(args.on_eviction, Tell::Demote | Tell::Notice),
            "--on-eviction",
        ),
    ];
    let source = args.source();
    if let Some((_, option)) = asked.iter().find(|(is_asked, _)| *is_asked) {
        return Err(Failure::usage(format!(
            "{option} is for a single file, and {source} is a directory"
        )));
    }
    if args.store.is_asked() {
        return Err(Failure::usage(format!(
            "--store-timeout is for a source behind NBD, and {source} is a directory"
        )));
    }
    if args.tree.recursive && args.tree.protect.is_empty() {
        return Err(Failure::usage(
            "--recursive is about the directories of --protect; name one, such as --protect .",
        ));
    }
    Ok(())
}

/// A mount in its own source would have to ask itself, and a source in the mountpoint would
/// disappear behind it.
fn refuse_nested(source: &Path, mountpoint: &Path) -> Result<(), Failure> {
    let (Ok(source), Ok(mountpoint)) = (source.canonicalize(), mountpoint.canonicalize()) else {
        return Ok(());
    };
    if source.starts_with(&mountpoint) || mountpoint.starts_with(&source) {
        return Err(Failure::usage(format!(
            "{} and {}: one is in the other; mount the tree elsewhere",
            source.display(),
            mountpoint.display()
        )));
    }
    Ok(())
}

/// Where orders are taken if it is not said: a path of this process's own, which the attribute
/// `user.futae.control` of the mount's root tells. Those that killed mounts have left beside it go.
fn default_socket() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let system = || {
        let run = PathBuf::from("/run");
        rustix::process::geteuid().is_root().then_some(run)
    };
    let directory = runtime.filter(|path| path.is_dir()).or_else(system);
    let directory = directory.unwrap_or_else(std::env::temp_dir);
    // What cannot be removed does no harm.
    let _ = sweep(&directory);
    directory.join(socket_name(std::process::id()))
}

fn socket_name(process: u32) -> String {
    format!("futae-{process}.sock")
}

/// Removes the sockets of mounts whose process is gone and at which nobody answers.
fn sweep(directory: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().into_string().unwrap_or_default();
        let number = name.strip_prefix("futae-").unwrap_or_default();
        let number = number.strip_suffix(".sock").unwrap_or_default();
        let Ok(process) = number.parse::<u32>() else {
            continue;
        };
        let is_left = name == socket_name(process)
            && entry.file_type()?.is_socket()
            && !Path::new(&format!("/proc/{process}")).exists();
        let path = entry.path();
        let silent = || {
            let answer = UnixStream::connect(&path);
            answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        };
        if is_left && silent() {
            let _ = std::fs::remove_file(&path);
        }
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Protect {
    directory: PathBuf,
    #[serde(default)]
    now: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unprotect {
    directory: PathBuf,
}

/// The orders that a mounted tree takes.
fn orders(args: &Args, engine: &Arc<Engine>, handle: &Arc<OnceLock<Arc<TreeHandle>>>) -> Orders {
    let path = std::path::absolute(&args.mountpoint).unwrap_or_else(|_| args.mountpoint.clone());
    let [one, other, shown] = std::array::from_fn(|_| Arc::clone(handle));
    let status = move || shown.get().map(|tree| TreeStatus::of(tree));
    let asked = Arc::clone(engine);
    let protect = move |Protect { directory, now }| {
        let tree = mounted(&one)?;
        let mut answer = answer(&tree, tree.protect(&directory, now))?;
        let policy = asked.status().policy;
        let protects = |policy: &PolicySpec| policy.clone().find_mut(Trait::Protects).is_some();
        if !policy.parse().is_ok_and(|policy| protects(&policy)) {
            let names = Kind::names_with(Trait::Protects);
            answer["idle"] = format!(
                "policy {policy} protects nothing; it does from the moment that the policy is {names}"
            )
            .into();
        }
        Ok(answer)
    };
    let unprotect = move |Unprotect { directory }| {
        let tree = mounted(&other)?;
        answer(&tree, tree.unprotect(&directory))
    };
    of_mount(
        engine,
        &args.source(),
        path,
        vec![args.source()],
        true,
        status,
    )
    .with("protect", protect)
    .with("unprotect", unprotect)
}

fn mounted(handle: &OnceLock<Arc<TreeHandle>>) -> Result<Arc<TreeHandle>, String> {
    let tree = handle.get().cloned();
    tree.ok_or_else(|| "the tree is not mounted yet; try again".to_owned())
}

fn answer(tree: &TreeHandle, done: Result<(), MountError>) -> Result<Value, String> {
    done.map_err(|error| error.to_string())?;
    Ok(json!({ "protected": tree.protected() }))
}

fn announce(
    args: &Args,
    mount: &TreeMount,
    engine: &Engine,
    control: &Control,
) -> Result<(), Failure> {
    let status = engine.status();
    let negotiated = mount
        .negotiated()
        .context("the kernel did not begin the FUSE session")?;
    let protected = mount.handle().protected();
    let mut out = output();
    if args.json {
        let line = json!({
            "source": args.source(),
            "path": mount.path(),
            "policy": status.policy,
            "block_bytes": status.block_bytes,
            "capacity_blocks": status.capacity_blocks,
            "residency": Residency::of(engine).name(),
            "control": control.path(),
            "protected": protected,
            "fuse": {
                "protocol": format!("{}.{}", negotiated.protocol.0, negotiated.protocol.1),
                "request_bytes": negotiated.request_bytes,
                "readahead_bytes": negotiated.readahead_bytes,
                "background_requests": negotiated.background_requests,
                "shared_mmap": negotiated.shared_mmap,
                "transport": negotiated.transport.name(),
            },
        });
        writeln!(out, "{line}")?;
    } else {
        writeln!(
            out,
            "mounted {} at {} ({} cache of {} blocks, {} protected directories; requests by {})",
            args.source(),
            mount.path().display(),
            status.policy,
            Size::Bytes(status.block_bytes),
            protected.len(),
            negotiated.transport.name(),
        )?;
    }
    out.flush()?;
    Ok(())
}

fn say_goodbye(args: &Args, status: &EngineStatus, tree: &TreeHandle) -> Result<(), Failure> {
    let mut out = output();
    if args.json {
        let below = tree.page_cache();
        let below = json!({ "bytes": below.bytes, "ranges_swept": below.ranges_swept });
        writeln!(
            out,
            "{}",
            json!({ "status": status, "page_cache_below": below })
        )?;
        return Ok(());
    }
    let ratio = |hits: u64, requests: u64| 100.0 * hits as f64 / requests.max(1) as f64;
    let all = &status.counters;
    write!(
        out,
        "unmounted: {} blocks requested, {:.1} % hits",
        all.requests,
        ratio(all.hits, all.requests)
    )?;
    if let Some((requests, hits)) = of_protected(&status.classes) {
        let hits = ratio(hits, requests);
        write!(out, ", of protected files {requests} and {hits:.1} %")?;
    }
    writeln!(
        out,
        ", {} store reads, {} errors",
        status.store_reads, status.errors
    )?;
    Ok(())
}

/// Requests for blocks of protected files and their hits, dirty blocks included; none if there were none.
fn of_protected(classes: &[ClassStatus]) -> Option<(u64, u64)> {
    let protected = Class::PROTECTED.number();
    let of = classes.iter().filter(|it| it.class & protected != 0);
    let sum = |(requests, hits), it: &ClassStatus| (requests + it.requests, hits + it.hits);
    let sum = of.fold((0, 0), sum);
    (sum.0 > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::{ClassStatus, of_protected};

    #[test]
    fn protected_blocks_count_also_while_they_are_dirty() {
        let class = |class, requests, hits| ClassStatus {
            class,
            requests,
            hits,
            misses: requests - hits,
        };
        let classes = [
            class(0, 9, 8),
            class(1, 5, 3),
            class(4, 7, 7),
            class(5, 2, 1),
        ];
        assert_eq!(of_protected(&classes), Some((7, 4)));
        assert_eq!(of_protected(&classes[..1]), None);
    }
}
