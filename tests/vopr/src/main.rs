//! `make vopr` and `make crash-states`.

use futae_vopr::{Cover, run_seed};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut seed = 1;
    let mut seconds = 10;
    let mut traces = false;
    let mut runs = u64::MAX;
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args
            .next()
            .and_then(|value| value.parse::<u64>().ok())
            .unwrap_or(1);
        match name.as_str() {
            "--seed" => seed = value,
            "--seconds" => seconds = value,
            "--runs" => runs = value,
            "--trace" => traces = true,
            _ => {}
        }
    }
    let began = Instant::now();
    let mut cover = Cover::default();
    let mut done = 0;
    while done < runs && began.elapsed().as_secs() < seconds {
        if let Err(failure) = run_seed(seed + done, None, traces, &mut cover) {
            eprintln!("seed {}: {}", failure.seed, failure.what);
            return ExitCode::FAILURE;
        }
        done += 1;
    }
    println!(
        "{} operations, {} seeds, {} states, {} crashes {:?}",
        cover.operations,
        done,
        cover.states(),
        cover.process_crashes + cover.power_losses,
        began.elapsed()
    );
    ExitCode::SUCCESS
}
