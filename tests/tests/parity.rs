//! Live equals simulated. With one reader, every decision of both live levels is the simulator's,
//! log for log; with several, every ratio is.

use futae_policy::AccessKind;
use futae_sim::Link;
use futae_testkit::stamp::Stamp;
use futae_testkit::wait::eventually;
use futae_tests::direct::{Buffer, Direct};
use futae_tests::predict::{Ratios, TwoLevels, assert_same_log, requests, writes};
use futae_tests::stage::Stage;
use futae_tests::{BLOCK, tools};
use futae_trace::BlockRequest;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

const BLOCKS: u64 = 10_240;
const UPPER: u32 = 3_072;
const LOWER: u32 = 4_096;
const REQUESTS: usize = 20_000;
const SEED: u64 = 11;
/// Requests between two looks at how many notices wait. Each brings at most one, and one may be on its way.
const NOTICES_MAX: usize = 4;

fn levels(upper: &'static str, lower: &'static str, link: Link) -> TwoLevels {
    TwoLevels {
        upper: (upper, UPPER),
        lower: (lower, LOWER),
        link,
        blocks: BLOCKS,
        seed: SEED,
    }
}

/// Both live levels over a stamped image, each writing its log.
fn start(levels: &TwoLevels) -> Stage {
    let mut stage = Stage::new(levels.blocks);
    let [upper_log, lower_log] = ["upper.log", "lower.log"].map(|name| stage.path(name));
    let seeds = [0, 1].map(|level| levels.level_seed(level).to_string());
    let (policy, slots) = levels.lower;
    let size = format!("{slots}blocks");
    let mut serve = vec!["--cache", &size, "--policy", policy];
    serve.extend([
        "--seed",
        &seeds[1],
        "--decision-log",
        tools::text(&lower_log),
    ]);
    stage.serve(&serve);
    let (policy, slots) = levels.upper;
    let size = format!("{slots}blocks");
    let on_eviction = match levels.link {
        Link::Demote => "demote",
        Link::Notice => "notice",
        Link::None => "none",
    };
    let mut mount = vec!["--cache", &size, "--policy", policy];
    mount.extend([
        "--seed",
        &seeds[0],
        "--decision-log",
        tools::text(&upper_log),
    ]);
    mount.extend(["--on-eviction", on_eviction]);
    stage.mount(&mount);
    stage
}

/// Sends every request, checking what it reads.
fn play(file: &Path, requests: impl Iterator<Item = BlockRequest>) {
    let file = Direct::open(file).expect("the mounted file opens");
    let mut buffer = Buffer::new(BLOCK);
    let mut versions = vec![0u64; BLOCKS as usize];
    for request in requests {
        let block = request.block();
        let (offset, version) = (block * BLOCK as u64, &mut versions[block as usize]);
        if request.kind() == AccessKind::Write {
            *version += 1;
            let version = *version;
            Stamp { block, version }.fill(buffer.get_mut());
            file.write(offset, &buffer).expect("a write");
        } else {
            file.read(offset, &mut buffer).expect("a read");
            let version = *version;
            assert_eq!(Stamp::read(buffer.get()), Some(Stamp { block, version }));
        }
    }
}

fn count(status: &Value, name: &str) -> u64 {
    let value = status[name].as_u64();
    value.unwrap_or_else(|| panic!("no {name} in {status}"))
}

/// Waits until the server is reading few blocks for notices. While it reads eight, the next notice waits for its
/// decision, and requests overtake it: as it should be, but not what is simulated. A disk can be slow for a moment.
fn wait_for_notices(stage: &Stage) {
    eventually("the server has read what notices named", || {
        let lower = stage.status();
        count(&lower["engines"][0], "notices_pending_blocks") <= NOTICES_MAX as u64 - 2
    });
}

fn ratios(upper: &Value, lower: &Value) -> Ratios {
    let of = |status: &Value| (count(status, "requests"), count(status, "hits"));
    Ratios::new(of(upper), of(lower))
}

/// One reader: both logs are the simulator's, line by line, and so is what was counted.
fn logs_are_equal(levels: &TwoLevels, workload: &str) {
    logs_are_those_of(levels, levels, workload);
}

/// The same, where the simulated policies are `others`.
fn logs_are_those_of(levels: &TwoLevels, others: &TwoLevels, workload: &str) {
    if !tools::has_fuse() {
        return;
    }
    let requests = requests(workload, SEED, REQUESTS);
    let mut stage = start(levels);
    let waits_at = |at: usize| levels.link == Link::Notice && at.is_multiple_of(NOTICES_MAX);
    let requests_in_pace = requests.iter().enumerate().map(|(at, request)| {
        if waits_at(at) {
            wait_for_notices(&stage);
        }
        *request
    });
    play(&stage.file(), requests_in_pace);
    let upper = stage.stop_mount();
    let lower = stage.stop_serve();
    let predicted = others.predict(&requests);
    let [upper_log, lower_log] = ["upper.log", "lower.log"].map(|name| stage.path(name));
    levels.assert_replays(0, &upper_log);
    levels.assert_replays(1, &lower_log);
    assert_same_log("upper", &upper_log, &predicted.upper_log);
    assert_same_log("lower", &lower_log, &predicted.lower_log);
    let lower = &lower["status"]["engines"][0];
    assert_eq!(ratios(&upper["status"], lower), predicted.ratios);
    assert_eq!(count(lower, "store_reads"), predicted.store_reads);
    assert_eq!(count(lower, "store_writes"), writes(&requests) as u64);
    assert_eq!(
        (count(lower, "errors"), count(lower, "demotions_refused")),
        (0, 0)
    );
}

#[test]
fn uniform_over_an_exclusive_level() {
    let workload = format!("uniform:{BLOCKS}blocks");
    logs_are_equal(&levels("lru", "exclusive", Link::Demote), &workload);
}

#[test]
fn uniform_with_writes_over_an_exclusive_level() {
    let workload = format!("uniform(writes=0.2):{BLOCKS}blocks");
    logs_are_equal(&levels("lru", "exclusive", Link::Demote), &workload);
}

#[test]
fn uniform_over_an_lru_level() {
    let workload = format!("uniform:{BLOCKS}blocks");
    logs_are_equal(&levels("lru", "lru", Link::None), &workload);
}

#[test]
fn zipf_with_writes_over_an_exclusive_level() {
    let workload = format!("zipf(0.8, writes=0.1):{BLOCKS}blocks");
    logs_are_equal(&levels("lru", "exclusive", Link::Demote), &workload);
}

#[test]
fn zipf_with_writes_over_an_lru_level() {
    let workload = format!("zipf(0.8, writes=0.1):{BLOCKS}blocks");
    logs_are_equal(&levels("lru", "lru", Link::None), &workload);
}

#[test]
fn a_loop_that_only_both_levels_together_hold() {
    let workload = format!("loop:{}blocks", UPPER + LOWER - 1);
    logs_are_equal(&levels("lru", "exclusive", Link::Demote), &workload);
}

#[test]
fn a_loop_over_an_lru_level() {
    let workload = format!("loop(writes=0.05):{}blocks", LOWER + 500);
    logs_are_equal(&levels("lru", "lru", Link::None), &workload);
}

#[test]
fn notices_to_an_exclusive_level() {
    let workload = format!("uniform(writes=0.1):{BLOCKS}blocks");
    logs_are_equal(&levels("lru", "exclusive", Link::Notice), &workload);
}

/// What the lower level believes to have left the upper one, and reads again, it does live as simulated.
#[test]
fn inference_below_a_level_that_tells_nothing() {
    let workload = format!("zipf(0.8, writes=0.1):{BLOCKS}blocks");
    logs_are_equal(&levels("lru", "inferred", Link::None), &workload);
}

#[test]
fn policies_that_draw_lots_draw_the_same() {
    let workload = format!("uniform:{BLOCKS}blocks");
    logs_are_equal(
        &levels("random", "exclusive(random)", Link::Demote),
        &workload,
    );
}

/// The lower level, for which a small lead is enough, changes to `exclusive` on the way.
#[test]
fn a_policy_that_chooses_chooses_the_same() {
    let workload = "phase(7000*zipf(1.0):5120blocks, 7000*loop:5120blocks)";
    let chooses = levels("auto", "auto(lead=0)", Link::Demote);
    logs_are_equal(&chooses, workload);
}

/// Protection, cost and demotion in one cache: on one class of blocks, none of them protected, it
/// takes every decision as the exclusive cache does.
#[test]
fn the_joined_rules_over_one_class_are_the_exclusive_level() {
    let joined = levels("lru", "directory(cost(exclusive))", Link::Demote);
    let exclusive = levels("lru", "exclusive", Link::Demote);
    let workload = format!("zipf(0.8, writes=0.1):{BLOCKS}blocks");
    logs_are_those_of(&joined, &exclusive, &workload);
}

/// In both levels, so that the lower one sees a stream without its most frequent blocks, too.
#[test]
fn cost_over_one_class_is_fifo_with_second_chance() {
    let cost = levels("cost", "cost(local_clean=7)", Link::None);
    let queues = levels("fifo-second-chance", "fifo-second-chance", Link::None);
    let workload = format!("zipf(0.8, writes=0.1):{BLOCKS}blocks");
    logs_are_those_of(&cost, &queues, &workload);
}

/// Several readers take turns as they come: the order differs, the ratios hardly.
fn ratios_are_close(levels: &TwoLevels, workload: &str) {
    const THREADS: usize = 6;
    if !tools::has_fuse() {
        return;
    }
    let requests = requests(workload, SEED, 2 * REQUESTS);
    let mut stage = start(levels);
    let (file, next) = (stage.file(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let turns = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
                let own = turns.map_while(|at| requests.get(at).copied());
                play(&file, own);
            });
        }
    });
    let upper = stage.stop_mount();
    let lower = stage.stop_serve();
    let live = ratios(&upper["status"], &lower["status"]["engines"][0]);
    let predicted = levels.predict(&requests).ratios;
    let distance = live.distance(predicted);
    assert!(distance < 0.005, "live {live:?}, predicted {predicted:?}");
}

#[test]
fn six_readers_over_an_exclusive_level() {
    let workload = format!("uniform:{BLOCKS}blocks");
    ratios_are_close(&levels("lru", "exclusive", Link::Demote), &workload);
}

#[test]
fn six_readers_over_an_lru_level() {
    let workload = format!("zipf(0.8):{BLOCKS}blocks");
    ratios_are_close(&levels("lru", "lru", Link::None), &workload);
}
