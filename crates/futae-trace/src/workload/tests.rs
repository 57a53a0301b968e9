mod grammar;

use super::{WorkloadSpec, workloads};
use crate::{BlockRequest, BlockStream};

/// The block size of the first paper's simulation: 10 GiB are 20,480 blocks.
const BLOCK_BYTES: u64 = 512 << 10;

fn spec(text: &str) -> WorkloadSpec {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

fn draw(text: &str, seed: u64, count: usize) -> Vec<BlockRequest> {
    let mut generator = spec(text)
        .generator(BLOCK_BYTES, seed)
        .unwrap_or_else(|e| panic!("{e}"));
    let mut out = vec![BlockRequest::default(); count];
    assert_eq!(generator.fill(&mut out), count);
    out
}

fn blocks(text: &str, seed: u64, count: usize) -> Vec<u64> {
    draw(text, seed, count)
        .into_iter()
        .map(BlockRequest::block)
        .collect()
}

#[test]
fn the_first_requests_never_change() {
    let golden = [
        (
            "uniform:10GiB",
            "[R3561, R6282, R6513, R1971, R2225, R9126, R7603, R16088]",
        ),
        (
            "uniform(writes=0.5):10GiB",
            "[R3561, R6282, W6513, W1971, W2225, R9126, R7603, W16088]",
        ),
        (
            "zipf(0.8):10GiB",
            "[R13297, R5144, R4297, R20212, R15822, R7348, R13209, R9601]",
        ),
        (
            "zipf(1.0):10GiB",
            "[R2619, R7476, R2769, R6913, R9355, R9924, R17231, R13146]",
        ),
        (
            "zipf(1.2):10GiB",
            "[R2434, R18882, R16041, R18098, R13319, R3433, R13638, R7789]",
        ),
        ("loop:3MiB", "[R0, R1, R2, R3, R4, R5, R0, R1]"),
        ("scan:3MiB", "[R0, R1, R2, R3, R4, R5, R0, R1]"),
        (
            "normal(0.25):2GiB",
            "[R1120, R1498, R1754, R1397, R1063, R1911, R1472, R3324]",
        ),
        (
            "mix(0.7*zipf(1.0):10GiB, 0.3*scan:4GiB)",
            "[R9624, R3866, R9624, R3866, R15116, R7561, R11435, R20480]",
        ),
        (
            "phase(3*zipf(0.8):10GiB, 3*loop:6GiB)",
            "[R13090, R18347, R654, R20480, R20481, R20482, R14909, R13097]",
        ),
        (
            "shift(zipf(1.0):10GiB, every=4)",
            "[R13276, R5109, R3955, R5982, R4941, R14813, R9670, R19543]",
        ),
    ];
    for (text, expected) in golden {
        assert_eq!(format!("{:?}", draw(text, 1, 8)), expected, "{text}");
    }
}

#[test]
fn every_example_of_the_list_works() {
    for workload in workloads() {
        let spec = spec(workload.example);
        assert_eq!(spec.to_string(), workload.example);
        let limit = spec.blocks(BLOCK_BYTES).expect(workload.example);
        assert!(
            blocks(workload.example, 7, 10_000)
                .into_iter()
                .all(|block| block < limit)
        );
        assert!(workload.example.starts_with(workload.name));
    }
}

#[test]
fn footprints_stand_side_by_side_unless_shared() {
    let blocks = |text| spec(text).blocks(1 << 30).expect(text);
    assert_eq!(blocks("zipf(1.0):10GiB"), 10);
    assert_eq!(blocks("loop:7blocks"), 7);
    assert_eq!(blocks("mix(1*uniform:10GiB, 1*scan:4GiB)"), 14);
    assert_eq!(
        blocks("mix(1*uniform:10GiB, 1*scan:4GiB, space=shared)"),
        10
    );
    assert_eq!(
        blocks("phase(5*uniform:4GiB, 5*shift(loop:6GiB, every=3), space=apart)"),
        10
    );
}

#[test]
fn only_a_scan_is_ever_complete() {
    let requests = |text| spec(text).natural_requests(1 << 30).expect(text);
    assert_eq!(requests("scan:10GiB"), Some(10));
    assert_eq!(requests("loop:10GiB"), None);
    assert_eq!(requests("mix(1*scan:10GiB)"), None);
}

#[test]
fn batches_and_single_requests_are_one_stream() {
    let text = "mix(1*zipf(1.0):10GiB, 2*phase(7*normal(writes=0.3, 0.2):1GiB, \
                5*shift(loop:4MiB, every=3)), space=shared)";
    let whole = draw(text, 9, 1000);
    let mut generator = spec(text).generator(BLOCK_BYTES, 9).expect(text);
    let mut pieces = Vec::new();
    for size in 0..100 {
        let mut batch = vec![BlockRequest::default(); size % 17];
        generator.fill(&mut batch);
        pieces.extend(batch);
        let (block, kind) = generator.next_block();
        let one = BlockRequest::read(block);
        pieces.push(if kind == futae_policy::AccessKind::Write {
            BlockRequest::write(block)
        } else {
            one
        });
    }
    assert!(pieces.len() > 800);
    assert_eq!(pieces, whole[..pieces.len()]);
}

#[test]
fn uniform_passes_a_chi_square_test() {
    const CELLS: usize = 1000;
    let mut seen = [0f64; CELLS];
    for block in blocks("uniform:1000blocks", 3, 1_000_000) {
        seen[block as usize] += 1.0;
    }
    let mean = 1000.0;
    let chi: f64 = seen.iter().map(|n| (n - mean) * (n - mean) / mean).sum();
    // 999 degrees of freedom: mean 999, standard deviation 44.7; three of these either way.
    assert!((865.0..1133.0).contains(&chi), "{chi}");
}

#[test]
fn normal_has_its_mean_and_deviation() {
    // A deviation of 0.25 cut off at two deviations keeps 0.8796 of it; one of 0.1, all.
    for (sigma, expected) in [(0.1, 0.1), (0.25, 0.25 * 0.879_626)] {
        let count = 1_000_000;
        let text = format!("normal({sigma}):100000blocks");
        let positions: Vec<f64> = blocks(&text, 4, count)
            .into_iter()
            .map(|b| (b as f64 + 0.5) / 100_000.0)
            .collect();
        let mean = positions.iter().sum::<f64>() / count as f64;
        let square = positions
            .iter()
            .map(|p| (p - mean) * (p - mean))
            .sum::<f64>();
        let deviation = (square / count as f64).sqrt();
        assert!(
            (mean - 0.5).abs() < 4.0 * expected / 1000.0,
            "{text}: mean {mean}"
        );
        assert!(
            (deviation / expected - 1.0).abs() < 0.003,
            "{text}: deviation {deviation}"
        );
    }
}

#[test]
fn a_mix_has_its_weights() {
    let mixed = blocks(
        "mix(7*uniform:10blocks, 3*scan:1000000blocks)",
        5,
        1_000_000,
    );
    let scanned: Vec<u64> = mixed.into_iter().filter(|&b| b >= 10).collect();
    // A deviation is 458 requests.
    assert!(
        (298_600..301_400).contains(&scanned.len()),
        "{}",
        scanned.len()
    );
    assert!(
        scanned
            .iter()
            .zip(10..)
            .all(|(&block, expected)| block == expected)
    );
}

#[test]
fn phases_take_turns_and_go_on_where_they_were() {
    let phases = blocks("phase(3*loop:4blocks, 2*loop:10blocks)", 1, 12);
    assert_eq!(phases, [0, 1, 2, 4, 5, 3, 0, 1, 6, 7, 2, 3]);
    let shared = blocks("phase(3*loop:4blocks, 2*loop:10blocks, space=shared)", 1, 7);
    assert_eq!(shared, [0, 1, 2, 0, 1, 3, 0]);
}

#[test]
fn a_shift_changes_which_blocks_are_popular() {
    let requests = blocks("shift(zipf(1.2):1000blocks, every=50000)", 2, 150_000);
    let favourites: Vec<u64> = requests
        .chunks(50_000)
        .filter_map(|phase| {
            let mut seen = [0u32; 1000];
            phase.iter().for_each(|&block| seen[block as usize] += 1);
            (0..1000).max_by_key(|&block: &u64| seen[block as usize])
        })
        .collect();
    assert_eq!(favourites.len(), 3);
    assert!(
        favourites[0] != favourites[1] && favourites[1] != favourites[2],
        "{favourites:?}"
    );
    let plain = blocks("shift(loop:10blocks, every=1000)", 2, 25);
    assert_eq!(
        plain,
        blocks("loop:10blocks", 2, 25),
        "nothing moves before the first shift"
    );
}

#[test]
fn writes_have_their_share_and_change_no_block() {
    let reads = draw("zipf(1.0):10GiB", 6, 100_000);
    let mixed = draw("zipf(1.0, writes=0.3):10GiB", 6, 100_000);
    assert!(
        reads
            .iter()
            .zip(&mixed)
            .all(|(a, b)| a.block() == b.block())
    );
    let writes = mixed.iter().filter(|r| r.is_write()).count();
    assert!((29_500..30_500).contains(&writes), "{writes}");
    assert!(!reads.iter().any(|r| r.is_write()));
    assert!(
        draw("uniform(writes=1):10GiB", 6, 1000)
            .iter()
            .all(|r| r.is_write())
    );
}

#[test]
fn seeds_and_parts_differ() {
    assert_ne!(blocks("uniform:10GiB", 1, 8), blocks("uniform:10GiB", 2, 8));
    let twins = blocks(
        "phase(8*uniform:10GiB, 8*uniform:10GiB, space=shared)",
        1,
        16,
    );
    assert_ne!(twins[..8], twins[8..]);
}
