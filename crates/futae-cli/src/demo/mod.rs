//! The demonstration: a real lower cache and a real upper cache over a real disk image, beside
//! what the simulator says about the very same requests.

mod delayed;
mod descriptors;
mod image;
mod outcome;
mod plan;
mod ratios;
mod readers;
mod stage;

pub use outcome::{DemoReport, DemoRun};
pub use plan::DemoPlan;

use crate::defaults::DEMO_POLICIES;
use futae_terminal::failure::Failure;
use futae_terminal::progress::Progress;
use stage::Stage;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs both lower caches, first LRU, then exclusive. `stopped` ends it early, with everything
/// taken down.
pub fn run(plan: &DemoPlan, stopped: &Arc<AtomicBool>, quiet: bool) -> Result<DemoReport, Failure> {
    let place = tempfile::Builder::new().prefix("futae-demo-").tempdir()?;
    let image = place.path().join("demo.img");
    {
        let progress = Progress::new("making the disk image", quiet);
        image::make(&image, plan, &mut |fraction| {
            progress.set(fraction);
            !stopped.load(Ordering::Relaxed)
        })?;
    }
    let mut runs = Vec::new();
    let mut carrier = String::new();
    for lower in DEMO_POLICIES {
        let predicted = plan.predict(lower.name())?;
        let progress = Progress::new(
            &format!("reading over an {} lower cache", lower.name()),
            quiet,
        );
        let stage = Stage::set(place.path(), &image, plan, lower)?;
        stage.carrier().clone_into(&mut carrier);
        let measured = readers::read_all(plan, &stage, stopped, &mut |f| progress.set(f));
        stage.strike()?;
        runs.push(DemoRun::new(plan, lower, &measured?, predicted));
    }
    Ok(DemoReport::new(plan, carrier, runs))
}
