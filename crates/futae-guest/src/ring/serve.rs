//! The thread of a ring: takes requests, has reads and writes answered directly, and passes the
//! others on.

use super::answer::{Answer, Answered, Mailbox};
use super::others::Others;
use super::served::Served;
use super::system::{Event, Queue};
use super::wire::{self, Operation};
use fuser::Errno;
use futae_engine::IoBuf;
use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tracing::error;

/// A running ring.
pub(super) struct Server<F> {
    filesystem: F,
    queue: Queue,
    mailbox: Arc<Mailbox>,
    others: Others,
    /// Requests that were passed on: their entries and payloads, by request number.
    passed_on: HashMap<u64, (usize, IoBuf)>,
    /// The connection has ended.
    is_over: bool,
}

impl<F: Served> Server<F> {
    pub(super) fn new(filesystem: F, queue: Queue, mailbox: Arc<Mailbox>, others: Others) -> Self {
        Self {
            filesystem,
            queue,
            mailbox,
            others,
            passed_on: HashMap::new(),
            is_over: false,
        }
    }

    /// Serves until the connection has ended.
    pub(super) fn run(mut self) {
        let (mut events, mut answers) = (Vec::new(), Vec::new());
        loop {
            match self.queue.wait(&mut events) {
                Ok(()) => {}
                // Interrupted, or the kernel is busy.
                Err(error) if is_passing(&error) => std::thread::yield_now(),
                Err(error) => {
                    error!(
                        "io_uring does not bring requests any more: {error}; mount again, or use --transport device"
                    );
                    return;
                }
            }
            for event in events.drain(..) {
                self.take(event);
            }
            self.mailbox.empty(&mut answers);
            for answered in answers.drain(..) {
                self.answer(answered);
            }
            if self.is_over && !self.queue.is_held() {
                return self.end();
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Request(at) => self.serve(at),
            Event::Lost(error) if is_the_end(&error) => self.is_over = true,
            // Other requests continue. No case of this is known.
            Event::Lost(error) => error!("the kernel did not take an answer: {error}"),
            Event::Mail => self.queue.wait_for_bell(),
            Event::Message(0) => self.give_up_others(),
            Event::Message(length) => {
                self.bring_back(length);
                self.queue.listen();
            }
        }
    }

    fn serve(&mut self, entry: usize) {
        let asked = wire::asked(self.queue.header(entry));
        let Some(payload) = self.queue.take_payload(entry, asked.payload) else {
            return;
        };
        let unique = asked.unique;
        if asked.operation == Operation::Other {
            return self.pass_on(entry, asked, payload);
        }
        let data = match asked.operation {
            Operation::Write(_) => payload.as_slice().get(..asked.payload).map(IoBuf::copy_of),
            _ => None,
        };
        let answer = Answer {
            entry,
            unique,
            payload: Some(payload),
            mailbox: Arc::clone(&self.mailbox),
        };
        let filesystem = &self.filesystem;
        // If a request panics, others continue; its answer is dropped and so becomes an error.
        let served = catch_unwind(AssertUnwindSafe(|| match (asked.operation, data) {
            (Operation::Read(read), _) => filesystem.read_direct(read, answer),
            (Operation::Write(write), Some(data)) => filesystem.write_direct(write, data, answer),
            _ => drop(answer),
        }));
        drop(served);
    }

    fn pass_on(&mut self, entry: usize, asked: wire::Asked, payload: IoBuf) {
        let data = payload.as_slice().get(..asked.payload).unwrap_or_default();
        let sent = self.others.send(self.queue.header(entry), data);
        if sent {
            self.passed_on.insert(asked.unique, (entry, payload));
        } else {
            self.answer(Answered {
                entry,
                unique: asked.unique,
                errno: Errno::EIO.code(),
                length: 0,
                payload,
            });
        }
    }

    /// Delivers the result of a request that was passed on.
    fn bring_back(&mut self, length: usize) {
        let message = self.queue.message().get(..length).unwrap_or_default();
        let Some((unique, errno, data)) = wire::answered(message) else {
            return;
        };
        let Some((entry, mut payload)) = self.passed_on.remove(&unique) else {
            return;
        };
        let place = payload.as_mut_slice().get_mut(..data.len());
        let (errno, length) = match place {
            Some(place) => {
                place.copy_from_slice(data);
                (errno, data.len())
            }
            None => (Errno::EIO.code(), 0),
        };
        self.answer(Answered {
            entry,
            unique,
            errno,
            length,
            payload,
        });
    }

    /// The session that would answer the requests passed on has ended.
    fn give_up_others(&mut self) {
        for (unique, (entry, payload)) in std::mem::take(&mut self.passed_on) {
            self.answer(Answered {
                entry,
                unique,
                errno: Errno::EIO.code(),
                length: 0,
                payload,
            });
        }
    }

    fn answer(&mut self, answered: Answered) {
        // The connection has ended.
        if self.is_over {
            return;
        }
        let header = self.queue.header(answered.entry);
        wire::answer(header, answered.unique, answered.errno, answered.length);
        let Answered {
            entry,
            unique,
            length,
            payload,
            ..
        } = answered;
        self.queue.answer(entry, unique, payload, length);
    }

    /// Waits until the kernel has released all memory.
    fn end(mut self) {
        self.others.close();
        self.mailbox.ring();
        let mut events = Vec::new();
        while self.queue.is_under_way() {
            match self.queue.wait(&mut events) {
                Ok(()) => events.clear(),
                Err(error) if is_passing(&error) => std::thread::yield_now(),
                Err(_) => return,
            }
        }
    }
}

/// Whether the error means that the connection has ended.
fn is_the_end(error: &io::Error) -> bool {
    const ENODEV: i32 = 19;
    const ECONNABORTED: i32 = 103;
    const ENOTCONN: i32 = 107;
    const ECANCELED: i32 = 125;
    let ends = [ENODEV, ECONNABORTED, ENOTCONN, ECANCELED];
    ends.into_iter()
        .any(|end| error.raw_os_error() == Some(end))
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy
    )
}
