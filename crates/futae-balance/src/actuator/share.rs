//! A share of the cache of a `futae serve`.

use futae_control::{ask_for_within, ask_within};
use futae_units::Size;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// How a share does.
pub struct Share {
    pub bytes: u64,
    pub block_bytes: u64,
    pub requests: u64,
    pub hits: u64,
}

/// A share of another size.
#[derive(Deserialize)]
struct Resized {
    #[serde(rename = "capacity_blocks")]
    _capacity_blocks: u64,
}

pub fn status(control: &Path, export: &str, timeout: Duration) -> Result<Share, String> {
    let status = ask_within(control, &json!({ "command": "status" }), timeout)
        .map_err(|error| error.to_string())?;
    let engines = status["engines"].as_array();
    let is_its = |engine: &&Value| {
        let exports = engine["exports"].as_array();
        exports.is_some_and(|all| all.len() == 1 && all[0] == export)
    };
    let engine = engines.into_iter().flatten().find(is_its).ok_or_else(|| {
        format!(
            "{}: export {export:?} has no share of its own; serve it with share=SIZE",
            control.display()
        )
    })?;
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    Ok(Share {
        bytes: number(&engine["capacity_blocks"]).saturating_mul(number(&engine["block_bytes"])),
        block_bytes: number(&engine["block_bytes"]).max(1),
        requests: number(&engine["requests"]),
        hits: number(&engine["hits"]),
    })
}

pub fn order(control: &Path, export: &str, bytes: u64, timeout: Duration) -> Result<(), String> {
    let block = status(control, export, timeout)?.block_bytes;
    let cache = Size::Bytes((bytes / block).max(1) * block).to_string();
    let order = json!({ "command": "resize", "cache": cache, "export": export });
    let resized = ask_for_within::<Resized>(control, &order, timeout);
    resized.map(drop).map_err(|error| error.to_string())
}
