//! Random operations on caches over disks that end operations in any order, now and then badly: what each sector may hold is
//! a register, and who looks at it sees the last write. `SEEDS=100-2000` in the environment takes other seeds.

mod asked;
mod disk;
mod growing;
mod kept;
mod model;
mod overlaps;

use std::ops::Range;

/// The seeds of a test: this many, or those that the environment asks for.
fn seeds(count: u64) -> Range<u64> {
    let Ok(text) = std::env::var("SEEDS") else {
        return 0..count;
    };
    let (from, to) = text.split_once('-').expect("a range");
    from.parse().expect("a number")..to.parse().expect("a number")
}
