//! A model checker of consistency over the real binary: random reads, writes, trims, zeroes, flushes and demotions of several
//! clients, among them hostile ones, over one or two exports of one `futae serve`, which is killed, stopped and resized, whose policy changes,
//! and whose stores fail and go away. Some servers hold equal blocks once, and some go on with the memory of the last one,
//! while another program writes to images between them. A model says what each sector may hold; whatever is stale, torn,
//! forged or of another volume is reported with the seed and the history of its sector.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `FUTAE_CONSISTENCY_OPERATIONS` | operations at least, all rounds together: 100,000 unless said otherwise |
//! | `FUTAE_CONSISTENCY_SECONDS` | begin rounds for this time in place of counting operations |
//! | `FUTAE_CONSISTENCY_SEED` | the seed of the first round; the next has the next |
//! | `FUTAE_CONSISTENCY_ROUNDS` | rounds at most |
//! | `FUTAE_CONSISTENCY_VERBOSE` | set: say what each round is played with |
//! | `FUTAE_ROUNDS` | rounds of "restart and other writer" |
//!
//! What a client asks for depends on the seed alone, the order of answers on the machine too. So a defect that depends on
//! timing may need its seed several times.

mod cases;
mod client;
mod config;
mod connection;
mod driver;
mod log;
mod model;
mod proof;
mod reports;
mod rules;
mod sector;
mod server;

use config::Config;
use driver::Driver;
use futae_policy::Prng;
use futae_tests::tools::has;
use log::Counts;
use std::env;
use std::io::{Write, stderr};
use std::time::{Duration, Instant};

const OPERATIONS: u64 = 100_000;

/// A number from the environment.
pub fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text}: not a whole number")))
}

/// Says something past the capturing of tests' output.
pub fn say(what: &str) {
    // A message that nobody can read is nobody's loss.
    let _ = writeln!(stderr(), "{what}");
}

/// Says how to see a round again, if it ends in a panic.
struct Again(u64);

impl Drop for Again {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say(&format!(
                "consistency: violations: 1, with seed {0}; to see it again:\n    {1}",
                self.0,
                again(self.0)
            ));
        }
    }
}

fn again(seed: u64) -> String {
    format!(
        "FUTAE_CONSISTENCY_SEED={seed} FUTAE_CONSISTENCY_ROUNDS=1 cargo test --locked -p futae-tests --test consistency \
         random_operations -- --nocapture"
    )
}

fn round(seed: u64, has_nbdkit: bool) -> Counts {
    let _again = Again(seed);
    let mut random = Prng::new(seed);
    let config = Config::draw(&mut random, has_nbdkit);
    play(seed, config, random)
}

fn play(seed: u64, config: Config, mut random: Prng) -> Counts {
    if env::var_os("FUTAE_CONSISTENCY_VERBOSE").is_some() {
        say(&format!("seed {seed}: {config}"));
    }
    let operations = 1500 + random.below(3000);
    let shown = config.to_string();
    let mut driver = Driver::new(config, random);
    let command = driver.command();
    if let Err(problem) = driver.play(operations) {
        panic!("seed {seed}: {shown}\n{command}\n{problem}");
    }
    driver.counts
}

#[test]
fn random_operations_find_what_the_model_allows() {
    let first = number("FUTAE_CONSISTENCY_SEED").unwrap_or(1);
    let rounds = number("FUTAE_CONSISTENCY_ROUNDS").unwrap_or(u64::MAX);
    let seconds = number("FUTAE_CONSISTENCY_SECONDS").map(Duration::from_secs);
    let operations = number("FUTAE_CONSISTENCY_OPERATIONS").unwrap_or(OPERATIONS);
    let begin = Instant::now();
    let has_nbdkit = has("nbdkit");
    let mut counts = Counts::default();
    while counts.rounds < rounds
        && seconds.map_or(counts.operations < operations, |seconds| {
            begin.elapsed() < seconds
        })
    {
        counts += round(first.wrapping_add(counts.rounds), has_nbdkit);
    }
    say(&format!(
        "consistency: seeds from {first}: {counts}, violations: 0"
    ));
}

/// Nobody may write to the second export, and one of its clients demotes what was never there.
#[test]
fn a_read_only_export_is_not_forged() {
    for seed in 1..=3 {
        let mut random = Prng::new(seed);
        let counts = play(seed, Config::forged(&mut random), random);
        assert!(counts.demotions_forged > 0, "nothing was forged: {counts}");
    }
}

/// Several clients write to one volume and demote what they hold of it, some of it stale, some of it forged.
#[test]
fn a_volume_of_several_clients_takes_only_what_is_true() {
    let mut counts = Counts::default();
    for seed in 1..=4 {
        let mut random = Prng::new(seed);
        counts += play(seed, Config::shared(&mut random), random);
    }
    say(&format!("consistency, several clients: {counts}"));
    assert!(
        counts.demotions_forged > 50 && counts.different > 50,
        "{counts}"
    );
    assert!(counts.verified > 200 && counts.compared > 50, "{counts}");
}
