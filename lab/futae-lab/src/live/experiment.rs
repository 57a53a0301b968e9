//! What all experiments have in common: their type, and how their requests are chosen.

use futae_terminal::failure::Failure;
use futae_trace::{WorkloadError, WorkloadSpec};
use futae_units::Size;

/// A live experiment.
pub type Experiment = futae_papers::Experiment<Failure>;

/// The operations of `futae load --choice CHOICE`, on files that are so large together.
pub fn choice(choice: &str, size: Size) -> Result<WorkloadSpec, WorkloadError> {
    format!("{choice}:{size}").parse()
}
