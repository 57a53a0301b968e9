//! A tree whose pages the kernel holds, while the kernel takes pages for others, and files, maps and mounts come and go.

use futae_testkit::wait::{PATIENCE, eventually, within};
use futae_tests::BLOCK;
use futae_tests::kernel_pages::tree::{
    assert_resident, audit, engine, make, mount, order, reclaimed, stamp,
};
use futae_tests::kernel_pages::{Pressure, can_run, check, number};
use futae_tests::tools::{has, text};
use futae_tests::tree::{Tree, read};
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::thread;

/// The kernel takes pages for others; several read the files, some of them by maps; the counts stay those of the kernel.
#[test]
fn under_pressure_of_memory_the_counts_stay_those_of_the_kernel() {
    if !can_run() || !has("python3") {
        return;
    }
    let mut tree = Tree::new();
    let paths = make(&tree, "files", 16, 1024);
    mount(&mut tree, 12_000, "sieve", &[]);
    // A group that has less than a third of what it reads.
    let Some(group) = Pressure::new(24 << 20) else {
        return;
    };
    let names: Vec<&str> = paths.iter().map(|path| text(path)).collect();
    let cat = [&["cat"][..], &names].concat().join(" ") + " > /dev/null";
    let map = "import mmap, sys\nfor name in sys.argv[1:]:\n with open(name, 'rb') as f:\n  m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\n  \
               total = sum(m[at] for at in range(0, len(m), 4096))\n";
    thread::scope(|scope| {
        scope.spawn(|| group.run(&["sh", "-c", &cat]));
        scope.spawn(|| group.run(&[&["python3", "-c", map][..], &names].concat()));
        scope.spawn(|| paths.iter().rev().for_each(|path| drop(read(path))));
    });
    let some = || {
        (reclaimed(&tree) > 1000)
            .then_some(())
            .ok_or_else(|| reclaimed(&tree))
    };
    within(PATIENCE, some).expect("the kernel takes pages, and the cache hears of it");
    assert!(audit(&tree, &paths) <= 12_000);
    for (number, path) in (0..).zip(&paths) {
        let file = File::open(path).expect("opened");
        (0..1024)
            .step_by(37)
            .for_each(|at| check(&file, at, stamp(number, at, 0)));
    }
    assert!(audit(&tree, &paths) <= 12_000);
    // What is given up on request, all at once: more than there is room to say one by one.
    for path in &paths {
        let file = File::open(path).expect("opened");
        fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    }
    assert_eq!(audit(&tree, &paths), 0);
    // All pages of the machine, which others would not like.
    if std::env::var_os("FUTAE_DROP_CACHES").is_some() {
        paths.iter().for_each(|path| drop(read(path)));
        fs::write("/proc/sys/vm/drop_caches", "3").expect("dropped");
        assert_eq!(audit(&tree, &paths), 0);
    }
    let last = tree.stop().1["status"].clone();
    assert_eq!(number(&last, "errors"), 0, "{last}");
}

/// Hits by faults of a map are heard of, each page once.
#[test]
fn pages_that_are_mapped_are_heard_of() {
    if !can_run() || !has("python3") {
        return;
    }
    let mut tree = Tree::new();
    let paths = make(&tree, "files", 1, 256);
    mount(&mut tree, 1000, "sieve", &[]);
    drop(read(&paths[0]));
    assert_resident(&tree, &paths, 256);
    let before = engine(&tree);
    let map = "import mmap, sys\nf = open(sys.argv[1], 'rb')\nm = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\n\
               print(sum(m[at] for at in range(0, len(m), 4096)))";
    futae_tests::tools::run("python3", &["-c", map, text(&paths[0])]);
    let heard = || {
        let now = engine(&tree);
        let more = |name: &str| number(&now, name) - number(&before, name);
        // A fault that maps pages around the one that is meant may show that one twice.
        let is_each = (256..=512).contains(&(more("hits") + more("misses")))
            && more("misses") <= number(&now["kernel"], "reclaimed");
        is_each.then_some(()).ok_or(now)
    };
    within(PATIENCE, heard).expect("every page, and nothing from below");
    tree.stop();
}

#[test]
fn a_tree_that_was_killed_leaves_nothing_and_can_be_mounted_again() {
    if !can_run() {
        return;
    }
    let mut tree = Tree::new();
    let paths = make(&tree, "files", 4, 64);
    mount(&mut tree, 100, "clock", &[]);
    paths.iter().for_each(|path| drop(read(path)));
    let file = File::options()
        .read(true)
        .write(true)
        .open(&paths[0])
        .expect("opened");
    let mut bytes = vec![0; BLOCK];
    stamp(0, 3, 1).fill(&mut bytes);
    file.write_all_at(&bytes, 3 * BLOCK as u64)
        .expect("a write");
    tree.kill();
    eventually("nobody answers", || {
        file.read_at(&mut [0; BLOCK], 60 * BLOCK as u64).is_err()
    });
    drop(file);
    mount(&mut tree, 100, "clock", &[]);
    let file = File::open(&paths[0]).expect("opened");
    check(&file, 3, stamp(0, 3, 1));
    paths.iter().for_each(|path| drop(read(path)));
    assert_resident(&tree, &paths, 100);
    // It grows as far as pages are watched, and says so.
    let resized = order(&tree, "{\"command\":\"resize\",\"cache\":\"200blocks\"}");
    assert_eq!(resized["capacity_blocks"], 200, "{resized}");
    let refused = order(
        &tree,
        "{\"command\":\"resize\",\"cache\":\"1000000blocks\"}",
    )
    .to_string();
    assert!(
        refused.contains("mount again with a larger cache"),
        "{refused}"
    );
    drop(file);
    tree.stop();
}

/// More files than one look at them takes, each opened, read and closed; some are removed.
#[test]
fn many_small_files_come_and_go() {
    if !can_run() {
        return;
    }
    let mut tree = Tree::new();
    let paths = make(&tree, "many", 1500, 1);
    // The table of the files takes some of it.
    mount(&mut tree, 4000, "sieve", &[]);
    for (number, path) in (0..).zip(&paths) {
        let file = File::open(path).expect("opened");
        check(&file, 0, stamp(number, 0, 0));
    }
    let before = engine(&tree);
    assert_resident(&tree, &paths, 1500);
    for (number, path) in (0..).zip(&paths) {
        let file = File::open(path).expect("opened");
        check(&file, 0, stamp(number, 0, 0));
    }
    let after = engine(&tree);
    let missed = number(&after, "misses") - number(&before, "misses");
    assert!(missed <= reclaimed(&tree), "{missed}");
    for path in &paths[..1000] {
        fs::remove_file(path).expect("removed");
    }
    let left = audit(&tree, &paths[1000..]);
    assert!(left <= 500 && left + reclaimed(&tree) >= 500, "{left}");
    tree.stop();
}
