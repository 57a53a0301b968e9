//! One replacement policy a file. Each opens with its card: source, picture, transitions,
//! parameters, deviations, cost; and closes with a plain reference model of the published
//! procedure, to which it is held access by access.

pub mod arc;
pub mod car;
pub mod clock;
pub mod constant;
pub mod cost;
pub mod directory;
pub mod exclusive;
pub mod fifo;
pub mod fifo_second_chance;
pub mod fix;
pub mod gdsf;
pub mod hyperbolic;
pub mod lecar;
pub mod lfu;
pub mod lfu_history;
pub mod lfu_in_cache;
pub mod lhd;
pub mod linux;
pub mod lirs;
pub mod lrfu;
pub mod lru;
pub mod mq;
pub mod mru;
pub mod opt;
pub mod random;
pub mod s3_fifo;
pub mod sieve;
pub mod slru;
pub mod two_handed_clock;
pub mod two_q;
pub mod w_tinylfu;
