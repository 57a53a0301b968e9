//! Threads that read the requests through the upper cache, checking every byte.

use crate::demo::DemoPlan;
use crate::demo::image::is_block;
use crate::demo::stage::Stage;
use futae_engine::{EngineStatus, IoBuf};
use futae_terminal::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What was counted after the warm-up.
pub struct Measured {
    /// The upper cache, before and after.
    pub upper: (EngineStatus, EngineStatus),
    /// The lower cache, before and after.
    pub lower: (EngineStatus, EngineStatus),
    /// Requests counted.
    pub requests: usize,
    /// How long they took.
    pub seconds: f64,
    /// Processor time that this process spent meanwhile, in seconds: readers, mount, both caches and the server.
    pub processor_seconds: f64,
}

/// Reads everything: the warm-up first, then the requests that count.
pub fn read_all(
    plan: &DemoPlan,
    stage: &Stage,
    stopped: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(f64),
) -> Result<Measured, Failure> {
    let total = plan.requests.len();
    read_range(plan, stage, stopped, 0..plan.warmup_requests, progress)?;
    let before = (stage.upper_status(), stage.lower_status());
    let (begin, spent) = (Instant::now(), processor_time());
    read_range(plan, stage, stopped, plan.warmup_requests..total, progress)?;
    let seconds = begin.elapsed().as_secs_f64();
    let spent = processor_time().saturating_sub(spent);
    Ok(Measured {
        upper: (before.0, stage.upper_status()),
        lower: (before.1, stage.lower_status()),
        requests: total - plan.warmup_requests,
        seconds,
        processor_seconds: spent.as_secs_f64(),
    })
}

/// Processor time of this process so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.try_into().unwrap_or_default()
}

fn read_range(
    plan: &DemoPlan,
    stage: &Stage,
    stopped: &Arc<AtomicBool>,
    range: std::ops::Range<usize>,
    progress: &mut dyn FnMut(f64),
) -> Result<(), Failure> {
    let next = AtomicUsize::new(range.start);
    let read = || -> Result<(), Failure> {
        let mut reader = stage.reader()?;
        let mut buffer = IoBuf::new(plan.block_bytes as usize);
        while !stopped.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= range.end {
                return Ok(());
            }
            let block = plan.requests[at].block();
            reader.read(block * plan.block_bytes, buffer.as_mut_slice())?;
            if !is_block(block, buffer.as_slice()) {
                return Err(
                    anyhow::anyhow!("block {block} was read with the wrong content").into(),
                );
            }
        }
        Err(anyhow::anyhow!("interrupted; everything was taken down").into())
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..plan.threads).map(|_| scope.spawn(read)).collect();
        while !readers
            .iter()
            .all(std::thread::ScopedJoinHandle::is_finished)
        {
            let done = next.load(Ordering::Relaxed).min(range.end);
            progress(done as f64 / plan.requests.len() as f64);
            std::thread::sleep(Duration::from_millis(50));
        }
        let results = readers.into_iter().map(|reader| {
            reader
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a reader panicked").into()))
        });
        results.collect()
    })
}
