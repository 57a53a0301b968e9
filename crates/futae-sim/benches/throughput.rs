//! Requests per second of the simulator, for the common shapes: generation, digest and warm-up
//! included, best and median of several rounds. `cargo bench -p futae-sim`; one hierarchy only:
//! `cargo bench -p futae-sim -- WORKLOAD LEVEL...`.

use futae_sim::{LevelSpec, SimulationSpec, WriteMode, links, simulate};

const ROUNDS: usize = 5;
const REQUESTS: u64 = 10_000_000;

fn main() {
    println!(
        "{:<44} {:>10} {:>10}   million requests/s",
        "hierarchy", "best", "median"
    );
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    if let Some((workload, levels @ [_, ..])) = asked.split_first()
        && !workload.starts_with('-')
    {
        let levels: Vec<_> = levels
            .iter()
            .filter(|l| **l != "--bench")
            .copied()
            .collect();
        return one(workload, workload, &levels);
    }
    let uniform = "uniform:10GiB";
    let zipf = "zipf(1.0):1000000blocks";
    one("uniform 10 GiB, lru 1 GiB", uniform, &["lru:1GiB"]);
    one(
        "zipf 1.0 of 1e6 blocks, lru 91474",
        zipf,
        &["lru:91474blocks"],
    );
    one("uniform 10 GiB, fifo 1 GiB", uniform, &["fifo:1GiB"]);
    one(
        "uniform 10 GiB, lru 3 GiB, exclusive 3 GiB",
        uniform,
        &["lru:3GiB", "exclusive:3GiB"],
    );
    one(
        "uniform 10 GiB, lru 3 GiB, lru 3 GiB",
        uniform,
        &["lru:3GiB", "lru:3GiB"],
    );
    one(
        "uniform 10 GiB, fifo 3 GiB, exclusive 3 GiB",
        uniform,
        &["fifo:3GiB", "exclusive:3GiB"],
    );
    one(
        "zipf 1.0, lru 91474, exclusive 91474",
        zipf,
        &["lru:91474blocks", "exclusive:91474blocks"],
    );
}

fn one(name: &str, workload: &str, levels: &[&str]) {
    let levels: Vec<LevelSpec> = levels
        .iter()
        .map(|text| text.parse().expect("a level"))
        .collect();
    let spec = SimulationSpec {
        links: links(&levels, None),
        levels,
        write_mode: WriteMode::WriteThrough,
        guests: 1,
        workload: workload.parse().expect("a workload"),
        block_bytes: 4096,
        seed: 1,
        warmup_requests: Some(0),
        requests: Some(REQUESTS),
    };
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let report = simulate(&spec, &mut |_| {}).expect("a simulation");
            REQUESTS as f64 / report.runs[0].seconds / 1e6
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!(
        "{name:<44} {:>10.1} {:>10.1}",
        rates[ROUNDS - 1],
        rates[ROUNDS / 2]
    );
}
