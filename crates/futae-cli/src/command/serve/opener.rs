//! Exports, opened: at the start, and those that are added while the server runs.

use super::super::otlp::{OtlpPlan, Tracing};
use super::super::volumes::{ClassNames, StoreClass, VolumeSpec};
use super::evictions::EvictionArgs;
use super::memory::KeptMemory;
use super::plan::{blocks_of, export};
use super::privileges::PrivilegeArgs;
use super::state::KeptState;
use super::unclean::UncleanArgs;
use crate::failure::Failure;
use futae_control::check_cache_bytes;
use futae_engine::{Engine, EngineOptions, Store};
use futae_host::Export;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// How exports are opened.
pub(super) struct Opener {
    /// How caches are made; the capacity is that of all together.
    pub(super) cache: EngineOptions,
    pub(super) classes: ClassNames,
    /// How long requests wait for an NBD server.
    pub(super) timeout: Duration,
    /// What is done about writes that an earlier server lost.
    pub(super) unclean: UncleanArgs,
    pub(super) privileges: PrivilegeArgs,
    /// What is believed of evicted blocks.
    pub(super) evictions: EvictionArgs,
    /// Whether clients may demote evicted blocks.
    pub(super) demotion: bool,
    /// Caches whose memory outlives the server.
    pub(super) memory: KeptMemory,
    /// Caches whose blocks are remembered.
    pub(super) state: Arc<KeptState>,
    /// Whether requests become spans, and where these are sent.
    pub(super) otlp: Option<OtlpPlan>,
    /// What sends them, once the server starts.
    pub(super) tracing: OnceLock<Tracing>,
    /// The cache of exports without a share, once there is one, and all exports that were opened.
    pub(super) opened: Mutex<Opened>,
}

/// What was opened so far.
#[derive(Default)]
pub(super) struct Opened {
    common: Option<Arc<Engine>>,
    specs: Vec<VolumeSpec>,
}

impl Opener {
    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to send spans, if they are asked for.
    pub(super) fn start_tracing(&self) -> Result<(), Failure> {
        if let Some(plan) = &self.otlp {
            let _ = self.tracing.set(Tracing::start(plan)?);
        }
        Ok(())
    }

    /// The server has ended: sends the last spans.
    pub(super) fn end_tracing(&self) {
        if let Some(tracing) = self.tracing.get() {
            tracing.end();
        }
    }

    /// How an export was asked for that was opened last under this name.
    pub(super) fn spec_of(&self, name: &str) -> Option<VolumeSpec> {
        let opened = self.opened();
        opened.specs.iter().find(|spec| spec.name == name).cloned()
    }

    /// Opens the images, then makes the caches: of each export's own blocks, if it has any, or of `common_blocks`.
    pub(super) fn open_all(
        &self,
        specs: &[VolumeSpec],
        own_blocks: &[Option<u32>],
        common_blocks: u32,
    ) -> Result<Vec<Export>, Failure> {
        let mut stores = Vec::new();
        for spec in specs {
            stores.push(spec.source.open(spec.read_only, self.timeout)?);
        }
        let mut exports = Vec::new();
        for ((spec, own), store) in specs.iter().zip(own_blocks).zip(stores) {
            let common = self.opened().common.clone();
            let engine = match (own, common) {
                (Some(blocks), _) => self.engine(*blocks, Some(&spec.name))?,
                (None, Some(engine)) => engine,
                (None, None) => {
                    let engine = self.engine(common_blocks, None)?;
                    self.opened().common = Some(Arc::clone(&engine));
                    engine
                }
            };
            exports.push(self.export_on(&engine, spec, store)?);
            if own.is_some() {
                self.recall(&engine);
            }
        }
        if let Some(common) = &self.opened().common {
            self.recall(common);
        }
        Ok(exports)
    }

    /// Opens an export while the server runs that `NAME=SOURCE` with its options asks for.
    pub(super) fn open_text(&self, text: &str) -> Result<Export, String> {
        let spec = export(text)?;
        self.open_spec(&spec).map_err(|failure| failure.to_string())
    }

    /// Opens an export while the server runs. A share is memory beside that of the caches that there are.
    pub(super) fn open_spec(&self, spec: &VolumeSpec) -> Result<Export, Failure> {
        let name = &spec.name;
        if let StoreClass::Named(class) = &spec.class
            && !self.classes.0.contains(class)
        {
            return Err(Failure::usage(format!(
                "export {name}: class {class}: the classes of a server are those that it had at its start"
            )));
        }
        let own = match spec.share {
            None => None,
            Some(share) => {
                let of = format!("export {name}: share");
                let block_bytes = self.cache.block_bytes;
                let blocks = blocks_of(&of, share, block_bytes)?;
                check_cache_bytes(u64::from(blocks) * block_bytes).map_err(Failure::usage)?;
                Some(blocks)
            }
        };
        let common = self.opened().common.clone();
        if own.is_none() && common.is_none() {
            return Err(Failure::usage(format!(
                "export {name}: every export of this server has a cache of its own; add share=SIZE"
            )));
        }
        let store = spec.source.open(spec.read_only, self.timeout)?;
        let (engine, is_own) = match (own, common) {
            (None, Some(common)) => (common, false),
            (own, _) => (self.engine(own.unwrap_or(1), Some(name))?, true),
        };
        let export = self.export_on(&engine, spec, store)?;
        if is_own {
            self.recall(&engine);
        }
        Ok(export)
    }

    /// Fills a cache that is new with what an earlier server had in it: with the data itself, or else from the stores.
    fn recall(&self, engine: &Arc<Engine>) {
        if self.memory.recall(engine) == 0 {
            self.state.recall(engine);
        }
    }

    fn export_on(
        &self,
        engine: &Arc<Engine>,
        spec: &VolumeSpec,
        store: Arc<dyn Store>,
    ) -> Result<Export, Failure> {
        let class = self.classes.class_of(spec);
        let volume = engine.add_volume(&spec.name, store, class)?;
        if let Err(failure) = self.unclean.guard(spec, engine, volume, &self.privileges) {
            // Nothing has been asked for.
            let _ = engine.take_out_volume(volume, Duration::ZERO);
            return Err(failure);
        }
        self.state.opened(engine, volume, spec);
        if let Some(tracing) = self.tracing.get() {
            engine.latencies(volume).watch(tracing.watcher(&spec.name));
        }
        let mut opened = self.opened();
        opened.specs.retain(|known| known.name != spec.name);
        opened.specs.push(spec.clone());
        Ok(Export {
            name: spec.name.clone(),
            // Where the image lies is no client's business.
            description: String::new(),
            engine: Arc::clone(engine),
            volume,
            read_only: spec.read_only,
            connections_max: spec.connections,
            requests_max: spec.requests,
            rates: spec.rates,
        })
    }

    fn engine(&self, capacity_blocks: u32, owner: Option<&str>) -> Result<Arc<Engine>, Failure> {
        let log = self.cache.decision_log.as_ref();
        let decision_log = log.map(|path| match owner {
            None => path.clone(),
            Some(name) => with_suffix(path, name),
        });
        let engine = Engine::new(&EngineOptions {
            capacity_blocks,
            decision_log,
            ..self.cache.clone()
        })?;
        engine.name_classes(&self.classes.0);
        self.memory.apply(&engine, capacity_blocks, owner)?;
        self.state.apply(&engine, owner)?;
        let blocks = (capacity_blocks, self.cache.capacity_blocks);
        self.evictions.apply(&engine, blocks, self.demotion)?;
        Ok(engine)
    }
}

pub(super) fn with_suffix(path: &Path, name: &str) -> PathBuf {
    let mut full = OsString::from(path);
    // A name may contain what a file's name may not. Two names never come to the same.
    let mut name = name.replace('%', "%25").replace('/', "%2F");
    // Beside a state file there may be those whose names end so.
    let last = name.rfind('.').map_or(0, |dot| dot + 1);
    if ["lock", "new", "old"].contains(&&name[last..]) {
        let first = format!("%{:02X}", name.as_bytes()[last]);
        name.replace_range(last..=last, &first);
    }
    full.push(format!(".{name}"));
    full.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_exports_have_the_same_file() {
        let file = |name: &str| with_suffix(Path::new("/run/kept"), name);
        assert_eq!(file("vm1"), Path::new("/run/kept.vm1"));
        let names = [
            "a/b", "a_b", "a%2Fb", "a%252Fb", "lock", "%6Cock", "a.lock", "a.new", "old",
        ];
        let mut files: Vec<PathBuf> = names.map(file).to_vec();
        files.sort_unstable();
        files.dedup();
        assert_eq!(files.len(), names.len(), "{files:?}");
        for helper in ["lock", "new", "old"] {
            let ends_so = |file: &PathBuf| file.extension().is_some_and(|end| end == helper);
            assert!(!files.iter().any(ends_so), "{files:?}");
        }
        assert!(
            files
                .iter()
                .all(|file| file.parent() == Some(Path::new("/run")))
        );
    }
}
