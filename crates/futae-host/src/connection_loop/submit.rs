//! How a connection passes received requests to the cache.

use super::ConnectionLoop;
use crate::mailbox::{Tag, TagKind};
use crate::requests::{Pending, Requests};
use futae_engine::{Asked, Ended, Operation};
use std::sync::atomic::Ordering::Relaxed;

impl ConnectionLoop<'_, '_> {
    /// Adds an operation to the next batch. Demotions at the end of the batch are collected
    /// separately.
    pub(super) fn enqueue(&mut self, sequence: u64, tag: Tag, operation: Operation) {
        self.in_flight += 1;
        let pending = Pending::new(tag, sequence, operation);
        if tag.kind == TagKind::Silent {
            return self.demotions.push(pending);
        }
        // Operations are decided in their order.
        self.batch.append(&mut self.demotions);
        self.batch.push(pending);
    }

    /// Passes the queued operations to the cache. Replies that are ready at once are sent before
    /// trailing demotions are processed, since no client waits for those.
    pub(super) fn submit(&mut self) {
        self.submit_batch();
        if self.demotions.is_empty() {
            return;
        }
        self.send();
        self.batch.append(&mut self.demotions);
        self.submit_batch();
    }

    /// Passes a batch to the cache, and turns immediate answers into replies.
    fn submit_batch(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        self.traffic.batches.fetch_add(1, Relaxed);
        let engine = &self.session.engine;
        self.batch.change(|operation| engine.hashed(operation));
        let (mut silent, mut carried_bytes, mut held_bytes) = (0, 0, 0);
        for tag in self.batch.tags().filter(|tag| tag.kind == TagKind::Silent) {
            silent += 1;
            carried_bytes += tag.carried_bytes;
            held_bytes += tag.held_bytes;
        }
        let mut answered = std::mem::take(&mut self.answered);
        let mut requests = Requests {
            gathered: &mut self.batch,
            volume: self.session.volume,
            client: self.session.client,
            mailbox: &self.mailbox,
            answered: &mut answered,
        };
        let count = requests.gathered.len();
        self.session.engine.run_batch(count, &mut requests);
        self.batch.clear();
        if silent > 0
            && let Some(watcher) = self.latencies.watcher()
        {
            watcher.ended(&Ended {
                kind: "demotion",
                requests: silent as u64,
                bytes: carried_bytes,
                hit: None,
                failed: false,
                took: self.taken.elapsed(),
            });
        }
        self.forget(silent, held_bytes);
        if !answered.is_empty() {
            let (took, count) = (self.taken.elapsed(), answered.len() as u64);
            self.latencies.note(Asked::Read, took, count);
            self.latencies.hand_on();
            if let Some(watcher) = self.latencies.watcher() {
                watcher.ended(&Ended {
                    kind: Asked::Read.name(),
                    requests: count,
                    bytes: answered.iter().map(|it| it.tag.carried_bytes).sum(),
                    hit: Some(true),
                    failed: false,
                    took,
                });
            }
        }
        for completion in answered.drain(..) {
            self.finish(completion);
        }
        self.answered = answered;
    }

    /// Releases this many completed demotions, which held this much memory.
    fn forget(&mut self, demotions: usize, held_bytes: u64) {
        if demotions == 0 {
            return;
        }
        self.in_flight -= demotions;
        self.held_requests = self.held_requests.saturating_sub(demotions);
        self.account.give_back(held_bytes);
        if let Some(quota) = &self.session.quota {
            (0..demotions).for_each(|_| quota.give_back());
        }
    }
}
