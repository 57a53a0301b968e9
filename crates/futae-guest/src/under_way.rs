//! A request that is under way, to be measured.

use futae_engine::{Asked, Latencies};
use std::sync::Arc;
use std::time::Instant;

/// A request, since it was taken from the kernel.
pub(crate) struct UnderWay {
    latencies: Arc<Latencies>,
    asked: Asked,
    bytes: u64,
    since: Instant,
}

impl UnderWay {
    /// One that begins now.
    pub(crate) fn begin(latencies: &Arc<Latencies>, asked: Asked, bytes: u64) -> Self {
        Self {
            latencies: Arc::clone(latencies),
            asked,
            bytes,
            since: Instant::now(),
        }
    }

    /// It has ended.
    pub(crate) fn end(self, failed: bool) {
        let took = self.since.elapsed();
        self.latencies.ended(self.asked, self.bytes, failed, took);
    }
}
