//! Write-back, end to end: what is answered is on the image in the end, whatever happens in
//! between that is no crash.

use futae_testkit::nbd::{Outcome as Answer, Plain as Client};
use futae_testkit::stamp::Stamp;
use futae_testkit::wait::{eventually, obtain};
use futae_tests::BLOCK;
use futae_tests::direct::{Buffer, Direct};
use futae_tests::ledger::{Ledger, Volume};
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::{has, has_fuse, text};
use serde_json::Value;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 256;
const BACK: [&str; 2] = ["--write-mode", "write-back"];
const WRITERS: u64 = 3;

fn back<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [words, &BACK[..]].concat()
}

fn answered<T>(answer: Answer<T>) -> io::Result<T> {
    answer?.map_err(io::Error::other)
}

/// A connection to the server, until somebody says that it is enough.
struct Served<'a> {
    client: Client,
    enough: &'a AtomicBool,
    flushes: bool,
}

impl Served<'_> {
    fn go(&self) -> io::Result<()> {
        let is_enough = self.enough.load(Ordering::Relaxed);
        if is_enough {
            Err(io::ErrorKind::Interrupted.into())
        } else {
            Ok(())
        }
    }
}

impl Volume for Served<'_> {
    fn read(&mut self, offset: u64, buffer: &mut Buffer) -> io::Result<()> {
        self.go()?;
        let data = answered(self.client.read(offset, buffer.get().len()))?;
        buffer.get_mut().copy_from_slice(&data);
        Ok(())
    }
    fn write(&mut self, offset: u64, buffer: &Buffer) -> io::Result<()> {
        self.go()?;
        answered(self.client.write(offset, buffer.get()))
    }
    fn flush(&mut self) -> io::Result<()> {
        self.go()?;
        if self.flushes {
            answered(self.client.flush())
        } else {
            Ok(())
        }
    }
}

fn ledgers(blocks: u64) -> Vec<Ledger> {
    let each = blocks / WRITERS;
    (0..WRITERS)
        .map(|writer| Ledger::new(writer * each, (writer + 1) * each, writer))
        .collect()
}

/// Writers work while `meanwhile` runs; they flush if `flushes`.
fn under_load(
    stage: &Stage,
    ledgers: &mut [Ledger],
    flushes: bool,
    meanwhile: impl FnOnce(&Stage),
) {
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        for ledger in ledgers {
            let client = Client::connect(&stage.socket, EXPORT).expect("a connection");
            let mut volume = Served {
                client,
                enough: &enough,
                flushes,
            };
            scope.spawn(move || ledger.work(&mut volume));
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| meanwhile(stage)));
        enough.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

fn cache(stage: &Stage) -> Value {
    stage.status()["engines"][0].clone()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {value}"))
}

/// Nothing is written before the end, by age or by share.
#[test]
fn what_was_never_flushed_is_on_the_image_after_the_end() {
    let late = ["--dirty-max", "100%", "--dirty-age-max", "1h"];
    let blocks = 6 * MIB;
    let mut stage = Stage::new(blocks);
    let mut of_server = ledgers(blocks);
    stage.serve(&back(
        &[&["--cache", "24MiB", "--policy", "lru"], &late[..]].concat(),
    ));
    under_load(&stage, &mut of_server, false, |stage| {
        eventually("500 blocks are dirty", || {
            number(&cache(stage), "dirty_blocks") >= 500
        });
    });
    let last = stage.stop_serve();
    let last = &last["status"]["engines"][0];
    assert_eq!(number(last, "dirty_blocks"), 0);
    assert!(number(last, "write_back_blocks") >= 500, "{last}");
    for ledger in &mut of_server {
        ledger.check(&stage.image);
    }
    if !has_fuse() {
        return;
    }
    stage.mount_image(&back(&[&["--cache", "24MiB"], &late[..]].concat()));
    let file = Direct::open(&stage.file()).expect("the mounted file");
    let mut buffer = Buffer::new(64 << 10);
    buffer.get_mut().fill(7);
    for at in 0..20 {
        file.write(at * (128 << 10), &buffer).expect("a write");
    }
    drop(file);
    let last = stage.stop_mount();
    assert_eq!(number(&last["status"], "dirty_blocks"), 0);
    let image = fs::read(&stage.image).expect("the image");
    let is_there = |at: usize| {
        image[at * (128 << 10)..][..64 << 10]
            .iter()
            .all(|&byte| byte == 7)
    };
    assert!((0..20).all(is_there), "a write is not on the image");
}

/// A mebibyte of stamped blocks.
fn mebibyte(at: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    for (block, bytes) in (at * MIB..).zip(bytes.chunks_exact_mut(BLOCK)) {
        Stamp { block, version }.fill(bytes);
    }
    bytes
}

/// From 1 GiB to 64 MiB: most of what is in the cache has been read, several hundred MiB are dirty, and
/// writers go on meanwhile.
#[test]
fn a_smaller_cache_under_load_loses_nothing_and_gives_its_memory_back() {
    const WORKED: u64 = 48;
    const READ: u64 = 700;
    const WRITTEN: u64 = 400;
    let mut stage = Stage::new(WORKED * MIB);
    let mut ledgers = ledgers(WORKED * MIB);
    let image = File::options().write(true).open(&stage.image);
    let size = (WORKED + READ + WRITTEN) << 20;
    image.expect("the image").set_len(size).expect("its size");
    let late = ["--dirty-max", "50%", "--dirty-age-max", "1h"];
    let sizes = ["--cache", "1GiB", "--policy", "lru"];
    stage.serve(&back(&[sizes, late].concat()));
    let mut client = Client::connect(&stage.socket, EXPORT).expect("a connection");
    for at in WORKED..WORKED + READ {
        answered(client.read(at << 20, 1 << 20)).expect("a read");
    }
    for at in WORKED + READ..WORKED + READ + WRITTEN {
        answered(client.write(at << 20, &mebibyte(at, 1))).expect("a write");
    }
    under_load(&stage, &mut ledgers, false, |stage| {
        let before = cache(stage);
        assert!(number(&before, "resident_blocks") > 1000 * MIB, "{before}");
        assert!(number(&before, "dirty_blocks") > 128 * MIB, "{before}");
        let full = stage.serve_bytes();
        let begin = Instant::now();
        let answer = stage.order("{\"command\":\"resize\",\"cache\":\"64MiB\"}");
        let answered = begin.elapsed();
        assert_eq!(number(&answer, "capacity_blocks"), 64 * MIB);
        // What is left is more than the cache: buffers, stacks, the program itself.
        obtain("memory is given back", || match stage.serve_bytes() {
            left if left + (900 << 20) > full => Err(format!("{left} of {full}")),
            _ => Ok(()),
        });
        eprintln!(
            "1 GiB, {} MiB of it dirty, to 64 MiB under load: answered after {:.2} s, memory given back after {:.2} s",
            number(&before, "dirty_blocks") / MIB,
            answered.as_secs_f64(),
            begin.elapsed().as_secs_f64()
        );
        let now = cache(stage);
        assert!(number(&now, "resident_blocks") <= 64 * MIB, "{now}");
        assert_eq!(number(&now, "dirty_max_blocks"), 32 * MIB);
        thread::sleep(Duration::from_millis(200));
    });
    drop(client);
    stage.stop_serve();
    for ledger in &mut ledgers {
        ledger.check(&stage.image);
    }
    let image = File::open(&stage.image).expect("the image");
    let mut found = vec![0; 1 << 20];
    for at in WORKED + READ..WORKED + READ + WRITTEN {
        image.read_exact_at(&mut found, at << 20).expect("a read");
        assert!(found == mebibyte(at, 1), "MiB {at} is lost");
    }
}

#[test]
fn no_more_is_dirty_than_may_be_and_flushes_end_under_full_speed_writers() {
    let blocks = 24 * MIB;
    let mut stage = Stage::new(blocks);
    let mut ledgers = ledgers(blocks);
    let sizes = ["--cache", "16MiB", "--policy", "lru", "--dirty-max", "10%"];
    stage.serve(&back(&sizes));
    under_load(&stage, &mut ledgers, false, |stage| {
        let mut client = Client::connect(&stage.socket, EXPORT).expect("a connection");
        let (mut most, mut took) = (0, Vec::new());
        for _ in 0..30 {
            let begin = Instant::now();
            answered(client.flush()).expect("a flush");
            took.push(begin.elapsed());
            for _ in 0..5 {
                let now = cache(stage);
                let (dirty, bound) = (
                    number(&now, "dirty_blocks"),
                    number(&now, "dirty_max_blocks"),
                );
                assert_eq!(bound, 16 * MIB / 10);
                assert!(dirty <= bound, "{dirty} blocks are dirty");
                most = most.max(dirty);
            }
        }
        assert!(most > 20, "only {most} blocks were ever dirty");
        took.sort();
        eprintln!(
            "FLUSH under {WRITERS} writers, up to {most} of {} blocks dirty: median {:.1} ms, worst {:.1} ms",
            16 * MIB / 10,
            took[15].as_secs_f64() * 1000.0,
            took[29].as_secs_f64() * 1000.0
        );
    });
    stage.stop_serve();
    for ledger in &mut ledgers {
        ledger.check(&stage.image);
    }
}

/// Writes and verifies through the mount; then verifies the image itself.
fn verified_twice(arguments: &[&str]) {
    if !has_fuse() || !has("fio") {
        return;
    }
    let mut stage = Stage::new(32 * MIB);
    stage.serve(&back(&["--cache", "12MiB", "--policy", "exclusive"]));
    stage.mount(&back(&["--cache", "8MiB", "--on-eviction", "demote"]));
    fio(&stage, &stage.file(), arguments);
    let upper = stage.stop_mount();
    let lower = stage.stop_serve();
    assert!(number(&upper["status"], "write_back_blocks") > 0, "{upper}");
    assert_eq!(number(&upper["status"], "errors"), 0);
    assert_eq!(number(&lower["status"]["engines"][0], "errors"), 0);
    fio(
        &stage,
        &stage.image,
        &[arguments, &["--verify_only"]].concat(),
    );
}

fn fio(stage: &Stage, file: &Path, arguments: &[&str]) {
    let mut fio = Command::new("fio");
    fio.current_dir(stage.path(""));
    fio.args(["--name=verify", "--minimal", "--randseed=7", "--size=32m"]);
    fio.args(["--rw=randwrite", "--verify=crc32c", "--verify_fatal=1"]);
    fio.args(["--verify_dump=0", &format!("--filename={}", text(file))]);
    let output = fio.args(arguments).output().expect("fio starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "fio {arguments:?}: {said}");
}

#[test]
fn direct_writes_are_verified() {
    let backlog = "--verify_backlog=512";
    let sizes = "--bsrange=4k-64k";
    verified_twice(&[
        "--ioengine=libaio",
        "--direct=1",
        "--iodepth=16",
        sizes,
        backlog,
    ]);
}

#[test]
fn writes_of_odd_sizes_are_verified() {
    verified_twice(&["--ioengine=psync", "--bsrange=512-70k", "--bs_unaligned=1"]);
}

#[test]
fn what_cannot_be_kept_is_refused_with_a_sentence() {
    let stage = Stage::new(16);
    let image = format!("disk={}", text(&stage.image));
    let listen = format!("unix:{}", text(&stage.socket));
    let serve = |words: &[&str]| {
        let all = [
            "serve", "--export", &image, "--listen", &listen, "--cache", "8MiB",
        ];
        let output = futae_tests::binary::run(&[&all[..], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let large = serve(&back(&["--block", "2MiB"]));
    assert!(large.contains("at most 1MiB"), "{large}");
    let share = serve(&back(&["--dirty-max", "120%"]));
    assert!(share.contains("--dirty-max"), "{share}");
    let through = serve(&["--dirty-age-max", "3s"]);
    assert!(through.contains("write-back only"), "{through}");
}
