//! A replacement policy outside of the registry: it runs in a level beside a registered one, on the
//! same requests. docs/how-to/write-a-policy.md adds the same policy to the registry.
//!
//! `cargo run -p futae-examples --bin write_a_policy`

use anyhow::ensure;
use futae_policy::structures::Queues;
use futae_policy::{
    Access, BlockId, Departure, HashIndex, Kind, Level, Policy, PolicySpec, Shape, Slot, build,
};

const ORDER: usize = 0;

/// LRU insertion policy: a new block is the next victim until it is asked for again.
struct Lip {
    /// The next victim in front.
    order: Queues,
}

impl Policy for Lip {
    fn insert(&mut self, slot: Slot, _access: &Access) {
        self.order.push_front(ORDER, slot);
    }

    fn hit(&mut self, slot: Slot, _access: &Access) {
        self.order.move_back(ORDER, slot);
    }

    fn victim(&mut self, _incoming: &Access) -> Option<Slot> {
        self.order.front(ORDER)
    }

    fn remove(&mut self, slot: Slot, _why: Departure) {
        self.order.remove(slot);
    }

    fn order(&self) -> Vec<Slot> {
        self.order.iter_back(ORDER).collect()
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.order.len(ORDER), resident);
    }
}

/// The share of the requests that hit: a loop over `blocks` blocks, `rounds` times.
fn hit_ratio<P: Policy>(policy: P, slots: u32, blocks: u64, rounds: u64) -> f64 {
    let mut level = Level::new(policy, HashIndex::default(), slots);
    for request in 0..rounds * blocks {
        level.access(&Access::read(BlockId::on_first(request % blocks)));
    }
    let counters = level.counters();
    counters.hits as f64 / counters.requests as f64
}

fn main() -> anyhow::Result<()> {
    let (slots, blocks, rounds) = (50, 100, 20);
    let lip = Lip {
        order: Queues::new(1, slots),
    };
    let lru = build(&PolicySpec::of(Kind::lru), &Shape { slots, seed: 1 })?;
    let ratios = [
        hit_ratio(lip, slots, blocks, rounds),
        hit_ratio(lru, slots, blocks, rounds),
    ];
    println!(
        "a loop over twice the cache: lip {:.3}, lru {:.3}",
        ratios[0], ratios[1]
    );
    ensure!(ratios[0] > 0.4 && ratios[1] == 0.0);
    Ok(())
}
