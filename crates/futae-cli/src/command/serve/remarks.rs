//! What the log says at the start of a server: what is served, and what each cache does with it.

use super::super::container;
use super::super::volumes::VolumeSpec;
use futae_host::ServerStatus;
use futae_units::Size;
use tracing::{info, warn};

/// Logs each export and each cache.
pub(super) fn at_start(
    specs: &[VolumeSpec],
    status: &ServerStatus,
    lives_on_evictions: bool,
    writes: &str,
) {
    for (spec, export) in specs.iter().zip(&status.exports) {
        let (name, source) = (&spec.name, &spec.source);
        container::warn_of(name, source);
        if export.read_only && !spec.read_only {
            warn!(
                export = name,
                "export {name}: {source} cannot be written, so clients may only read; make it writable, or say \
                 read-only with the export"
            );
        }
    }
    for cache in &status.engines {
        let (engine, exports) = (&cache.engine, cache.exports.join(", "));
        let size = Size::Bytes(engine.capacity_blocks.saturating_mul(engine.block_bytes));
        let (policy, doing) = (&engine.policy, doing(&engine.policy, lives_on_evictions));
        info!(
            exports,
            policy, "cache of {size} for {exports}: policy {policy} {doing}; writes: {writes}"
        );
        for volume in &engine.volumes {
            let (name, store) = (&volume.name, &volume.store);
            info!(volume = name, store, "export {name}: {store}");
        }
    }
}

/// Logs that what agents send with its data is of no use, where it is.
pub(super) fn of_feeds(status: &ServerStatus, refuses_pages: Option<&str>) {
    let exports = status.feeds.iter().flat_map(|feed| &feed.agent.volumes);
    let exports: Vec<&str> = exports.map(|export| export.name.as_str()).collect();
    if let (Some(why), false) = (refuses_pages, exports.is_empty()) {
        info!(
            "no evicted page that the agents of {} send with its data enters the cache: {why}",
            exports.join(", ")
        );
    }
}

/// What a policy does with what clients read and evict.
fn doing(policy: &str, lives_on_evictions: bool) -> &'static str {
    if !lives_on_evictions {
        "caches what is served"
    } else if policy.contains("keep_served=true") {
        "caches what is served until blocks that clients demote, or that an agent reports, need the room"
    } else {
        "caches only what clients demote or an agent reports: without either, nothing is cached"
    }
}

#[cfg(test)]
mod tests {
    use super::doing;

    #[test]
    fn what_a_cache_does_depends_on_its_policy() {
        assert_eq!(doing("lru", false), "caches what is served");
        assert!(doing("exclusive(keep_served=true)", true).contains("until"));
        assert!(doing("exclusive(lru)", true).contains("nothing is cached"));
    }
}
