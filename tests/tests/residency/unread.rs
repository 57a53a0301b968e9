//! Pages that nobody has read: the policy asks for them, and the kernel is given them.

use super::{Users, audit, check, engine, mounted, no_page_is_stale_under, policies_as_simulated};
use futae_testkit::wait::{PATIENCE, within};
use futae_tests::kernel_pages::{can_run, number, pages_of};
use std::fs::File;

/// The kernel has chosen pages before anybody has read them.
#[test]
fn chosen_pages_are_there_before_anybody_reads() {
    if !can_run() {
        return;
    }
    let mut stage = mounted(512, 200, "const(pin=0-99+500-511)");
    let is_there = || {
        let pages = pages_of(&stage.file());
        (pages == 112).then_some(()).ok_or_else(|| engine(&stage))
    };
    within(PATIENCE, is_there).expect("all that were chosen");
    assert_eq!(audit(&stage), 112);
    let before = engine(&stage);
    assert_eq!(number(&before["kernel"], "stored"), 112, "{before}");
    assert_eq!(
        (
            number(&before, "preload_reads"),
            number(&before, "requests")
        ),
        (112, 0)
    );
    let file = File::open(stage.file()).expect("the file");
    for block in (0..100).chain(500..512) {
        check(&file, block, 0);
        check(&file, block, 0);
    }
    (200..300).for_each(|block| check(&file, block, 0));
    let heard = || {
        let now = engine(&stage);
        let counts = (number(&now, "hits"), number(&now, "misses"));
        (counts == (224, 100)).then_some(()).ok_or(now)
    };
    within(PATIENCE, heard).expect("each read once");
    assert_eq!(audit(&stage), 112);
    let read = number(&engine(&stage), "store_read_blocks") - number(&before, "store_read_blocks");
    assert_eq!(read, 100, "those that were not chosen");
    drop(file);
    stage.stop_mount();
}

/// What the policy asks for while somebody may write is not put over what he has written; it comes when it is read.
#[test]
fn no_page_is_stale_that_nobody_had_read() {
    let often = "lfu-history(history=200,review=1,min_gain=0,swaps_per_review=3)";
    no_page_is_stale_under(often, &[], Users::ComeAndGo);
}

#[test]
fn no_page_is_stale_that_was_chosen_while_somebody_writes() {
    let often = "lfu-history(history=200,review=1,min_gain=0)";
    no_page_is_stale_under(often, &futae_tests::BUSY, Users::Stay);
}

#[test]
fn a_history_of_counts_hits_as_simulated() {
    let policy = "lfu-history(history=4000,review=2,min_gain=1)";
    policies_as_simulated("zipf 1.1", &[policy], &[]);
    policies_as_simulated("normal with shift", &[policy], &[]);
}

/// Policies that need the order of hits, with one that is made up.
#[test]
fn an_approximate_order_of_hits_comes_near_the_simulator() {
    let words = ["--hit-order", "approximate"];
    policies_as_simulated("zipf 1.1", &["lru", "arc"], &words);
    policies_as_simulated("normal with shift", &["lru"], &words);
}
