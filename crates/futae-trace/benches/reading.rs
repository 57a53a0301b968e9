//! How fast traces are read: from a file on disk (in the page cache) to dense block numbers, on
//! one thread. `cargo bench -p futae-trace` makes its own traces; with `-- FILE...` it reads those.
//! Rates are by the processor's time, which other work on the machine does not change much.

use futae_trace::{BlockRequest, BlockStream};
use futae_trace::{DenseTrace, RequestReader, TraceOptions, TraceReader, View, WorkloadSpec};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const REQUESTS: usize = 20_000_000;
const BLOCK_BYTES: u64 = 4096;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<PathBuf> = std::env::args_os()
        .skip(1)
        .filter(|arg| arg.to_str().is_none_or(|arg| !arg.starts_with("--")))
        .map(PathBuf::from)
        .collect();
    if !files.is_empty() {
        return files.iter().try_for_each(|file| measure(file));
    }
    let directory = std::env::temp_dir().join(format!("futae-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let outcome = made(&directory);
    std::fs::remove_dir_all(&directory)?;
    outcome
}

/// Traces made here: 1 M and 2.5 M blocks, as small numbers and as hashes of 64 bits.
fn made(directory: &Path) -> Result<(), Box<dyn Error>> {
    for (workload, scramble) in [
        ("zipf(1.0):1000000blocks", false),
        ("uniform:2621440blocks", false),
        ("zipf(1.0):1000000blocks", true),
    ] {
        let spec: WorkloadSpec = workload.parse()?;
        let mut generator = spec.generator(BLOCK_BYTES, 1)?;
        let mut blocks = vec![BlockRequest::default(); REQUESTS];
        generator.fill(&mut blocks);
        let mut data = Vec::with_capacity(REQUESTS * 24);
        for (at, request) in (0u32..).zip(&blocks) {
            let spread = request.block().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
            let block = if scramble { spread } else { request.block() };
            data.extend((at / 1000).to_le_bytes());
            data.extend(block.to_le_bytes());
            data.extend(4096u32.to_le_bytes());
            data.extend((-1i64).to_le_bytes());
        }
        let kind = if scramble { "hashed" } else { "small" };
        let name = workload.split(['(', ':']).next().unwrap_or(workload);
        let path = directory.join(format!("{name}-{kind}.oracleGeneral"));
        std::fs::write(&path, data)?;
        measure(&path)?;
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

fn measure(path: &Path) -> Result<(), Box<dyn Error>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut requests = 0;
    let parsed = best(|| {
        let mut reader = TraceReader::open(path, &TraceOptions::default())?;
        let mut batch = Vec::new();
        requests = 0;
        loop {
            batch.clear();
            reader.read_batch(&mut batch, 1024)?;
            if batch.is_empty() {
                return Ok(());
            }
            requests += std::hint::black_box(&batch).len();
        }
    })?;
    report(&format!("{name}: parse"), requests, parsed);
    for (what, view) in [
        ("start", View::Start),
        ("blocks", View::Blocks(BLOCK_BYTES)),
    ] {
        let time = best(|| {
            let mut reader = TraceReader::open(path, &TraceOptions::default())?;
            std::hint::black_box(DenseTrace::read(&mut reader, view)?);
            Ok(())
        })?;
        report(&format!("{name}: parse and number, {what}"), requests, time);
    }
    Ok(())
}

fn best(mut run: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<Duration, Box<dyn Error>> {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let (start, used) = (Instant::now(), processor_time());
        run()?;
        let time = match (used, processor_time()) {
            (Some(before), Some(after)) => after - before,
            _ => start.elapsed(),
        };
        best = best.min(time);
    }
    Ok(best)
}

/// What this thread has used of a processor, where the kernel tells.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = text.split(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

fn report(what: &str, requests: usize, time: Duration) {
    let rate = requests as f64 / time.as_secs_f64() / 1e6;
    println!("{what:<55} {rate:8.1} M requests/s");
}
