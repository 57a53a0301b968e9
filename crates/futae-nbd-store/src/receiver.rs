//! The thread that reads one connection's replies into the buffers that wait for them.

use std::io;
use std::sync::Arc;

use futae_engine::Extent;

use super::coverage::Fault;
use super::order::Body;
use super::session::{Session, Waiting};
use futae_nbd::constants::STATE_ZERO;
use futae_nbd::error::{ErrorNumber, WireError};
use futae_nbd::reply::{Reply, parse_reply};
use futae_nbd::request::Command;

/// Bytes received per system call, unless a single reply is longer.
const INTAKE_BYTES: usize = 256 << 10;
/// Shorter data is copied out of the intake. The rest of longer data is received directly into its
/// buffer.
const DIRECT_BYTES: usize = 32 << 10;

/// Why the reading of replies ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the connection was lost ({0}); connecting again")]
    Lost(#[from] io::Error),
    #[error("the server breaks the protocol ({0}); connecting again")]
    Wire(#[from] WireError),
    #[error("the server breaks the protocol ({0}); connecting again")]
    Sense(&'static str),
    /// It answers nothing more, but may wait for its clients to leave before it ends.
    #[error("the connection was lost (the server is shutting down); connecting again")]
    Closing,
}

/// Reads replies until the connection ends, then fails what is in flight.
pub(super) fn run(session: &Arc<Session>) {
    let mut receiver = Receiver {
        session,
        intake: vec![0; INTAKE_BYTES],
        start: 0,
        end: 0,
    };
    loop {
        if let Err(end) = receiver.step() {
            let problem = match end {
                End::Lost(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    "the connection was lost (the server closed it); connecting again".to_string()
                }
                other => other.to_string(),
            };
            return session.lose(&problem);
        }
    }
}

struct Receiver<'s> {
    session: &'s Arc<Session>,
    intake: Vec<u8>,
    start: usize,
    end: usize,
}

/// A reply without its borrowed parts.
enum Step {
    Simple {
        cookie: u64,
        error: Option<ErrorNumber>,
    },
    Data {
        cookie: u64,
        offset: u64,
        bytes: usize,
        last: bool,
    },
    Done {
        cookie: u64,
    },
    /// The reply was processed.
    Settled,
    /// More bytes are needed.
    More,
}

impl Receiver<'_> {
    fn step(&mut self) -> Result<(), End> {
        match self.parse()? {
            Step::Settled => Ok(()),
            Step::More => self.fill(),
            Step::Done { cookie } => {
                let waiting = self.waiting(cookie)?;
                self.session.complete(waiting);
                Ok(())
            }
            Step::Simple { cookie, error } => self.simple(cookie, error),
            Step::Data {
                cookie,
                offset,
                bytes,
                last,
            } => self.data(cookie, offset, bytes, last),
        }
    }

    fn waiting(&self, cookie: u64) -> Result<Waiting, End> {
        self.session
            .take(cookie)
            .ok_or(End::Sense("a reply to a request that was not made"))
    }

    /// Completes a command after the last part of its reply, or keeps it after an earlier one.
    fn settle(&self, cookie: u64, waiting: Waiting, last: bool) {
        if last {
            self.session.complete(waiting);
        } else {
            self.session.keep(cookie, waiting);
        }
    }

    fn parse(&mut self) -> Result<Step, End> {
        let Some((reply, taken)) = parse_reply(&self.intake[self.start..self.end])? else {
            return Ok(Step::More);
        };
        let step = match reply {
            Reply::Simple { cookie, error } => Step::Simple { cookie, error },
            Reply::Data {
                cookie,
                offset,
                data_bytes,
                last,
            } => Step::Data {
                cookie,
                offset,
                bytes: data_bytes as usize,
                last,
            },
            Reply::Done { cookie } => Step::Done { cookie },
            Reply::Hole {
                cookie,
                offset,
                hole_bytes,
                last,
            } => {
                let mut waiting = self.waiting(cookie)?;
                let filled = place(&mut waiting, offset, hole_bytes as usize);
                let filled = filled.map(|place| place.fill(0));
                self.settle_if(filled, cookie, waiting, last)?;
                Step::Settled
            }
            Reply::Error {
                cookie,
                error,
                message,
                last,
                ..
            } => {
                if error == ErrorNumber::ShuttingDown {
                    return Err(End::Closing);
                }
                let mut waiting = self.waiting(cookie)?;
                let problem = self.session.refused(&waiting.order, error, message);
                waiting.failed.get_or_insert(problem);
                self.settle(cookie, waiting, last);
                Step::Settled
            }
            Reply::BlockStatus {
                cookie,
                context_id,
                extents,
                last,
            } => {
                let mut waiting = self.waiting(cookie)?;
                if self.session.export.base_allocation_id == Some(context_id)
                    && let Body::Status(found) = &mut waiting.order.body
                {
                    found.extend(extents.map(|extent| Extent {
                        length: extent.length_bytes.into(),
                        hole: extent.state & STATE_ZERO != 0,
                    }));
                }
                self.settle(cookie, waiting, last);
                Step::Settled
            }
        };
        self.start += taken;
        Ok(step)
    }

    /// Receives more bytes behind the present ones.
    fn fill(&mut self) -> Result<(), End> {
        self.intake.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.intake.len() {
            // The reply is longer than the intake: many extents, at most 8 MiB.
            self.intake.resize(self.intake.len() * 2, 0);
        }
        self.end += self.session.socket.receive(&mut self.intake[self.end..])?;
        Ok(())
    }

    fn simple(&mut self, cookie: u64, error: Option<ErrorNumber>) -> Result<(), End> {
        if error == Some(ErrorNumber::ShuttingDown) {
            return Err(End::Closing);
        }
        let mut waiting = self.waiting(cookie)?;
        let mut outcome = Ok(());
        if let Some(error) = error {
            waiting.failed = Some(self.session.refused(&waiting.order, error, &[]));
        } else if waiting.order.command == Command::Read {
            outcome = if self.session.export.structured {
                Err(End::Sense(
                    "a simple reply to READ after structured replies were agreed on",
                ))
            } else {
                let (offset, length) = (waiting.order.offset, waiting.order.length as usize);
                self.receive_part(&mut waiting, offset, length)
            };
        }
        self.settle_if(outcome, cookie, waiting, true)
    }

    fn data(&mut self, cookie: u64, offset: u64, bytes: usize, last: bool) -> Result<(), End> {
        let mut waiting = self.waiting(cookie)?;
        let outcome = self.receive_part(&mut waiting, offset, bytes);
        self.settle_if(outcome, cookie, waiting, last)
    }

    /// Completes a command after the last part of its reply, or keeps it after an earlier one. If
    /// the connection is to end, the command is kept, to fail with the others.
    fn settle_if(
        &self,
        outcome: Result<(), End>,
        cookie: u64,
        waiting: Waiting,
        last: bool,
    ) -> Result<(), End> {
        self.settle(cookie, waiting, last && outcome.is_ok());
        outcome
    }

    /// Receives data into a part of a READ's buffer. If it is not here yet, the command still counts as one that waits.
    fn receive_part(
        &mut self,
        waiting: &mut Waiting,
        offset: u64,
        bytes: usize,
    ) -> Result<(), End> {
        let sent = waiting.sent;
        let place = place(waiting, offset, bytes)?;
        if bytes <= self.end - self.start {
            return self.receive_into(place);
        }
        self.session.receives(Some(sent));
        let outcome = self.receive_into(place);
        self.session.receives(None);
        outcome
    }

    fn receive_into(&mut self, place: &mut [u8]) -> Result<(), End> {
        let mut done = 0;
        while done < place.len() {
            let left = place.len() - done;
            let ready = left.min(self.end - self.start);
            place[done..done + ready].copy_from_slice(&self.intake[self.start..self.start + ready]);
            self.start += ready;
            done += ready;
            if done == place.len() {
                break;
            }
            if place.len() - done >= DIRECT_BYTES {
                done += self.session.socket.receive(&mut place[done..])?;
            } else {
                self.fill()?;
            }
        }
        Ok(())
    }
}

/// The part of a READ's buffer for a range of the export.
fn place(waiting: &mut Waiting, offset: u64, bytes: usize) -> Result<&mut [u8], End> {
    let order = &mut waiting.order;
    let Body::Read(buffer, covered) = &mut order.body else {
        return Err(End::Sense("data for a request that is no READ"));
    };
    if bytes == 0 {
        return Err(End::Sense("an empty chunk of data"));
    }
    let outside = End::Sense("data outside of the range that was asked for");
    let start = offset
        .checked_sub(order.offset)
        .and_then(|start| usize::try_from(start).ok());
    match start.and_then(|start| Some(start..start.checked_add(bytes)?)) {
        Some(range) if range.end <= buffer.len() => {
            covered.take(range.start, range.end).map_err(|fault| {
                End::Sense(match fault {
                    Fault::Overlap => "two chunks of one reply to READ overlap",
                    Fault::Fragments => "a reply to READ in too many separate pieces",
                })
            })?;
            Ok(&mut buffer.as_mut_slice()[range])
        }
        _ => Err(outside),
    }
}
