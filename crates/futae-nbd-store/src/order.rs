//! A command to the server: its data, and who receives its result.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use futae_engine::{Extent, IoBuf, IoError, StoreDone};

use super::coverage::Coverage;
use super::extents::Extents;
use futae_nbd::request::{Command, CommandFlags};

/// The receiver of a command's result.
pub(super) enum Finish {
    /// Receives the command's buffer, or an empty one.
    Store(StoreDone),
    /// Receives an empty buffer: the operation of which this command is a part keeps the data.
    Part(StoreDone),
    /// Receives the extents.
    Extents(SyncSender<Result<Vec<Extent>, IoError>>),
    /// The result is dropped.
    Nobody,
}

impl Finish {
    pub(super) fn fail(self, error: IoError) {
        match self {
            Self::Store(done) | Self::Part(done) => done(Err(error)),
            // The caller may have stopped waiting.
            Self::Extents(channel) => drop(channel.try_send(Err(error))),
            Self::Nobody => {}
        }
    }
}

/// The data of a command, or the buffer to be filled.
pub(super) enum Body {
    Nothing,
    /// The buffer to be filled, and the part of it that has been.
    Read(IoBuf, Coverage),
    /// Part of a buffer.
    Write(Arc<IoBuf>, Range<usize>),
    /// The extents received so far.
    Status(Extents),
}

/// A command.
pub(super) struct Order {
    pub(super) command: Command,
    pub(super) flags: CommandFlags,
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) body: Body,
    pub(super) finish: Finish,
    /// When it was issued, or the operation of which it is a part began.
    since: Instant,
    /// The number of the connection over which it was first issued; 0 before.
    pub(super) first_generation: u64,
}

impl Order {
    /// Whether its caller may wait for another connection.
    pub(super) fn can_wait(&self, timeout: Duration) -> bool {
        !self.is_notice() && self.since.elapsed() < timeout
    }

    /// Whether nobody waits for its answer.
    pub(super) fn is_notice(&self) -> bool {
        matches!(self.finish, Finish::Nobody)
    }

    /// Resets it for a connection that has received nothing of it.
    pub(super) fn anew(mut self) -> Self {
        match &mut self.body {
            Body::Read(_, covered) => *covered = Coverage::default(),
            Body::Status(found) => *found = Extents::new(self.length.into()),
            Body::Nothing | Body::Write(..) => {}
        }
        self
    }

    pub(super) fn read(offset: u64, buffer: IoBuf, done: StoreDone) -> Self {
        let length = buffer.len() as u32;
        Self::new(
            Command::Read,
            offset,
            length,
            Body::Read(buffer, Coverage::default()),
            Finish::Store(done),
        )
    }

    pub(super) fn new(
        command: Command,
        offset: u64,
        length: u32,
        body: Body,
        finish: Finish,
    ) -> Self {
        Self {
            command,
            flags: CommandFlags::NONE,
            offset,
            length,
            body,
            finish,
            since: Instant::now(),
            first_generation: 0,
        }
    }

    /// A part of an operation that began then.
    pub(super) fn of_operation(mut self, begun: Instant) -> Self {
        self.since = begun;
        self
    }

    pub(super) fn with(mut self, flag: CommandFlags, wanted: bool) -> Self {
        if wanted {
            self.flags = self.flags.union(flag);
        }
        self
    }
}
