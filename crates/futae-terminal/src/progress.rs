//! A progress bar on a terminal, nothing when piped.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

const STEPS: u64 = 1000;

/// Shows how much of a long work is done.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar on standard error if that is a terminal and `quiet` is not asked for.
    pub fn new(what: &str, quiet: bool) -> Self {
        let bar = ProgressBar::new(STEPS);
        let shown = !quiet && std::io::stderr().is_terminal();
        bar.set_draw_target(if shown {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        });
        if let Ok(style) =
            ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} %  {eta} left")
        {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        Self { bar }
    }

    /// `fraction` of the work, from 0 to 1, is done.
    pub fn set(&self, fraction: f64) {
        self.bar
            .set_position((fraction.clamp(0.0, 1.0) * STEPS as f64) as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
