//! The end of a mount.

use futae_guest::Unmounted;
use signal_hook::iterator::Signals;
use std::path::Path;
use std::thread;
use std::time::Duration;
use tracing::{info, warn};

/// Interval of checks for an unmount by another program.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Waits for a signal, or until `is_over`.
pub(super) fn wait_for_the_end(signals: &mut Signals, mut is_over: impl FnMut() -> bool) {
    while signals.pending().next().is_none() && !is_over() {
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Says what became of programs that had files of the mount open.
pub(super) fn warn_of_users(mountpoint: &Path, ended: Unmounted) {
    let point = mountpoint.display();
    if ended.is_in_use {
        warn!("{point} is still in use; it was detached, and its users get errors from now on");
    } else if ended.was_busy {
        info!("{point} was in use; it was detached, and its users have ended since");
    }
}
