//! What a server offers, by name.

use crate::HostError;
use crate::fair::{Fair, Part, USUAL_WEIGHT};
use crate::quota::Quota;
use crate::rate::{Clock, Rate, RateLimits, RateReport};
use futae_engine::Engine;
use futae_nbd::{
    Capabilities, DemotionOffer, DemotionTerms, ExportDirectory, ExportInfo, VolumeIdentity,
};
use futae_policy::VolumeId;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

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
    /// What they are served in a second.
    pub rates: RateLimits,
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

type Open = dyn Fn(&str) -> Result<Export, String> + Send + Sync;

/// How an export is opened that an order names: `NAME=SOURCE` with its options, as on the command line.
#[derive(Clone)]
pub struct OpenExport(Arc<Open>);

impl OpenExport {
    /// By this function; an error is a sentence that says what to do.
    pub fn new(open: impl Fn(&str) -> Result<Export, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }

    pub(crate) fn open(&self, text: &str) -> Result<Export, String> {
        (self.0)(text)
    }
}

impl fmt::Debug for OpenExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenExport")
    }
}

/// An export, or the channel of one, with what the handshake says of it.
#[derive(Clone)]
pub(crate) struct Entry {
    /// Stays the same while it is there.
    pub(crate) number: usize,
    pub(crate) export: Export,
    pub(crate) quota: Option<Arc<Quota>>,
    pub(crate) rate: Arc<Rate>,
    info: ExportInfo,
    identity: Option<[u8; 16]>,
    /// Of a channel: whose it is. Channels are no part of what the server reports and flushes.
    of: Option<String>,
}

impl Entry {
    fn new(
        number: usize,
        export: Export,
        of: Option<String>,
        clock: &Clock,
        fair: Option<&Arc<Fair>>,
    ) -> Result<Self, HostError> {
        let info = export.info();
        info.check()?;
        let weight = export.rates.weight.unwrap_or(USUAL_WEIGHT);
        // What comes by a channel is for the export, and waits for no store.
        let part = fair.filter(|_| of.is_none()).map(|fair| fair.join(weight));
        let is_limited = export.requests_max.is_some() || part.is_some();
        let most = export.requests_max.unwrap_or(usize::MAX);
        let quota = is_limited.then(|| Arc::new(Quota::new(&export.name, most, part)));
        Ok(Self {
            number,
            quota,
            rate: Arc::new(Rate::new(&export.name, export.rates, clock)),
            info,
            identity: export.engine.volume_identity(export.volume),
            of,
            export,
        })
    }

    /// Its limits, and what they held back.
    pub(crate) fn rates(&self) -> RateReport {
        let part = self.quota.as_deref().and_then(Quota::part);
        RateReport {
            held_requests: part.map_or(0, Part::waits),
            ..self.rate.report()
        }
    }

    /// What the handshake says of it.
    pub(crate) fn info(&self) -> ExportInfo {
        self.info.clone()
    }

    /// The name of the export that it is, or whose channel.
    pub(crate) fn owner(&self) -> &str {
        self.of.as_deref().unwrap_or(&self.export.name)
    }

    /// Whether it is an export and no channel of one.
    pub(crate) fn is_export(&self) -> bool {
        self.of.is_none()
    }

    /// Whether it is export `name`, or its channel.
    pub(crate) fn belongs(&self, name: &str) -> bool {
        self.export.name == name || self.of.as_deref() == Some(name)
    }
}

/// All exports of a server. They come and go while it runs; who has looked one up goes on with what it was.
pub(crate) struct ExportTable {
    /// In their order, channels behind the exports that there were at the start.
    entries: RwLock<Arc<Vec<Entry>>>,
    /// Whether the server stops: nothing is added or taken out any more. Changed while `entries` can be written only.
    is_closed: AtomicBool,
    offer: DemotionOffer,
    clock: Clock,
    /// The requests that all may have under way, if that is limited.
    fair: Option<Arc<Fair>>,
    /// This run of the server.
    run: u64,
}

impl ExportTable {
    /// Channels have the places of their exports.
    pub(crate) fn new(
        exports: Vec<Export>,
        channels: Vec<(usize, Export)>,
        demotion: bool,
        clock: &Clock,
        requests_together: Option<usize>,
    ) -> Result<Self, HostError> {
        if exports.is_empty() {
            return Err(HostError::NoExport);
        }
        let names: Vec<_> = exports.iter().map(|export| export.name.clone()).collect();
        let infos: Vec<_> = exports.iter().map(Export::info).collect();
        let offer = if demotion {
            offer(&infos)
        } else {
            DemotionOffer::Forbidden
        };
        let table = Self {
            entries: RwLock::default(),
            is_closed: AtomicBool::new(false),
            offer,
            clock: clock.clone(),
            fair: requests_together.map(Fair::new),
            run: RandomState::new().hash_one(std::process::id()),
        };
        for export in exports {
            table.add(export, None)?;
        }
        for (at, channel) in channels {
            table.add(channel, names.get(at).cloned())?;
        }
        Ok(table)
    }

    /// Those that are there now.
    pub(crate) fn entries(&self) -> Arc<Vec<Entry>> {
        Arc::clone(&self.entries.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds an export, or the channel of the export `of`.
    pub(crate) fn add(&self, export: Export, of: Option<String>) -> Result<(), HostError> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.iter().any(|known| known.export.name == export.name) {
            return Err(HostError::DuplicateExport { name: export.name });
        }
        if self.is_closed.load(Ordering::Acquire) {
            return Err(HostError::Stopping);
        }
        let is_free = |number: &usize| entries.iter().all(|known| known.number != *number);
        let number = (0..).find(is_free).unwrap_or(usize::MAX);
        let mut all = Vec::clone(&entries);
        all.push(Entry::new(
            number,
            export,
            of,
            &self.clock,
            self.fair.as_ref(),
        )?);
        *entries = Arc::new(all);
        Ok(())
    }

    /// The server stops; these are its exports to the end.
    pub(crate) fn close(&self) -> Vec<Export> {
        let entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        self.is_closed.store(true, Ordering::Release);
        drop(entries);
        self.all()
    }

    /// Takes an export out, unless the server stops: clients find it no more.
    pub(crate) fn take_out(&self, name: &str) -> Option<Entry> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if self.is_closed.load(Ordering::Acquire) {
            return None;
        }
        let at = entries.iter().position(|entry| entry.export.name == name)?;
        let mut all = Vec::clone(&entries);
        let gone = all.remove(at);
        *entries = Arc::new(all);
        Some(gone)
    }

    /// Puts back what was taken out.
    pub(crate) fn put_back(&self, entry: Entry) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::clone(&entries);
        all.push(entry);
        *entries = Arc::new(all);
    }

    /// The exports, without their channels.
    pub(crate) fn all(&self) -> Vec<Export> {
        let entries = self.entries();
        let exports = entries.iter().filter(|entry| entry.is_export());
        exports.map(|entry| entry.export.clone()).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Export> {
        self.find(name).map(|entry| entry.export)
    }

    /// The export, or the channel.
    pub(crate) fn find(&self, name: &str) -> Option<Entry> {
        let entries = self.entries();
        entries.iter().find(|it| it.export.name == name).cloned()
    }

    /// Exports and channels.
    pub(crate) fn count(&self) -> usize {
        self.entries().len()
    }

    /// Every cache once, in the order of the exports.
    pub(crate) fn engines(&self) -> Vec<Arc<Engine>> {
        let mut engines: Vec<Arc<Engine>> = Vec::new();
        for export in self.all() {
            if !engines
                .iter()
                .any(|known| Arc::ptr_eq(known, &export.engine))
            {
                engines.push(export.engine);
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
        self.entries().iter().map(Entry::info).collect()
    }

    fn demotion(&self) -> DemotionOffer {
        self.offer
    }

    fn identity(&self, name: &str) -> Option<VolumeIdentity> {
        let entry = self.find(name).filter(Entry::is_export)?;
        let volume = entry.identity?;
        Some(VolumeIdentity {
            volume,
            run: self.run,
        })
    }
}
