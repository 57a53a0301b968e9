//! Answers to requests: the thread that completes a request puts its answer into the mailbox of the
//! ring's thread.

use super::wire;
use fuser::Errno;
use futae_engine::IoBuf;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

/// An answer, in the payload of the entry that brought the request.
pub(super) struct Answered {
    pub(super) entry: usize,
    pub(super) unique: u64,
    /// An `errno`, or 0.
    pub(super) errno: i32,
    /// Bytes of the answer in the payload.
    pub(super) length: usize,
    pub(super) payload: IoBuf,
}

/// A mailbox in which answers wait for the thread of a ring.
pub(super) struct Mailbox {
    answers: Mutex<Vec<Answered>>,
    owner: ThreadId,
    bell: Arc<OwnedFd>,
}

impl Mailbox {
    /// A mailbox of the calling thread.
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            answers: Mutex::default(),
            owner: thread::current().id(),
            bell: Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?),
        })
    }

    pub(super) fn bell(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.bell)
    }

    /// Wakes the owner.
    pub(super) fn ring(&self) {
        // It fails only if the counter is full.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }

    fn leave(&self, answered: Answered) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = answers.is_empty();
        answers.push(answered);
        drop(answers);
        // The owner checks the mailbox itself before it sleeps.
        if is_first && thread::current().id() != self.owner {
            self.ring();
        }
    }

    /// Takes all answers.
    pub(super) fn empty(&self, into: &mut Vec<Answered>) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        into.append(&mut answers);
    }
}

/// Answers one request. If dropped, it answers with an I/O error.
pub(crate) struct Answer {
    pub(super) entry: usize,
    pub(super) unique: u64,
    pub(super) payload: Option<IoBuf>,
    pub(super) mailbox: Arc<Mailbox>,
}

impl Answer {
    /// Answers with data or an error.
    pub(crate) fn data(mut self, result: Result<&[u8], Errno>) {
        match result {
            Ok(data) => self.copied(data),
            Err(errno) => self.send(errno.code(), 0),
        }
    }

    /// Answers with the number of bytes written, or an error.
    pub(crate) fn written(mut self, result: Result<u32, Errno>) {
        match result {
            Ok(bytes) => self.copied(&wire::written(bytes)),
            Err(errno) => self.send(errno.code(), 0),
        }
    }

    fn copied(&mut self, data: &[u8]) {
        let place = self.payload.as_mut().map(IoBuf::as_mut_slice);
        match place.and_then(|payload| payload.get_mut(..data.len())) {
            Some(place) => {
                place.copy_from_slice(data);
                self.send(0, data.len());
            }
            None => self.send(Errno::EIO.code(), 0),
        }
    }

    fn send(&mut self, errno: i32, length: usize) {
        if let Some(payload) = self.payload.take() {
            self.mailbox.leave(Answered {
                entry: self.entry,
                unique: self.unique,
                errno,
                length,
                payload,
            });
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.send(Errno::EIO.code(), 0);
    }
}
