//! Carries out decisions after the lock is released: store operations, demotions and answers.

use super::early::{Answered, Awaiting, awaited};
use super::effects::{Effects, Evicted, SentDown, Started};
use super::front::Engine;
use super::rest::Rest;
use super::state::State;
use super::ticket::Ticket;
use crate::Store;
use std::collections::VecDeque;
use std::sync::Arc;

impl Engine {
    /// Carries out all effects, and returns the work that still needs decisions. The lock must not
    /// be held. Reads leave before the demotions of the same decision, since the lower level
    /// decides in that order. Each store gets its reads and demotions together: otherwise the
    /// answer to a read could let the next request overtake the demotion.
    pub(super) fn carry_out(self: &Arc<Self>, effects: Effects) -> VecDeque<Rest> {
        let Effects {
            operations,
            down,
            answers,
            marks,
            remarks,
            mut rest,
        } = effects;
        if !operations.is_empty() || !down.is_empty() {
            let answered = self.send(operations, down);
            rest.extend(answered.into_iter().map(Rest::Answered));
        }
        for (done, result) in answers {
            done(result);
        }
        for work in marks {
            self.work_on(work);
        }
        for remark in remarks {
            self.remark(remark);
        }
        rest
    }

    /// Sends operations and evicted blocks to their stores. Returns the answers that came at once.
    fn send(self: &Arc<Self>, operations: Vec<Started>, down: Vec<Evicted>) -> Vec<Answered> {
        let awaiting = Awaiting::begin();
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
        start_all(alone, self, &awaiting);
        for group in groups {
            group.run(self, &awaiting);
        }
        awaiting.end()
    }
}

impl Engine {
    /// A store operation has ended.
    pub(super) fn complete(self: &Arc<Self>, answered: Answered) {
        self.act(|state, effects| state.ended(answered, effects));
    }
}

impl State {
    /// A store operation has ended.
    pub fn ended(&mut self, answered: Answered, effects: &mut Effects) {
        let Answered {
            ticket,
            result,
            took,
            macs,
        } = answered;
        if result.is_ok() {
            self.note_cost(ticket, took);
        }
        let failure = result.as_ref().err().cloned();
        if let Some(remark) = failure.and_then(|error| self.complain(ticket, error)) {
            effects.remark(remark);
        }
        match ticket {
            Ticket::Flight(key) => {
                self.note_read(key, &result, &macs);
                self.finish_flight(key, result, &macs, effects);
            }
            Ticket::Write(key) => self.finish_write(key, result, macs, effects),
            Ticket::Flush(key) => self.finish_flush(key, result, effects),
            Ticket::Run(key) => self.finish_run(key, result, &macs, effects),
            Ticket::Mark(volume) => self.finish_clean(volume, &result, effects),
        }
    }
}

/// Operations and evicted blocks that go to one store together.
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

    fn run(self, engine: &Arc<Engine>, awaiting: &Awaiting) {
        let mut both = Some((self.operations, self.down));
        self.store.together(&mut || {
            if let Some((operations, down)) = both.take() {
                start_all(operations, engine, awaiting);
                send_all_down(down);
            }
        });
    }
}

fn is_same(one: &Arc<dyn Store>, other: &Arc<dyn Store>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

fn start_all(operations: Vec<Started>, engine: &Arc<Engine>, awaiting: &Awaiting) {
    let number = awaiting.number();
    for (store, sequence, operation, ticket) in operations {
        let engine = Arc::clone(engine);
        let started = engine.world.now();
        let begun = engine.begun(ticket, &*store, &operation);
        let done = Box::new(move |result| {
            let macs = engine.macs(begun, &result);
            let took = engine.world.now().saturating_duration_since(started);
            let answered = Answered {
                ticket,
                result,
                took,
                macs,
            };
            if let Some(answered) = awaited(number, answered) {
                engine.complete(answered);
            }
        });
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
