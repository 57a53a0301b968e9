//! A mount whose server is started again while another client writes: what it cached before must not come back.

use crate::{number, say};
use futae_policy::Prng;
use futae_testkit::nbd::Plain as Client;
use futae_testkit::stamp::Stamp;
use futae_testkit::wait::eventually;
use futae_tests::BLOCK;
use futae_tests::direct::{Buffer, Direct};
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::has_fuse;

/// Blocks of the volume.
const BLOCKS: u64 = 512;
/// Rounds unless `FUTAE_ROUNDS` says otherwise.
const ROUNDS: u64 = 5;

/// What one round does.
#[derive(Debug)]
struct Plan {
    /// Blocks of the cache of the mount, all of which it fills.
    cached: u64,
    /// The server is killed and not stopped.
    is_killed: bool,
    /// Blocks that the other client writes.
    written: Vec<u64>,
    /// It writes before the mount has connected again, and not after.
    is_early: bool,
    /// The mount writes, too, before: these of its blocks.
    own: Vec<u64>,
    /// How the mount writes.
    writes_back: bool,
}

fn sum(stage: &Stage, counter: &str) -> u64 {
    let status = stage.status();
    let engines = status["engines"].as_array().expect("caches");
    let counts = engines.iter().filter_map(|engine| engine[counter].as_u64());
    counts.sum()
}

/// Blocks that a new client reads otherwise than they are, of those that must be as they are said to be.
fn stale(stage: &Stage, versions: &[u64]) -> Vec<(u64, Option<Stamp>)> {
    let mut client = Client::connect(&stage.socket, EXPORT).expect("a connection");
    let mut found = Vec::new();
    for (block, &version) in (0..).zip(versions) {
        let data = client.read(block * BLOCK as u64, BLOCK).expect("an answer");
        let stamp = Stamp::read(&data.expect("data"));
        if stamp != Some(Stamp { block, version }) {
            found.push((block, stamp));
        }
    }
    found
}

/// Plays a round; the blocks that are stale in the end.
fn play(plan: &Plan) -> Vec<(u64, Option<Stamp>)> {
    let mut stage = Stage::new(BLOCKS);
    let serving = ["--policy", "exclusive", "--cache", "2MiB"];
    stage.serve(&serving);
    let size = format!("{}blocks", plan.cached);
    let mut words = vec![
        "--cache",
        &size,
        "--policy",
        "lru",
        "--store-timeout",
        "60s",
    ];
    if plan.writes_back {
        words.extend(["--write-mode", "write-back"]);
    }
    stage.mount(&words);
    let mut versions = vec![0; BLOCKS as usize];
    let file = Direct::open(&stage.file()).expect("the file opens");
    let mut buffer = Buffer::new(BLOCK);
    for block in 0..plan.cached {
        file.read(block * BLOCK as u64, &mut buffer)
            .expect("a read");
    }
    for &block in &plan.own {
        versions[block as usize] = 1;
        Stamp { block, version: 1 }.fill(buffer.get_mut());
        file.write(block * BLOCK as u64, &buffer).expect("a write");
    }
    if !plan.own.is_empty() {
        file.sync().expect("a flush");
    }
    // Starting a program closes its copies of this process's files, and a close waits for the server.
    drop(file);
    if plan.is_killed {
        stage.kill_serve();
    } else {
        stage.stop_serve();
    }
    stage.serve(&serving);
    let file = Direct::open(&stage.file()).expect("the file opens");
    // The first of these reads has the mount connect again; none of the blocks that it has is evicted yet.
    let connects = |stage: &Stage| eventually("the mount is back", || sum(stage, "requests") > 0);
    let mut next = plan.cached;
    let mut read_next = || {
        file.read(next * BLOCK as u64, &mut buffer).expect("a read");
        next += 1;
    };
    if !plan.is_early {
        read_next();
        connects(&stage);
    }
    let mut other = Client::connect(&stage.socket, EXPORT).expect("a connection");
    let mut bytes = vec![0; BLOCK];
    for &block in &plan.written {
        versions[block as usize] = 2;
        Stamp { block, version: 2 }.fill(&mut bytes);
        let written = other.write(block * BLOCK as u64, &bytes);
        written.expect("an answer").expect("a write");
    }
    other.flush().expect("an answer").expect("a flush");
    drop(other);
    // Everything that it had is evicted.
    for _ in 0..plan.cached {
        read_next();
    }
    drop(file);
    // What it demotes arrives before its end.
    stage.stop_mount_that_said("the connection was lost");
    let stale = stale(&stage, &versions);
    stage.stop_serve();
    stale
}

#[test]
fn what_a_mount_cached_before_its_server_was_killed_does_not_come_back() {
    if !has_fuse() {
        return;
    }
    for is_early in [true, false] {
        let plan = Plan {
            cached: 64,
            is_killed: true,
            written: (0..64).collect(),
            is_early,
            own: Vec::new(),
            writes_back: false,
        };
        let stale = play(&plan);
        assert!(
            stale.is_empty(),
            "{} of 64 blocks are stale: {stale:?}",
            stale.len()
        );
    }
}

#[test]
fn random_rounds_of_restart_and_other_writer() {
    if !has_fuse() {
        return;
    }
    let first = number("FUTAE_CONSISTENCY_SEED").unwrap_or(1);
    let rounds = number("FUTAE_ROUNDS").unwrap_or(ROUNDS);
    let mut checked = 0;
    for seed in (first..).take(rounds as usize) {
        let mut random = Prng::new(seed);
        let cached = 8 + random.below(120);
        let some = |random: &mut Prng| {
            let chances = 1 + random.below(4);
            (0..cached).filter(|_| random.below(chances) == 0).collect()
        };
        let plan = Plan {
            cached,
            is_killed: random.below(3) > 0,
            written: some(&mut random),
            is_early: random.below(2) == 0,
            own: if random.below(2) == 0 {
                some(&mut random)
            } else {
                Vec::new()
            },
            writes_back: random.below(3) == 0,
        };
        let stale = play(&plan);
        assert!(
            stale.is_empty(),
            "seed {seed}: {} blocks are stale: {stale:?}\n{plan:?}\nto see it again: FUTAE_CONSISTENCY_SEED={seed} \
             FUTAE_ROUNDS=1 cargo test --locked -p futae-tests --test consistency random_rounds",
            stale.len()
        );
        checked += plan.written.len();
    }
    say(&format!(
        "restart and other writer: seeds from {first}: {rounds} rounds, {checked} blocks written by another, 0 stale"
    ));
}
