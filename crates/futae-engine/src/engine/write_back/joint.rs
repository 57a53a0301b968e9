//! One answer for several operations.

use crate::{Done, IoBuf, IoError};
use std::sync::{Arc, Mutex, PoisonError};

/// Ends that together are the end of one request: of the first failure, or of the last success.
pub fn jointly(done: Done, parts: usize) -> Vec<Done> {
    struct Joint {
        done: Option<Done>,
        left: usize,
        error: Option<IoError>,
    }
    let joint = Arc::new(Mutex::new(Joint {
        done: Some(done),
        left: parts,
        error: None,
    }));
    let one = || -> Done {
        let joint = Arc::clone(&joint);
        Box::new(move |result| {
            let mut inside = joint.lock().unwrap_or_else(PoisonError::into_inner);
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
    };
    (0..parts).map(|_| one()).collect()
}
