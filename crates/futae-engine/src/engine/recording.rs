//! A recording of the requests to a running cache, in the order of their decisions: the trace that
//! `futae record` writes.
//!
//! The recording has a buffer of fixed size, which its reader empties periodically. Requests that
//! do not fit are counted and dropped, so a slow or dead reader costs the cache only that count.

use super::flights::Span;
use futae_policy::{VolumeId, mixed};
use hashbrown::HashSet;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

/// Requests that the buffer can hold: 2 MiB of them.
const ROOM: usize = 1 << 16;

/// One request for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The time of its decision, in microseconds since the recording began.
    pub micros: u64,
    /// Of which volume.
    pub volume: VolumeId,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Whether it is a write.
    pub is_write: bool,
}

/// The requests recorded since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedPart {
    /// The requests; in a sample, one for each sampled block.
    pub requests: Vec<Recorded>,
    /// Requests, or blocks of a sample, that did not fit into the buffer.
    pub lost: u64,
    /// The names of their volumes.
    pub names: BTreeMap<VolumeId, String>,
}

impl RecordedPart {
    /// An empty part with a buffer of full size.
    pub(super) fn with_room() -> Self {
        Self {
            requests: Vec::with_capacity(ROOM),
            lost: 0,
            names: BTreeMap::new(),
        }
    }
}

/// A recording under way.
pub struct Recording {
    /// Which recording of this cache it is.
    pub number: u64,
    begun: Instant,
    /// A block is in the sample if its hash is at most this; `None` if everything is recorded.
    sample_max: Option<u64>,
    part: RecordedPart,
    /// The volumes of the requests in `part`.
    volumes: HashSet<VolumeId>,
    /// That of the last one.
    last: Option<VolumeId>,
}

impl Recording {
    /// A recording that begins `now`, of the fraction `sample` of all blocks.
    pub fn new(number: u64, sample: f64, now: Instant) -> Self {
        Self {
            number,
            begun: now,
            sample_max: (sample < 1.0).then_some((sample.max(0.0) * u64::MAX as f64) as u64),
            part: RecordedPart::with_room(),
            volumes: HashSet::new(),
            last: None,
        }
    }

    /// Records a request for the range `span` of the blocks `blocks` of the volume called `name`.
    pub fn add(
        &mut self,
        (span, name): (&Span, &str),
        is_write: bool,
        (blocks, block_bytes): (Range<u64>, u64),
        now: Instant,
    ) {
        let recorded = Recorded {
            micros: now.duration_since(self.begun).as_micros() as u64,
            volume: span.volume,
            offset: span.offset,
            length: span.length,
            is_write,
        };
        let Some(sample_max) = self.sample_max else {
            return self.keep(recorded);
        };
        let seed = seed(name);
        for index in blocks.filter(|&index| mixed(seed ^ index) <= sample_max) {
            self.keep(Recorded {
                offset: index * block_bytes,
                length: block_bytes,
                ..recorded
            });
        }
    }

    fn keep(&mut self, recorded: Recorded) {
        if self.part.requests.len() < ROOM {
            if self.last != Some(recorded.volume) {
                self.last = Some(recorded.volume);
                self.volumes.insert(recorded.volume);
            }
            self.part.requests.push(recorded);
        } else {
            self.part.lost += 1;
        }
    }

    /// Whether a request for this volume waits for the reader.
    pub fn has_of(&self, volume: VolumeId) -> bool {
        self.volumes.contains(&volume)
    }

    /// A volume goes, and its name with it.
    pub fn keep_name(&mut self, volume: VolumeId, name: &str) {
        if self.has_of(volume) {
            self.part.names.insert(volume, name.to_owned());
        }
    }

    /// Exchanges the requests recorded since the last call for `empty`. The volumes that are there have the names of `name_of`.
    pub fn exchange(
        &mut self,
        empty: RecordedPart,
        name_of: impl Fn(VolumeId) -> String,
    ) -> RecordedPart {
        let mut part = std::mem::replace(&mut self.part, empty);
        for volume in self.volumes.drain() {
            let name = part.names.entry(volume);
            name.or_insert_with(|| name_of(volume));
        }
        self.last = None;
        part
    }
}

/// What decides, with its index, whether a block of a volume is in the sample. It comes from the name, because after a restart another
/// volume may have the number.
fn seed(name: &str) -> u64 {
    let bytes = name.bytes().map(u64::from);
    bytes.fold(0, |seed, byte| mixed(seed ^ byte))
}
