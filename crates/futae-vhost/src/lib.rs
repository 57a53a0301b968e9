//! A vhost-user-blk device over one volume of a cache.
//!
//! [`serve`] handles one connection. Each started queue has a thread of its own, which takes
//! requests from the guest's memory, passes them to the cache in batches, and puts completed ones
//! into the used ring in the order of completion.

#[cfg(feature = "fuzz")]
mod alone;
mod announcer;
mod call;
mod chain;
mod claim;
mod control;
mod departure;
mod device;
mod dirty_log;
mod inflight;
mod mailbox;
mod memory;
mod queue;
mod request;
mod ring;
mod room;
mod session;
mod slot;
mod submit;
mod traffic;

#[cfg(feature = "fuzz")]
pub use alone::{LoneQueue, QueueShape};
pub use announcer::Announcer;
pub use device::{Device, QUEUE_SIZE_MAX, QUEUES_MAX, REQUEST_BYTES_MAX};
pub use memory::GuestMemory;
pub use room::{Boundless, Room};
pub use session::{VhostError, serve};
pub use traffic::Traffic;
