//! State that a reader keeps from record to record: the numbers of volumes and of hashed keys.

use super::TraceErrorKind;
use crate::dense::SECTOR_BYTES;
use crate::numbering::{BATCH, Keys, hash_of};
use crate::request::OBJECT_BYTES;
use crate::{Noted, Request, RequestKind};
use futae_policy::VolumeId;
use hashbrown::HashMap;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;
use std::slice::ChunksExact;

/// The longest plausible request.
pub const REQUEST_BYTES_MAX: u64 = 1 << 30;
/// Where the blocks of hashed keys begin.
pub const KEYED_BYTES: u64 = 1 << 62;
/// Volumes with a number of their own. All further ones share the last number, one after the other.
const OWN_VOLUMES: u32 = u16::MAX as u32;
/// Bytes from one of those to the next: 16 TiB.
const FOLDED_BYTES: u64 = 1 << 44;
/// As many as find room in 2^64 bytes.
const FOLDED_MAX: u32 = (1 << 20) - 1;
/// Between the parts of a volume's name that come from several columns. The parts may contain dots, so `a.b` and `c` are not `a` and `b.c`;
/// users see a dot in its place.
pub const VOLUME_PARTS: &str = "\u{1f}";
/// The longest name of a volume.
const NAME_BYTES_MAX: usize = 1024;

/// Turns the fields of records into requests.
pub struct Context {
    guest: u16,
    /// The block size for formats that number blocks without giving their size.
    unit_bytes: u64,
    /// Keys below this are block numbers.
    keys: u64,
    numbers: HashMap<String, u32>,
    volumes: Vec<String>,
    last: u32,
    /// Where the volume of this record begins on the last volume, on which it lies if this is not 0.
    folded_at: u64,
    hashed: Keys,
    /// Numbers of objects by the hash of their names.
    named: HashMap<u128, u64>,
    /// The time to live in each request so far, in seconds, 0 for none; `None` if lifetimes are not
    /// kept.
    lives: Option<Vec<u32>>,
    /// The recorded latency of each request so far, in microseconds, 0 for one without; `None` if
    /// latencies are not kept.
    latencies: Option<Vec<u32>>,
}

/// The fields of a record, not validated yet.
pub struct Raw {
    pub volume: VolumeId,
    pub offset_bytes: u64,
    pub length_bytes: u64,
    pub kind: RequestKind,
    pub time_us: Option<u64>,
}

impl Context {
    pub fn new(guest: u16, unit_bytes: u64) -> Self {
        let unit_bytes = unit_bytes.max(1);
        Self {
            guest,
            unit_bytes,
            keys: KEYED_BYTES / unit_bytes,
            numbers: HashMap::new(),
            volumes: Vec::new(),
            last: 0,
            folded_at: 0,
            hashed: Keys::default(),
            named: HashMap::new(),
            lives: None,
            latencies: None,
        }
    }

    /// Keeps lifetimes from now on.
    pub fn keep_lives(&mut self) {
        self.lives = Some(Vec::new());
    }

    /// Takes the kept lifetimes: one per request, if the format has them.
    pub fn take_lives(&mut self) -> Vec<u32> {
        self.lives.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Sets the lifetime of the object of the next request.
    #[inline]
    pub fn note_life(&mut self, text: &str) -> Result<(), TraceErrorKind> {
        let Some(lives) = &mut self.lives else {
            return Ok(());
        };
        let seconds = text.parse::<f64>().ok().filter(|&seconds| seconds >= 0.0);
        let seconds = seconds.ok_or_else(|| TraceErrorKind::Field {
            text: text.chars().take(40).collect(),
            expected: "a time to live in seconds",
        })?;
        // Fractions are rounded up; more than 136 years counts as for ever.
        lives.push(match seconds.ceil() {
            seconds if seconds < f64::from(u32::MAX) => seconds as u32,
            _ => 0,
        });
        Ok(())
    }

    /// Repeats the previous lifetime for the next request.
    pub fn repeat_life(&mut self) {
        if let Some(lives) = &mut self.lives
            && let Some(&last) = lives.last()
        {
            lives.push(last);
        }
    }

    /// Takes what is kept of the request that was read last.
    pub fn take_noted(&mut self) -> Noted {
        Noted {
            life_seconds: self.lives.as_mut().and_then(Vec::pop),
            latency_us: self.latencies.as_mut().and_then(Vec::pop),
        }
    }

    /// Keeps recorded latencies from now on.
    pub fn keep_latencies(&mut self) {
        self.latencies = Some(Vec::new());
    }

    /// Takes the kept latencies: one per request, if the format has them.
    pub fn take_latencies(&mut self) -> Vec<u32> {
        let latencies = self.latencies.as_mut();
        latencies.map(std::mem::take).unwrap_or_default()
    }

    /// Whether latencies are kept.
    #[inline]
    pub fn keeps_latencies(&self) -> bool {
        self.latencies.is_some()
    }

    /// Sets the recorded latency of the next request. More than 71 minutes count as 71 minutes.
    #[inline]
    pub fn note_latency(&mut self, us: u64) {
        if let Some(latencies) = &mut self.latencies {
            latencies.push(u32::try_from(us).unwrap_or(u32::MAX));
        }
    }

    /// The names of the volumes, by number.
    pub fn volumes(&self) -> &[String] {
        &self.volumes
    }

    /// The number of the volume among all, and where the request begins on it: what [`volume`](Self::volume) and
    /// [`request`](Self::request) made one number of.
    pub fn unfolded(request: &Request) -> (usize, u64) {
        let (number, offset) = (request.volume.0, request.offset_bytes);
        if u32::from(number) < OWN_VOLUMES {
            return (usize::from(number), offset);
        }
        let folded = (offset / FOLDED_BYTES) as usize;
        (usize::from(number) + folded, offset % FOLDED_BYTES)
    }

    /// How many volumes have no number of their own.
    pub fn folded_volumes(&self) -> usize {
        self.volumes.len().saturating_sub(OWN_VOLUMES as usize + 1)
    }

    /// The number of the volume with this name, which the next request is for; a new one gets the next number. Volumes beyond
    /// those that can be numbered share the last one.
    pub fn volume(&mut self, name: &str) -> Result<VolumeId, TraceErrorKind> {
        if self
            .volumes
            .get(self.last as usize)
            .is_some_and(|last| last == name)
        {
            return Ok(self.place());
        }
        if let Some(&number) = self.numbers.get(name) {
            self.last = number;
            return Ok(self.place());
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(TraceErrorKind::Field {
                text: name.chars().take(40).collect(),
                expected: "a name of at most 1024 bytes",
            });
        }
        let number = u32::try_from(self.volumes.len()).unwrap_or(u32::MAX);
        if number >= OWN_VOLUMES + FOLDED_MAX {
            return Err(TraceErrorKind::TooManyVolumes);
        }
        self.numbers.insert(name.to_owned(), number);
        self.volumes.push(name.replace(VOLUME_PARTS, "."));
        self.last = number;
        Ok(self.place())
    }

    /// Where the last volume is.
    fn place(&mut self) -> VolumeId {
        let folded = self.last.saturating_sub(OWN_VOLUMES);
        self.folded_at = u64::from(folded) * FOLDED_BYTES;
        VolumeId(self.last.min(OWN_VOLUMES) as u16)
    }

    /// A checked request.
    #[inline]
    pub fn request(&self, raw: Raw) -> Result<Request, TraceErrorKind> {
        let Raw {
            volume,
            offset_bytes,
            length_bytes,
            kind,
            time_us,
        } = raw;
        if length_bytes > REQUEST_BYTES_MAX {
            return Err(TraceErrorKind::TooLong {
                bytes: length_bytes,
            });
        }
        let end = offset_bytes.checked_add(length_bytes);
        let end = end.ok_or(TraceErrorKind::OutOfRange)?;
        // Whether further volumes follow is not known yet when the first one of the last number comes.
        if u32::from(volume.0) == OWN_VOLUMES && end > FOLDED_BYTES {
            return Err(TraceErrorKind::FoldedTooLarge);
        }
        Ok(Request {
            guest: self.guest,
            volume,
            offset_bytes: self.folded_at + offset_bytes,
            length_bytes,
            kind,
            time_us,
        })
    }

    /// A read of the one block that a key names.
    ///
    /// Keys that are block numbers keep their order. Larger keys are hashes: they are numbered in
    /// order of appearance, above all block numbers, so that different keys stay different.
    #[inline]
    pub fn key(&mut self, key: u64, time_us: Option<u64>) -> Result<Request, TraceErrorKind> {
        let block = if key < self.keys {
            key
        } else {
            self.hashed(key)
        };
        let offset_bytes = block
            .checked_mul(self.unit_bytes)
            .ok_or(TraceErrorKind::OutOfRange)?;
        self.request(Raw {
            volume: VolumeId(0),
            offset_bytes,
            length_bytes: self.unit_bytes,
            kind: RequestKind::Read,
            time_us,
        })
    }

    /// A request for the object with this name; `length_bytes` is its size, `None` if the trace has
    /// no sizes.
    ///
    /// Objects are numbered in order of appearance, and identified by a 128-bit hash: among 2^32
    /// objects, more than a simulation supports, two have the same hash with a probability below
    /// 10^-19.
    pub fn named(
        &mut self,
        name: &str,
        length_bytes: Option<u64>,
        kind: RequestKind,
        time_us: Option<u64>,
    ) -> Result<Request, TraceErrorKind> {
        let mut hasher = SipHasher13::new();
        hasher.write(name.as_bytes());
        let next = self.named.len() as u64;
        let number = *self
            .named
            .entry(hasher.finish128().as_u128())
            .or_insert(next);
        let (apart, length_bytes) = match length_bytes {
            Some(length) if length >= OBJECT_BYTES => {
                return Err(TraceErrorKind::ObjectTooLarge { bytes: length });
            }
            Some(length) => (OBJECT_BYTES, length),
            None => (self.unit_bytes, self.unit_bytes),
        };
        let offset_bytes = number
            .checked_mul(apart)
            .ok_or(TraceErrorKind::OutOfRange)?;
        Ok(Request {
            guest: self.guest,
            volume: VolumeId(0),
            offset_bytes,
            length_bytes,
            kind,
            time_us,
        })
    }

    /// As [`key`](Self::key) for many keys, without checking each for errors that apply to all;
    /// returns how many were valid.
    #[inline]
    pub fn keys<'a>(
        &mut self,
        records: ChunksExact<'a, u8>,
        decode: impl Fn(&'a [u8]) -> (u64, Option<u64>),
        requests: &mut Vec<Request>,
    ) -> usize {
        if self.unit_bytes > REQUEST_BYTES_MAX {
            return 0;
        }
        let good = records.len();
        requests.extend(records.map(|record| {
            let (key, time_us) = decode(record);
            Request {
                guest: self.guest,
                volume: VolumeId(0),
                offset_bytes: self.offset_bytes(key),
                length_bytes: self.unit_bytes,
                kind: RequestKind::Read,
                time_us,
            }
        }));
        good
    }

    /// As [`keys`](Self::keys), but appends only the sector where each request begins; returns
    /// their length, or `None` if they are not valid.
    #[inline]
    pub fn key_starts(
        &mut self,
        keys: impl Iterator<Item = u64>,
        starts: &mut Vec<u64>,
    ) -> Option<u64> {
        if self.unit_bytes > REQUEST_BYTES_MAX {
            return None;
        }
        let before = starts.len();
        starts.extend(keys);
        // Most units are powers of two. Then blocks of hashed keys begin at one, too.
        let unit_bits = self
            .unit_bytes
            .is_power_of_two()
            .then(|| self.unit_bytes.ilog2());
        let shift = unit_bits.and_then(|bits| bits.checked_sub(SECTOR_BYTES.ilog2()));
        for few in starts[before..].chunks_mut(BATCH) {
            if let Some(shift) = shift
                && few.iter().fold(0, |bits, key| bits | key) < self.keys
            {
                few.iter_mut().for_each(|key| *key <<= shift);
                continue;
            }
            if few.iter().fold(true, |all, &key| all & (key < self.keys)) {
                for key in few {
                    *key = key.wrapping_mul(self.unit_bytes) / SECTOR_BYTES;
                }
                continue;
            }
            let hashes = self.hashed.approach(few);
            for (key, hash) in few.iter_mut().zip(hashes) {
                let block = if *key < self.keys {
                    *key
                } else {
                    self.keys + u64::from(self.hashed.number(hash, *key))
                };
                *key = block.wrapping_mul(self.unit_bytes) / SECTOR_BYTES;
            }
        }
        Some(self.unit_bytes)
    }

    /// Where the block that a key names begins. Numbers of hashed keys begin at 2^62 bytes, and
    /// there are not 2^62 bytes of them.
    #[inline]
    fn offset_bytes(&mut self, key: u64) -> u64 {
        let block = if key < self.keys {
            key
        } else {
            self.hashed(key)
        };
        block.wrapping_mul(self.unit_bytes)
    }

    #[inline]
    fn hashed(&mut self, key: u64) -> u64 {
        let number = self.hashed.number(hash_of(key), key);
        self.keys + u64::from(number)
    }
}
