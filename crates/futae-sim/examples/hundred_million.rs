//! 100 million requests: the exact curve of LRU and that of SHARDS at a rate of 0.01, their times
//! and how far they are apart.
//!
//! `cargo run --release -p futae-sim --example hundred_million -- 'zipf(0.9):10GiB'`

use futae_sim::curve::{ExactLru, Shards, Source, even_sizes};
use futae_trace::View;
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let workload = arguments.next();
    let workload = workload.unwrap_or_else(|| "zipf(0.9):10GiB".to_owned());
    let requests = match arguments.next() {
        Some(number) => number.parse()?,
        None => 100_000_000,
    };
    let source = Source::open(&workload, View::Start, 4096, Some(requests), 1)?;

    let begin = Instant::now();
    let mut sum = 0u64;
    source.each(|request| sum = sum.wrapping_add(request.block()), &|_| {})?;
    std::hint::black_box(sum);
    let drawing = begin.elapsed();

    let begin = Instant::now();
    let mut shards = Shards::fixed_rate(0.01, 1)?;
    source.each(|request| shards.access(request.block()), &|_| {})?;
    let sampled = begin.elapsed();

    let begin = Instant::now();
    let mut exact = ExactLru::default();
    source.each(|request| exact.access(request.block() as u32), &|_| {})?;
    let whole = begin.elapsed();

    let sizes = even_sizes(100, u64::from(exact.distinct()));
    let error = exact.curve().mean_absolute_error(&shards.curve(), &sizes);
    println!(
        "{workload}: {requests} requests, {} blocks",
        exact.distinct()
    );
    println!("drawing the requests {drawing:.2?}, with SHARDS {sampled:.2?}, exact {whole:.2?}");
    println!("mean absolute error {:.3} points", 100.0 * error);
    Ok(())
}
