//! `--state`: what the cache remembers over a restart.

use super::super::volumes::{Source, VolumeSpec};
use crate::failure::Failure;
use futae_engine::{Engine, Identity, WarmState};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::{error, warn};

/// How often it is saved.
const EVERY_SECONDS_DEFAULT: f64 = 60.0;

/// The flags.
#[derive(clap::Args)]
pub struct StateArgs {
    /// Save the list of resident blocks and their history in FILE, so that the next mount starts warm
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Seconds between saves of --state; the state is also saved at the end
    #[arg(long, value_name = "SECONDS", requires = "state")]
    state_every: Option<f64>,
}

/// Where the state is kept, and when it was saved.
pub struct StateFile {
    path: PathBuf,
    every: Duration,
    saved: Instant,
    identity: Identity,
    /// Whether the log has the failure to save.
    complained: bool,
}

impl StateArgs {
    /// Whether anything is to be kept.
    pub fn is_asked(&self) -> bool {
        self.state.is_some()
    }

    /// Whether the flags can be meant.
    pub fn check(&self) -> Result<(), Failure> {
        if !(0.1..=1e6).contains(&self.every_seconds()) {
            return Err(Failure::usage(
                "--state-every is between 0.1 and a million seconds",
            ));
        }
        let Some(path) = &self.state else {
            return Ok(());
        };
        let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        if path.is_dir() || !directory.is_dir() {
            return Err(Failure::usage(format!(
                "--state {}: name a file in a directory that exists",
                path.display()
            )));
        }
        Ok(())
    }

    fn every_seconds(&self) -> f64 {
        self.state_every.unwrap_or(EVERY_SECONDS_DEFAULT)
    }

    /// Gives the cache what an earlier one has saved, if that is of use; otherwise says why not.
    /// Returns where to save, and how many blocks are being loaded again.
    pub fn recall(
        &self,
        engine: &std::sync::Arc<Engine>,
        volumes: &[VolumeSpec],
    ) -> Option<(StateFile, u64)> {
        let path = self.state.clone()?;
        let status = engine.status();
        let sources: Vec<_> = volumes
            .iter()
            .map(|volume| name_of(&volume.source))
            .collect();
        let identity = Identity {
            source: sources.join(", "),
            size_bytes: status.volumes.iter().map(|volume| volume.size_bytes).sum(),
            block_bytes: status.block_bytes,
            policy: status.policy,
        };
        match WarmState::load(&path, &identity) {
            Ok(None) => {}
            Ok(Some(state)) => engine.recall(&state),
            Err(error) => warn!(
                "--state {}: {error}; it is ignored, and the cache begins cold",
                path.display()
            ),
        }
        let file = StateFile {
            path,
            every: Duration::from_secs_f64(self.every_seconds()),
            saved: Instant::now(),
            identity,
            complained: false,
        };
        Some((file, engine.status().resident_blocks))
    }
}

/// A file is known by where it really is.
fn name_of(source: &Source) -> String {
    let real = match source {
        Source::File(path) => path.canonicalize().ok(),
        Source::Nbd(_) => None,
    };
    real.map_or_else(
        || source.to_string(),
        |path| path.to_string_lossy().into_owned(),
    )
}

impl StateFile {
    /// Saves if it is time.
    pub fn save_in_time(&mut self, engine: &Engine) {
        if self.saved.elapsed() >= self.every {
            self.save(engine);
        }
    }

    /// Saves. A state that cannot be saved is no reason to end: it is said once.
    pub fn save(&mut self, engine: &Engine) {
        self.saved = Instant::now();
        match engine.warm_state().save(&self.path, &self.identity) {
            Ok(()) => self.complained = false,
            Err(error) => {
                if !std::mem::replace(&mut self.complained, true) {
                    let path = self.path.display();
                    error!("--state {path}: cannot be saved: {error}");
                }
            }
        }
    }
}
