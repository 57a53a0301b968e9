//! A bell: in place of an eventfd, and of `poll`.

use loom::sync::{Condvar, Mutex};
use std::io;

/// What a sleeper waits for.
pub type Handle<'a> = &'a Bell;

/// A bell, which is silent at first.
pub struct Bell {
    rings: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// A new one.
    ///
    /// # Errors
    ///
    /// None.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            rings: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    fn set(&self, rings: bool) {
        if let Ok(mut now) = self.rings.lock() {
            *now = rings;
        }
        self.changed.notify_all();
    }

    /// Rings, until somebody hears it.
    pub fn ring(&self) {
        self.set(true);
    }

    /// Silences it.
    pub fn hear(&self) {
        self.set(false);
    }

    /// What to wait for.
    pub fn handle(&self) -> Handle<'_> {
        self
    }

    /// Waits until it rings, as `poll` does.
    pub fn wait(&self) {
        let mut rings = self.rings.lock().ok();
        while let Some(false) = rings.as_deref() {
            rings = rings.and_then(|rings| self.changed.wait(rings).ok());
        }
    }
}
