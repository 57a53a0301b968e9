//! `futae mount`: the upper cache, as files in a directory.

mod announce;
mod args;
mod choice;
mod detached;
mod end;
pub mod helper;
mod open;
mod orders;
mod plan;
mod residency;
mod start;
mod transport;
mod tree;
mod tree_args;
mod tree_state;

pub use args::Args;
pub use orders::{MountStatus, TreeStatus};

use super::container;
use super::otlp::Tracing;
use super::state::{Sourced, StateFile, name_of};
use announce::{announce, at, say_goodbye};
use end::{wait_for_the_end, warn_of_users};
use futae_control::Control;
use futae_engine::{Engine, EngineOptions, SetupError};
use futae_guest::{MountOptions, ShownFile, check_mountpoint};
use futae_terminal::failure::Failure;
use plan::{Plan, check_residency};
use residency::Residency;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;

/// Mounts, and runs until SIGTERM, SIGINT or an unmount by another program.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.detached {
        detached::detach();
    }
    let plan = Plan::new(args)?;
    check_residency(args, &plan)?;
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
        detached::let_go()?;
    }
    wait_for_the_end(&mut signals, || {
        if let Some(state) = state.as_mut().filter(|it| it.is_due(args.state.every())) {
            state.save(&engine, &sources);
        }
        mount.is_over()
    });
    drop((control, observing));
    // Hits in the page cache that the mount has not counted yet: its pages leave with it.
    engine.hear();
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

fn new_engine(cache: &EngineOptions) -> Result<Arc<Engine>, Failure> {
    Engine::new(cache).map_err(|error| match error {
        SetupError::Policy(_) | SetupError::Size(_) | SetupError::NeedsFuture(_) => {
            Failure::usage(error)
        }
        other => other.into(),
    })
}
