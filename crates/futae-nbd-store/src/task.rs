//! How one store operation becomes commands: it is split to the server's longest payload and
//! widened to the server's smallest block, and operations that the server does not support are
//! expressed by others.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futae_engine::{IoBuf, IoError, IoErrorKind, StoreDone, StoreOperation, StoreResult};

use super::fence::{Fence, Pass};
use super::gather::Gather;
use super::order::{Body, Finish, Order};
use super::session::Session;
use futae_nbd::export::TransmissionFlags as Can;
use futae_nbd::request::{Command, CommandFlags};

/// The low bits of a cookie, below the operation's sequence number: the number of the command.
pub(super) const COMMAND_BITS: u32 = 16;
/// The largest number of commands per operation; the numbers above are used for block status.
const COMMANDS_MAX: usize = 1 << 15;
/// The longest range of one TRIM or WRITE_ZEROES, in bytes.
const RANGE_BYTES_MAX: u64 = 1 << 30;
/// The shortest piece in which zeroes are written as data, in bytes.
const ZERO_PIECE_BYTES_MIN: u64 = 1 << 20;

/// One operation.
#[derive(Clone)]
pub(super) struct Task {
    pub(super) session: Arc<Session>,
    pub(super) fence: Arc<Fence>,
    cookies: Arc<AtomicU64>,
    begun: Instant,
}

impl Task {
    pub(super) fn new(session: Arc<Session>, fence: Arc<Fence>, sequence: u64) -> Self {
        let cookies = Arc::new(AtomicU64::new(sequence << COMMAND_BITS));
        Self {
            session,
            fence,
            cookies,
            begun: Instant::now(),
        }
    }

    /// A command waits for a connection no longer than the operation may: operations on one block come one after the other.
    fn issue(&self, order: Order) {
        let order = order.of_operation(self.begun);
        self.session
            .issue(self.cookies.fetch_add(1, Ordering::Relaxed), order);
    }

    fn refuse(&self, done: StoreDone, kind: IoErrorKind, problem: &str) {
        let error = IoError {
            kind,
            ..self.session.error(problem)
        };
        self.session.refuse(Finish::Store(done), error);
    }

    fn smallest(&self) -> u64 {
        self.session.export.minimum_block_bytes.max(1).into()
    }

    fn longest(&self) -> u64 {
        let longest = u64::from(self.session.export.payload_bytes_max);
        (longest - longest % self.smallest()).max(self.smallest())
    }

    /// The range, widened to the server's smallest block.
    fn widen(&self, offset: u64, length: usize) -> Range<u64> {
        let smallest = self.smallest();
        let end = (offset + length as u64).next_multiple_of(smallest);
        offset - offset % smallest..end.min(self.session.export.size_bytes)
    }

    pub(super) fn run(self, operation: StoreOperation, done: StoreDone) {
        match operation {
            StoreOperation::Read { offset, buffer } => self.read(offset, buffer, done),
            StoreOperation::Write {
                offset,
                buffer,
                fua,
            } => {
                let (fua, done) = self.force(fua, done);
                self.write(offset, buffer, fua, done);
            }
            StoreOperation::Flush => self.flush(Finish::Store(done)),
            StoreOperation::Trim { offset, length } => self.trim(offset, length, done),
            StoreOperation::WriteZeroes {
                offset,
                length,
                fua,
                no_hole,
            } => {
                let (fua, done) = self.force(fua, done);
                let flags = if fua {
                    CommandFlags::FUA
                } else {
                    CommandFlags::NONE
                };
                let no_hole = if no_hole {
                    CommandFlags::NO_HOLE
                } else {
                    CommandFlags::NONE
                };
                self.write_zeroes(offset, length, flags.union(no_hole), done);
            }
        }
    }

    /// Whether to set FUA. For a server without it, a FLUSH precedes the result instead.
    fn force(&self, fua: bool, done: StoreDone) -> (bool, StoreDone) {
        if !fua || self.session.has(Can::SEND_FUA) {
            return (fua, done);
        }
        let task = self.clone();
        let then_flush = move |result: StoreResult| match result {
            Err(error) => done(Err(error)),
            Ok(buffer) => {
                let flushed = move |flushed: StoreResult| done(flushed.map(|_| buffer));
                task.flush(Finish::Part(Box::new(flushed)));
            }
        };
        (false, Box::new(then_flush))
    }

    /// `finish`: [`Finish::Part`] if this is a part of a forced write, which does not answer for other writes.
    fn flush(&self, finish: Finish) {
        if self.session.has(Can::SEND_FLUSH) {
            self.issue(Order::new(Command::Flush, 0, 0, Body::Nothing, finish));
        } else if let Finish::Store(done) | Finish::Part(done) = finish {
            // Such a server has no volatile cache, or no command to flush it.
            self.session.succeed(done, IoBuf::new(0));
        }
    }

    fn read(&self, offset: u64, buffer: IoBuf, done: StoreDone) {
        let wide = self.widen(offset, buffer.len());
        let wide_bytes = wide.end - wide.start;
        if buffer.is_empty() {
            self.session.succeed(done, buffer);
        } else if wide_bytes == buffer.len() as u64 && wide_bytes <= self.longest() {
            self.issue(Order::read(offset, buffer, done));
        } else {
            let end = offset + buffer.len() as u64;
            let Some((pieces, gather)) = self.scatter(wide, self.longest(), buffer, done) else {
                return;
            };
            for piece in pieces {
                let gather = Arc::clone(&gather);
                let part = IoBuf::new((piece.end - piece.start) as usize);
                let place = move |whole: &mut IoBuf, part: &IoBuf| {
                    let (from, to) = (piece.start.max(offset), piece.end.min(end));
                    if from < to {
                        whole.as_mut_slice()[(from - offset) as usize..(to - offset) as usize]
                            .copy_from_slice(
                                &part.as_slice()
                                    [(from - piece.start) as usize..(to - piece.start) as usize],
                            );
                    }
                };
                let start = piece.start;
                let done = Box::new(move |result| gather.part(result, place));
                self.issue(Order::read(start, part, done));
            }
        }
    }

    fn write(&self, offset: u64, data: IoBuf, fua: bool, done: StoreDone) {
        if data.is_empty() {
            return self.session.succeed(done, data);
        }
        let wide = self.widen(offset, data.len());
        let exact = wide.end - wide.start == data.len() as u64;
        let task = self.clone();
        self.fenced(wide.clone(), move |pass| {
            if exact {
                let done = move |result| {
                    drop(pass);
                    done(result);
                };
                task.write_blocks(offset, data, fua, Box::new(done));
            } else {
                task.modify(pass, wide, offset, data, fua, done);
            }
        });
    }

    /// Reads whole blocks, inserts the data, and writes them back.
    fn modify(
        &self,
        pass: Option<Pass>,
        wide: Range<u64>,
        offset: u64,
        data: IoBuf,
        fua: bool,
        done: StoreDone,
    ) {
        let task = self.clone();
        let blocks = IoBuf::new((wide.end - wide.start) as usize);
        let start = (offset - wide.start) as usize;
        let put_in = move |result: StoreResult| match result {
            Err(error) => {
                drop(pass);
                done(Err(error));
            }
            Ok(mut blocks) => {
                blocks.as_mut_slice()[start..start + data.len()].copy_from_slice(data.as_slice());
                let written = move |result: StoreResult| {
                    drop(pass);
                    done(result.map(|_| data));
                };
                task.write_blocks(wide.start, blocks, fua, Box::new(written));
            }
        };
        self.read(wide.start, blocks, Box::new(put_in));
    }

    /// Writes whole blocks.
    fn write_blocks(&self, offset: u64, data: IoBuf, fua: bool, done: StoreDone) {
        let length = data.len();
        let data = Arc::new(data);
        if length as u64 <= self.longest() {
            let body = Body::Write(data, 0..length);
            let order = Order::new(
                Command::Write,
                offset,
                length as u32,
                body,
                Finish::Store(done),
            );
            return self.issue(order.with(CommandFlags::FUA, fua));
        }
        let whole = Arc::clone(&data);
        let give_back = move |result: StoreResult| {
            done(result.map(|_| {
                Arc::try_unwrap(whole).unwrap_or_else(|whole| IoBuf::copy_of(whole.as_slice()))
            }));
        };
        let range = offset..offset + length as u64;
        let nothing = IoBuf::new(0);
        let Some((pieces, gather)) =
            self.scatter(range, self.longest(), nothing, Box::new(give_back))
        else {
            return;
        };
        for piece in pieces {
            let place = (piece.start - offset) as usize..(piece.end - offset) as usize;
            let order = gather.order(Command::Write, piece, Body::Write(Arc::clone(&data), place));
            self.issue(order.with(CommandFlags::FUA, fua));
        }
    }

    fn trim(&self, offset: u64, length: u64, done: StoreDone) {
        if !self.session.has(Can::SEND_TRIM) {
            let problem = "the server does not offer TRIM";
            return self.refuse(done, IoErrorKind::Unsupported, problem);
        }
        let smallest = self.smallest();
        let inner = offset.next_multiple_of(smallest)..(offset + length) / smallest * smallest;
        if inner.is_empty() {
            return self.session.succeed(done, IoBuf::new(0));
        }
        self.ranged(Command::Trim, CommandFlags::NONE, inner, done);
    }

    fn write_zeroes(&self, offset: u64, length: u64, flags: CommandFlags, done: StoreDone) {
        let smallest = self.smallest();
        let end = offset + length;
        let fua = flags.contains(CommandFlags::FUA);
        let inner = offset.next_multiple_of(smallest)..end / smallest * smallest;
        if length == 0 {
            return self.session.succeed(done, IoBuf::new(0));
        }
        if inner.start >= inner.end {
            // Less than two of the server's blocks.
            return self.write(offset, IoBuf::zeroed(length as usize), fua, done);
        }
        let edges: Vec<_> = [offset..inner.start, inner.end..end]
            .into_iter()
            .filter(|edge| !edge.is_empty())
            .collect();
        let gather = Gather::new(1 + edges.len(), IoBuf::new(0), done);
        for edge in edges {
            let zeroes = IoBuf::zeroed((edge.end - edge.start) as usize);
            self.write(edge.start, zeroes, fua, gather.done());
        }
        if self.session.has(Can::SEND_WRITE_ZEROES) {
            self.ranged(Command::WriteZeroes, flags, inner, gather.done());
        } else {
            self.real_zeroes(inner, fua, gather.done());
        }
    }

    /// Commands without payload over a range of whole blocks.
    fn ranged(&self, command: Command, flags: CommandFlags, range: Range<u64>, done: StoreDone) {
        let task = self.clone();
        self.fenced(range.clone(), move |pass| {
            let done = move |result| {
                drop(pass);
                done(result);
            };
            let nothing = IoBuf::new(0);
            let Some((pieces, gather)) =
                task.scatter(range, RANGE_BYTES_MAX, nothing, Box::new(done))
            else {
                return;
            };
            for piece in pieces {
                task.issue(
                    gather
                        .order(command, piece, Body::Nothing)
                        .with(flags, true),
                );
            }
        });
    }

    /// Writes zeroes as data, sending the same piece repeatedly.
    fn real_zeroes(&self, range: Range<u64>, fua: bool, done: StoreDone) {
        let task = self.clone();
        self.fenced(range.clone(), move |pass| {
            let done = move |result| {
                drop(pass);
                done(result);
            };
            let even = (range.end - range.start).div_ceil(COMMANDS_MAX as u64);
            let piece_bytes = even
                .max(ZERO_PIECE_BYTES_MIN)
                .next_multiple_of(task.smallest());
            let piece_bytes = piece_bytes.min(task.longest());
            let zeroes = Arc::new(IoBuf::zeroed(piece_bytes as usize));
            let nothing = IoBuf::new(0);
            let Some((pieces, gather)) = task.scatter(range, piece_bytes, nothing, Box::new(done))
            else {
                return;
            };
            for piece in pieces {
                let part = 0..(piece.end - piece.start) as usize;
                let body = Body::Write(Arc::clone(&zeroes), part);
                let order = gather.order(Command::Write, piece, body);
                task.issue(order.with(CommandFlags::FUA, fua));
            }
        });
    }

    /// Runs the work, after overlapping writes have ended if the server needs that.
    fn fenced(&self, range: Range<u64>, work: impl FnOnce(Option<Pass>) + Send + 'static) {
        if self.smallest() == 1 {
            work(None);
        } else {
            self.fence.enter(range, |pass| work(Some(pass)));
        }
    }

    /// Splits a range, and prepares for the results of the parts. `None` if there would be too many
    /// parts; `done` has then been called.
    fn scatter(
        &self,
        range: Range<u64>,
        longest: u64,
        whole: IoBuf,
        done: StoreDone,
    ) -> Option<(Vec<Range<u64>>, Arc<Gather>)> {
        let count = (range.end - range.start).div_ceil(longest);
        if count > COMMANDS_MAX as u64 {
            let problem = format!("{count} commands for one request are too many");
            self.refuse(done, IoErrorKind::Unsupported, &problem);
            return None;
        }
        let pieces = (0..count)
            .map(|at| range.start + at * longest)
            .map(|start| start..(start + longest).min(range.end))
            .collect();
        Some((pieces, Gather::new(count as usize, whole, done)))
    }
}
