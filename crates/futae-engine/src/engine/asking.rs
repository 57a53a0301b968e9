//! Asynchronous queries for extents. A store may be slow to answer (over NBD, up to half a minute),
//! so each queried volume has a thread of its own while queries wait. A slow store delays neither
//! the caller nor another volume.

use super::front::Engine;
use super::questions::{ExtentsDone, Question, Questions};
use crate::{Extent, IoError};
use futae_policy::VolumeId;
use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

/// The largest number of queries per volume that wait or are being answered. A further query is
/// answered at once with "all data", which is always a valid answer.
const QUESTIONS_MAX: usize = 64;

impl Engine {
    /// As [`extents`](Self::extents), without waiting for the store. `done` is called with the
    /// result, on another thread or before this function returns. At most 64 queries per volume
    /// wait; a query beyond that is answered with "all data".
    pub fn extents_later(
        self: &Arc<Self>,
        volume: VolumeId,
        offset: u64,
        length: u64,
        done: ExtentsDone,
    ) {
        let question = Question {
            offset,
            length,
            done,
        };
        {
            let mut questions = self.questions();
            if let Some(waiting) = questions.0.get_mut(&volume) {
                if waiting.len() < QUESTIONS_MAX {
                    return waiting.push_back(question);
                }
                drop(questions);
                let hole = false;
                return (question.done)(Ok(vec![Extent { length, hole }]));
            }
            questions.0.insert(volume, VecDeque::from([question]));
        }
        let engine = Arc::clone(self);
        let thread = std::thread::Builder::new().name("extents".into());
        let spawned = thread.spawn(move || while engine.answer_next(volume) {});
        if let Err(error) = spawned {
            let waiting = self.questions().0.remove(&volume).unwrap_or_default();
            let error = IoError::os("starting a thread that asks for extents", &error);
            for question in waiting {
                (question.done)(Err(error.clone()));
            }
        }
    }

    /// Answers the oldest waiting query. Returns false if none waits.
    fn answer_next(&self, volume: VolumeId) -> bool {
        let question = {
            let mut questions = self.questions();
            let next = questions.0.get_mut(&volume).and_then(VecDeque::pop_front);
            if next.is_none() {
                questions.0.remove(&volume);
            }
            next
        };
        let Some(question) = question else {
            return false;
        };
        let extents = self.extents(volume, question.offset, question.length);
        (question.done)(extents);
        true
    }

    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
