//! Sampled curves against exact ones, on streams large enough for a sample of one percent.

use futae_policy::PolicySpec;
use futae_sim::curve::{Curve, ExactLru, MiniTrace, Shards, Source, even_sizes, simulate_sizes};
use futae_trace::View;

const BLOCK_BYTES: u64 = 4096;

/// Goes through a workload.
fn each(text: &str, requests: u64, act: impl FnMut(u64)) {
    let source = Source::open(text, View::Start, BLOCK_BYTES, Some(requests), 1);
    let source = source.expect("a workload");
    let mut act = act;
    let done = source.each(|request| act(request.block()), &|_| {});
    done.expect("a workload");
}

#[test]
fn shards_at_one_percent_is_within_half_a_point() {
    for text in ["uniform:4GiB", "zipf(0.8):4GiB", "zipf(1.0):4GiB"] {
        let mut exact = ExactLru::default();
        let mut rate = Shards::fixed_rate(0.01, 1).expect("a rate");
        let mut size = Shards::fixed_size(8192, 0.1, 1).expect("a rate");
        each(text, 5_000_000, |block| {
            exact.access(block as u32);
            rate.access(block);
            size.access(block);
        });
        let sizes = even_sizes(40, u64::from(exact.distinct()));
        let truth = exact.curve();
        let error = |curve: &Curve| truth.mean_absolute_error(curve, &sizes);
        let (at_rate, in_size) = (error(&rate.curve()), error(&size.curve()));
        println!("{text}: fixed rate {at_rate:.5}, fixed size {in_size:.5}");
        assert!(at_rate < 0.005, "{text}: {at_rate}");
        assert!(in_size < 0.01, "{text}: {in_size}");
    }
}

/// The stated error of miniature simulation at a rate of 0.1: half a point, on average over sizes.
const MINI_ERROR: f64 = 0.005;

#[test]
fn miniature_simulation_of_several_policies() {
    let mut full = MiniTrace::new(1.0, 1).expect("a rate");
    let mut small = MiniTrace::new(0.1, 1).expect("a rate");
    each(
        "mix(0.8*zipf(0.9):256MiB, 0.2*loop:128MiB)",
        600_000,
        |block| {
            full.access(block, false);
            small.access(block, false);
        },
    );
    let sizes = even_sizes(8, 96 * 1024);
    for policy in ["lru", "sieve", "arc", "2q", "lirs", "opt", "lfu-history"] {
        let policy = PolicySpec::plain(policy);
        let curve = |trace| simulate_sizes(trace, &policy, &sizes, 1, 2, &|_| {});
        let (full, small) = (curve(&full).expect("full"), curve(&small).expect("small"));
        let error = full.mean_absolute_error(&small, &sizes);
        println!("{policy}: {error:.5}");
        assert!(error < MINI_ERROR, "{policy}: {error}");
    }
}
