//! A file that is cut in the source directory while it is open in the mount.

use futae_policy::Prng;
use futae_tests::BLOCK;
use futae_tests::kernel_pages::can_run;
use futae_tests::kernel_pages::tree::{audit, data, make, mount};
use futae_tests::tree::{Tree, read};
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

const BLOCKS: u64 = 64;
/// In the middle of a page.
const LEFT: usize = 17 * BLOCK + 100;
/// Across the new end, in its page, behind it, and over many pages.
const READS: [(usize, usize); 4] = [
    (16 * BLOCK, 4 * BLOCK),
    (17 * BLOCK, BLOCK),
    (40 * BLOCK, 2 * BLOCK),
    (BLOCK, 60 * BLOCK),
];
const READERS: usize = 4;
const FILES: u64 = 60;
const TURNS: u64 = 40;

fn read_at(file: &File, at: usize, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0xAA; length];
    let count = file.read_at(&mut bytes, at as u64)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// What remains is as it was. A page behind it may have been read before the cut, or is zeroes.
fn is_true(seen: &[u8], at: usize, whole: &[u8]) -> bool {
    let pages = seen.chunks(BLOCK).zip(whole[at..].chunks(BLOCK));
    (at..).step_by(BLOCK).zip(pages).all(|(at, (new, old))| {
        let left = LEFT.saturating_sub(at).min(new.len());
        let is_nothing = new[left..].iter().all(|&byte| byte == 0);
        new[..left] == old[..left] && (is_nothing || new[left..] == old[left..new.len()])
    })
}

/// Several readers are on their way when the file is cut: each has what remains, and none an error.
#[test]
fn readers_of_a_file_that_is_cut_below_have_what_remains() {
    if !can_run() {
        return;
    }
    let mut tree = Tree::new();
    let paths: Vec<PathBuf> = make(&tree, "cut", FILES, BLOCKS);
    mount(&mut tree, BLOCKS * FILES, "s3-fifo", &[]);
    let mut prng = Prng::new(21);
    for (number, path) in (0..).zip(&paths) {
        let (file, whole) = (File::open(path).expect("opened"), data(number, BLOCKS));
        let below = File::options()
            .write(true)
            .open(tree.lower(&format!("cut/{number}")))
            .expect("below");
        let begin = Barrier::new(READERS + 1);
        let (turns, before) = (AtomicU64::new(0), prng.below(TURNS * READERS as u64 / 2));
        thread::scope(|scope| {
            for reader in 0..READERS {
                let (file, whole, begin, turns) = (&file, &whole, &begin, &turns);
                scope.spawn(move || {
                    begin.wait();
                    for turn in 0..TURNS as usize {
                        let (at, length) = READS[(reader + turn) % READS.len()];
                        // The next read asks the mount, too.
                        fadvise(file, 0, None, Advice::DontNeed).expect("advice");
                        let seen = read_at(file, at, length).expect("no error");
                        let count = seen.len();
                        turns.fetch_add(1, Relaxed);
                        assert!(is_true(&seen, at, whole), "{number}: {count} bytes at {at}");
                    }
                });
            }
            begin.wait();
            while turns.load(Relaxed) < before {
                thread::yield_now();
            }
            below.set_len(LEFT as u64).expect("cut");
        });
        // A program that looks at it knows its size, and reads no more than there is.
        let size = fs::metadata(path).expect("attributes").len();
        assert_eq!(size, LEFT as u64);
        assert!(read(path) == whole[..LEFT], "file {number}");
        for (at, length) in READS {
            let seen = read_at(&file, at, length).expect("a read");
            let (count, end) = (seen.len(), (at + length).min(LEFT).max(at));
            assert!(seen == whole[at..end], "{number}: {count} bytes at {at}");
        }
    }
    assert!(audit(&tree, &paths) <= FILES * 18);
    tree.stop();
}
