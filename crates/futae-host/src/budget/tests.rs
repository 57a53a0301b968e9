//! Cases that were thought of.

use super::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(super) const MIB: u64 = 1 << 20;

impl Account {
    fn is_alone(&self) -> bool {
        !self.is_wanted()
    }
}

pub(super) fn account(budget: &Arc<Budget>, export: usize) -> Account {
    let mailbox = Arc::new(Mailbox::new().expect("an eventfd"));
    Account::new(budget, export, &mailbox)
}

/// Whether it was rung since the last question.
pub(super) fn was_rung(account: &Account) -> bool {
    let mut bell = [PollFd::from_borrowed_fd(
        account.mailbox.bell(),
        PollFlags::IN,
    )];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let rings = poll(&mut bell, Some(&at_once)).expect("poll") > 0;
    account.mailbox.awake(rings);
    rings
}

#[test]
fn the_parts_come_to_the_whole() {
    for total in [64, 128, 256, 1024].map(|size| size * MIB) {
        for connections in [1, 512, 100_000] {
            let budget = Budget::new(total, connections, 1);
            let parts = budget.allotment * connections as u64 + RESERVE + budget.pool;
            assert_eq!(parts, total);
            assert!(budget.pool >= 15 * MIB);
        }
    }
}

#[test]
fn many_that_take_all_they_can_stay_within_it_and_leave_the_others_something() {
    let budget = Arc::new(Budget::new(256 * MIB, 512, 1));
    let places: Vec<_> = (0..200).map(|_| budget.place()).collect();
    let mut greedy: Vec<_> = (0..200).map(|_| account(&budget, 0)).collect();
    for account in &mut greedy {
        while account.take(32 * MIB) {}
        while account.take(MIB) {}
    }
    let held = budget.held();
    assert!(held.peak <= 256 * MIB, "{held:?}");
    assert!(held.now > 200 * MIB, "{held:?}");
    let mut modest = account(&budget, 0);
    assert!(modest.take(16 << 10), "the allotment is not the pool's");
    drop(greedy);
    assert!(modest.take(32 * MIB));
    drop((modest, places));
    assert_eq!((budget.held().now, budget.held().waiting), (0, 0));
}

#[test]
fn the_reserve_goes_round() {
    let budget = Arc::new(Budget::new(64 * MIB, 512, 1));
    let mut accounts: Vec<_> = (0..3).map(|_| account(&budget, 0)).collect();
    assert!(accounts[0].take(32 * MIB));
    assert!(!accounts[1].take(32 * MIB) && !accounts[2].take(32 * MIB));
    accounts[0].give_back(32 * MIB);
    assert!(!accounts[2].take(32 * MIB), "it is not its turn");
    assert!(!accounts[0].take(32 * MIB), "nor this one's again");
    assert!(accounts[1].take(32 * MIB));
    accounts.remove(1);
    assert!(accounts[1].take(32 * MIB), "what a dead one had is free");
}

#[test]
fn one_who_waits_for_something_else_keeps_its_place_and_is_not_waited_for() {
    let budget = Arc::new(Budget::new(64 * MIB, 512, 1));
    let mut accounts: Vec<_> = (0..3).map(|_| account(&budget, 0)).collect();
    let [holder, aside, other] = &mut accounts[..] else {
        unreachable!()
    };
    assert!(holder.take(32 * MIB) && holder.is_alone());
    assert!(!aside.take(32 * MIB) && !holder.is_alone());
    aside.step_aside();
    assert!(holder.is_alone(), "room would not help it");
    assert!(!other.take(32 * MIB));
    holder.give_back(32 * MIB);
    assert!(other.take(32 * MIB), "it is not behind the one aside");
    assert!(!holder.take(32 * MIB) && !aside.take(32 * MIB));
    other.give_back(32 * MIB);
    assert!(!holder.take(32 * MIB), "the place was kept");
    assert!(aside.take(32 * MIB));
    aside.give_back(32 * MIB);
    assert!(holder.take(32 * MIB));
    assert_eq!((budget.held().waiting, holder.is_alone()), (0, true));
}

#[test]
fn one_that_finds_room_in_what_it_has_waits_no_longer() {
    let budget = Arc::new(Budget::new(64 * MIB, 512, 1));
    let (mut holder, mut other) = (account(&budget, 0), account(&budget, 0));
    assert!(holder.take(32 * MIB) && !other.take(32 * MIB));
    assert!(other.take(4 << 10), "from its allotment");
    assert_eq!(budget.held().waiting, 0);
    holder.give_back(32 * MIB);
    assert!(holder.take(32 * MIB), "nobody is before it");
}

#[test]
fn what_needs_no_grant_is_within_the_allotments_or_a_page() {
    let mailbox = Arc::new(Mailbox::new().expect("an eventfd"));
    for total in [64, 128, 256, 1024].map(|size| size * MIB) {
        for connections in [1, 512, 4096, 100_000] {
            let budget = Arc::new(Budget::new(total, connections, 1));
            let own = Account::new(&budget, 0, &mailbox).own;
            let of_queue = Account::of_queue(16, &budget, 0, &mailbox).own;
            assert!(own <= budget.allotment / 2);
            assert!(own >= PAGE_REQUEST || budget.allotment < 2 * PAGE_REQUEST);
            assert!(16 * of_queue <= budget.allotment || of_queue == PAGE_REQUEST);
        }
    }
}

#[test]
fn an_export_gets_no_more_than_half_of_the_pool() {
    let budget = Arc::new(Budget::new(256 * MIB, 512, 2));
    let mut greedy: Vec<_> = (0..400).map(|_| account(&budget, 0)).collect();
    for account in &mut greedy {
        while account.take(MIB) {}
    }
    let taken = budget.lock().by_export[0];
    assert!(taken <= budget.pool / 2, "{taken}");
    assert!(account(&budget, 1).take(32 * MIB));
}

#[test]
fn only_one_who_is_in_the_way_and_moves_nothing_is_stalled() {
    let budget = Arc::new(Budget::new(64 * MIB, 512, 1));
    let (mut holder, mut other) = (account(&budget, 0), account(&budget, 0));
    let at_once = Duration::ZERO;
    assert!(holder.take(32 * MIB));
    assert!(!holder.is_stalled(true, at_once), "nobody waits");
    assert!(!other.take(32 * MIB));
    assert!(!holder.is_stalled(false, at_once), "the cache's turn");
    assert!(!holder.is_stalled(true, Duration::from_secs(3600)));
    holder.moved(2 * MIB);
    assert!(!holder.is_stalled(true, at_once), "it moves");
    assert!(holder.is_stalled(true, at_once));
    assert!(!other.is_stalled(true, at_once), "it holds nothing");
    assert_eq!(budget.held().stalled, 1);
}

#[test]
fn one_that_returns_to_its_place_is_rung_in_the_place_of_the_next() {
    let budget = Arc::new(Budget::new(64 * MIB, 512, 1));
    let mut accounts: Vec<_> = (0..3).map(|_| account(&budget, 0)).collect();
    let [holder, aside, other] = &mut accounts[..] else {
        unreachable!()
    };
    assert!(holder.take(32 * MIB) && !aside.take(32 * MIB));
    aside.step_aside();
    assert!(!other.take(32 * MIB));
    holder.give_back(32 * MIB);
    assert!(was_rung(other) && !was_rung(aside));
    // It tries at the same time, since what it waited for has come, and takes its place before the one that was rung.
    assert!(aside.take(32 * MIB) || was_rung(aside));
    assert!(other.take(32 * MIB) || was_rung(other) || aside.take(32 * MIB));
}

#[test]
fn one_whose_grant_is_used_up_meanwhile_passes_the_ring_on() {
    let budget = Arc::new(Budget::new(64 * MIB, 512, 1));
    let mut accounts: Vec<_> = (0..3).map(|_| account(&budget, 0)).collect();
    let [holder, first, other] = &mut accounts[..] else {
        unreachable!()
    };
    assert!(holder.take(32 * MIB) && holder.has_reserve);
    assert!(first.take(MIB) && first.granted > 0);
    assert!(!first.take(32 * MIB) && !other.take(32 * MIB));
    holder.give_back(32 * MIB);
    assert!(was_rung(other) && !was_rung(first));
    first.give_back(MIB);
    let has_first = first.take(32 * MIB);
    assert!(has_first || was_rung(first) || other.take(32 * MIB) || was_rung(other));
}

#[test]
fn one_that_has_the_reserve_does_not_ring_itself() {
    let budget = Arc::new(Budget::new(64 * MIB, 512, 1));
    let mut only = account(&budget, 0);
    assert!(only.take(32 * MIB) && only.has_reserve);
    while only.take(64 << 10) {}
    was_rung(&only);
    for _ in 0..10 {
        assert!(!only.take(64 << 10));
        assert!(!was_rung(&only));
    }
}
