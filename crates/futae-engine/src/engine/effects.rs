//! What is left to do once the cache has decided, done after its lock is released.

use super::Engine;
use super::steps::Rest;
use super::unclean::MarkWork;
use crate::{Done, IoBuf, IoError, Store, StoreOperation};
use futae_policy::VolumeId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Which piece of work a store operation belongs to.
#[derive(Clone, Copy, Debug)]
pub enum Ticket {
    /// A read flight.
    Flight(usize),
    /// A write, trim or zeroing.
    Write(usize),
    /// A flush.
    Flush(usize),
    /// A write-back.
    Run(usize),
    /// The flush before a volume's mark is removed.
    Mark(VolumeId),
}

/// A block on its way to the level below.
pub enum SentDown {
    /// With its data, and the generation of the store under which they came.
    Demote(IoBuf, u64),
    /// By name only: so many bytes.
    Notice(u64),
}

/// A store operation, its sequence and what it is for.
type Started = (Arc<dyn Store>, u64, StoreOperation, Ticket);
/// A block on its way down, its sequence and its byte offset.
type Evicted = (Arc<dyn Store>, u64, u64, SentDown);

/// Store operations, demotions and answers, in the order in which they were decided.
#[derive(Default)]
pub struct Effects {
    operations: Vec<Started>,
    down: Vec<Evicted>,
    answers: Vec<(Done, Result<IoBuf, IoError>)>,
    marks: Vec<MarkWork>,
    rest: VecDeque<Rest>,
}

impl Effects {
    /// A store operation to start.
    pub fn start(&mut self, store: Arc<dyn Store>, sequence: u64, op: StoreOperation, of: Ticket) {
        self.operations.push((store, sequence, op, of));
    }

    /// A block to send down: store, sequence, byte offset.
    pub fn send_down(&mut self, store: Arc<dyn Store>, sequence: u64, offset: u64, what: SentDown) {
        self.down.push((store, sequence, offset, what));
    }

    /// An answer to give.
    pub fn answer(&mut self, done: Done, result: Result<IoBuf, IoError>) {
        self.answers.push((done, result));
    }

    /// A mark to make or remove.
    pub fn mark(&mut self, work: MarkWork) {
        self.marks.push(work);
    }

    /// Something that is left to be decided on in a later step.
    pub fn later(&mut self, rest: Rest) {
        self.rest.push_back(rest);
    }

    /// Does it all, and returns what is left to be decided on. The lock must not be held. Reads go out before the demotions of the same
    /// decision, which is the order that the level below decides in; and together with them, store by
    /// store, since an answer to the read would let the next request overtake the demotion.
    pub fn run(self, engine: &Arc<Engine>) -> VecDeque<Rest> {
        let Self {
            operations,
            down,
            answers,
            marks,
            rest,
        } = self;
        let mut groups: Vec<Group> = Vec::new();
        for (store, sequence, offset, what) in down {
            let at = groups
                .iter()
                .position(|group| is_same(&group.store, &store));
            let at = at.unwrap_or_else(|| {
                groups.push(Group::of(&store));
                groups.len() - 1
            });
            groups[at].down.push((store, sequence, offset, what));
        }
        let mut alone = operations;
        if !groups.is_empty() {
            for operation in std::mem::take(&mut alone) {
                let with = |group: &&mut Group| is_same(&group.store, &operation.0);
                let group = groups.iter_mut().find(with);
                let list = group.map_or(&mut alone, |group| &mut group.operations);
                list.push(operation);
            }
        }
        start_all(alone, engine);
        for group in groups {
            group.run(engine);
        }
        for (done, result) in answers {
            done(result);
        }
        for work in marks {
            work.start(engine);
        }
        rest
    }
}

/// What goes to one store together: operations, and blocks that are sent down.
struct Group {
    store: Arc<dyn Store>,
    operations: Vec<Started>,
    down: Vec<Evicted>,
}

impl Group {
    fn of(store: &Arc<dyn Store>) -> Self {
        Self {
            store: Arc::clone(store),
            operations: Vec::new(),
            down: Vec::new(),
        }
    }

    fn run(self, engine: &Arc<Engine>) {
        let mut both = Some((self.operations, self.down));
        self.store.together(&mut || {
            if let Some((operations, down)) = both.take() {
                start_all(operations, engine);
                send_all_down(down);
            }
        });
    }
}

fn is_same(one: &Arc<dyn Store>, other: &Arc<dyn Store>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

fn start_all(operations: Vec<Started>, engine: &Arc<Engine>) {
    for (store, sequence, operation, ticket) in operations {
        let engine = Arc::clone(engine);
        let started = Instant::now();
        let done = Box::new(move |result| engine.complete(ticket, result, started.elapsed()));
        store.submit(sequence, operation, done);
    }
}

fn send_all_down(down: Vec<Evicted>) {
    for (store, sequence, offset, what) in down {
        match what {
            SentDown::Demote(data, generation) => store.demote(sequence, generation, offset, data),
            SentDown::Notice(length) => store.notice(sequence, offset, length),
        }
    }
}
