//! Densities of re-access intervals as a chart, for `futae locality` and for reports.

use crate::plot::{Line, Look, Plot, Rule, Scale, axis_unit, size_text};
use futae_sim::locality::{Bin, Bins, Intervals, end_bytes};

/// On a logarithmic axis narrower gaps are not pointed out.
const NARROW_BLOCKS: f64 = 8.0;
/// The unit of densities.
pub const GIB: f64 = (1u64 << 30) as f64;

/// The intervals at some places, in the same bins.
pub struct Densities<'a> {
    /// What the places are called, and what was counted there.
    pub places: Vec<(String, &'a Intervals)>,
    /// How many bins.
    pub bins: usize,
    /// How they divide the intervals.
    pub kind: Bins,
    /// Bytes of a block.
    pub block_bytes: u64,
}

/// What is shown of a bin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Height {
    /// Its density per GB.
    Density,
    /// Its share of all re-accesses: a density per width on a logarithmic axis.
    Share,
}

impl Densities<'_> {
    /// Where the bins of all places end.
    fn end_bytes(&self) -> f64 {
        let places = self.places.iter().map(|(_, intervals)| *intervals);
        end_bytes(places, self.kind, self.block_bytes)
    }

    /// The bins of one place.
    pub fn of(&self, intervals: &Intervals) -> Vec<Bin> {
        intervals.density(self.bins, self.kind, Some(self.end_bytes()))
    }

    /// The chart: a line for each place, and its gap where there is one to be seen.
    pub fn plot(&self, title: String, height: Height) -> Plot {
        let end = self.end_bytes();
        let (unit, name) = axis_unit(end);
        let is_log = self.kind == Bins::Log;
        let point = |bin: &Bin| {
            let x = match is_log && bin.low_bytes > 0.0 {
                true => (bin.low_bytes * bin.high_bytes).sqrt(),
                false => f64::midpoint(bin.low_bytes, bin.high_bytes),
            };
            let y = match height {
                Height::Density => bin.density_per_gb,
                Height::Share => bin.share,
            };
            (x / unit, y)
        };
        let line = |(place, intervals): &(String, &Intervals)| Line {
            name: place.clone(),
            points: self.of(intervals).iter().map(point).collect(),
            look: Look::Line,
        };
        let rule = |(line, (place, intervals)): (usize, &(String, &Intervals))| {
            let gap = intervals.gap_bytes()?;
            // A gap that nobody could see is not pointed out.
            let narrow = match self.kind {
                Bins::Linear => end / self.bins as f64,
                Bins::Log => NARROW_BLOCKS * self.block_bytes as f64,
            };
            let is_seen = gap > narrow && gap <= end;
            is_seen.then(|| Rule {
                name: format!("gap, {place}: {}", size_text(gap)),
                x: gap / unit,
                line,
            })
        };
        Plot {
            title,
            x_label: format!("re-access interval, {name} of other requests"),
            x_unit: name,
            y_label: match height {
                Height::Density => "density per GB (2^30 bytes)".to_owned(),
                Height::Share => format!("share of the re-accesses, in {} bins", self.bins),
            },
            y_scale: match height {
                Height::Density => Scale::Number,
                Height::Share => Scale::Percent,
            },
            log_x: is_log,
            lines: self.places.iter().map(line).collect(),
            rules: self.places.iter().enumerate().filter_map(rule).collect(),
            bars: Vec::new(),
        }
    }
}
