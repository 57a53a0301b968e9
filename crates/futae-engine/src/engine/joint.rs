//! One answer for several operations.

use crate::{Done, IoBuf, IoError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Several completions that together complete one request, with the first failure or with success.
pub struct Joint(Arc<Mutex<Inside>>);

struct Inside {
    done: Option<Done>,
    left: usize,
    error: Option<IoError>,
}

impl Joint {
    /// Calls `done` after all completions made by [`end`](Self::end).
    pub fn new(done: Option<Done>) -> Self {
        Self(Arc::new(Mutex::new(Inside {
            done,
            left: 0,
            error: None,
        })))
    }

    /// Makes one more completion to wait for. The last one must not be called before all have been
    /// made.
    pub fn end(&self) -> Done {
        let joint = Arc::clone(&self.0);
        lock(&joint).left += 1;
        Box::new(move |result| {
            let mut inside = lock(&joint);
            inside.left -= 1;
            if let Err(error) = result {
                inside.error.get_or_insert(error);
            }
            if inside.left > 0 {
                return;
            }
            let (done, error) = (inside.done.take(), inside.error.take());
            drop(inside);
            if let Some(done) = done {
                done(error.map_or(Ok(IoBuf::new(0)), Err));
            }
        })
    }
}

fn lock(inside: &Mutex<Inside>) -> MutexGuard<'_, Inside> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}
