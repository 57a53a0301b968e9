//! The state of one volume.

use super::cost::Costs;
use super::demotion_guard::DemotionGuard;
use super::dirt::Dirt;
use super::flush_turns::FlushTurns;
use super::kept::KeptVolume;
use super::losses::Losses;
use super::mark_guard::Guard;
use super::notices::Notices;
use super::residents::Residents;
use super::tally::Tally;
use super::verify::DemotionTally;
use super::watch::Watch;
use crate::{Latencies, Store};
use futae_policy::{Class, VolumeId};
use std::sync::Arc;

/// A volume of the cache.
pub struct Volume {
    pub name: String,
    pub store: Arc<dyn Store>,
    pub size_bytes: u64,
    pub class: Class,
    pub demotion_guard: DemotionGuard,
    pub tally: Tally,
    /// Whether its size changes while it is in use; see the module `growing`.
    pub grows: bool,
    /// Whether it was removed and its number is free.
    pub is_gone: bool,
    /// Pending notices from its clients.
    pub notices: Notices,
    /// Its dirty blocks.
    pub dirt: Dirt,
    /// Whose turn it is to flush its store.
    pub flush_turns: FlushTurns,
    /// Failed flushes, and who has yet to learn of them.
    pub losses: Losses,
    /// The guard of its unclean mark, if it has one.
    pub guard: Option<Box<Guard>>,
    /// Results of demotions for it.
    pub demotions: DemotionTally,
    /// How often all its hashes were discarded.
    pub era: u64,
    /// Its resident blocks.
    pub residents: Residents,
    /// Number of resident blocks that the upper level got and has not reported as evicted.
    pub held_above_blocks: u64,
    /// Costs of its store's operations; not measured for growing volumes.
    pub costs: Option<Box<Costs>>,
    /// Latencies of its requests; growing volumes share theirs ([`TreeLatencies`]).
    pub latencies: Option<Arc<Latencies>>,
    /// Latencies of its store's operations; growing volumes share theirs.
    pub store_latencies: Option<Arc<Latencies>>,
    /// Its place in the memory file, if there is one.
    pub kept: Option<KeptVolume>,
    /// What is known of its store while nobody uses it.
    pub watch: Watch,
    /// Whether its guest may not have come yet; see the module `handover`.
    pub awaits_guest: bool,
}

/// Latencies of all growing volumes together: the files of a tree come and go, and are too many to be measured one by one.
#[derive(Default)]
pub struct TreeLatencies {
    /// Of requests.
    pub requests: Arc<Latencies>,
    /// Of the stores' operations.
    pub store: Arc<Latencies>,
}

impl Volume {
    /// A new volume of a fixed size, without measurement of its store's operations.
    pub fn new(name: &str, store: Arc<dyn Store>, class: Class) -> Self {
        Self {
            name: name.to_owned(),
            size_bytes: store.size_bytes(),
            awaits_guest: store.is_incoming(),
            store,
            class,
            demotion_guard: DemotionGuard::default(),
            tally: Tally::default(),
            grows: false,
            is_gone: false,
            notices: Notices::default(),
            dirt: Dirt::default(),
            flush_turns: FlushTurns::default(),
            losses: Losses::default(),
            guard: None,
            demotions: DemotionTally::default(),
            era: 0,
            residents: Residents::default(),
            held_above_blocks: 0,
            costs: None,
            latencies: None,
            store_latencies: None,
            kept: None,
            watch: Watch::default(),
        }
    }
}

/// The name of a volume of these; empty if there is none with that number.
pub fn name_in(volumes: &[Volume], volume: VolumeId) -> String {
    let known = volumes.get(usize::from(volume.0));
    known.map_or_else(String::new, |known| known.name.clone())
}
