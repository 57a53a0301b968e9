//! The cache itself beside the shadow of the candidate in force.

/// Requests for each slot in which a change takes effect.
const SETTLING: u32 = 4;
/// Deviations of chance by which the cache must be behind.
const SURE: f64 = 6.0;

/// Hits of the cache. An order that keeps what it once had, as some do in a loop, may be stuck with worse blocks than its shadow.
#[derive(Default)]
pub struct Real {
    /// Which requests of this window hit and count, a bit each.
    hits: u64,
    score: f64,
    /// Requests that only one of the two hit, the later the more.
    apart: f64,
    /// Requests of the sample in which a change takes effect, and the cache counts as its shadow.
    settling: u32,
}

impl Real {
    /// The cache after a change to a candidate with this score, whose shadow has `slots`.
    pub fn behind_change(score: f64, slots: u32) -> Self {
        Self {
            score,
            settling: SETTLING * slots,
            ..Self::default()
        }
    }

    /// A request of the sample; `here` is its bit.
    #[inline]
    pub fn see(&mut self, is_hit: bool, here: u64) {
        self.hits |= if is_hit { here } else { 0 };
    }

    /// The cache counts as its shadow for this number of requests at least.
    pub fn settle(&mut self, requests: u32) {
        self.settling = self.settling.max(requests);
    }

    /// A window ends that is not compared.
    pub fn skip_window(&mut self, seen: u32) {
        self.hits = 0;
        self.settling = self.settling.saturating_sub(seen);
    }

    /// A window ends, in which the shadow had the hits `shadow`.
    pub fn end_window(&mut self, shadow: u64, seen: u32, kept: f64) {
        let mut hits = std::mem::take(&mut self.hits);
        if self.settling > 0 {
            hits = shadow;
        }
        self.settling = self.settling.saturating_sub(seen);
        self.score = self.score * kept + f64::from(hits.count_ones());
        self.apart = self.apart * kept + f64::from((hits ^ shadow).count_ones());
    }

    /// By how many hits the cache is behind the shadow, which has this score, if not by chance.
    pub fn behind(&self, score: f64) -> f64 {
        let behind = score - self.score;
        let is_sure = behind > SURE * self.apart.sqrt();
        if is_sure { behind } else { 0.0 }
    }
}
