//! A hook for tests at every access to the words of a memory file; a kill may occur between any two
//! accesses.

use std::cell::Cell;

thread_local! {
    static WATCHER: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Makes this thread call `watcher` before each access.
pub fn at_every_store(watcher: Option<fn()>) {
    WATCHER.set(watcher);
}

pub fn seen() {
    if let Some(watcher) = WATCHER.get() {
        watcher();
    }
}
