//! The exports of a server, by name.

use crate::HostError;
use crate::fair::{Fair, Part, USUAL_WEIGHT};
use crate::quota::Quota;
use crate::rate::{Clock, Rate, RateLimits, RateReport};
use futae_engine::Engine;
use futae_nbd::{Capabilities, DemotionOffer, DemotionTerms, ExportInfo, VolumeIdentity};
use futae_policy::VolumeId;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A volume of a cache under a name that clients choose.
#[derive(Clone)]
pub struct Export {
    /// The name.
    pub name: String,
    /// A description for people; may be empty.
    pub description: String,
    /// The cache.
    pub engine: Arc<Engine>,
    /// The volume in it.
    pub volume: VolumeId,
    /// Refuses writes even if the store accepts them.
    pub read_only: bool,
    /// The largest number of connections that may use it at a time; `None`: the server's limit.
    pub connections_max: Option<usize>,
    /// The largest number of requests that all its connections together may have under way.
    pub requests_max: Option<usize>,
    /// Its limits per second.
    pub rates: RateLimits,
}

impl Export {
    /// Whether writes are refused, by the export or by its store.
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
            capabilities: Capabilities {
                trim: self.engine.takes_trims(self.volume),
                ..Capabilities::all()
            },
        }
    }
}

type Added = Box<dyn FnOnce() + Send>;

/// An export whose source is open, and which is in no cache yet.
pub struct PendingExport {
    place: Box<dyn FnOnce() -> Result<Export, String> + Send>,
    added: Added,
}

impl PendingExport {
    /// `place` puts it into a cache; its error is a sentence that says what to do.
    pub fn new(place: impl FnOnce() -> Result<Export, String> + Send + 'static) -> Self {
        Self {
            place: Box::new(place),
            added: Box::new(|| ()),
        }
    }

    /// Calls `added` once clients can open the export. An export that is in a cache may still be refused.
    #[must_use]
    pub fn once_added(self, added: impl FnOnce() + Send + 'static) -> Self {
        Self {
            added: Box::new(added),
            ..self
        }
    }

    /// The export in its cache, and what is to be called once clients can open it.
    pub(crate) fn place(self) -> Result<(Export, Added), String> {
        Ok(((self.place)()?, self.added))
    }
}

type Open = dyn Fn(&str) -> Result<PendingExport, String> + Send + Sync;

/// Opens an export named by an order: `NAME=SOURCE` with its options, as on the command line.
#[derive(Clone)]
pub struct OpenExport(Arc<Open>);

impl OpenExport {
    /// Opens exports with this function; its error is a sentence that says what to do.
    pub fn new(
        open: impl Fn(&str) -> Result<PendingExport, String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(open))
    }

    pub(crate) fn open(&self, text: &str) -> Result<PendingExport, String> {
        (self.0)(text)
    }
}

impl fmt::Debug for OpenExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenExport")
    }
}

/// An export, or its channel.
#[derive(Clone)]
pub(crate) struct Entry {
    /// Constant while the export exists.
    pub(crate) number: usize,
    pub(crate) export: Export,
    pub(crate) quota: Option<Arc<Quota>>,
    pub(crate) rate: Arc<Rate>,
    identity: Option<[u8; 16]>,
    /// For a channel: the name of the first export of its feed. The server neither reports nor flushes channels.
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
        export.info().check()?;
        let weight = export.rates.weight.unwrap_or(USUAL_WEIGHT);
        // Data from a channel is for the export, and does not wait for a store.
        let part = fair.filter(|_| of.is_none()).map(|fair| fair.join(weight));
        let is_limited = export.requests_max.is_some() || part.is_some();
        let most = export.requests_max.unwrap_or(usize::MAX);
        let quota = is_limited.then(|| Arc::new(Quota::new(&export.name, most, part)));
        Ok(Self {
            number,
            quota,
            rate: Arc::new(Rate::new(&export.name, export.rates, clock)),
            identity: export.engine.volume_identity(export.volume),
            of,
            export,
        })
    }

    /// Which volume it is, across restarts; `None` if its store cannot tell.
    pub(crate) fn volume(&self) -> Option<[u8; 16]> {
        self.identity
    }

    /// Its limits, and how many requests they delayed.
    pub(crate) fn rates(&self) -> RateReport {
        let part = self.quota.as_deref().and_then(Quota::part);
        RateReport {
            held_requests: part.map_or(0, Part::waits),
            ..self.rate.report()
        }
    }

    /// Its description for the handshake, with the size that it has now.
    pub(crate) fn info(&self) -> ExportInfo {
        self.export.info()
    }

    /// Whether it is the same export, and not one that was added under the name of another.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.rate, &other.rate)
    }

    /// The name of the export, or of the one after which the channel is named.
    pub(crate) fn owner(&self) -> &str {
        self.of.as_deref().unwrap_or(&self.export.name)
    }

    /// Whether it is an export, not a channel.
    pub(crate) fn is_export(&self) -> bool {
        self.of.is_none()
    }

    /// Whether it is export `name`, or its channel.
    pub(crate) fn belongs(&self, name: &str) -> bool {
        self.export.name == name || self.of.as_deref() == Some(name)
    }
}

/// All exports of a server. They come and go while the server runs; a caller that has looked one up
/// keeps using that entry.
pub(crate) struct ExportTable {
    /// In order of their addition; the channels follow the initial exports.
    entries: RwLock<Arc<Vec<Entry>>>,
    /// Whether the server is stopping: no entry is added or removed any more. Changed only while
    /// `entries` is locked for writing.
    is_closed: AtomicBool,
    offer: DemotionOffer,
    clock: Clock,
    /// The limit on requests of all exports together, if there is one.
    fair: Option<Arc<Fair>>,
    /// Identifies this run of the server.
    run: u64,
}

impl ExportTable {
    /// Each channel comes with the name of the first export of its feed, and is served where that one is.
    pub(crate) fn new(
        exports: Vec<Export>,
        channels: Vec<(String, Export)>,
        demotion: bool,
        clock: &Clock,
        requests_together: Option<usize>,
    ) -> Result<Self, HostError> {
        if exports.is_empty() {
            return Err(HostError::NoExport);
        }
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
        for (of, channel) in channels {
            table.add(channel, Some(of))?;
        }
        Ok(table)
    }

    /// The current entries.
    pub(crate) fn entries(&self) -> Arc<Vec<Entry>> {
        Arc::clone(&self.entries.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds an export, or the channel of the export `of`.
    pub(crate) fn add(&self, export: Export, of: Option<String>) -> Result<(), HostError> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.iter().any(|known| known.export.name == export.name) {
            return Err(HostError::DuplicateExport { name: export.name });
        }
        if self.is_closed() {
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

    /// Closes the table because the server stops. Returns its exports.
    pub(crate) fn close(&self) -> Vec<Export> {
        let entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        self.is_closed.store(true, Ordering::Release);
        drop(entries);
        self.all()
    }

    /// Whether the server is stopping.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Removes an export from the table, unless the server is stopping: clients no longer find it.
    pub(crate) fn take_out(&self, name: &str) -> Option<Entry> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if self.is_closed() {
            return None;
        }
        let at = entries.iter().position(|entry| entry.export.name == name)?;
        let mut all = Vec::clone(&entries);
        let gone = all.remove(at);
        *entries = Arc::new(all);
        Some(gone)
    }

    /// Restores a removed entry.
    pub(crate) fn put_back(&self, entry: Entry) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::clone(&entries);
        all.push(entry);
        *entries = Arc::new(all);
    }

    /// The exports, without channels.
    pub(crate) fn all(&self) -> Vec<Export> {
        let entries = self.entries();
        let exports = entries.iter().filter(|entry| entry.is_export());
        exports.map(|entry| entry.export.clone()).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Export> {
        self.find(name).map(|entry| entry.export)
    }

    /// The export or channel of this name.
    pub(crate) fn find(&self, name: &str) -> Option<Entry> {
        let entries = self.entries();
        entries.iter().find(|it| it.export.name == name).cloned()
    }

    /// Number of exports and channels.
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

/// Terms are negotiated before the export is chosen, so the largest block size applies to all:
/// whole blocks of that size are whole blocks of smaller sizes. Blocks over 32 MiB cannot be
/// demoted.
fn offer(infos: &[ExportInfo]) -> DemotionOffer {
    let largest = infos.iter().map(|info| info.preferred_block_bytes).max();
    largest
        .and_then(DemotionTerms::new)
        .map_or(DemotionOffer::Forbidden, DemotionOffer::Terms)
}

impl ExportTable {
    pub(crate) fn demotion(&self) -> DemotionOffer {
        self.offer
    }

    pub(crate) fn identity_of(&self, entry: &Entry) -> Option<VolumeIdentity> {
        let volume = entry.identity.filter(|_| entry.is_export())?;
        Some(VolumeIdentity {
            volume,
            run: self.run,
        })
    }
}
