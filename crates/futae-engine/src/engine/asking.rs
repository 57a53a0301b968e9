//! Questions for extents that a caller need not wait for. A store may take its time (over NBD, half a
//! minute), so each volume that is asked about has a thread of its own for as long as questions wait:
//! one slow store holds up neither the caller nor another volume.

use super::front::Engine;
use super::questions::{ExtentsDone, Question, Questions};
use crate::{Extent, IoError};
use futae_policy::VolumeId;
use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

/// Questions about one volume that wait or are being answered at most. Further ones are answered at once:
/// "all of it is data", which is always true enough.
const QUESTIONS_MAX: usize = 64;

impl Engine {
    /// As [`extents`](Self::extents), without waiting for the store: `done` is called with the result, on
    /// another thread, or before this returns. At most 64 questions about a volume wait at a time; of a range
    /// that is asked about beyond that the answer is that all of it is data.
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

    /// Answers the question that has waited longest; whether there was one.
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
