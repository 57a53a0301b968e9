//! The candidates as sampled shadow caches, and what is made of their hits.

use crate::{
    Access, AccessKind, BlockId, HashIndex, Kind, Level, Outcome, PolicySpec, Prng,
    RegisteredPolicy, Shape, SpecError, Trait,
};

/// Slots of a cache for each slot of a shadow.
const SHARE: u32 = 64;
/// Slots of a shadow at least, or all of a smaller cache: with fewer, chance decides.
const SLOTS_MIN: u32 = 1024;
/// Requests of the sample in a window at least.
const WINDOW_MIN: u64 = 256;
/// A difference counts if it is so many standard deviations of what chance would make.
const DEVIATIONS: f64 = 3.0;
/// How much of what was counted a new window leaves.
const KEPT: f64 = 0.5;

/// One candidate.
struct Shadow {
    spec: PolicySpec,
    level: Level<Box<dyn RegisteredPolicy>>,
    /// In this window: hits where the order in force missed, and the other way round.
    better: u32,
    worse: u32,
    /// The same of windows before, the later the more.
    past_better: f64,
    past_worse: f64,
}

/// All candidates.
pub struct Shadows {
    shadows: Vec<Shadow>,
    in_force: usize,
    /// Blocks whose hash is below it are in the sample.
    threshold: u64,
    salt: u64,
    margin: f64,
    window_length: f64,
    window: u64,
    /// Requests of the sample in this window, and in those before, the later the more.
    seen: u64,
    past_seen: f64,
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
    pub fn new(shape: &Shape, margin: f64, window_length: f64) -> Result<Self, SpecError> {
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
                spec,
                level: Level::new(policy, HashIndex::default(), slots),
                better: 0,
                worse: 0,
                past_better: 0.0,
                past_worse: 0.0,
            })
        };
        let shadows: Vec<_> = candidates()
            .into_iter()
            .map(shadow)
            .collect::<Result<_, _>>()?;
        let mut shadows = Self {
            hits: vec![false; shadows.len()],
            shadows,
            in_force: 0,
            threshold,
            salt: Prng::new(shape.seed).bits(),
            margin,
            window_length,
            window: 0,
            seen: 0,
            past_seen: 0.0,
        };
        shadows.derive(slots);
        Ok(shadows)
    }

    fn derive(&mut self, slots: u32) {
        self.window = ((f64::from(slots) * self.window_length) as u64).max(WINDOW_MIN);
    }

    /// The policy in force.
    pub fn in_force(&self) -> &PolicySpec {
        &self.shadows[self.in_force].spec
    }

    /// Lets the shadows decide on an access, if its block is of the sample. Whether a window is over.
    #[inline]
    pub fn see(&mut self, access: &Access) -> bool {
        if scatter(access.block, self.salt) > self.threshold || access.kind == AccessKind::Preload {
            return false;
        }
        self.decide(access);
        self.seen >= self.window
    }

    fn decide(&mut self, access: &Access) {
        for (shadow, hit) in self.shadows.iter_mut().zip(&mut self.hits) {
            *hit = matches!(shadow.level.access(access), Outcome::Hit(_));
        }
        if !access.kind.is_demand() {
            return;
        }
        self.seen += 1;
        let mine = self.hits[self.in_force];
        for (shadow, &hit) in self.shadows.iter_mut().zip(&self.hits) {
            shadow.better += u32::from(hit && !mine);
            shadow.worse += u32::from(!hit && mine);
        }
    }

    /// Ends a window. If another candidate did better than the one in force, it is in force from now on; why.
    pub fn judge(&mut self) -> Option<String> {
        self.past_seen = self.past_seen * KEPT + self.seen as f64;
        self.seen = 0;
        let mut best: Option<(usize, f64)> = None;
        for (at, shadow) in self.shadows.iter_mut().enumerate() {
            let better = shadow.past_better * KEPT + f64::from(std::mem::take(&mut shadow.better));
            let worse = shadow.past_worse * KEPT + f64::from(std::mem::take(&mut shadow.worse));
            (shadow.past_better, shadow.past_worse) = (better, worse);
            let gain = better - worse;
            let is_chance = gain <= DEVIATIONS * (better + worse).sqrt();
            let is_small = gain <= self.margin * self.past_seen;
            if !is_chance && !is_small && best.is_none_or(|(_, most)| gain > most) {
                best = Some((at, gain));
            }
        }
        let (at, gain) = best?;
        let points = 100.0 * gain / self.past_seen;
        let (from, to) = (
            self.in_force().to_string(),
            self.shadows[at].spec.to_string(),
        );
        self.in_force = at;
        // They are held against another candidate from now on.
        for shadow in &mut self.shadows {
            (shadow.past_better, shadow.past_worse) = (0.0, 0.0);
        }
        let requests = self.past_seen as u64;
        self.past_seen = 0.0;
        Some(format!(
            "{to} orders the cache in place of {from}: {points:.1} points more hits in about {requests} \
             sampled requests"
        ))
    }

    /// The cache has another size.
    pub fn resize(&mut self, slots: u32) {
        let share = self.threshold as f64 / u64::MAX as f64;
        let slots = ((f64::from(slots) * share).round() as u32).max(1);
        for shadow in &mut self.shadows {
            shadow.level.resize(slots);
        }
        self.derive(slots);
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
