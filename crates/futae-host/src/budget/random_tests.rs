//! Connections that come, wait and leave in any order: nobody sleeps while there is room, and nobody is rung for ever.

use super::tests::{MIB, account, was_rung};
use super::*;
use crate::{fair::Fair, quota::Quota};

/// A request's size.
const SIZES: [u64; 6] = [8 << 10, 64 << 10, 300 << 10, 3 * MIB, 9 * MIB, 32 * MIB];
const RUNS: u64 = 1000;

/// Xorshift.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn size(&mut self) -> u64 {
        SIZES[self.below(6) as usize]
    }
}

struct Peer {
    account: Account,
    /// The request that has no room yet.
    wish: Option<u64>,
    holds: Vec<u64>,
}

impl Peer {
    fn retry(&mut self) {
        if let Some(bytes) = self.wish
            && self.account.take(bytes)
        {
            self.holds.push(bytes);
            self.wish = None;
        }
    }

    /// Ends some requests.
    fn end_some(&mut self, random: &mut Random) {
        for _ in 0..1 + random.below(self.holds.len() as u64) {
            let at = random.below(self.holds.len() as u64) as usize;
            let bytes = self.holds.swap_remove(at);
            self.account.give_back(bytes);
        }
    }
}

fn peers(seed: u64, random: &mut Random) -> (Arc<Budget>, Vec<Peer>) {
    let exports = 1 + (seed % 3) as usize;
    let budget = Arc::new(Budget::new(64 * MIB, 512, exports));
    let count = 2 + random.below(5) as usize;
    let peer = |at: usize| Peer {
        account: account(&budget, at % exports),
        wish: None,
        holds: Vec::new(),
    };
    let peers = (0..count).map(peer).collect();
    (budget, peers)
}

/// All that were rung try again, until nobody is. Returns whether that ended.
fn settle(peers: &mut [Peer]) -> bool {
    for _ in 0..200 {
        let mut any = false;
        for peer in peers.iter_mut() {
            if was_rung(&peer.account) {
                any = true;
                peer.retry();
            }
        }
        if !any {
            return true;
        }
    }
    false
}

#[test]
fn nobody_in_line_sleeps_while_there_is_room() {
    for seed in 1..RUNS {
        let mut random = Random::new(seed);
        let (budget, mut peers) = peers(seed, &mut random);
        for step in 0..400 {
            let at = random.below(peers.len() as u64) as usize;
            let peer = &mut peers[at];
            match random.below(6) {
                0 | 1 if peer.wish.is_none() && step <= 300 => {
                    peer.wish = Some(random.size());
                    peer.retry();
                }
                2 | 3 if !peer.holds.is_empty() => {
                    peer.end_some(&mut random);
                    peer.retry();
                }
                4 if peer.wish.is_some() => peer.account.step_aside(),
                4 if random.below(4) == 0 => peer.account.withdraw(),
                // What it waited for beside the room has come.
                5 => peer.retry(),
                _ => {}
            }
            if peer.wish.is_none() && peer.holds.is_empty() {
                peer.account.trim();
            }
            if random.below(3) > 0 {
                continue; // Those that are rung are slow.
            }
            assert!(settle(&mut peers), "seed {seed}: rung for ever");
            let inner = budget.lock();
            let goes = |waiter: &Waiter| budget.source(&inner, waiter).is_some();
            assert!(!inner.in_line().any(goes), "seed {seed}: a sleeper");
            let granted: u64 = peers.iter().map(|peer| peer.account.granted).sum();
            assert_eq!(granted, inner.granted);
            for peer in &peers {
                let is_queued = inner.queue.iter().any(|it| it.id == peer.account.id);
                assert_eq!(peer.account.waiting != Waiting::No, is_queued);
                assert!(peer.wish.is_some() || !is_queued);
            }
        }
    }
}

/// Each try for a place of the export, and then for room, is a step of its own, as of threads beside each other.
#[test]
fn all_requests_are_carried_out_under_quotas_too() {
    for seed in 1..RUNS {
        let mut random = Random::new(seed);
        let (_budget, mut peers) = peers(seed, &mut random);
        let exports = 1 + (seed % 3) as usize;
        let fair = (seed % 2 == 0).then(|| Fair::new(1 + random.below(4) as usize));
        let quotas = (0..exports).map(|_| {
            let most = 1 + random.below(3) as usize;
            Quota::new("a", most, fair.as_ref().map(|fair| fair.join(1)))
        });
        let quotas: Vec<_> = quotas.collect();
        let count = peers.len();
        let (mut has_place, mut tries) = (vec![false; count], vec![false; count]);
        for step in 0u64.. {
            assert!(step < 100_000, "seed {seed}: tries for ever");
            let is_ending = step > 300;
            let at = random.below(count as u64) as usize;
            let (peer, quota) = (&mut peers[at], &quotas[at % exports]);
            if std::mem::take(&mut has_place[at]) {
                peer.retry();
                if peer.wish.is_some() {
                    quota.give_back();
                }
                continue;
            }
            let tries_now = std::mem::take(&mut tries[at]) || was_rung(&peer.account);
            if tries_now && peer.wish.is_some() {
                let mailbox = Arc::clone(&peer.account.mailbox);
                has_place[at] = quota.take(&mailbox);
                if !has_place[at] {
                    peer.account.step_aside();
                }
                continue;
            }
            if peer.wish.is_none() && !is_ending && random.below(3) == 0 {
                peer.wish = Some(random.size());
                tries[at] = true;
            } else if !peer.holds.is_empty() && random.below(4) == 0 {
                let bytes = peer.holds.pop().expect("one");
                peer.account.give_back(bytes);
                quota.give_back();
                tries[at] = true;
            } else if peer.holds.is_empty() && random.below(2) == 0 {
                peer.account.trim();
            }
            let is_busy = |at: usize| has_place[at] || tries[at] || !peers[at].holds.is_empty();
            if is_ending && step % 64 == 0 && !(0..count).any(is_busy) {
                if peers.iter().all(|peer| peer.wish.is_none()) {
                    break;
                }
                // One of those that wait has been rung.
                for (at, peer) in peers.iter().enumerate() {
                    tries[at] = was_rung(&peer.account);
                }
                assert!(tries.contains(&true), "seed {seed}: all sleep");
            }
        }
    }
}
