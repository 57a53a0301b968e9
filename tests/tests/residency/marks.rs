//! Which reads of pages count: each but the one that brought the page.

use super::{check, engine, mounted};
use futae_testkit::wait::{PATIENCE, eventually, within};
use futae_tests::BLOCK;
use futae_tests::kernel_pages::{can_run, number};
use futae_tests::stage::Stage;
use rustix::fs::{Advice, fadvise, sendfile};
use rustix::thread::gettid;
use std::fs::{self, File};
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::channel;
use std::thread;

/// The thread waits in the kernel for a page.
fn waits(thread: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    stat.is_ok_and(|stat| stat.contains(") D "))
}

/// How a reader of pages reads them.
#[derive(Clone, Copy)]
enum Way {
    Read,
    Vectors,
    Sendfile,
}

impl Way {
    fn read(self, file: &File, first: u64, pages: usize) {
        let (at, length) = (first * BLOCK as u64, pages * BLOCK);
        let mut bytes = vec![0; length];
        let read = match self {
            Self::Read => file.read_at(&mut bytes, at).expect("a read"),
            Self::Vectors => {
                let parts = &mut [IoSliceMut::new(&mut bytes)];
                rustix::io::preadv(file, parts, at).expect("a read")
            }
            Self::Sendfile => {
                let sink = File::options().write(true).open("/dev/null");
                let (sink, mut at) = (sink.expect("a sink"), at);
                sendfile(&sink, file, Some(&mut at), length).expect("a read")
            }
        };
        assert_eq!(read, length);
    }
}

/// The kernel tells no batch of pages that it hands out because it would have to wait for the page behind them.
#[test]
fn a_page_counts_that_is_read_together_with_one_that_is_on_its_way() {
    if !can_run() {
        return;
    }
    let mut stage = Stage::new(64);
    stage.serve(&["--cache", "1MiB"]);
    stage.control = stage.path("mount.sock");
    let control = format!("unix:{}", stage.control.display());
    let words = ["--residency", "kernel", "--cache", "64blocks"];
    stage.mount(&[&words[..], &["--policy", "sieve", "--control", &control]].concat());
    let file = File::open(stage.file()).expect("the file");
    fadvise(&file, 0, None, Advice::Random).expect("advice");
    let ways = [Way::Read, Way::Vectors, Way::Sendfile];
    for (round, way) in (1..).zip(ways) {
        let first = 10 * round;
        check(&file, first, 0);
        stage.server().hold_up();
        thread::scope(|scope| {
            for (way, at, pages) in [(Way::Read, first + 1, 1), (way, first, 2)] {
                let (file, (begun, is_begun)) = (&file, channel());
                scope.spawn(move || {
                    begun.send(gettid().as_raw_nonzero().get()).expect("heard");
                    way.read(file, at, pages);
                });
                let thread = is_begun.recv().expect("it runs");
                eventually("it waits for the page", || waits(thread));
            }
            stage.server().go_on();
        });
        // Their readers have had them: nobody else's read is taken for theirs.
        check(&file, first, 0);
        check(&file, first + 1, 0);
        // The two that came, a hit on each by the reader of both, and these.
        let counted = || {
            let now = engine(&stage);
            let counts = (number(&now, "requests"), number(&now, "hits"));
            let is_each = counts == (6 * round, 4 * round);
            is_each.then_some(()).ok_or(counts)
        };
        within(PATIENCE, counted).expect("each read counts");
    }
    // A long call asks for some pages after the others: each counts once.
    let before = number(&engine(&stage), "requests");
    Way::Sendfile.read(&file, 0, 64);
    Way::Sendfile.read(&file, 0, 64);
    drop(file);
    let last = &stage.stop_mount()["status"];
    assert_eq!(number(last, "requests"), before + 2 * 64, "{last}");
    stage.stop_serve();
}

/// Pages that come by a call that writes were read by nobody. The call reads another file, whose pages come for it.
#[test]
fn the_first_read_counts_of_a_page_that_sendfile_wrote() {
    if !can_run() {
        return;
    }
    let mut stage = mounted(64, 64, "sieve");
    let file = File::options().read(true).write(true).open(stage.file());
    let (file, blocks) = (file.expect("the file"), 20);
    let zero = File::open("/dev/zero").expect("zeroes");
    let mut left = blocks * BLOCK;
    while left > 0 {
        left -= sendfile(&file, &zero, None, left).expect("written");
    }
    let heard = |requests: usize| {
        let all = || {
            let heard = number(&engine(&stage), "requests");
            (heard == requests as u64).then_some(()).ok_or(heard)
        };
        within(PATIENCE, all).expect("each once");
    };
    heard(blocks);
    let mut bytes = vec![1; BLOCK];
    for at in 0..blocks {
        let read = file.read_exact_at(&mut bytes, (at * BLOCK) as u64);
        read.expect("a read");
    }
    heard(2 * blocks);
    // Others come by it to be read.
    fadvise(&file, 0, None, Advice::Random).expect("advice");
    Way::Sendfile.read(&file, blocks as u64, 1);
    heard(2 * blocks + 1);
    drop(file);
    let last = &stage.stop_mount()["status"];
    assert_eq!(number(last, "requests"), 2 * blocks as u64 + 1, "{last}");
}
