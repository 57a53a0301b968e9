//! A server whose memory outlives it (`--memory-file`): killed, stopped and upgraded, it goes on with what it held.

use futae_policy::Prng;
use futae_testkit::nbd::Plain as Client;
use futae_testkit::wait::{eventually, later_file_time, obtain};
use futae_tests::BLOCK;
use futae_tests::binary::{futae, run};
use futae_tests::huge_pages::HugePages;
use futae_tests::ledger::{Ledger, Promise, Served};
use futae_tests::mounted::Mounted;
use futae_tests::process::Running;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::text;
use serde_json::Value;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

/// This many kills and upgrades, unless the variable says otherwise.
const KILLS: u64 = 12;
const KILLS_VARIABLE: &str = "FUTAE_MEMORY_KILLS";
const WRITERS: u64 = 3;
const BLOCKS: u64 = 3 * 1024;
/// Room for the whole image.
const CACHE: &str = "16MiB";

/// A stage, and a file in memory beside it.
struct Kept {
    stage: Stage,
    memory: PathBuf,
    _place: TempDir,
}

impl Kept {
    fn new() -> Self {
        Self::below(Path::new("/dev/shm"))
    }

    fn below(memory: &Path) -> Self {
        let place = tempfile::tempdir_in(memory).expect("a directory in memory");
        Self {
            stage: Stage::new(BLOCKS),
            memory: place.path().join("cache"),
            _place: place,
        }
    }

    fn serve(&mut self, more: &[&str]) {
        let memory = text(&self.memory).to_owned();
        let mut arguments = vec!["--memory-file", &memory];
        if !more.contains(&"--cache") {
            arguments.extend(["--cache", CACHE]);
        }
        arguments.extend(more);
        self.stage.serve(&arguments);
    }

    fn client(&self) -> Client {
        Client::connect(&self.stage.socket, EXPORT).expect("a connection")
    }

    fn cache(&self) -> Value {
        self.stage.status()["engines"][0].clone()
    }

    fn found(&self) -> u64 {
        number(&self.cache(), "memory_found_blocks")
    }

    /// Reads all blocks and holds them against the image; how many of them hit.
    fn read_all(&self) -> u64 {
        let image = File::open(&self.stage.image).expect("the image");
        let before = number(&self.cache(), "hits");
        let (mut client, mut expected) = (self.client(), vec![0; BLOCK]);
        for block in 0..BLOCKS {
            let offset = block * BLOCK as u64;
            let got = client
                .read(offset, BLOCK)
                .expect("connected")
                .expect("read");
            image.read_exact_at(&mut expected, offset).expect("there");
            assert!(got == expected, "block {block} is not what the image holds");
        }
        number(&self.cache(), "hits") - before
    }

    /// Ends a server that had to say these words.
    fn stop_that_said(&mut self, words: &str) {
        self.stage.stop_serve_that_said(words);
    }
}

fn number(of: &Value, name: &str) -> u64 {
    of[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {of}"))
}

fn rounds() -> u64 {
    let said = std::env::var(KILLS_VARIABLE).ok();
    said.map_or(KILLS, |kills| kills.parse().expect("a number of kills"))
}

/// How long a restart took: until the old server was gone with its locks, until the new one was ready, and until it had
/// answered a READ.
#[derive(Clone, Copy)]
struct Gap {
    gone: Duration,
    ready: Duration,
    answered: Duration,
}

/// Gaps and lost hits of one way to end a server.
#[derive(Default)]
struct Ends {
    gaps: Vec<Gap>,
    lost: Vec<f64>,
    /// After so many all was dropped.
    dropped: usize,
}

impl Ends {
    fn median(&self, of: impl Fn(&Gap) -> Duration) -> Duration {
        let mut all: Vec<_> = self.gaps.iter().map(of).collect();
        all.sort();
        all[all.len() / 2]
    }

    /// A line of figures for lab/results/; sorts the losses.
    fn told(&mut self, what: &str) -> String {
        self.lost.sort_by(f64::total_cmp);
        let count = self.gaps.len();
        let most = self.gaps.iter().map(|gap| gap.answered).max();
        let within = self.lost.iter().filter(|&&lost| lost <= 1.0).count();
        format!(
            "{count} {what}: gap {:.0?} at the median ({:.0?} until the old server was gone, {:.0?} until the new one was ready), {:.0?} at \
             most; hits lost {:.2} points at the median, {:.2} after 9 of 10, {:.2} at most, at most 1 point after {within}; all was \
             dropped after {}",
            self.median(|gap| gap.answered),
            self.median(|gap| gap.gone),
            self.median(|gap| gap.ready),
            most.unwrap_or_default(),
            self.lost[count / 2],
            self.lost[count * 9 / 10],
            self.lost[count - 1],
            self.dropped
        )
    }
}

/// Each server of this many is ended by SIGTERM, as an upgrade does, and not by SIGKILL.
const UPGRADE_EVERY: u64 = 4;

/// Ends the server under load again and again. Every block that is read is what was written last; what the image
/// holds is what was promised, and what the next server serves is what the image holds.
fn killed_under_load(more: &[&str], promise: Promise, seed: u64) {
    let mut kept = Kept::new();
    let each = BLOCKS / WRITERS;
    let ledger = |writer| Ledger::new(writer * each, (writer + 1) * each, writer).promised(promise);
    let mut ledgers: Vec<Ledger> = (0..WRITERS).map(ledger).collect();
    let mut prng = Prng::new(seed);
    let (mut kills, mut upgrades) = (Ends::default(), Ends::default());
    kept.serve(more);
    kept.read_all();
    for round in 0..rounds() {
        let is_upgrade = round % UPGRADE_EVERY == UPGRADE_EVERY - 1;
        let ends = if is_upgrade {
            &mut upgrades
        } else {
            &mut kills
        };
        thread::scope(|scope| {
            for ledger in &mut ledgers {
                let mut volume = Served(kept.client());
                scope.spawn(move || ledger.work(&mut volume));
            }
            thread::sleep(Duration::from_millis(20 + prng.below(180)));
            let begun = Instant::now();
            if is_upgrade {
                kept.stage.end_serve();
            } else {
                kept.stage.kill_serve();
            }
            let gone = begun.elapsed();
            kept.serve(more);
            let ready = begun.elapsed();
            kept.client()
                .read(0, BLOCK)
                .expect("connected")
                .expect("read");
            ends.gaps.push(Gap {
                gone,
                ready,
                answered: begun.elapsed(),
            });
        });
        for ledger in &mut ledgers {
            ledger.check(&kept.stage.image);
        }
        let found = kept.found();
        let hits = kept.read_all();
        // On a busy machine it may be in doubt who wrote last, and then all is dropped.
        ends.dropped += usize::from(found == 0);
        let lost = 100.0 * (BLOCKS - hits.min(BLOCKS)) as f64 / BLOCKS as f64;
        ends.lost.push(lost);
        let refused = number(&kept.cache(), "memory_refused_blocks");
        assert_eq!(refused, 0, "round {round}: what is kept has its hash");
        assert!(
            !is_upgrade || found == BLOCKS,
            "round {round}: an upgrade has lost {} blocks",
            BLOCKS - found
        );
    }
    println!("{}\n{}", kills.told("kills"), upgrades.told("upgrades"));
    assert!(
        kills.dropped * 4 <= kills.gaps.len(),
        "{} times all was dropped",
        kills.dropped
    );
    let middle = kills.lost[kills.lost.len() / 2];
    assert!(middle < 4.0, "{:?}", kills.lost);
    let writes: u64 = ledgers.iter().map(|ledger| ledger.writes).sum();
    assert!(writes > 10 * rounds(), "only {writes} writes");
}

#[test]
fn killed_under_load_it_serves_no_wrong_byte_and_goes_on_with_nearly_all() {
    killed_under_load(&["--policy", "lru"], Promise::Answered, 11);
}

#[test]
fn killed_under_write_back_it_loses_what_was_not_flushed_and_serves_no_wrong_byte() {
    let back = [
        "--policy",
        "lru",
        "--write-mode",
        "write-back",
        "--dirty-max",
        "0.5%",
        "--dirty-age-max",
        "40ms",
        "--accept-lost-writes",
    ];
    killed_under_load(&back, Promise::Flushed, 12);
}

#[test]
fn stopped_and_upgraded_it_goes_on_with_all() {
    let mut kept = Kept::new();
    kept.serve(&["--policy", "lru"]);
    assert_eq!((kept.read_all(), kept.found()), (0, 0));
    kept.client()
        .write(4096, &[9; BLOCK])
        .expect("connected")
        .expect("written");
    kept.stage.stop_serve();
    // Another policy, too.
    for policy in ["lru", "arc", "exclusive"] {
        kept.serve(&["--policy", policy]);
        assert_eq!(
            (kept.found(), kept.read_all()),
            (BLOCKS, BLOCKS),
            "{policy}"
        );
        assert_eq!(number(&kept.cache(), "store_reads"), 0);
        kept.stage.stop_serve();
    }
    // Another size of the cache: what has room stays, and is the latest used.
    kept.serve(&["--policy", "lru", "--cache", "4MiB"]);
    let room = (4 << 20) / BLOCK as u64;
    assert!((1..=room).contains(&kept.found()), "{}", kept.found());
    kept.read_all();
    kept.stage.stop_serve();
}

#[test]
fn a_wrong_byte_in_the_memory_is_refused_and_counted() {
    let mut kept = Kept::new();
    kept.serve(&["--policy", "lru"]);
    kept.read_all();
    kept.stage.kill_serve();
    let memory = File::options().read(true).write(true).open(&kept.memory);
    let memory = memory.expect("the memory file");
    let length = memory.metadata().expect("its size").len();
    for frame in [2000, 2500, 3500] {
        // Slots are taken from the first on, and frames are at the end.
        let at = length - (4096 - frame) * BLOCK as u64 + 77;
        let mut byte = [0];
        memory.read_exact_at(&mut byte, at).expect("there");
        memory.write_all_at(&[byte[0] ^ 1], at).expect("written");
    }
    kept.serve(&["--policy", "lru"]);
    assert_eq!(kept.found(), BLOCKS);
    // The third is of no block.
    assert_eq!(kept.read_all(), BLOCKS - 2);
    let cache = kept.cache();
    assert_eq!(number(&cache, "memory_refused_blocks"), 2);
    assert_eq!(number(&cache, "memory_verified_blocks"), BLOCKS - 2);
    kept.stop_that_said("does not have its hash");
}

#[test]
fn an_image_that_was_changed_while_no_server_ran_is_read_anew() {
    let mut kept = Kept::new();
    for is_killed in [false, true] {
        kept.serve(&["--policy", "lru"]);
        kept.read_all();
        kept.client()
            .write(0, &[3; BLOCK])
            .expect("connected")
            .expect("written");
        if is_killed {
            kept.stage.kill_serve();
        } else {
            kept.stage.stop_serve();
        }
        // A write up to 10 ms after the last sign of life of a server that was killed may be that server's own.
        let distinct = SystemTime::now() + Duration::from_millis(10);
        eventually("a write is told from the server's last one", || {
            later_file_time() > distinct
        });
        let image = File::options().write(true).open(&kept.stage.image);
        image
            .expect("the image")
            .write_all_at(&[5; 100], 8192)
            .expect("written");
        kept.serve(&["--policy", "lru"]);
        assert_eq!(
            (kept.found(), kept.read_all()),
            (0, 0),
            "killed: {is_killed}"
        );
        kept.stop_that_said("it was changed");
    }
}

#[test]
fn huge_pages_keep_the_cache_over_a_kill_too() {
    // The cache, and the tables beside it.
    let Some(_pages) = HugePages::new(16) else {
        return;
    };
    let Some(place) = Mounted::new("hugetlbfs", "pagesize=2M") else {
        return;
    };
    let mut kept = Kept::below(place.path());
    for policy in ["lru", "s3-fifo"] {
        kept.serve(&["--policy", policy]);
        kept.read_all();
        // A smaller cache would give frames back, which are parts of a page here.
        let order =
            |size: &str| run(&["export", "resize", text(&kept.stage.control), EXPORT, size]);
        for size in ["8MiB", CACHE] {
            let told = order(size);
            assert!(told.status.success(), "{told:?}");
        }
        kept.read_all();
        kept.stage.kill_serve();
        kept.serve(&["--policy", policy]);
        assert_eq!(kept.found(), BLOCKS, "{policy}");
        assert_eq!(kept.read_all(), BLOCKS, "{policy}");
        kept.stage.stop_serve();
    }
    // The pages are not enough for more.
    let listen = format!("unix:{}", kept.stage.path("other.sock").display());
    let export = format!("a={}", kept.stage.image.display());
    let other = place.path().join("other");
    let mut second = futae(&["serve", "--cache", "64MiB", "--memory-file", text(&other)]);
    second.args(["--export", &export, "--listen", &listen]);
    let ended = Running::start("the second server", second).wait();
    assert!(ended.errors.contains("vm.nr_hugepages"), "{}", ended.errors);
    assert!(!ended.status.success() && !other.exists());
}

#[test]
fn two_servers_do_not_use_one_memory_file() {
    let mut kept = Kept::new();
    kept.serve(&["--policy", "lru"]);
    kept.read_all();
    let other = kept.stage.path("other.img");
    fs::write(&other, vec![1; 1 << 20]).expect("an image");
    let export = format!("other={}", other.display());
    let listen = format!("unix:{}", kept.stage.path("other.sock").display());
    let memory = text(&kept.memory);
    let mut second = futae(&["serve", "--cache", CACHE, "--memory-file", memory]);
    second.args(["--export", &export, "--listen", &listen]);
    let ended = Running::start("the second server", second).wait();
    assert!(!ended.status.success());
    assert!(
        ended.errors.contains("is in use by another process"),
        "{}",
        ended.errors
    );
    assert_eq!(kept.read_all(), BLOCKS, "the first one is as before");
    kept.stage.stop_serve();
}

#[test]
fn a_place_that_is_not_memory_is_refused_with_the_way_out() {
    let kept = Kept::new();
    let export = format!("a={}", kept.stage.image.display());
    let listen = format!("unix:{}", kept.stage.socket.display());
    let disk = PathBuf::from("/var/tmp").join(format!("futae-test-{}", std::process::id()));
    for (memory, more, words) in [
        (text(&disk), &[][..], "is not on tmpfs or hugetlbfs"),
        (
            "/dev/shm/nowhere/cache",
            &[],
            "its directory does not exist",
        ),
        (
            text(&kept.memory),
            &["--block", "2MiB"],
            "blocks of more than 1MiB cannot be kept",
        ),
    ] {
        let mut server = futae(&["serve", "--cache", CACHE, "--memory-file", memory]);
        server
            .args(["--export", &export, "--listen", &listen])
            .args(more);
        let ended = Running::start("the server", server).wait();
        assert!(
            !ended.status.success() && ended.errors.contains(words),
            "{}",
            ended.errors
        );
    }
    assert!(!disk.exists(), "nothing was made there");
    assert!(!kept.memory.exists(), "memory is left that nobody uses");
}

/// Memory is dear: a server that does not start leaves none of it taken.
#[test]
fn a_server_that_does_not_start_leaves_no_memory_file() {
    let kept = Kept::new();
    let own = kept.stage.path("own.img");
    fs::copy(&kept.stage.image, &own).expect("a copy");
    let exports = [
        format!("a={}", kept.stage.image.display()),
        format!("own={},share=1MiB", own.display()),
    ];
    let ends = |memory: &Path, listen: &Path, more: &[&str], words: &str| {
        let listen = format!("unix:{}", listen.display());
        let mut server = futae(&["serve", "--cache", CACHE, "--memory-file", text(memory)]);
        server.args(["--export", &exports[0], "--export", &exports[1]]);
        let ended = Running::start("the server", {
            server.args(["--listen", &listen]).args(more);
            server
        })
        .wait();
        assert!(
            !ended.status.success() && ended.errors.contains(words),
            "{}",
            ended.errors
        );
        let directory = memory.parent().expect("a directory");
        let left: Vec<_> = fs::read_dir(directory).expect("a list").collect();
        assert!(left.is_empty(), "{left:?}");
    };
    let nowhere = kept.stage.path("none/socket");
    ends(&kept.memory, &nowhere, &[], "none/socket");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let metrics = format!("tcp:{}", taken.local_addr().expect("an address"));
    let more = ["--metrics", &metrics];
    ends(&kept.memory, &kept.stage.socket, &more, "in use");
    let Some(small) = Mounted::new("tmpfs", "size=8M") else {
        return;
    };
    ends(
        &small.path().join("cache"),
        &kept.stage.socket,
        &[],
        "there is no room",
    );
}

#[test]
fn the_memory_of_a_server_that_was_killed_is_free_for_the_next() {
    let mut kept = Kept::new();
    for _ in 0..3 {
        kept.serve(&["--policy", "lru"]);
        obtain("no answer", || {
            Client::connect(&kept.stage.socket, EXPORT).map(drop)
        });
        kept.stage.kill_serve();
    }
}
