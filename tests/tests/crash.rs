//! Killed in the middle of writes: nothing that was answered is lost, nothing is torn.

use futae_policy::Prng;
use futae_testkit::nbd::Plain as Client;
use futae_tests::direct::{Buffer, Direct};
use futae_tests::ledger::{Ledger, Promise, Served, Volume};
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::has_fuse;
use std::io;
use std::thread;
use std::time::Duration;

const ROUNDS: u64 = 50;
/// Under write-back, where more can be lost; they are shorter.
const ROUNDS_BACK: u64 = 200;
const WRITERS: u64 = 3;
const BLOCKS: u64 = 3 * 1024;

impl Volume for Mounted {
    fn read(&mut self, offset: u64, buffer: &mut Buffer) -> io::Result<()> {
        self.0.read(offset, buffer)
    }
    fn write(&mut self, offset: u64, buffer: &Buffer) -> io::Result<()> {
        self.0.write(offset, buffer)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.sync()
    }
}

/// The mounted file.
struct Mounted(Direct);

fn ledgers() -> Vec<Ledger> {
    let each = BLOCKS / WRITERS;
    (0..WRITERS)
        .map(|writer| Ledger::new(writer * each, (writer + 1) * each, writer))
        .collect()
}

/// All writers work until `kill`, which comes at a random moment; then the image is checked.
fn one_round<V: Volume + Send>(
    ledgers: &mut [Ledger],
    volumes: Vec<V>,
    prng: &mut Prng,
    stage: &mut Stage,
    milliseconds: u64,
    kill: impl FnOnce(&mut Stage),
) {
    thread::scope(|scope| {
        for (ledger, mut volume) in ledgers.iter_mut().zip(volumes) {
            scope.spawn(move || ledger.work(&mut volume));
        }
        thread::sleep(Duration::from_millis(20 + prng.below(milliseconds)));
        kill(stage);
    });
    for ledger in ledgers {
        ledger.check(&stage.image);
    }
}

/// Kills first the server, or every second time the mount. Then the server too: it may still be
/// writing what it was sent, and the image that is checked must not change.
fn kill_in_turns(stage: &mut Stage, round: u64) {
    if round % 2 == 1 {
        stage.kill_mount();
    }
    stage.kill_serve();
}

/// Whether there were this many rounds, and each writer did something in them. A busy machine gets up to three times as many.
fn are_over(ledgers: &[Ledger], round: u64, rounds: u64) -> bool {
    let done = |ledger: &Ledger| (ledger.writes, ledger.flushes);
    let is_busy = |(writes, flushes)| writes > 10 * rounds && flushes > rounds;
    let idle = ledgers.iter().map(done).find(|&done| !is_busy(done));
    assert!(
        idle.is_none() || round < 3 * rounds,
        "only {idle:?} writes and flushes of a writer"
    );
    round >= rounds && idle.is_none()
}

#[test]
fn server_or_mount_killed_under_an_exclusive_level() {
    if !has_fuse() {
        return;
    }
    let (mut stage, mut ledgers) = (Stage::new(BLOCKS), ledgers());
    let mut prng = Prng::new(1);
    for round in 0.. {
        if are_over(&ledgers, round, ROUNDS) {
            break;
        }
        stage.serve(&["--cache", "4MiB", "--policy", "exclusive"]);
        stage.mount(&["--cache", "3MiB"]);
        let open = |_| Mounted(Direct::open(&stage.file()).expect("the mounted file"));
        let volumes = (0..WRITERS).map(open).collect();
        one_round(&mut ledgers, volumes, &mut prng, &mut stage, 180, |stage| {
            kill_in_turns(stage, round);
        });
        stage.kill_mount();
    }
}

#[test]
fn server_killed_under_plain_clients() {
    let (mut stage, mut ledgers) = (Stage::new(BLOCKS), ledgers());
    let mut prng = Prng::new(2);
    for round in 0.. {
        if are_over(&ledgers, round, ROUNDS) {
            break;
        }
        let policy = ["lru", "exclusive", "random"][round as usize % 3];
        stage.serve(&["--cache", "4MiB", "--policy", policy]);
        let connect = |_| Served(Client::connect(&stage.socket, EXPORT).expect("a connection"));
        let volumes = (0..WRITERS).map(connect).collect();
        one_round(
            &mut ledgers,
            volumes,
            &mut prng,
            &mut stage,
            180,
            Stage::kill_serve,
        );
    }
}

fn flushed_only(ledgers: Vec<Ledger>) -> Vec<Ledger> {
    let flushed = |ledger: Ledger| ledger.promised(Promise::Flushed);
    ledgers.into_iter().map(flushed).collect()
}

/// So little may be dirty, and for so short a time, that everything goes on all the time.
const BACK: [&str; 6] = [
    "--write-mode",
    "write-back",
    "--dirty-max",
    "30%",
    "--dirty-age-max",
    "40ms",
];

#[test]
fn write_back_over_a_file_killed_two_hundred_times() {
    let (mut stage, mut ledgers) = (Stage::new(BLOCKS), flushed_only(ledgers()));
    let mut prng = Prng::new(3);
    for round in 0.. {
        if are_over(&ledgers, round, ROUNDS_BACK) {
            break;
        }
        let policy = ["lru", "arc", "cost"][round as usize % 3];
        let lossy = ["--accept-lost-writes"];
        let arguments = [&["--cache", "4MiB", "--policy", policy], &BACK[..], &lossy].concat();
        stage.serve(&arguments);
        let connect = |_| Served(Client::connect(&stage.socket, EXPORT).expect("a connection"));
        let volumes = (0..WRITERS).map(connect).collect();
        let (ledgers, kill) = (&mut ledgers, Stage::kill_serve);
        one_round(ledgers, volumes, &mut prng, &mut stage, 60, kill);
    }
}

#[test]
fn write_back_over_a_server_killed_two_hundred_times() {
    if !has_fuse() {
        return;
    }
    let (mut stage, mut ledgers) = (Stage::new(BLOCKS), flushed_only(ledgers()));
    let mut prng = Prng::new(4);
    for round in 0.. {
        if are_over(&ledgers, round, ROUNDS_BACK) {
            break;
        }
        let lower = [
            "--cache",
            "4MiB",
            "--policy",
            "exclusive",
            "--accept-lost-writes",
        ];
        // Every second time the server writes back, too.
        let back = if round % 4 < 2 { &BACK[..] } else { &[] };
        stage.serve(&[&lower[..], back].concat());
        stage.mount(&[&["--cache", "3MiB"], &BACK[..]].concat());
        let open = |_| Mounted(Direct::open(&stage.file()).expect("the mounted file"));
        let volumes = (0..WRITERS).map(open).collect();
        one_round(&mut ledgers, volumes, &mut prng, &mut stage, 60, |stage| {
            kill_in_turns(stage, round);
        });
        stage.kill_mount();
    }
}
