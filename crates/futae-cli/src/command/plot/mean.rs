//! The mean of runs that differ in their seed only, and its interval.

use super::runs::Run;
use crate::plot::size_text;
use futae_sim::forecast::Estimate;
use futae_terminal::failure::Failure;

/// Figures of runs that differ in their seed only.
#[derive(Default)]
pub(super) struct Mean<'a> {
    pub(super) runs: Vec<(&'a Run, f64)>,
}

impl<'a> Mean<'a> {
    /// Adds a figure of a run. The same run may come twice, from two files.
    ///
    /// # Errors
    ///
    /// The run differs from the others in more than its seed.
    pub(super) fn add(&mut self, run: &'a Run, value: f64) -> Result<(), Failure> {
        let differ = |what: String| {
            let levels = run.levels.iter();
            let levels: Vec<String> = levels
                .map(|(policy, bytes)| format!("{policy} at {}", size_text(*bytes as f64)))
                .collect();
            let levels = levels.join(" over ");
            Err(Failure::usage(format!(
                "two runs of {levels} {what}; only runs that differ in nothing but their seed are drawn as their mean: \
                 draw these in pictures of their own"
            )))
        };
        for (other, figure) in &self.runs {
            for (name, theirs) in &other.conditions {
                let ours = run.conditions.iter().find(|ours| ours.0 == *name);
                if let Some((_, ours)) = ours.filter(|ours| ours.1 != *theirs) {
                    return differ(format!("have {name} {theirs} and {ours}"));
                }
            }
            if other.seed == run.seed {
                return match *figure == value {
                    true => Ok(()),
                    false => differ("have the same seed and other results".to_owned()),
                };
            }
        }
        self.runs.push((run, value));
        Ok(())
    }

    pub(super) fn figures(&self) -> Vec<f64> {
        self.runs.iter().map(|(_, figure)| *figure).collect()
    }

    pub(super) fn value(&self) -> f64 {
        self.figures().iter().sum::<f64>() / self.runs.len().max(1) as f64
    }

    /// Half of the width of the 95 % interval of the value, if that is known.
    pub(super) fn half(&self) -> Option<f64> {
        match &self.runs[..] {
            [] => None,
            [(run, _)] => run.half_width,
            _ => Some(Estimate::half_width_of_mean(&self.figures())),
        }
    }
}
