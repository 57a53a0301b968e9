//! The cache: resident objects, their bytes, and evictions.

use futae_policy::{Access, AccessKind, Admission, BlockId, Departure, RegisteredPolicy, Slot};
use serde::Serialize;

/// The expiry of an object that never expires.
pub const NEVER: u64 = u64::MAX;

/// No slot.
const ABSENT: u32 = u32::MAX;

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Requests for resident objects.
    pub hits: u64,
    /// Requests for absent objects.
    pub misses: u64,
    /// Bytes requested.
    pub requested_bytes: u64,
    /// Bytes requested of absent objects.
    pub missed_bytes: u64,
    /// Objects placed.
    pub admissions: u64,
    /// Objects not placed because they exceed the largest admitted size or the cache.
    pub too_large: u64,
    /// Objects that the policy declined.
    pub declined: u64,
    /// Requests for objects that had expired, which are then removed; these are misses.
    pub expired: u64,
    /// Objects evicted to make room.
    pub evictions: u64,
    /// Bytes of evicted objects.
    pub evicted_bytes: u64,
}

/// A resident object.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    object: u32,
    bytes: u32,
    /// Its expiry.
    expires: u64,
}

/// A cache of objects, numbered densely from 0.
pub struct ObjectCache {
    policy: Box<dyn RegisteredPolicy>,
    capacity_bytes: u64,
    /// The largest admitted size in bytes.
    largest: u64,
    used_bytes: u64,
    /// By object.
    slots: Vec<u32>,
    /// By slot.
    held: Vec<Held>,
    free: Vec<Slot>,
    tick: u64,
    counts: Counts,
}

impl ObjectCache {
    /// An empty cache of this many bytes. Objects larger than `admit_bytes_max`, or than the cache,
    /// are not placed. The policy must be new, and not depend on a number of slots.
    #[must_use]
    pub fn new(
        policy: Box<dyn RegisteredPolicy>,
        capacity_bytes: u64,
        admit_bytes_max: Option<u64>,
    ) -> Self {
        Self {
            policy,
            capacity_bytes,
            largest: admit_bytes_max.map_or(capacity_bytes, |most| most.min(capacity_bytes)),
            used_bytes: 0,
            slots: Vec::new(),
            held: Vec::new(),
            free: Vec::new(),
            tick: 0,
            counts: Counts::default(),
        }
    }

    /// The counters since the cache was made, or since [`restart`](Self::restart).
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Ends a warm-up: resets the counters, and keeps the objects.
    pub fn restart(&mut self) {
        self.counts = Counts::default();
    }

    /// Number of resident objects, and their bytes.
    #[must_use]
    pub fn resident(&self) -> (u64, u64) {
        let objects = self.held.len() - self.free.len();
        (objects as u64, self.used_bytes)
    }

    /// Requests an object of this many bytes. Returns whether it was resident.
    pub fn access(&mut self, object: u32, bytes: u32, kind: AccessKind) -> bool {
        self.access_at(object, bytes, kind, 0, NEVER)
    }

    /// As [`access`](Self::access) at the time `now`, for an object that expires at `expires` if it
    /// is placed or written now. A resident object that has expired is removed first. Until its
    /// next request an expired object keeps its place, or is evicted, as if it had not expired.
    pub fn access_at(
        &mut self,
        object: u32,
        bytes: u32,
        kind: AccessKind,
        now: u64,
        expires: u64,
    ) -> bool {
        let bytes = bytes.max(1);
        let mut access = Access::of(BlockId::on_first(u64::from(object)), kind);
        access.tick = self.tick;
        self.tick += 1;
        self.counts.requests += 1;
        self.counts.requested_bytes += u64::from(bytes);
        if self.slots.len() <= object as usize {
            self.slots.resize(object as usize + 1, ABSENT);
        }
        let mut slot = self.slots[object as usize];
        if slot != ABSENT && self.held[slot as usize].expires <= now {
            self.policy.remove(Slot(slot), Departure::Invalidated);
            self.leave(Slot(slot));
            self.counts.expired += 1;
            slot = ABSENT;
        }
        if slot != ABSENT {
            if kind == AccessKind::Write {
                self.held[slot as usize].expires = expires;
            }
            self.counts.hits += 1;
            self.policy.hit(Slot(slot), &access);
            return true;
        }
        self.counts.misses += 1;
        self.counts.missed_bytes += u64::from(bytes);
        let new = Held {
            object,
            bytes,
            expires,
        };
        self.place(new, &access);
        false
    }

    /// Frees its slot. Returns its bytes.
    fn leave(&mut self, slot: Slot) -> u64 {
        let gone = self.held[slot.i()];
        self.slots[gone.object as usize] = ABSENT;
        self.free.push(slot);
        self.used_bytes -= u64::from(gone.bytes);
        u64::from(gone.bytes)
    }

    fn place(&mut self, new: Held, access: &Access) {
        let bytes = u64::from(new.bytes);
        if bytes > self.largest {
            self.counts.too_large += 1;
            return;
        }
        self.policy.note_size(new.bytes);
        if self.policy.miss(access) == Admission::Bypass {
            self.counts.declined += 1;
            return;
        }
        while self.used_bytes + bytes > self.capacity_bytes {
            let Some(slot) = self.policy.victim(access) else {
                self.counts.declined += 1;
                return;
            };
            self.policy.remove(slot, Departure::Evicted);
            self.counts.evictions += 1;
            self.counts.evicted_bytes += self.leave(slot);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.held.push(Held::default());
            Slot(self.held.len() as u32 - 1)
        });
        self.held[slot.i()] = new;
        self.slots[new.object as usize] = slot.0;
        self.used_bytes += bytes;
        self.counts.admissions += 1;
        self.policy.insert(slot, access);
    }

    /// Panics unless bytes, slots and the policy are consistent. For tests.
    pub fn audit(&self) {
        let (objects, bytes) = self.resident();
        assert!(bytes <= self.capacity_bytes);
        let order = self.policy.order();
        assert_eq!(order.len() as u64, objects);
        let held = order.iter().map(|slot| self.held[slot.i()]);
        assert_eq!(held.map(|held| u64::from(held.bytes)).sum::<u64>(), bytes);
        for slot in order {
            assert_eq!(self.slots[self.held[slot.i()].object as usize], slot.0);
        }
        self.policy.audit(objects as u32);
    }
}
