//! In place of a connected socket: what it was given, as far as it had room.

use loom::sync::{Condvar, Mutex};
use std::io::{self, IoSlice};

/// A socket.
#[derive(Debug)]
pub struct Socket {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    arrived: Vec<u8>,
    /// Bytes that it takes from a caller that does not wait.
    room: usize,
    is_shut: bool,
}

impl Socket {
    /// One that takes so many bytes from callers that do not wait, all of them together. Who waits gets rid of everything.
    #[must_use]
    pub fn with_room(bytes: usize) -> Self {
        let state = State {
            arrived: Vec::new(),
            room: bytes,
            is_shut: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Takes what it has room for. None: it has none, and the caller does not wait.
    ///
    /// # Errors
    ///
    /// It was shut down.
    pub fn send(&self, slices: &[IoSlice<'_>], wait: bool) -> io::Result<Option<usize>> {
        let mut state = self.state.lock().expect("it is not poisoned");
        if state.is_shut {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let all: Vec<u8> = slices
            .iter()
            .flat_map(|slice| slice.iter().copied())
            .collect();
        let count = if wait {
            all.len()
        } else {
            all.len().min(state.room)
        };
        if count == 0 {
            return Ok(None);
        }
        if !wait {
            state.room -= count;
        }
        state.arrived.extend_from_slice(&all[..count]);
        self.changed.notify_all();
        Ok(Some(count))
    }

    /// Ends it, for both sides.
    pub fn shut_down(&self) {
        self.state.lock().expect("it is not poisoned").is_shut = true;
        self.changed.notify_all();
    }

    /// Waits until so many bytes have come, or it is shut down; returns those that came.
    pub fn arrived(&self, bytes: usize) -> Vec<u8> {
        let mut state = self.state.lock().expect("it is not poisoned");
        while state.arrived.len() < bytes && !state.is_shut {
            state = self.changed.wait(state).expect("it is not poisoned");
        }
        state.arrived.clone()
    }

    /// Whether it was shut down.
    pub fn is_shut(&self) -> bool {
        self.state.lock().expect("it is not poisoned").is_shut
    }
}
