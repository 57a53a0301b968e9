//! Requests of a connection as the cache takes them: a read that it can answer at once is copied
//! straight into the buffer of the reply.

use crate::answer;
use crate::intake::is_empty;
use crate::mailbox::{Completion, Mailbox, Tag, TagKind};
use futae_engine::{
    Asked, Batch, ClientId, Done, Engine, IoBuf, Operation, ReadRange, Request, STATE_BYTES,
};
use futae_nbd::constants::MAX_PAYLOAD_BYTES;
use futae_nbd::{Command, RequestHeader};
use futae_policy::VolumeId;
use std::sync::Arc;

/// A request that has not been passed to the cache yet.
pub(crate) struct Pending {
    tag: Tag,
    sequence: u64,
    /// `None` once it has been passed to the cache.
    operation: Option<Operation>,
    /// The data of a read that is answered at once.
    reply: Option<IoBuf>,
}

impl Pending {
    pub(crate) fn new(tag: Tag, sequence: u64, operation: Operation) -> Self {
        Self {
            tag,
            sequence,
            operation: Some(operation),
            reply: None,
        }
    }
}

/// Bytes of reads passed to the cache together; at least one read. The data of a batch is still in
/// the processor's nearer caches when the socket takes it, and the client processes it while the
/// next batch is answered.
const BATCH_READ_BYTES: u64 = 512 << 10;

/// A batch that is being assembled.
#[derive(Default)]
pub(crate) struct Gathered {
    pending: Vec<Pending>,
    read_bytes: u64,
}

impl Gathered {
    /// Adds a request.
    pub(crate) fn push(&mut self, pending: Pending) {
        if let Some(Operation::Read { length, .. }) = pending.operation {
            self.read_bytes += length;
        }
        self.pending.push(pending);
    }

    /// Whether these requests should be carried out before more are added.
    pub(crate) fn is_full(&self) -> bool {
        self.read_bytes >= BATCH_READ_BYTES
    }

    /// Requests in it.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Appends another batch.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.read_bytes += std::mem::take(&mut other.read_bytes);
        self.pending.append(&mut other.pending);
    }

    /// The tag of each request.
    pub(crate) fn tags(&self) -> impl Iterator<Item = Tag> {
        self.pending.iter().map(|pending| pending.tag)
    }

    /// Replaces each operation by the result of `change`.
    pub(crate) fn change(&mut self, change: impl Fn(Operation) -> Operation) {
        for pending in &mut self.pending {
            pending.operation = pending.operation.take().map(&change);
        }
    }

    /// Drops all requests.
    pub(crate) fn clear(&mut self) {
        self.pending.clear();
        self.read_bytes = 0;
    }
}

/// A batch, as the cache takes it.
pub(crate) struct Requests<'a> {
    pub(crate) gathered: &'a mut Gathered,
    pub(crate) volume: VolumeId,
    pub(crate) client: ClientId,
    pub(crate) mailbox: &'a Arc<Mailbox>,
    /// Reads that were answered at once.
    pub(crate) answered: &'a mut Vec<Completion>,
}

impl Batch for Requests<'_> {
    fn read(&self, at: usize) -> Option<ReadRange> {
        match self.gathered.pending[at].operation {
            Some(Operation::Read { offset, length }) => Some(ReadRange {
                volume: self.volume,
                offset,
                length,
            }),
            _ => None,
        }
    }

    fn fill(&mut self, at: usize, from: usize, bytes: &[u8]) {
        let pending = &mut self.gathered.pending[at];
        let length = match pending.operation {
            Some(Operation::Read { length, .. }) => length as usize,
            _ => return,
        };
        let reply = pending.reply.get_or_insert_with(|| IoBuf::new(length));
        reply.as_mut_slice()[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn filled(&mut self, at: usize) {
        let pending = &mut self.gathered.pending[at];
        pending.operation = None;
        let completion = Completion {
            tag: pending.tag,
            result: Ok(pending.reply.take().unwrap_or_else(|| IoBuf::new(0))),
        };
        self.answered.push(completion);
    }

    fn request(&mut self, at: usize) -> Request {
        let pending = &mut self.gathered.pending[at];
        let tag = pending.tag;
        let done: Done = if tag.kind == TagKind::Silent {
            // A hint is complete when the cache has decided, and has no answer.
            Box::new(drop)
        } else {
            let mailbox = Arc::clone(self.mailbox);
            Box::new(move |result| mailbox.put(Completion { tag, result }))
        };
        Request {
            volume: self.volume,
            client: self.client,
            sequence: pending.sequence,
            // The cache calls this once per request.
            operation: pending.operation.take().unwrap_or(Operation::Settle),
            done,
        }
    }
}

/// Whether the cache carries out the request.
pub(crate) fn needs_cache(header: &RequestHeader) -> bool {
    !is_empty(header) && !matches!(header.command, Command::Disconnect)
}

/// The kind under which a command's latency is recorded.
pub(crate) fn asked(command: Command) -> Asked {
    match command {
        Command::Read => Asked::Read,
        Command::Write => Asked::Write,
        Command::Flush => Asked::Flush,
        Command::Trim => Asked::Trim,
        Command::WriteZeroes => Asked::Zero,
        _ => Asked::Other,
    }
}

/// Bytes of the volume that a request carries or asks for.
pub(crate) fn carried(header: &RequestHeader) -> u64 {
    match header.command {
        Command::Read | Command::Write | Command::Demote => header.length_bytes.into(),
        _ => 0,
    }
}

/// Bytes that a request and its reply keep in memory.
pub(crate) fn memory_of(header: &RequestHeader, engine: &Engine) -> u64 {
    match header.command {
        // They are answered at once, or have no answer.
        _ if is_empty(header) => 0,
        Command::Disconnect | Command::Unknown(_) => 0,
        Command::BlockStatus => answer::BLOCK_STATUS_BYTES,
        Command::Read => {
            let length = header.length_bytes.into();
            let most = MAX_PAYLOAD_BYTES.into();
            STATE_BYTES + engine.memory_of_read(header.offset, length, most)
        }
        _ => STATE_BYTES + IoBuf::memory_bytes(carried(header)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn pending(operation: Operation) -> Pending {
        let tag = Tag {
            cookie: 1,
            offset: 0,
            held_bytes: 0,
            carried_bytes: 0,
            kind: TagKind::Plain,
            asked: Asked::Other,
            is_promise: false,
            taken: Instant::now(),
        };
        Pending::new(tag, 1, operation)
    }

    #[test]
    fn a_batch_is_full_by_the_bytes_that_it_reads() {
        let read = |length| pending(Operation::Read { offset: 0, length });
        let mut gathered = Gathered::default();
        for _ in 0..2 {
            gathered.push(read(BATCH_READ_BYTES - 1));
            gathered.push(pending(Operation::Flush));
            gathered.push(pending(Operation::Write {
                offset: 0,
                data: IoBuf::new(2 * BATCH_READ_BYTES as usize),
                fua: false,
            }));
            assert!(!gathered.is_full(), "what is written is here already");
            gathered.push(read(1));
            assert!(gathered.is_full());
            assert_eq!(gathered.len(), 4);
            gathered.clear();
            assert!(gathered.is_empty() && !gathered.is_full());
        }
    }
}
