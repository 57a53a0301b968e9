//! What is on its way between two caches.

use futae_engine::{ClientId, IoBuf, Operation, StoreDone, StoreResult};

/// Something on its way between two caches.
pub enum Letter {
    /// The upper cache asks something.
    Ask {
        /// Of which volume.
        volume: usize,
        /// As which client.
        client: ClientId,
        /// When the upper cache decided on it.
        sequence: u64,
        /// What.
        operation: Operation,
        /// What goes back to it beside the answer: the buffer of a write.
        buffer: Option<IoBuf>,
        /// Who gets the answer; nobody if it is a hint.
        done: Option<StoreDone>,
    },
    /// The lower cache answers.
    Answer(StoreDone, StoreResult),
}
