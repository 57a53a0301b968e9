//! Looks for pages that programs read through maps.

use super::KernelKeeper;
use crate::aside::Aside;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::warn;

/// From one look to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// A pause is this many times as long as the look before it: a look goes over the maps of all processes.
const PAUSES: u32 = 100;

/// Has a thread look now and then.
pub(super) fn start(keeper: Arc<KernelKeeper>) -> io::Result<Aside> {
    Aside::start("futae-mapped", INTERVAL, move || {
        let begun = Instant::now();
        if let Err(error) = keeper.watch.look_at_mapped() {
            warn!(
                "reads of pages that stay mapped are not seen, so such pages may be evicted while they are used: {error:#}"
            );
            return None;
        }
        Some(INTERVAL.max(begun.elapsed() * PAUSES))
    })
}
