//! The end of a connection over TLS.

use std::sync::{Arc, OnceLock};

/// Why a connection ended, once it has.
#[derive(Clone, Default)]
pub(crate) struct Ended(Arc<OnceLock<String>>);

impl Ended {
    /// The connection has ended, for this reason.
    pub(super) fn because(&self, why: String) {
        // The first reason is the cause of others.
        let _ = self.0.set(why);
    }

    pub(crate) fn why(&self) -> Option<String> {
        self.0.get().cloned()
    }
}
