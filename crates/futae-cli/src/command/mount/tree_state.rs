//! `--state` of a tree. The files of an earlier mount are looked up in the background, so the mount does not wait for them.

use crate::command::state::{StateArgs, StateFile};
use anyhow::Context;
use futae_engine::{Engine, SavedState};
use futae_guest::{Recalled, TreeHandle};
use futae_terminal::failure::Failure;
use futae_units::Size;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tracing::info;

/// The state of a mounted tree.
pub struct TreeState {
    file: StateFile,
    every: Duration,
    engine: Arc<Engine>,
    handle: Arc<TreeHandle>,
    /// Loads the blocks of an earlier mount. Until all are loaded, the file stays as that mount has saved it.
    recalling: Option<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
}

impl TreeState {
    /// Begins to load the blocks of an earlier mount.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn begin(
        mut file: StateFile,
        args: &StateArgs,
        engine: &Arc<Engine>,
        handle: &Arc<TreeHandle>,
    ) -> Result<Self, Failure> {
        let ends = Arc::new(AtomicBool::new(false));
        let saved = file.saved_below(handle.source(), engine);
        let start = |saved: SavedState| {
            let (path, engine) = (file.path().to_owned(), Arc::clone(engine));
            let (handle, ends) = (Arc::clone(handle), Arc::clone(&ends));
            let recall = move || {
                let recalled = handle.recall(&saved, || !ends.load(Ordering::Relaxed));
                tell(&path, &engine, recalled);
            };
            thread::Builder::new()
                .name("futae-warm".into())
                .spawn(recall)
        };
        let recalling = saved.map(start).transpose();
        let recalling = recalling.context("--state: no thread can be started")?;
        Ok(Self {
            recalling,
            every: args.every(),
            engine: Arc::clone(engine),
            handle: Arc::clone(handle),
            ends,
            file,
        })
    }

    /// Saves what the cache has, if that is due.
    pub fn look(&mut self) {
        if self.file.is_due(self.every) && !self.is_recalling() {
            self.save();
        }
    }

    /// Saves it for the last time.
    pub fn end(mut self) {
        if self.is_recalling() {
            let path = self.file.path().display();
            self.ends.store(true, Ordering::Relaxed);
            info!(
                "--state {path}: the blocks of the mount before were not all loaded, so the file stays as it was"
            );
        } else {
            self.save();
        }
    }

    fn is_recalling(&mut self) -> bool {
        drop(self.recalling.take_if(|thread| thread.is_finished()));
        self.recalling.is_some()
    }

    fn save(&mut self) {
        self.file.save(&self.engine, &self.handle.sources());
    }
}

fn tell(path: &Path, engine: &Engine, recalled: Recalled) {
    if !recalled.is_whole {
        return;
    }
    let (path, blocks) = (path.display(), recalled.blocks);
    let size = Size::Bytes(blocks * engine.block_bytes());
    let (files, missing) = (recalled.files, recalled.files_missing);
    info!(
        blocks,
        "--state {path}: {blocks} blocks ({size}) of {files} files are loaded again; files that are not there any more: {missing}"
    );
}
