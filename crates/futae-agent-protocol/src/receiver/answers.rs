//! What a host says to an agent.

use crate::in_place::RingAnswer;
use crate::{Frame, Message};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{SendFlags, send};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Inner {
    connection: Option<OwnedFd>,
    sequence: u64,
}

/// The way back to the agent of one receiver, for every thread that has something to say to it.
///
/// It never waits: what the agent does not take at once is lost, and a frame of which only a part went out is
/// skipped by the agent as any broken frame.
#[derive(Clone, Debug, Default)]
pub struct Answers(Arc<Mutex<Inner>>);

impl Answers {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The agent is connected here, or nowhere.
    pub(super) fn connected(&self, connection: Option<BorrowedFd<'_>>) {
        // Without a descriptor nothing is answered, and the agent does without.
        self.lock().connection = connection.and_then(|fd| fd.try_clone_to_owned().ok());
    }

    /// Says it to the agent that is connected now. Only agents that have offered a ring listen.
    pub fn send(&self, answer: RingAnswer) {
        let mut inner = self.lock();
        let frame = Frame {
            sequence: inner.sequence,
            message: Message::RingAnswer(answer),
        };
        inner.sequence += 1;
        if let Some(connection) = &inner.connection {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = send(connection.as_fd(), &frame.encode(), flags);
        }
    }
}
