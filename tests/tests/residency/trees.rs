//! What is particular to the pages of trees: none is put that nobody reads.

use futae_testkit::wait::{PATIENCE, within};
use futae_tests::kernel_pages::tree::{audit, engine, make, mount, stamp};
use futae_tests::kernel_pages::{can_run, check, number};
use futae_tests::tree::Tree;
use std::fs::File;

/// A policy chooses blocks of a tree, too. Their pages come when they are first read, as a hit, with what the file holds then.
#[test]
fn what_is_chosen_of_a_tree_is_not_put_but_comes_with_its_first_read() {
    if !can_run() {
        return;
    }
    let mut tree = Tree::new();
    let paths = make(&tree, "files", 1, 64);
    let policy = "lfu-history(history=4000,review=1,min_gain=0,swaps_per_review=8)";
    mount(&mut tree, 8, policy, &[]);
    let file = File::open(&paths[0]).expect("opened");
    // Eight blocks fill it, and eight others are then read more often.
    (0..8).for_each(|block| check(&file, block, stamp(0, block, 0)));
    let chosen = || {
        (32..40).for_each(|block| check(&file, block, stamp(0, block, 0)));
        let status = engine(&tree);
        let is_chosen =
            number(&status, "preload_reads") >= 8 && number(&status, "loading_blocks") == 0;
        is_chosen.then_some(()).ok_or(status)
    };
    within(PATIENCE, chosen).expect("they are chosen, and come");
    let status = engine(&tree);
    assert_eq!(number(&status["kernel"], "stored"), 0, "{status}");
    assert!(audit(&tree, &paths) <= 8);
    drop(file);
    tree.stop();
}
