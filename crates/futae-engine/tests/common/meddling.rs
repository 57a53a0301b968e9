//! A store that is meddled with.

use futae_engine::{Store, StoreDone, StoreOperation};
use futae_testkit::manual_store::ManualStore;
use std::sync::{Arc, Mutex};

/// A store that does something before it takes a write.
pub struct Meddling {
    pub below: Arc<ManualStore>,
    pub before_write: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Store for Meddling {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn describe(&self) -> String {
        self.below.describe()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, sequence: u64, operation: StoreOperation, done: StoreDone) {
        if matches!(operation, StoreOperation::Write { .. }) {
            // Not in the condition: what is done may write, too, which locks this again.
            let meddle = self.before_write.lock().expect("set").take();
            if let Some(meddle) = meddle {
                meddle();
            }
        }
        self.below.submit(sequence, operation, done);
    }
}
