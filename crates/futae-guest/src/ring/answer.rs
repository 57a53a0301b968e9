//! Answers to requests: the thread that completes a request puts its answer in the mailbox of the thread
//! that has the ring.

use super::wire;
use fuser::Errno;
use futae_engine::IoBuf;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

/// An answer, in the payload of the entry that its request came in.
pub(super) struct Answered {
    pub(super) entry: usize,
    pub(super) unique: u64,
    /// As `errno` has it, or 0.
    pub(super) errno: i32,
    /// Bytes of the payload that are the answer.
    pub(super) length: usize,
    pub(super) payload: IoBuf,
}

/// Where answers wait for the thread of a ring.
pub(super) struct Mailbox {
    answers: Mutex<Vec<Answered>>,
    owner: ThreadId,
    bell: Arc<OwnedFd>,
}

impl Mailbox {
    /// A mailbox of the thread that calls.
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
        // It can only fail if it was rung 2^64 times.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }

    fn leave(&self, answered: Answered) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = answers.is_empty();
        answers.push(answered);
        drop(answers);
        // The owner looks by itself before it goes to sleep.
        if is_first && thread::current().id() != self.owner {
            self.ring();
        }
    }

    /// Takes all that is there.
    pub(super) fn empty(&self, into: &mut Vec<Answered>) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        into.append(&mut answers);
    }
}

/// Whom a request is to be answered to. One that is dropped is answered with an I/O error.
pub(crate) struct Answer {
    pub(super) entry: usize,
    pub(super) unique: u64,
    pub(super) payload: Option<IoBuf>,
    pub(super) mailbox: Arc<Mailbox>,
}

impl Answer {
    /// Answers with data, or why there is none.
    pub(crate) fn data(mut self, result: Result<&[u8], Errno>) {
        match result {
            Ok(data) => self.copied(data),
            Err(errno) => self.send(errno.code(), 0),
        }
    }

    /// Answers how much was written, or why not.
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
