//! What the cache knows of one volume.

use super::cost::Costs;
use super::demotion_guard::DemotionGuard;
use super::dirt::Dirt;
use super::kept::KeptVolume;
use super::mark_guard::Guard;
use super::notices::Notices;
use super::residents::Residents;
use super::tally::Tally;
use super::verify::HandDownTally;
use crate::{Latencies, Store};
use futae_policy::Class;
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
    /// Whether it was removed, and its number is free.
    pub is_gone: bool,
    /// What its clients have told of.
    pub notices: Notices,
    /// What its store does not have yet.
    pub dirt: Dirt,
    /// Its mark while the store lacks data, if it has one.
    pub guard: Option<Box<Guard>>,
    /// What became of data that was handed down for it.
    pub handed_down: HandDownTally,
    /// How often all hashes of it were forgotten.
    pub era: u64,
    /// Which of its blocks are resident.
    pub residents: Residents,
    /// How many of them were served to the level above, which has not said that it evicted them.
    pub held_above_blocks: u64,
    /// What its store's operations take; not measured of volumes that come and go.
    pub costs: Option<Box<Costs>>,
    /// How long its requests took; not noted of volumes that come and go.
    pub latencies: Option<Arc<Latencies>>,
    /// How long the operations of its store took; likewise.
    pub store_latencies: Option<Box<Latencies>>,
    /// Its place in the memory file, if its blocks are kept in one.
    pub kept: Option<KeptVolume>,
}

impl Volume {
    /// A volume of which nothing is known yet, of a fixed size; what its store's operations take is not measured.
    pub fn new(name: &str, store: Arc<dyn Store>, class: Class) -> Self {
        Self {
            name: name.to_owned(),
            size_bytes: store.size_bytes(),
            store,
            class,
            demotion_guard: DemotionGuard::default(),
            tally: Tally::default(),
            grows: false,
            is_gone: false,
            notices: Notices::default(),
            dirt: Dirt::default(),
            guard: None,
            handed_down: HandDownTally::default(),
            era: 0,
            residents: Residents::default(),
            held_above_blocks: 0,
            costs: None,
            latencies: None,
            store_latencies: None,
            kept: None,
        }
    }
}
