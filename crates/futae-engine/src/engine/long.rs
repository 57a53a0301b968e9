//! Reads of more blocks than one step decides: they are split into several reads with one answer.

use super::effects::Effects;
use super::flights::Span;
use super::state::State;
use crate::{Done, IoBuf, IoError, Operation, Request};
use std::sync::{Arc, Mutex, PoisonError};

/// A long read whose parts arrive in any order.
struct Parts {
    buffer: Option<IoBuf>,
    length: usize,
    /// Where the data end: the volume may have been truncated meanwhile.
    end: usize,
    left: usize,
    error: Option<IoError>,
    done: Option<Done>,
}

impl Parts {
    /// The part that begins at byte `at` has arrived; returns the whole result if it was the last.
    fn arrive(
        &mut self,
        (at, asked): (usize, usize),
        result: Result<IoBuf, IoError>,
    ) -> Option<(Done, Result<IoBuf, IoError>)> {
        self.left -= 1;
        match result {
            Ok(data) => {
                let length = self.length;
                let buffer = self.buffer.get_or_insert_with(|| IoBuf::new(length));
                let bytes = data.as_slice();
                buffer.as_mut_slice()[at..at + bytes.len()].copy_from_slice(bytes);
                if bytes.len() < asked {
                    self.end = self.end.min(at + bytes.len());
                }
            }
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
        if self.left > 0 {
            return None;
        }
        let mut buffer = self.buffer.take().unwrap_or_else(|| IoBuf::new(0));
        buffer.show(self.end);
        let result = self.error.take().map_or(Ok(buffer), Err);
        self.done.take().map(|done| (done, result))
    }
}

impl State {
    /// Reads `span` in parts of whole blocks, in ascending order. If the request continues an
    /// earlier part within a block, its first block has been counted already.
    pub fn read_in_parts(
        &mut self,
        request: Request,
        span: Span,
        goes_on: bool,
        effects: &mut Effects,
    ) {
        // Otherwise its parts would stand behind it, and behind those that came later.
        self.under_way.leave_line();
        let step = self.steps.most() * self.block_bytes;
        let mut cuts = vec![span.offset];
        cuts.extend((span.offset / step + 1..span.end().div_ceil(step)).map(|cut| cut * step));
        cuts.push(span.end());
        let joint = Arc::new(Mutex::new(Parts {
            buffer: None,
            length: span.length as usize,
            end: span.length as usize,
            left: cuts.len() - 1,
            error: None,
            done: Some(request.done),
        }));
        for (number, cut) in cuts.windows(2).enumerate() {
            let (offset, length) = (cut[0], cut[1] - cut[0]);
            let place = ((offset - span.offset) as usize, length as usize);
            let joint = Arc::clone(&joint);
            let done = Box::new(move |result| {
                let mut parts = joint.lock().unwrap_or_else(PoisonError::into_inner);
                let ended = parts.arrive(place, result);
                drop(parts);
                if let Some((done, result)) = ended {
                    done(result);
                }
            });
            let operation = if goes_on && number == 0 {
                Operation::ReadOn { offset, length }
            } else {
                Operation::Read { offset, length }
            };
            self.go_on_in_turn(
                Request {
                    volume: request.volume,
                    client: request.client,
                    sequence: request.sequence,
                    operation,
                    done,
                },
                effects,
            );
        }
    }
}
