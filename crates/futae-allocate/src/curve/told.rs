//! A curve set as numbers, instead of one computed from requests.

/// Miss ratios at sizes that are equally far apart, the first at size 0.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    step: f64,
    ratios: Vec<f64>,
}

impl Told {
    /// `None` if these are not a curve: no ratios, or sizes that do not ascend.
    pub(crate) fn new(step: f64, ratios: &[f64]) -> Option<Self> {
        let is_ratio = |ratio: &f64| (0.0..=1.0).contains(ratio);
        let is_curve = step > 0.0 && !ratios.is_empty() && ratios.iter().all(is_ratio);
        is_curve.then(|| Self {
            step,
            ratios: ratios.to_vec(),
        })
    }

    /// The miss ratio at a size, interpolated linearly between two sizes; beyond the last size, the
    /// ratio of that size.
    pub(crate) fn at(&self, size: f64) -> f64 {
        let along = (size / self.step).max(0.0);
        let before = (along as usize).min(self.ratios.len() - 1);
        let after = (before + 1).min(self.ratios.len() - 1);
        let part = (along - before as f64).clamp(0.0, 1.0);
        self.ratios[before] + part * (self.ratios[after] - self.ratios[before])
    }

    /// The largest difference between two curves, at the sizes of this one.
    pub(crate) fn apart(&self, other: &Self) -> f64 {
        let sizes = (0..self.ratios.len()).map(|at| at as f64 * self.step);
        let apart = sizes.map(|size| (self.at(size) - other.at(size)).abs());
        apart.fold(0.0, f64::max)
    }
}
