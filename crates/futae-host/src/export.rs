//! What a server offers, by name.

use crate::HostError;
use crate::quota::Quota;
use futae_engine::Engine;
use futae_nbd::{
    Capabilities, DemotionOffer, DemotionTerms, ExportDirectory, ExportInfo, VolumeIdentity,
};
use futae_policy::VolumeId;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// A volume of a cache under the name by which clients choose it.
#[derive(Clone)]
pub struct Export {
    /// The name.
    pub name: String,
    /// A line for people; may be empty.
    pub description: String,
    /// The cache.
    pub engine: Arc<Engine>,
    /// The volume in it.
    pub volume: VolumeId,
    /// Refuse writes even if the store would take them.
    pub read_only: bool,
    /// Connections that may use it at a time; as many as the server has if none is given.
    pub connections_max: Option<usize>,
    /// Requests that all its connections together may have under way.
    pub requests_max: Option<usize>,
}

impl Export {
    /// Whether writes are refused, for either reason.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.engine.is_read_only(self.volume)
    }

    fn info(&self) -> ExportInfo {
        ExportInfo {
            name: self.name.clone(),
            description: self.description.clone(),
            size_bytes: self.engine.volume_bytes(self.volume),
            read_only: self.is_read_only(),
            preferred_block_bytes: u32::try_from(self.engine.block_bytes()).unwrap_or(1 << 31),
            capabilities: Capabilities::all(),
        }
    }
}

/// All exports of a server, with what the handshake says of them.
pub(crate) struct ExportTable {
    exports: Vec<Export>,
    /// Channels for evictions: each with the number of its export. They are numbered behind the exports,
    /// and are no part of what the server reports and flushes.
    channels: Vec<(usize, Export)>,
    infos: Vec<ExportInfo>,
    quotas: Vec<Option<Arc<Quota>>>,
    offer: DemotionOffer,
    identities: Vec<Option<[u8; 16]>>,
    /// This run of the server.
    run: u64,
}

impl ExportTable {
    pub(crate) fn new(
        exports: Vec<Export>,
        channels: Vec<(usize, Export)>,
        demotion: bool,
    ) -> Result<Self, HostError> {
        if exports.is_empty() {
            return Err(HostError::NoExport);
        }
        let disks = exports.iter().map(Export::info);
        let infos: Vec<_> = disks
            .chain(channels.iter().map(|(_, channel)| channel.info()))
            .collect();
        for (at, info) in infos.iter().enumerate() {
            info.check()?;
            if infos[..at].iter().any(|other| other.name == info.name) {
                return Err(HostError::DuplicateExport {
                    name: info.name.clone(),
                });
            }
        }
        let identity = |export: &Export| export.engine.volume_identity(export.volume);
        let identities = exports.iter().map(identity).collect();
        let offer = if demotion {
            offer(&infos[..exports.len()])
        } else {
            DemotionOffer::Forbidden
        };
        let quota =
            |export: &Export| Some(Arc::new(Quota::new(&export.name, export.requests_max?)));
        let all = exports.iter().chain(channels.iter().map(|(_, one)| one));
        Ok(Self {
            quotas: all.map(quota).collect(),
            exports,
            channels,
            identities,
            run: RandomState::new().hash_one(std::process::id()),
            infos,
            offer,
        })
    }

    pub(crate) fn all(&self) -> &[Export] {
        &self.exports
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Export> {
        self.find(name).map(|(_, export)| export)
    }

    /// The export, or the channel, and its number.
    pub(crate) fn find(&self, name: &str) -> Option<(usize, &Export)> {
        let channels = self.channels.iter().map(|(_, channel)| channel);
        let mut all = self.exports.iter().chain(channels).enumerate();
        all.find(|(_, export)| export.name == name)
    }

    /// Exports and channels.
    pub(crate) fn count(&self) -> usize {
        self.exports.len() + self.channels.len()
    }

    /// Whether number `at` is export `of`, or its channel.
    pub(crate) fn belongs(&self, at: usize, of: usize) -> bool {
        let channel = at.checked_sub(self.exports.len());
        let channel = channel.and_then(|at| self.channels.get(at));
        at == of || channel.is_some_and(|(target, _)| *target == of)
    }

    /// What the handshake says of one.
    pub(crate) fn info(&self, at: usize) -> Option<ExportInfo> {
        self.infos.get(at).cloned()
    }

    pub(crate) fn quota(&self, at: usize) -> Option<Arc<Quota>> {
        self.quotas.get(at).cloned().flatten()
    }

    /// Every cache once, in the order of the exports.
    pub(crate) fn engines(&self) -> Vec<Arc<Engine>> {
        let mut engines: Vec<Arc<Engine>> = Vec::new();
        for export in &self.exports {
            if !engines
                .iter()
                .any(|known| Arc::ptr_eq(known, &export.engine))
            {
                engines.push(Arc::clone(&export.engine));
            }
        }
        engines
    }
}

/// Terms are agreed before the export is chosen, so the largest block speaks for all: whole
/// blocks of it are whole blocks of the smaller ones. Blocks over 32 MiB cannot be demoted.
fn offer(infos: &[ExportInfo]) -> DemotionOffer {
    let largest = infos.iter().map(|info| info.preferred_block_bytes).max();
    largest
        .and_then(DemotionTerms::new)
        .map_or(DemotionOffer::Forbidden, DemotionOffer::Terms)
}

impl ExportDirectory for ExportTable {
    fn list(&self) -> Vec<ExportInfo> {
        self.infos.clone()
    }

    fn demotion(&self) -> DemotionOffer {
        self.offer
    }

    fn identity(&self, name: &str) -> Option<VolumeIdentity> {
        let at = self.exports.iter().position(|export| export.name == name)?;
        let volume = (*self.identities.get(at)?)?;
        Some(VolumeIdentity {
            volume,
            run: self.run,
        })
    }
}
