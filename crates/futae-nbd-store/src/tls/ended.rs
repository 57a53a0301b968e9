//! The end of a connection over TLS.

use std::sync::{Arc, OnceLock};

/// Why a connection ended, once it has.
#[derive(Clone, Default)]
pub(crate) struct Ended(Arc<OnceLock<String>>);

impl Ended {
    pub(crate) fn why(&self) -> Option<String> {
        self.0.get().cloned()
    }
}
