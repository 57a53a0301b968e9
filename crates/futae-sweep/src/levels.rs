//! Levels as command lines and plans write them, each with one size or several.

use crate::SweepError;
use futae_sim::LevelSpec;

/// More runs than this are a mistake.
const RUNS_MAX: usize = 1 << 20;

/// The levels of each run: top down, each level with each of its sizes, `lru:1%,5%`.
///
/// # Errors
///
/// A level is not written as one, or there are too many.
pub fn product(levels: &[String]) -> Result<Vec<Vec<LevelSpec>>, SweepError> {
    let mut grown: Vec<Vec<LevelSpec>> = vec![Vec::new()];
    for text in levels {
        let Some((policy, sizes)) = text.rsplit_once(':') else {
            let message = format!(
                "level {text:?} is not POLICY:SIZE or POLICY:SIZE,SIZE, such as lru:2GiB or exclusive:1000blocks"
            );
            return Err(SweepError::plan(message));
        };
        let mut next = Vec::new();
        for above in grown {
            for size in sizes.split(',') {
                let mut levels = above.clone();
                levels.push(level(policy, size.trim())?);
                next.push(levels);
            }
            if next.len() > RUNS_MAX {
                return Err(SweepError::plan(format!("{levels:?} are too many sizes")));
            }
        }
        grown = next;
    }
    grown.retain(|levels| !levels.is_empty());
    Ok(grown)
}

/// One level.
pub(crate) fn level(policy: &str, size: &str) -> Result<LevelSpec, SweepError> {
    format!("{policy}:{size}").parse().map_err(SweepError::plan)
}
