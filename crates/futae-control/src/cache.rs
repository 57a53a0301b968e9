//! What every cache can be asked: how it does, and to be of another size.

use futae_engine::{Engine, EngineStatus};
use futae_units::Size;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for a store that takes nothing, before a cache is made smaller all the same.
const SHRINK_TIMEOUT: Duration = Duration::from_secs(2);

/// One cache of a server or a mount.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineReport {
    /// The exports or files whose blocks it holds.
    pub exports: Vec<String>,
    /// What it has done.
    #[serde(flatten)]
    pub engine: EngineStatus,
}

/// The order `resize`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeOrder {
    /// The new size.
    pub cache: Size,
    /// The export whose cache is meant; none: the only cache.
    pub export: Option<String>,
}

/// Changes the size of a cache; the answer to the order.
///
/// # Errors
///
/// A sentence that says what to do: no whole number of blocks, none, or more than the machine has.
pub fn resize(engine: &Arc<Engine>, cache: Size) -> Result<Value, String> {
    let block_bytes = engine.block_bytes();
    let blocks = cache
        .blocks(block_bytes)
        .map_err(|error| error.to_string())?;
    check_cache_bytes(blocks.saturating_mul(block_bytes))?;
    let blocks = match u32::try_from(blocks) {
        Ok(0) => return Err("a cache has at least one block".to_owned()),
        Ok(blocks) => blocks,
        Err(_) => return Err(format!("a cache has at most {} blocks", u32::MAX)),
    };
    engine.prepare_shrink(blocks, SHRINK_TIMEOUT);
    engine.resize(blocks).map_err(|error| error.to_string())?;
    Ok(json!({ "capacity_blocks": blocks }))
}

/// Refuses a cache that this machine's memory cannot hold, in a sentence that says what to do.
pub fn check_cache_bytes(cache_bytes: u64) -> Result<(), String> {
    check_memory_bytes("a cache", cache_bytes)
}

/// Refuses something of this many bytes that this machine's memory cannot hold, in a sentence that says what to do.
pub fn check_memory_bytes(what: &str, bytes: u64) -> Result<(), String> {
    let info = rustix::system::sysinfo();
    // Both fields are of the platform's word size.
    let memory_bytes = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    if bytes <= memory_bytes {
        return Ok(());
    }
    Err(format!(
        "{what} of {} is more than the {} MiB of memory that this machine has; choose a smaller one",
        Size::Bytes(bytes),
        memory_bytes >> 20
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_memory_is_refused() {
        assert_eq!(check_cache_bytes(1 << 20), Ok(()));
        let refused = check_cache_bytes(1 << 60).expect_err("an exbibyte");
        assert!(refused.contains("memory"), "{refused}");
    }
}
