//! Exports, opened: at the start, and those that are added while the server runs.

use super::super::names::with_suffix;
use super::super::otlp::{OtlpPlan, Tracing};
use super::super::volumes::{Claim, ClassNames, StoreClass, VolumeSpec};
use super::evictions::EvictionArgs;
use super::exports::{blocks_of, export};
use super::memory::KeptMemory;
use super::privileges::PrivilegeArgs;
use super::reach::Reach;
use super::state::KeptState;
use super::unclean::UncleanArgs;
use futae_control::check_cache_bytes;
use futae_engine::{Engine, EngineOptions, Store};
use futae_host::{Export, PendingExport};
use futae_policy::{PolicySpec, VolumeId};
use futae_terminal::failure::Failure;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
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
    /// From where clients come.
    pub(super) reach: Reach,
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
    pub(super) opened: Mutex<Opened>,
}

/// A source that is open.
pub(super) struct OpenSource {
    claim: Claim,
    store: Arc<dyn Store>,
}

/// What was opened so far.
#[derive(Default)]
pub(super) struct Opened {
    /// The cache of exports without a share, as long as it has any.
    common: Weak<Engine>,
    /// Its size when it is made.
    common_blocks: u32,
    /// What replaced the policy of the start for all caches.
    policy: Option<PolicySpec>,
    exports: Vec<OpenedExport>,
}

/// An export, as it was opened last under its name.
struct OpenedExport {
    spec: VolumeSpec,
    claim: Claim,
    engine: Weak<Engine>,
    volume: VolumeId,
}

impl OpenedExport {
    /// Whether a cache still uses its source. A removal may fail.
    fn is_open(&self) -> bool {
        let engine = self.engine.upgrade();
        engine.is_some_and(|engine| engine.volume_name(self.volume) == self.spec.name)
    }
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
        let mut exports = opened.exports.iter();
        let export = exports.find(|export| export.spec.name == name)?;
        Some(export.spec.clone())
    }

    /// How large the cache of the exports without a share is to be when the first of them comes; 0 if there may be none.
    pub(super) fn plan_common(&self, blocks: u32) {
        self.opened().common_blocks = blocks;
    }

    /// The policy of caches that are made from now on.
    pub(super) fn plan_policy(&self, policy: &PolicySpec) {
        self.opened().policy = Some(policy.clone());
    }

    /// Opens the sources.
    pub(super) fn open_sources(&self, specs: &[VolumeSpec]) -> Result<Vec<OpenSource>, Failure> {
        specs.iter().map(|spec| self.open_source(spec)).collect()
    }

    /// Makes the caches of exports whose sources are open: of each export's own blocks, if it has any.
    pub(super) fn place_all(
        &self,
        specs: &[VolumeSpec],
        own_blocks: &[Option<u32>],
        sources: Vec<OpenSource>,
    ) -> Result<Vec<Export>, Failure> {
        let mut exports = Vec::new();
        let mut new = Vec::new();
        for ((spec, own), source) in specs.iter().zip(own_blocks).zip(sources) {
            let (engine, is_new) = self.engine_of(spec, *own)?;
            exports.push(self.export_on(&engine, spec, source)?);
            if is_new {
                new.push(engine);
            }
        }
        // With all their exports.
        new.iter().for_each(|engine| self.recall(engine));
        Ok(exports)
    }

    /// Opens an export while the server runs that `NAME=SOURCE` with its options asks for.
    pub(super) fn open_text(self: &Arc<Self>, text: &str) -> Result<PendingExport, String> {
        let spec = export(text)?;
        self.open_spec(&spec).map_err(|failure| failure.to_string())
    }

    /// Opens an export while the server runs. A share is memory beside that of the caches that there are.
    pub(super) fn open_spec(self: &Arc<Self>, spec: &VolumeSpec) -> Result<PendingExport, Failure> {
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
        let source = self.open_source(spec)?;
        let (opener, spec) = (Arc::clone(self), spec.clone());
        let owner = own.is_some().then(|| spec.name.clone());
        let added = {
            let opener = Arc::clone(self);
            move || opener.memory.settle_cache(owner.as_deref())
        };
        let place = move || {
            let (engine, is_new) = opener.engine_of(&spec, own)?;
            let export = opener.export_on(&engine, &spec, source)?;
            if is_new {
                opener.recall(&engine);
            }
            Ok(export)
        };
        let pending =
            PendingExport::new(move || place().map_err(|failure: Failure| failure.to_string()));
        Ok(pending.once_added(added))
    }

    /// Opens a source that no other export uses, but for reading together.
    fn open_source(&self, spec: &VolumeSpec) -> Result<OpenSource, Failure> {
        let claim = Claim::new(spec);
        let opened = self.opened();
        let others = opened.exports.iter().filter(|export| export.is_open());
        claim.refuse_beside("export", others.map(|export| &export.claim))?;
        drop(opened);
        let store = match spec.is_incoming {
            true => spec.source.open_incoming(self.timeout)?,
            false => spec.source.open(spec.read_only, self.timeout)?,
        };
        Ok(OpenSource { claim, store })
    }

    /// The cache of an export, and whether it is new: one of `own` blocks, or the common one.
    fn engine_of(
        &self,
        spec: &VolumeSpec,
        own: Option<u32>,
    ) -> Result<(Arc<Engine>, bool), Failure> {
        let name = &spec.name;
        if let Some(blocks) = own {
            return Ok((self.engine(blocks, Some(name))?, true));
        }
        let (common, blocks) = {
            let opened = self.opened();
            (opened.common.upgrade(), opened.common_blocks)
        };
        // Its last export may have left, and somebody still look at it.
        if let Some(common) = common.filter(|engine| engine.volume_count() > 0) {
            return Ok((common, false));
        }
        if blocks == 0 {
            return Err(Failure::usage(format!(
                "export {name}: every export of this server has a cache of its own, and these leave nothing of --cache; add \
                 share=SIZE"
            )));
        }
        let common = self.engine(blocks, None)?;
        self.opened().common = Arc::downgrade(&common);
        Ok((common, true))
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
        OpenSource { claim, store }: OpenSource,
    ) -> Result<Export, Failure> {
        let class = self.classes.class_of(spec);
        let volume = engine.add_volume(&spec.name, Arc::clone(&store), class)?;
        let about = (&self.privileges, &self.reach, &store);
        if let Err(failure) = self.unclean.guard(spec, engine, volume, about) {
            // Nothing has been asked for.
            let _ = engine.take_out_volume(volume, Duration::ZERO);
            return Err(failure);
        }
        self.state.opened(engine, volume, spec);
        if let Some(tracing) = self.tracing.get() {
            engine.latencies(volume).watch(tracing.watcher(&spec.name));
        }
        let exports = &mut self.opened().exports;
        exports.retain(|known| known.is_open() && known.spec.name != spec.name);
        exports.push(OpenedExport {
            spec: spec.clone(),
            claim,
            engine: Arc::downgrade(engine),
            volume,
        });
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
        let policy = self.opened().policy.clone();
        let engine = Engine::new(&EngineOptions {
            capacity_blocks,
            decision_log,
            policy: policy.unwrap_or_else(|| self.cache.policy.clone()),
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
