//! Memory cgroups, by the files in their directories.

use std::fs;
use std::path::Path;

/// The limit of version 1.
pub const LIMIT_V1: &str = "memory.limit_in_bytes";
/// From where on version 2 reclaims.
pub const HIGH_V2: &str = "memory.high";

pub fn achieved_v1(group: &Path) -> Result<u64, String> {
    // The kernel takes a limit only when it has been reached.
    Ok(number(group, LIMIT_V1)?.unwrap_or(u64::MAX))
}

pub fn achieved_v2(group: &Path) -> Result<u64, String> {
    let current = number(group, "memory.current")?.unwrap_or(0);
    // It may use more than it should for a while; without a limit it has what it uses.
    Ok(number(group, HIGH_V2)?.map_or(current, |high| high.max(current)))
}

pub fn order(group: &Path, name: &str, value: &str) -> Result<(), String> {
    let path = group.join(name);
    fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))
}

pub fn text(group: &Path, name: &str) -> Result<String, String> {
    let path = group.join(name);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.trim().to_owned())
}

/// A number; none where there is no limit.
fn number(group: &Path, name: &str) -> Result<Option<u64>, String> {
    let text = text(group, name)?;
    if text == "max" {
        return Ok(None);
    }
    let number = text.parse().map(Some);
    number.map_err(|_| format!("{}: {text:?} is no number", group.join(name).display()))
}
