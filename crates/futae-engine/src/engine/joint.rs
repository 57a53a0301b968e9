//! One answer for several operations.

use crate::{Done, IoBuf, IoError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ends that together are the end of one request: of the first failure, or of a success.
pub struct Joint(Arc<Mutex<Inside>>);

struct Inside {
    done: Option<Done>,
    left: usize,
    error: Option<IoError>,
}

impl Joint {
    /// What `done` waits for: as many ends as are made of it.
    pub fn new(done: Option<Done>) -> Self {
        Self(Arc::new(Mutex::new(Inside {
            done,
            left: 0,
            error: None,
        })))
    }

    /// One more end to wait for. The last one may come only after all have been made.
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
