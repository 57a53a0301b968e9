//! What policies are made of: queues over slots (linked, or as logs), heaps, rings and frequency lists, bounded
//! memories of departed blocks, and a sketch of how often blocks were asked for.

mod counts;
mod ghost_lists;
mod ghosts;
mod grown;
mod heap;
mod lines;
mod marks;
mod memory;
mod names;
mod noted;
mod pool;
mod prefetch;
mod queues;
mod ring;
mod row;
mod sketch;
mod table;

pub use counts::Counts;
pub use ghost_lists::GhostLists;
pub use ghosts::Ghosts;
pub use grown::grown;
pub use heap::{Heap, Real};
pub use lines::Lines;
use marks::Marks;
pub use memory::Memory;
pub use names::Names;
pub use noted::Noted;
pub use pool::Pool;
pub use prefetch::prefetch;
pub use queues::Queues;
pub use ring::Ring;
pub use row::Row;
pub use sketch::Sketch;
pub use table::Table;
