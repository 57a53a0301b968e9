//! The candidates as sampled shadow caches, and what is made of their hits.

use crate::{
    Access, AccessKind, BlockId, HashIndex, Kind, Level, Outcome, PolicySpec, Prng,
    RegisteredPolicy, Shape, SpecError, Trait,
};

/// Slots of a cache for each slot of a shadow.
const SHARE: u32 = 64;
/// Slots of a shadow at least, or all of a smaller cache: with fewer, chance decides.
const SLOTS_MIN: u32 = 1024;
/// Requests of the sample between two looks at the candidates.
const WINDOW: u32 = 64;
/// Hits more that a candidate must have at least, however small the cache is.
const LEAD_MIN: f64 = 32.0;

/// So many times the cost of a change the cache may fall behind the shadow in force.
const LAG_COSTS: f64 = 2.0;
/// How much of a candidate's score a window leaves.
const SCORE_KEPT: f64 = 0.9;

/// One candidate.
struct Shadow {
    spec: PolicySpec,
    /// Whether it is of use only below a cache that says what it evicts.
    needs_evictions: bool,
    level: Level<Box<dyn RegisteredPolicy>>,
    /// In this window: hits where the shadow in force missed, less misses where it hit.
    gain: i32,
    /// Hits by which it leads the shadow in force since it last fell behind it.
    lead: f64,
    /// Hits since the last change, the later the more.
    score: f64,
}

/// All candidates.
pub struct Shadows {
    shadows: Vec<Shadow>,
    in_force: usize,
    /// Blocks whose hash is below it are in the sample.
    threshold: u64,
    salt: u64,
    margin: f64,
    /// What a change costs, in hits for each slot.
    cost: f64,
    slots: u32,
    /// Requests of the sample in this window, and since the last change.
    seen: u32,
    since_change: u64,
    /// Hits by which the cache itself falls behind the shadow in force: the two came to the same order by different ways.
    lag: f64,
    /// Whether the cache above has said what it evicts.
    has_evictions: bool,
    /// Whether each candidate hit in the present access.
    hits: Vec<bool>,
}

/// The candidates, the one in force at first foremost.
fn candidates() -> Vec<PolicySpec> {
    let marked = Kind::ALL
        .iter()
        .filter(|kind| kind.traits().contains(&Trait::Candidate));
    marked
        .map(|&kind| {
            let mut spec = PolicySpec::of(kind);
            spec.keep_served();
            spec
        })
        .collect()
}

impl Shadows {
    /// Empty shadows for a cache of this shape.
    pub fn new(shape: &Shape, margin: f64, cost: f64) -> Result<Self, SpecError> {
        let slots = (shape.slots / SHARE).max(SLOTS_MIN.min(shape.slots)).max(1);
        let share = f64::from(slots) / f64::from(shape.slots.max(1));
        let threshold = if share >= 1.0 {
            u64::MAX
        } else {
            (share * u64::MAX as f64) as u64
        };
        let shadow = |spec: PolicySpec| {
            let shape = Shape { slots, ..*shape };
            let policy = crate::build(&spec, &shape)?;
            Ok(Shadow {
                needs_evictions: spec.lives_on_demotions(),
                spec,
                level: Level::new(policy, HashIndex::default(), slots),
                gain: 0,
                lead: 0.0,
                score: 0.0,
            })
        };
        let shadows: Vec<_> = candidates()
            .into_iter()
            .map(shadow)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            hits: vec![false; shadows.len()],
            shadows,
            in_force: 0,
            threshold,
            salt: Prng::new(shape.seed).bits(),
            margin,
            cost,
            slots,
            seen: 0,
            since_change: 0,
            lag: 0.0,
            has_evictions: false,
        })
    }

    /// The policy in force.
    pub fn in_force(&self) -> &PolicySpec {
        &self.shadows[self.in_force].spec
    }

    /// Lets the shadows decide on an access that `is_hit` in the cache itself, if its block is of the sample. Whether a window is over.
    #[inline]
    pub fn see(&mut self, access: &Access, is_hit: bool) -> bool {
        if scatter(access.block, self.salt) > self.threshold || access.kind == AccessKind::Preload {
            return false;
        }
        self.decide(access, is_hit);
        self.seen >= WINDOW
    }

    fn decide(&mut self, access: &Access, is_hit: bool) {
        for (shadow, hit) in self.shadows.iter_mut().zip(&mut self.hits) {
            *hit = matches!(shadow.level.access(access), Outcome::Hit(_));
        }
        if !access.kind.is_demand() {
            self.has_evictions = true;
            return;
        }
        self.seen += 1;
        let mine = self.hits[self.in_force];
        self.lag += f64::from(i8::from(mine) - i8::from(is_hit)) - self.margin;
        self.lag = self.lag.max(0.0);
        for (shadow, &hit) in self.shadows.iter_mut().zip(&self.hits) {
            shadow.gain += i32::from(hit) - i32::from(mine);
        }
    }

    /// Ends a window. If another candidate leads the one in force by what a change costs, it is in force from now on; so is
    /// the best of the others if the cache falls far behind the shadow in force. Why; none unless it `may_change`.
    pub fn judge(&mut self, may_change: bool) -> Option<String> {
        let expected = self.margin * f64::from(self.seen);
        self.since_change += u64::from(self.seen);
        self.seen = 0;
        let (mut ahead, mut next) = ((0, 0.0), (self.in_force, f64::MIN));
        for (at, shadow) in self.shadows.iter_mut().enumerate() {
            let gain = f64::from(std::mem::take(&mut shadow.gain));
            shadow.lead = (shadow.lead + gain - expected).max(0.0);
            shadow.score = shadow.score * SCORE_KEPT + gain;
            let is_of_use = self.has_evictions || !shadow.needs_evictions;
            if !is_of_use || at == self.in_force {
                continue;
            }
            if shadow.lead > ahead.1 {
                ahead = (at, shadow.lead);
            }
            if shadow.score > next.1 {
                next = (at, shadow.score);
            }
        }
        let cost = (self.cost * f64::from(self.slots)).max(LEAD_MIN);
        let to = match () {
            () if !may_change => return None,
            () if ahead.1 >= cost => ahead.0,
            () if self.lag >= LAG_COSTS * cost => next.0,
            () => return None,
        };
        let said = format!(
            "{} orders the cache in place of {}: a lead of {:.0} hits, and {:.0} hits fewer than expected, {} sampled \
             requests after the last change",
            self.shadows[to].spec,
            self.in_force(),
            self.shadows[to].lead,
            self.lag,
            self.since_change
        );
        self.in_force = to;
        (self.since_change, self.lag) = (0, 0.0);
        // They are held against another candidate from now on.
        for shadow in &mut self.shadows {
            (shadow.lead, shadow.score) = (0.0, 0.0);
        }
        Some(said)
    }

    /// The cache has another size.
    pub fn resize(&mut self, slots: u32) {
        let share = self.threshold as f64 / u64::MAX as f64;
        let slots = ((f64::from(slots) * share).round() as u32).max(1);
        for shadow in &mut self.shadows {
            shadow.level.resize(slots);
        }
        self.slots = slots;
    }

    /// Panics unless each shadow's invariants hold.
    pub fn audit(&self) {
        for shadow in &self.shadows {
            shadow.level.audit();
        }
        debug_assert!(self.in_force < self.shadows.len());
    }
}

/// A hash of the block: which blocks are in the sample does not depend on how they are numbered.
#[inline]
fn scatter(block: BlockId, salt: u64) -> u64 {
    let name = (u64::from(block.volume().0) << 48 | block.index()) ^ salt;
    let name = (name ^ (name >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let name = (name ^ (name >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    name ^ (name >> 32)
}
