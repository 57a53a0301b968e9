//! The final flush, which begins before the server waits for peers.

use crate::Export;
use futae_engine::{ClientId, IoError, Operation, Request};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

type Flushed = (usize, Result<(), IoError>);

/// Flushes under way, of every writable volume.
pub(crate) struct Flushes {
    exports: Vec<Export>,
    sender: Sender<Flushed>,
    results: Receiver<Flushed>,
    /// The number of each export that is waited for, once per pending flush.
    waiting: Vec<usize>,
}

impl Flushes {
    pub(crate) fn new(exports: Vec<Export>) -> Self {
        let (sender, results) = channel();
        Self {
            exports,
            sender,
            results,
            waiting: Vec::new(),
        }
    }

    /// Adds the exports that are not among them yet, for the next [`begin`](Self::begin).
    pub(crate) fn cover(&mut self, exports: Vec<Export>) {
        for export in exports {
            if !self.exports.iter().any(|known| known.name == export.name) {
                self.exports.push(export);
            }
        }
    }

    /// Begins to flush every writable volume, all at once.
    pub(crate) fn begin(&mut self) {
        for (at, export) in self.exports.iter().enumerate() {
            if export.is_read_only() {
                continue;
            }
            let sender = self.sender.clone();
            self.waiting.push(at);
            export.engine.submit(Request {
                volume: export.volume,
                client: ClientId::NOBODY,
                sequence: 0,
                operation: Operation::Flush,
                done: Box::new(move |result| drop(sender.send((at, result.map(drop))))),
            });
        }
    }

    /// Waits at most `timeout`. While the number of dirty blocks decreases, waits up to
    /// `progress_timeout` more from each check. Returns the exports that could not be flushed, with
    /// the reason: a failure counts even if a later flush succeeds, since a disk reports it only
    /// once.
    pub(crate) fn finish(
        mut self,
        timeout: Duration,
        progress_timeout: Duration,
    ) -> Vec<(String, String)> {
        let dirty_blocks = || -> u64 {
            let mut engines: Vec<_> = self.exports.iter().map(|export| &export.engine).collect();
            engines.sort_by_key(|engine| Arc::as_ptr(engine));
            engines.dedup_by_key(|engine| Arc::as_ptr(engine));
            engines.iter().map(|engine| engine.dirty_blocks()).sum()
        };
        let mut dirty = dirty_blocks();
        let mut deadline = Instant::now() + timeout;
        let mut errors: Vec<(String, String)> = Vec::new();
        let mut failed = |at: usize, why: String| {
            let name = &self.exports[at].name;
            if !errors.iter().any(|(known, _)| known == name) {
                errors.push((name.clone(), why));
            }
        };
        while !self.waiting.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((at, result)) = self.results.recv_timeout(left) else {
                let now = dirty_blocks();
                if now < dirty {
                    dirty = now;
                    deadline = Instant::now() + progress_timeout.max(Duration::from_secs(1));
                    continue;
                }
                for at in self.waiting {
                    failed(at, "the store does not answer".to_owned());
                }
                break;
            };
            let found = self.waiting.iter().position(|&other| other == at);
            found.map(|found| self.waiting.swap_remove(found));
            if let Err(error) = result {
                failed(at, error.to_string());
            }
        }
        errors
    }
}
