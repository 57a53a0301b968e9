//! Caches that keep what is written, against an example worked by hand, a model that carries the
//! data itself, and the sum of all writes.

mod common;

use common::{SEED, run, spec};
use futae_policy::{AccessKind, Kind, PolicySpec};
use futae_sim::batch::Asked;
use futae_sim::machine::{self, Machine, Served};
use futae_sim::{Hierarchy, HierarchyShape, LevelShape, Link, WriteMode, simulate};
use futae_trace::{BlockRequest, BlockStream, WorkloadSpec};
use proptest::prelude::*;

const READ: AccessKind = AccessKind::Read;
const WRITE: AccessKind = AccessKind::Write;

fn shape(levels: &[(&str, u32)], link: Link, guests: u32, blocks: u64) -> HierarchyShape {
    let level = |&(policy, slots): &(&str, u32)| {
        let policy: PolicySpec = policy.parse().expect("a policy");
        LevelShape {
            policy,
            slots,
            others: Vec::new(),
        }
    };
    HierarchyShape {
        levels: levels.iter().map(level).collect(),
        links: vec![link; levels.len() - 1],
        write_mode: WriteMode::WriteBack,
        guests,
        blocks,
        volumes: Vec::new(),
        seed: SEED,
    }
}

fn hierarchy(levels: &[(&str, u32)], link: Link) -> Hierarchy {
    Hierarchy::new(&shape(levels, link, 1, 20)).expect("known policies")
}

/// At each level: overwrites, dirty evictions, dirty blocks now.
fn dirt(hierarchy: &Hierarchy) -> Vec<[u64; 3]> {
    let written = hierarchy.written().expect("write-back");
    let counts =
        |dirt: &futae_sim::write_back::Dirt| [dirt.overwrites, dirt.evictions, dirt.blocks];
    written.levels.iter().map(counts).collect()
}

#[test]
fn an_example_worked_by_hand() {
    let mut two = hierarchy(&[("lru", 2), ("lru", 2)], Link::None);
    assert_eq!(two.access(0, 1, WRITE), 2, "found nowhere, kept at the top");
    assert_eq!(two.access(0, 1, WRITE), 0, "overwritten");
    assert_eq!(two.access(0, 2, READ), 2);
    assert_eq!(
        (two.store().writes, dirt(&two)),
        (0, vec![[1, 0, 1], [0, 0, 0]])
    );
    // The dirty 1 makes room for 3: the lower level has 2 and 3 by then, and gives up 2 for it.
    assert_eq!(two.access(0, 3, READ), 2);
    assert_eq!(
        (two.store().writes, dirt(&two)),
        (0, vec![[1, 1, 0], [0, 0, 1]])
    );
    assert_eq!((two.order(0, 0), two.order(0, 1)), (vec![3, 2], vec![1, 3]));
    assert_eq!(
        two.access(0, 1, READ),
        1,
        "the lower level has what was written"
    );
    assert_eq!(two.access(0, 1, WRITE), 0);
    assert_eq!(
        dirt(&two),
        [[1, 1, 1], [0, 0, 1]],
        "dirty at both, the upper one newer"
    );
    // 4 and 5 push the newer 1 down onto the older one, and then both of them out.
    two.access(0, 4, WRITE);
    two.access(0, 5, WRITE);
    assert_eq!(
        (two.store().writes, dirt(&two)),
        (0, vec![[1, 2, 2], [1, 0, 1]])
    );
    two.access(0, 6, READ);
    two.access(0, 7, READ);
    two.audit();
    assert_eq!(dirt(&two)[0], [1, 4, 0]);
    let (store, lower) = (two.store().writes, dirt(&two)[1]);
    assert_eq!(
        store, lower[1],
        "what the lower level evicted is all that was stored"
    );
    assert_eq!(5, store + 1 + lower[0] + lower[2], "five writes in all");
}

#[test]
fn a_dirty_block_is_written_down_and_then_demoted_clean() {
    let mut two = hierarchy(&[("lru", 1), ("exclusive", 2)], Link::Demote);
    two.access(0, 1, WRITE);
    two.access(0, 2, READ);
    // The exclusive level passes on the write of a block it does not have, and keeps the demotion.
    let lower = two.counters(0, 1);
    assert_eq!(
        (lower.requests, lower.bypasses, lower.demotions_in),
        (2, 2, 1)
    );
    assert_eq!(
        (two.store().writes, dirt(&two)),
        (1, vec![[0, 1, 0], [0, 0, 0]])
    );
    assert_eq!(two.access(0, 1, READ), 1, "a hit of the lower level");
    // It has the block now: what is written to it stays there.
    two.access(0, 1, WRITE);
    two.access(0, 3, READ);
    assert_eq!(
        (two.store().writes, dirt(&two)),
        (1, vec![[0, 2, 0], [0, 0, 1]])
    );
    two.audit();
}

#[test]
fn a_notice_is_filled_from_where_the_data_is() {
    // Written down to the middle level, evicted there for the notice that follows, and so on: the
    // lowest level has the newest data and the store is read for clean blocks only.
    let levels = [("fix", 1), ("lru", 1), ("lru", 4)];
    let mut three = hierarchy(&levels, Link::Notice);
    three.access(0, 1, READ);
    three.access(0, 2, WRITE);
    assert_eq!(
        three.store().writes,
        0,
        "bypassed above, kept in the middle"
    );
    three.access(0, 3, READ);
    assert_eq!(dirt(&three), [[0, 0, 0], [0, 1, 0], [0, 0, 1]]);
    assert_eq!((three.store().reads, three.store().notice_reads), (2, 0));
    three.audit();
}

#[test]
fn bypassed_writes_go_down() {
    let mut one = hierarchy(&[("fix", 1)], Link::None);
    one.access(0, 1, READ);
    assert_eq!((one.access(0, 2, WRITE), one.store().writes), (1, 1));
    assert_eq!((one.access(0, 1, WRITE), one.store().writes), (0, 1));
    assert_eq!(one.written().expect("write-back").taken, [1, 1]);
}

#[test]
fn an_invalidated_dirty_block_is_counted_as_discarded() {
    let shape = shape(&[("lru", 2), ("lru", 4)], Link::None, 2, 10);
    let mut two = Hierarchy::new(&shape).expect("known policies");
    for guest in 0..2 {
        two.access(guest, 1, WRITE);
    }
    two.invalidate(0, 1);
    two.invalidate(0, 1);
    two.audit();
    let levels = two.written().expect("write-back").levels;
    assert_eq!(
        (levels[0].discards, levels[0].blocks),
        (1, 1),
        "the other guest's stays"
    );
    assert_eq!(two.access(0, 1, READ), 2);
}

/// Blocks with their data and whether it is dirty, newest first.
type List = Vec<(u64, u64, bool)>;

/// LRU levels that carry data, the number of the write that made it, as plain lists.
struct Model {
    /// Each with its capacity.
    levels: Vec<(usize, List)>,
    link: Link,
    store: Vec<u64>,
    store_writes: u64,
    notice_reads: u64,
}

impl Model {
    /// Data of a block from level `at` or below, as a read or as a fetch that touches nothing.
    fn read(&mut self, at: usize, block: u64) -> u64 {
        let Some((_, list)) = self.levels.get_mut(at) else {
            return self.store[block as usize];
        };
        if let Some(found) = list.iter().position(|entry| entry.0 == block) {
            let entry = list.remove(found);
            list.insert(0, entry);
            return entry.1;
        }
        let data = self.read(at + 1, block);
        self.place(at, (block, data, false));
        data
    }

    fn write(&mut self, at: usize, block: u64, data: u64) {
        let Some((_, list)) = self.levels.get_mut(at) else {
            self.store[block as usize] = data;
            self.store_writes += 1;
            return;
        };
        list.retain(|entry| entry.0 != block);
        self.place(at, (block, data, true));
    }

    fn fetch(&mut self, at: usize, block: u64) -> u64 {
        let dirty = self.levels[at..].iter().flat_map(|(_, list)| list);
        match dirty.filter(|entry| entry.2).find(|entry| entry.0 == block) {
            Some(entry) => entry.1,
            None => {
                self.notice_reads += 1;
                self.store[block as usize]
            }
        }
    }

    fn place(&mut self, at: usize, entry: (u64, u64, bool)) {
        let (capacity, list) = &mut self.levels[at];
        list.insert(0, entry);
        if list.len() > *capacity {
            let (block, data, dirty) = list.pop().expect("not empty");
            if dirty {
                self.write(at + 1, block, data);
            }
            let below = self.levels.get_mut(at + 1);
            let (Some((_, below)), Some(_)) = (below, self.link.message()) else {
                return;
            };
            if let Some(found) = below.iter().position(|entry| entry.0 == block) {
                let entry = below.remove(found);
                below.insert(0, entry);
            } else if self.link == Link::Demote {
                self.place(at + 1, (block, data, false));
            } else {
                let data = self.fetch(at + 2, block);
                self.place(at + 1, (block, data, false));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Levels of LRU hold what lists of LRU hold, dirty where those are dirty; and in those every
    /// read finds the data that was written last.
    #[test]
    fn levels_equal_lists_that_carry_data(
        sizes in prop::collection::vec(1u32..5, 1..4),
        link in prop::sample::select(Link::ALL.to_vec()),
        requests in prop::collection::vec((0u64..12, prop::bool::ANY), 1..200),
    ) {
        let levels: Vec<_> = sizes.iter().map(|&size| ("lru", size)).collect();
        let mut found = hierarchy(&levels, link);
        let mut model = Model {
            levels: sizes.iter().map(|&size| (size as usize, Vec::new())).collect(),
            link,
            store: vec![0; 20],
            store_writes: 0,
            notice_reads: 0,
        };
        let mut written = [0; 20];
        for (number, &(block, is_write)) in (1..).zip(&requests) {
            if is_write {
                written[block as usize] = number;
                model.write(0, block, number);
                found.access(0, block, WRITE);
            } else {
                prop_assert_eq!(model.read(0, block), written[block as usize], "stale");
                found.access(0, block, READ);
            }
            for (at, (_, list)) in model.levels.iter().enumerate() {
                let blocks: Vec<u64> = list.iter().map(|entry| entry.0).collect();
                prop_assert_eq!(found.order(0, at), blocks, "level {}", at);
                let dirty = list.iter().filter(|entry| entry.2).count() as u64;
                prop_assert_eq!(dirt(&found)[at][2], dirty, "level {}", at);
            }
            prop_assert_eq!(found.store().writes, model.store_writes);
            prop_assert_eq!(found.store().notice_reads, model.notice_reads);
        }
        found.audit();
    }
}

fn requests(blocks: u64, count: usize) -> Vec<BlockRequest> {
    let workload: WorkloadSpec = format!("zipf(0.7,writes=0.3):{blocks}blocks")
        .parse()
        .expect("a workload");
    let mut requests = vec![BlockRequest::default(); count];
    let mut generator = workload.generator(4096, SEED).expect("fits");
    generator.fill(&mut requests);
    requests
}

/// Every write is stored, overwritten, or dirty still; for every policy, link, and several guests.
#[test]
fn no_write_is_lost() {
    let requests = requests(600, 10_000);
    let writes = requests.iter().filter(|request| request.is_write()).count() as u64;
    for kind in Kind::ALL {
        for link in Link::ALL {
            let levels = [(kind.name(), 20), ("fifo", 30), (kind.name(), 60)];
            let mut three = Hierarchy::new(&shape(&levels, link, 2, 300)).expect("known policies");
            let mut served = [Served::default(); 4 * 2];
            Machine::feed(
                &mut three,
                &Asked::default().put_down(&requests),
                &mut served,
            );
            three.audit();
            let at = format!("{}, {link}", kind.name());
            let written = three.written().expect("write-back");
            assert_eq!(written.taken.iter().sum::<u64>(), writes, "{at}");
            let kept = written
                .levels
                .iter()
                .map(|dirt| dirt.overwrites + dirt.blocks);
            let kept: u64 = kept.sum();
            assert_eq!(three.store().writes + kept, writes, "{at}");
            assert!(three.store().writes < writes, "{at}: nothing was kept");
            let all = Machine::counters(&three);
            for (above, below) in all.iter().zip(&all[1..]) {
                assert_eq!(above.demotions_out, below.demotions_in, "{at}");
                assert_eq!(above.notices_out, below.notices_in, "{at}");
            }
        }
    }
}

/// With one level only the store sees the difference, where the policy does not look at dirt.
#[test]
fn one_level_hits_as_under_write_through() {
    let requests = requests(300, 20_000);
    for kind in Kind::ALL.iter().filter(|kind| kind.name() != "cost") {
        let mut shape = shape(&[(kind.name(), 50)], Link::None, 1, 300);
        let mut served = [[Served::default(); 2]; 2];
        let back = [WriteMode::WriteBack, WriteMode::WriteThrough].map(|mode| {
            shape.write_mode = mode;
            let mut machine = machine::build(&shape).expect("known policies");
            let served = &mut served[usize::from(mode == WriteMode::WriteBack)];
            machine.feed(&Asked::default().put_down(&requests), served);
            (machine.counters(), machine.store())
        });
        let name = kind.name();
        assert_eq!(served[0], served[1], "{name}");
        assert_eq!(back[0].0, back[1].0, "{name}");
        assert_eq!(back[0].1.reads, back[1].1.reads, "{name}");
        // An exclusive level alone keeps nothing.
        let nothing = back[0].0[0].admissions == 0;
        assert!(nothing || back[0].1.writes < back[1].1.writes, "{name}");
    }
}

#[test]
fn results_say_where_writes_went() {
    let workload = "zipf(1.0,writes=0.5):1000blocks";
    let mut spec = spec(&["lru:50blocks", "lru:200blocks"], None, workload, (2, 5));
    let through = run(&["lru:50blocks", "lru:200blocks"], None, workload, (2, 5));
    assert_eq!(through.writes_taken, [0, 0, through.writes]);
    assert_eq!((through.dirty_evictions, through.dirty_blocks), (0, 0));
    spec.write_mode = WriteMode::WriteBack;
    let report = simulate(&spec, &mut |_| {}).expect("a simulation");
    let back = &report.runs[0];
    assert!(back.dirty_blocks_at_start > 0 && back.dirty_blocks > 0);
    let overwrites: u64 = back.levels.iter().map(|level| level.overwrites).sum();
    assert_eq!(
        back.writes + back.dirty_blocks_at_start,
        back.store_writes + overwrites + back.dirty_blocks
    );
    let evictions: u64 = back.levels.iter().map(|level| level.dirty_evictions).sum();
    assert_eq!(evictions, back.dirty_evictions);
    assert_eq!(back.writes_taken, [back.writes, 0, 0]);
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["runs"][0]["write_mode"], "write_back");
    let csv = report.csv();
    // Commas within quotes, as in the name of a workload, divide nothing.
    let commas = |line: &str| {
        line.split('"')
            .step_by(2)
            .map(|part| part.matches(',').count())
            .sum()
    };
    let lines: Vec<usize> = csv.lines().map(commas).collect();
    assert!(lines.iter().all(|&cells| cells == lines[0]), "{csv}");
}
