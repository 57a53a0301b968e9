//! `--state` of a server: a file for each cache, saved by a thread of its own.

use super::super::names::with_suffix;
use crate::command::state::{Sourced, StateArgs, StateFile, name_of};
use crate::command::volumes::VolumeSpec;
use futae_engine::Engine;
use futae_host::Export;
use futae_policy::VolumeId;
use futae_terminal::failure::Failure;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How often the thread looks whether exports came or went.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The caches whose blocks are remembered.
pub(super) struct KeptState {
    args: StateArgs,
    caches: Mutex<Vec<Cache>>,
}

struct Cache {
    engine: Weak<Engine>,
    file: StateFile,
    exports: Vec<Opened>,
    /// How many blocks an earlier server has left to it.
    warm_blocks: u64,
}

/// An export, as it was opened.
struct Opened {
    name: String,
    volume: VolumeId,
    source: String,
    /// Another server still writes to it: what is read now is out of date when its guest has come.
    is_incoming: bool,
}

impl KeptState {
    pub(super) fn new(args: &StateArgs) -> Self {
        Self {
            args: args.clone(),
            caches: Mutex::default(),
        }
    }

    /// A new cache is there. `owner` is the export that alone uses it.
    ///
    /// # Errors
    ///
    /// Another process keeps its state in the same file.
    pub(super) fn apply(&self, engine: &Arc<Engine>, owner: Option<&str>) -> Result<(), Failure> {
        let Some(path) = self.args.path() else {
            return Ok(());
        };
        let path = match owner {
            None => path.to_owned(),
            Some(name) => with_suffix(path, name),
        };
        let mut caches = self.caches();
        caches.retain(|cache| cache.engine.strong_count() > 0);
        // The last requests of an export that was removed may still be under way when it comes again.
        let before = caches.iter().find(|cache| cache.file.path() == path);
        let file = match before {
            Some(cache) => cache.file.again(),
            None => StateFile::open(&path)?,
        };
        caches.push(Cache {
            engine: Arc::downgrade(engine),
            file,
            exports: Vec::new(),
            warm_blocks: 0,
        });
        Ok(())
    }

    /// A cache has a new export. Its source gets its name now: later the server may be a user who cannot look it up.
    pub(super) fn opened(&self, engine: &Arc<Engine>, volume: VolumeId, spec: &VolumeSpec) {
        let mut caches = self.caches();
        let Some(cache) = caches.iter_mut().find(|cache| cache.is_of(engine)) else {
            return;
        };
        cache.exports.retain(|known| known.volume != volume);
        cache.exports.push(Opened {
            name: spec.name.clone(),
            volume,
            source: name_of(&spec.source),
            is_incoming: spec.is_incoming,
        });
    }

    /// All exports of a cache at the start are there, and it holds nothing: takes up what is saved of them.
    pub(super) fn recall(&self, engine: &Arc<Engine>) {
        let mut caches = self.caches();
        if let Some(cache) = caches.iter_mut().find(|cache| cache.is_of(engine)) {
            let sources = cache.exports.iter().filter(|export| !export.is_incoming);
            let sources: Vec<Sourced> = sources
                .map(|export| (export.volume, export.source.clone()))
                .collect();
            cache.warm_blocks = cache.file.recall(engine, &sources);
        }
    }

    /// How many blocks the caches have from an earlier server.
    pub(super) fn warm_blocks(&self) -> u64 {
        self.caches().iter().map(|cache| cache.warm_blocks).sum()
    }

    /// Saves the caches of these exports: all of them, or those that were not saved for as long as `every`.
    fn save(&self, exports: &[Export], every: Option<Duration>) {
        for cache in self.caches().iter_mut() {
            if every.is_some_and(|every| !cache.file.is_due(every)) {
                continue;
            }
            let Some(engine) = cache.engine.upgrade() else {
                continue;
            };
            let sources = cache.sources_of(&engine, exports);
            // The last export of a cache has left: what was saved of it is of use when it comes again.
            if !sources.is_empty() {
                cache.file.save(&engine, &sources);
            }
        }
    }

    fn caches(&self) -> MutexGuard<'_, Vec<Cache>> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    fn is_of(&self, engine: &Arc<Engine>) -> bool {
        self.engine.as_ptr() == Arc::as_ptr(engine)
    }

    /// The volumes that belong to exports of the server now. A number may have been that of an export that is gone.
    fn sources_of(&self, engine: &Arc<Engine>, exports: &[Export]) -> Vec<Sourced> {
        let is_served = |known: &&Opened| {
            exports.iter().any(|export| {
                Arc::ptr_eq(&export.engine, engine)
                    && export.volume == known.volume
                    && export.name == known.name
            })
        };
        let served = self.exports.iter().filter(is_served);
        served
            .map(|known| (known.volume, known.source.clone()))
            .collect()
    }
}

/// The thread that saves the states of a server.
pub(super) struct Saver {
    thread: JoinHandle<()>,
    stop: Sender<()>,
    state: Arc<KeptState>,
}

impl Saver {
    /// Starts the thread; none without `--state`. `exports` returns the exports of the server.
    ///
    /// # Errors
    ///
    /// The thread cannot be made.
    pub(super) fn start(
        state: &Arc<KeptState>,
        exports: impl Fn() -> Vec<Export> + Send + 'static,
    ) -> io::Result<Option<Self>> {
        if !state.args.is_asked() {
            return Ok(None);
        }
        let (stop, stopped) = channel();
        let of_thread = Arc::clone(state);
        let thread = Builder::new()
            .name("state".into())
            .spawn(move || save_in_time(&of_thread, exports, &stopped))?;
        Ok(Some(Self {
            thread,
            stop,
            state: Arc::clone(state),
        }))
    }

    /// The server has ended: saves the caches of its last exports.
    pub(super) fn end(self, exports: &[Export]) {
        drop(self.stop);
        // A thread that has panicked leaves the last state to this one.
        let _ = self.thread.join();
        self.state.save(exports, None);
    }
}

/// Saves each state when it is time, and all of them when an export came or went, until the other end of `stopped` is
/// gone.
fn save_in_time(state: &KeptState, exports: impl Fn() -> Vec<Export>, stopped: &Receiver<()>) {
    let every = state.args.every();
    let names = |exports: &[Export]| -> Vec<String> {
        exports.iter().map(|export| export.name.clone()).collect()
    };
    let mut seen = names(&exports());
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(LOOK_INTERVAL.min(every)) {
        let exports = exports();
        let now = names(&exports);
        let has_changed = now != seen;
        seen = now;
        state.save(&exports, (!has_changed).then_some(every));
    }
}
