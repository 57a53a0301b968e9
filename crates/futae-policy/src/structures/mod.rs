//! The building blocks of policies: queues over slots (linked, or as logs), heaps, rings and
//! frequency lists, bounded memories of departed blocks, a frequency sketch, and a learned forest.

mod block_table;
mod bloom;
mod chain;
mod counts;
mod forest;
mod ghost_lists;
mod ghost_marks;
mod ghosts;
mod grown;
mod heap;
mod log_queue;
mod log_queues;
mod miss_note;
mod names;
mod pool;
mod prefetch;
mod queues;
mod read_ahead;
mod recency;
mod ring;
mod sketch;
mod table;

pub use block_table::BlockTable;
pub use bloom::Bloom;
pub use chain::Chain;
pub use counts::Counts;
pub use forest::{FEATURES, Features, Forest, magnitude};
pub use ghost_lists::GhostLists;
use ghost_marks::GhostMarks;
pub use ghosts::Ghosts;
pub use grown::grown;
pub use heap::{Heap, Real};
pub use log_queue::LogQueue;
pub use log_queues::LogQueues;
pub use miss_note::MissNote;
pub use names::Names;
pub use pool::Pool;
pub use prefetch::prefetch;
pub use queues::Queues;
pub use read_ahead::ReadAhead;
pub use recency::Recency;
pub use ring::Ring;
pub use sketch::Sketch;
pub use table::Table;
