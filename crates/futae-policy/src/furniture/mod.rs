//! What policies are made of: queues over slots, and bounded memories of departed blocks.

mod queues;

pub use queues::Queues;
