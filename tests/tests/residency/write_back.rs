//! Written blocks are kept: the kernel has their pages, and the mount has their data until the store has it.

use super::{Users, audit, check, engine, mounted_with, no_page_is_stale_under};
use futae_policy::Prng;
use futae_testkit::stamp::Stamp;
use futae_testkit::wait::{PATIENCE, eventually, within};
use futae_tests::direct::{Buffer, Direct};
use futae_tests::kernel_pages::{can_run, number};
use futae_tests::ledger::{Ledger, Promise, Volume};
use futae_tests::{BLOCK, BUSY, LATE};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

#[test]
fn no_page_is_stale_while_writes_are_kept_for_long() {
    no_page_is_stale_under("s3-fifo", &LATE, Users::Stay);
}

#[test]
fn no_page_is_stale_while_writes_come_and_go() {
    no_page_is_stale_under("cost", &BUSY, Users::ComeAndGo);
}

/// Whatever becomes of its page, a written block is read as it was written; and it is below after a sync, and not before.
#[test]
fn dirty_blocks_outlive_their_pages() {
    if !can_run() {
        return;
    }
    let mut stage = mounted_with(512, 100, "sieve", &LATE);
    let file = File::options().read(true).write(true).open(stage.file());
    let file = file.expect("the file");
    let image = File::open(&stage.image).expect("the image");
    let mut bytes = vec![0; BLOCK];
    let mut write = |block: u64, version: u64| {
        Stamp { block, version }.fill(&mut bytes);
        file.write_all_at(&bytes, block * BLOCK as u64)
            .expect("a write");
    };
    (0..40).for_each(|block| write(block, 1));
    // Machines that give memory back ahead of need take idle pages, and what was in these is saved.
    let is_kept = |blocks: std::ops::Range<u64>, versions: [u64; 2], taken: u64| {
        for block in blocks {
            let mut bytes = vec![0; BLOCK];
            image
                .read_exact_at(&mut bytes, block * BLOCK as u64)
                .expect("a read");
            let version = Stamp::read(&bytes).expect("whole").version;
            if version == versions[0] {
                continue;
            }
            assert_eq!(version, versions[1]);
            // The page is counted after its data has been saved.
            let is_taken = || {
                let status = engine(&stage);
                let reclaimed = number(&status["kernel"], "reclaimed");
                (reclaimed > taken).then_some(()).ok_or(status)
            };
            within(PATIENCE, is_taken).expect("it was saved since the kernel took its page");
        }
    };
    is_kept(0..40, [0, 1], 0);
    // The kernel drops the pages by itself.
    fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    assert_eq!(audit(&stage), 0);
    (0..40).for_each(|block| check(&file, block, 1));
    // A part of what is dirty, and not in the page cache.
    fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    let mut new = vec![0; BLOCK];
    let (block, version) = (7, 2);
    Stamp { block, version }.fill(&mut new);
    for (at, part) in (0..).zip(new.chunks(1024)) {
        file.write_all_at(part, 7 * BLOCK as u64 + at * 1024)
            .expect("a write");
    }
    check(&file, 7, 2);
    // A part of what is not dirty goes through, since the rest of it is not here.
    let (block, version) = (300, 3);
    Stamp { block, version }.fill(&mut new);
    for (at, part) in (0..).zip(new.chunks(1024)) {
        file.write_all_at(part, 300 * BLOCK as u64 + at * 1024)
            .expect("a write");
    }
    check(&image, 300, 3);
    // The policy gives them up, and their data goes below.
    (100..500)
        .filter(|&block| block != 300)
        .for_each(|block| check(&file, block, 0));
    let saved = || {
        let status = engine(&stage);
        (number(&status, "dirty_blocks") == 0)
            .then_some(())
            .ok_or(status)
    };
    within(PATIENCE, saved).expect("evicted blocks are saved");
    let version_of = |block: u64| if block == 7 { 2 } else { 1 };
    (0..40).for_each(|block| check(&image, block, version_of(block)));
    // With room for all, so that the policy gives none of them up.
    fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    assert_eq!(audit(&stage), 0);
    let taken = number(&engine(&stage)["kernel"], "reclaimed");
    (50..60).for_each(|block| write(block, 5));
    is_kept(50..60, [0, 5], taken);
    file.sync_data().expect("synced");
    (50..60).for_each(|block| check(&image, block, 5));
    (50..60).for_each(|block| write(block, 6));
    drop(file);
    (50..60).for_each(|block| check(&image, block, 6));
    let reader = File::open(stage.file()).expect("the file");
    (0..40).for_each(|block| check(&reader, block, version_of(block)));
    drop(reader);
    assert!(audit(&stage) <= 100);
    let last = stage.stop_mount()["status"].clone();
    assert_eq!(number(&last, "dirty_blocks"), 0, "{last}");
}

/// A writer by the page cache, or past it.
enum Way {
    Buffered(File),
    Direct(Direct),
}

/// It counts the flushes of all.
struct Mounted<'a>(Way, &'a AtomicU64);

impl Volume for Mounted<'_> {
    fn read(&mut self, offset: u64, buffer: &mut Buffer) -> io::Result<()> {
        match &self.0 {
            Way::Buffered(file) => file.read_exact_at(buffer.get_mut(), offset),
            Way::Direct(file) => file.read(offset, buffer),
        }
    }
    fn write(&mut self, offset: u64, buffer: &Buffer) -> io::Result<()> {
        match &self.0 {
            Way::Buffered(file) => file.write_all_at(buffer.get(), offset),
            Way::Direct(file) => file.write(offset, buffer),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match &self.0 {
            Way::Buffered(file) => file.sync_data()?,
            Way::Direct(file) => file.sync()?,
        }
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_mount_that_was_killed_has_what_was_flushed_and_tears_nothing() {
    const ROUNDS: u64 = 12;
    const WRITERS: u64 = 3;
    const BLOCKS: u64 = 768;
    if !can_run() {
        return;
    }
    let words = [
        "--write-mode",
        "write-back",
        "--dirty-max",
        "30%",
        "--dirty-age-max",
        "40ms",
    ];
    let mut stage = mounted_with(BLOCKS, 200, "sieve", &words);
    let each = BLOCKS / WRITERS;
    let ledger = |writer| Ledger::new(writer * each, (writer + 1) * each, writer);
    let promised = |ledger: Ledger| ledger.promised(Promise::Flushed);
    let mut ledgers: Vec<_> = (0..WRITERS).map(ledger).map(promised).collect();
    let mut prng = Prng::new(5);
    for _ in 0..ROUNDS {
        let flushed = AtomicU64::new(0);
        thread::scope(|scope| {
            for (at, ledger) in ledgers.iter_mut().enumerate() {
                let way = if at == 0 {
                    Way::Direct(Direct::open(&stage.file()).expect("the file"))
                } else {
                    let file = File::options().read(true).write(true).open(stage.file());
                    Way::Buffered(file.expect("the file"))
                };
                let mut volume = Mounted(way, &flushed);
                scope.spawn(move || ledger.work(&mut volume));
            }
            let enough = 1 + prng.below(6);
            eventually("some are flushed", || {
                flushed.load(Ordering::Relaxed) >= enough
            });
            stage.kill_mount();
        });
        for ledger in &mut ledgers {
            ledger.check(&stage.image);
        }
        let mut command = super::command(&stage, 200, "sieve");
        command.args(words);
        stage.start_mount(command);
    }
    let sum = |of: &dyn Fn(&Ledger) -> u64| ledgers.iter().map(of).sum::<u64>();
    let (writes, flushes) = (sum(&|of| of.writes), sum(&|of| of.flushes));
    assert!(
        writes > 10 * ROUNDS && flushes > ROUNDS,
        "{writes} {flushes}"
    );
    stage.stop_mount();
}
