//! Tests see every access to the words of a memory file, between any two of which a kill may come.

use std::cell::Cell;

thread_local! {
    static WATCHER: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Has this thread call `watcher` before each access.
pub fn at_every_store(watcher: Option<fn()>) {
    WATCHER.set(watcher);
}

pub fn seen() {
    if let Some(watcher) = WATCHER.get() {
        watcher();
    }
}
