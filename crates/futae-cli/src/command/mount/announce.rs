//! What a mount of volumes says of itself: when its files are there, and when it has ended.

use super::super::volumes::VolumeSpec;
use super::args::Args;
use super::residency::Residency;
use futae_control::Control;
use futae_engine::{Engine, EngineStatus, OnEviction};
use futae_guest::Mount;
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_units::Size;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;

/// The mounted file, or where several of them are.
pub(super) fn at(mount: &Mount) -> PathBuf {
    match mount.paths() {
        [only] => only.clone(),
        _ => mount.mountpoint().to_owned(),
    }
}

pub(super) fn announce(
    args: &Args,
    volumes: &[VolumeSpec],
    mount: &Mount,
    engine: &Engine,
    (on_eviction, residency): (OnEviction, Residency),
    control: Option<&Control>,
    warm_blocks: u64,
) -> Result<(), Failure> {
    let status = engine.status();
    let negotiated = mount.negotiated();
    let on_eviction = match on_eviction {
        OnEviction::Demote => "demote",
        OnEviction::Notice => "notice",
        OnEviction::None => "none",
    };
    let sizes = status.volumes.iter().map(|volume| volume.size_bytes);
    let size_bytes: u64 = sizes.sum();
    let mut out = output();
    if args.json {
        let of = volumes.iter().zip(&status.volumes).zip(mount.paths());
        let files: Vec<Value> = of
            .map(|((spec, volume), path)| {
                json!({
                    "name": spec.name,
                    "source": spec.source.to_string(),
                    "path": path,
                    "size_bytes": volume.size_bytes,
                    "store": volume.store,
                    "class": volume.class,
                })
            })
            .collect();
        let line = json!({
            "source": args.source(),
            "path": at(mount),
            "size_bytes": size_bytes,
            "store": status.volumes.first().map(|volume| &volume.store),
            "files": files,
            "policy": status.policy,
            "block_bytes": status.block_bytes,
            "capacity_blocks": status.capacity_blocks,
            "on_eviction": on_eviction,
            "residency": residency.name(),
            "write_mode": args.writes.write_mode.name(),
            "warm_blocks": warm_blocks,
            "control": control.map(|control| format!("unix:{}", control.path().display())),
            "fuse": {
                "protocol": format!("{}.{}", negotiated.protocol.0, negotiated.protocol.1),
                "request_bytes": negotiated.request_bytes,
                "readahead_bytes": negotiated.readahead_bytes,
                "background_requests": negotiated.background_requests,
                "shared_mmap": negotiated.shared_mmap || args.kernel_cache,
                "kernel_cache": args.kernel_cache,
                "transport": negotiated.transport.name(),
            },
        });
        writeln!(out, "{line}")?;
    } else {
        writeln!(
            out,
            "mounted {} at {} ({}; {} cache of {} blocks, on eviction: {on_eviction}; requests by {})",
            args.source(),
            at(mount).display(),
            Size::Bytes(size_bytes),
            status.policy,
            Size::Bytes(status.block_bytes),
            negotiated.transport.name(),
        )?;
    }
    out.flush()?;
    Ok(())
}

pub(super) fn say_goodbye(args: &Args, status: &EngineStatus, longest: u32) -> Result<(), Failure> {
    let mut out = output();
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
