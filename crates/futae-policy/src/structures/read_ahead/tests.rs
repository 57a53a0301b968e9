use super::*;
use crate::contract::level_of;
use crate::{Kind, Level, PolicySpec, RegisteredPolicy, Shape, build};

type Cache = Level<Box<dyn RegisteredPolicy>>;

/// Reads a block, and returns the blocks that are read ahead of it.
fn read(cache: &mut Cache, index: u64) -> Vec<u64> {
    cache.access(&Access::read(BlockId::on_first(index)));
    let mut ahead = Vec::new();
    while let Some(block) = cache.review() {
        ahead.push(block.index());
        cache.access(&Access::of(block, AccessKind::Preload));
    }
    ahead
}

/// What each of these reads reads ahead, as the first block and the number of blocks.
fn windows(text: &str, reads: impl IntoIterator<Item = u64>) -> Vec<(u64, u64, usize)> {
    let mut cache = level_of(text, 1000, 1);
    let mut windows = Vec::new();
    for index in reads {
        let ahead = read(&mut cache, index);
        assert!(ahead.windows(2).all(|two| two[0] + 1 == two[1]));
        if let Some(&first) = ahead.first() {
            windows.push((index, first, ahead.len()));
        }
    }
    windows
}

/// The example in the kernel's comment: windows of 4, 8, 16 and 32 blocks, each asked for as the last one is entered.
#[test]
fn a_sequence_has_windows_that_grow() {
    let expected = [
        (0, 1, 3),
        (1, 4, 8),
        (4, 12, 16),
        (12, 28, 32),
        (28, 60, 32),
    ];
    for policy in ["linux", "mglru"] {
        let text = format!("{policy}(readahead=32)");
        assert_eq!(windows(&text, 0..60), expected);
    }
    let small = [(0, 1, 1), (1, 2, 4), (2, 6, 8), (6, 14, 8)];
    assert_eq!(windows("linux(readahead=8)", 0..14), small);
}

#[test]
fn reads_that_follow_no_other_read_nothing_ahead() {
    assert_eq!(windows("linux(readahead=32)", [9, 40, 8, 20, 7]), []);
    assert_eq!(windows("linux", 0..60), []);
}

#[test]
fn one_block_may_be_left_out_of_a_sequence() {
    assert_eq!(windows("linux(readahead=32)", [9, 11]), [(11, 12, 3)]);
    assert_eq!(windows("linux(readahead=32)", [9, 12]), []);
}

/// Two blocks before a miss are the history of a sequence; as many as they are, and the block itself, are read.
#[test]
fn the_history_of_a_sequence_is_found_in_the_cache() {
    let backwards = [22, 21, 20, 500, 23];
    assert_eq!(windows("linux(readahead=32)", backwards), [(23, 24, 3)]);
    assert_eq!(windows("linux(readahead=32)", [21, 500, 22]), []);
    // All of the file so far: twice as many.
    let whole = [(0, 1, 3), (4, 5, 8)];
    assert_eq!(windows("linux(readahead=32)", [0, 500, 4]), whole);
}

/// Two sequences in turns: the state is that of the other one, and the cache tells where to go on.
#[test]
fn sequences_in_turns_go_on_by_their_marks() {
    let turns = (0..12).flat_map(|at| [at, 300 + at]);
    let windows = windows("mglru(readahead=32)", turns);
    let begun = [
        (0, 1, 3),
        (1, 4, 8),
        (302, 303, 2),
        (4, 12, 18),
        (304, 305, 4),
    ];
    assert_eq!(windows[..5], begun);
}

/// What large folios are made of: the first block and the number of blocks of each, after these reads. A block's slot is its index.
fn folios(reads: impl IntoIterator<Item = u64>) -> Vec<(u32, usize)> {
    let spec = "linux(readahead=32,folios=large)".parse().expect("valid");
    let mut ahead = ReadAhead::take(&mut Arguments::new(&spec)).expect("valid");
    let mut slots = std::collections::BTreeSet::new();
    for index in reads {
        let (slot, access) = (Slot(index as u32), Access::read(BlockId::on_first(index)));
        if slots.insert(slot) {
            ahead.insert(slot, &access);
        } else {
            ahead.hit(slot, &access);
        }
        while let Some(block) = ahead.next_wanted() {
            let slot = Slot(block.index() as u32);
            assert!(slots.insert(slot), "{slot:?} is there");
            ahead.insert(slot, &Access::of(block, AccessKind::Preload));
        }
    }
    let of = |slot: &Slot| {
        let mut folio: Vec<u32> = ahead.folio(*slot).map(|slot| slot.0).collect();
        folio.sort_unstable();
        folio
    };
    let mut folios: Vec<_> = slots.iter().map(of).collect();
    folios.dedup();
    folios.iter().map(|folio| (folio[0], folio.len())).collect()
}

/// The first read gets a folio that has the mark, so the second window comes with the first.
#[test]
fn windows_come_as_folios_that_grow() {
    let expected = [(0, 1, 11), (4, 12, 16), (12, 28, 32), (28, 60, 32)];
    assert_eq!(windows("mglru(readahead=32,folios=large)", 0..60), expected);
    let begun = [(0, 4), (4, 4), (8, 4)];
    assert_eq!(folios([0]), begun);
    // 2^3 in a window of 16, 2^4 in one of 32, as alignment permits.
    let more = [
        (12, 4),
        (16, 8),
        (24, 4),
        (28, 4),
        (32, 16),
        (48, 8),
        (56, 4),
    ];
    assert_eq!(folios(0..13), [&begun[..], &more].concat());
    assert_eq!(folios([9, 11]), [(9, 1), (11, 1), (12, 2), (14, 1)]);
}

#[test]
fn blocks_that_are_there_end_the_folios_of_a_window() {
    let single = (8..16).map(|block| (block, 1));
    let expected: Vec<_> = [(0, 4), (4, 4)].into_iter().chain(single).collect();
    assert_eq!(folios([9, 0]), expected);
}

#[test]
fn reads_of_a_folio_one_after_the_other_are_one_use() {
    let spec = "linux(readahead=32,folios=large)".parse().expect("valid");
    let mut ahead = ReadAhead::take(&mut Arguments::new(&spec)).expect("valid");
    let read = |index: u64| (Slot(index as u32), Access::read(BlockId::on_first(index)));
    let (slot, access) = read(0);
    ahead.insert(slot, &access);
    while let Some(block) = ahead.next_wanted() {
        let slot = Slot(block.index() as u32);
        ahead.insert(slot, &Access::of(block, AccessKind::Preload));
    }
    let mut counts = |index: u64| {
        let (slot, access) = read(index);
        ahead.hit(slot, &access)
    };
    let counted = [1, 3, 4, 7, 3, 3].map(&mut counts);
    assert_eq!(counted, [false, false, true, false, true, false]);
}

/// Runs of reads and writes in turns, in caches of all sizes down to less than a window.
#[test]
fn folios_stay_whole_whatever_comes() {
    let mut random = crate::prng::Prng::new(7);
    for policy in ["linux", "mglru"] {
        for slots in [1, 3, 20, 150] {
            let text = format!("{policy}(readahead=32,folios=large)");
            let mut cache = level_of(&text, slots, 1);
            for _ in 0..500 {
                let (from, length) = (random.below(300), random.below(12) + 1);
                let is_written = random.below(4) == 0;
                for index in from..from + length {
                    if is_written {
                        let block = BlockId::on_first(index);
                        cache.access(&Access::of(block, AccessKind::Write));
                    } else {
                        read(&mut cache, index);
                    }
                }
                cache.audit();
            }
        }
    }
}

#[test]
fn windows_end_with_the_volume() {
    let last = BlockId::INDEX_LIMIT - 1;
    for folios in ["single", "large"] {
        let text = format!("mglru(readahead=32,folios={folios})");
        let mut cache = level_of(&text, 1000, 1);
        let ahead: Vec<u64> = (last - 50..=last)
            .flat_map(|index| read(&mut cache, index))
            .collect();
        assert_eq!(ahead.last(), Some(&last));
    }
}

#[test]
fn folios_need_windows() {
    for text in ["linux(folios=large)", "mglru(readahead=8,folios=huge)"] {
        let spec = text.parse().expect("a policy");
        let shape = Shape { slots: 8, seed: 1 };
        let problem = build(&spec, &shape).map(drop).expect_err(text);
        let said = problem.to_string();
        assert!(said.contains("single, or with readahead large"), "{said}");
    }
}

#[test]
fn what_left_the_cache_is_no_history() {
    let mut cache = level_of("linux(readahead=32)", 2, 1);
    for index in [21, 20, 500, 700] {
        assert_eq!(read(&mut cache, index), []);
    }
    assert_eq!(read(&mut cache, 22), []);
}

fn is_policy(text: &str) -> bool {
    let shape = Shape { slots: 9, seed: 1 };
    let spec = text.parse();
    spec.is_ok_and(|spec: PolicySpec| build(&spec, &shape).is_ok())
}

/// Two volumes, as a live cache has them and as a simulator numbers them, under reads that jump, run on, and go from one volume to the other.
#[test]
fn numbered_volumes_are_files_as_volumes_are() {
    const SECOND: u64 = 500;
    const INSIDE: &str = "linux(readahead=32)";
    // Whatever has a policy inside tells it.
    let around = Kind::ALL
        .iter()
        .map(|kind| format!("{}({INSIDE})", kind.name()));
    let around: Vec<String> = around.filter(|text| is_policy(text)).collect();
    assert!(
        around.contains(&format!("directory({INSIDE})")),
        "{around:?}"
    );
    let alone = [
        INSIDE,
        "mglru(readahead=32)",
        "linux(readahead=32,folios=large)",
    ];
    let mut ahead = 0;
    for policy in alone.into_iter().chain(around.iter().map(String::as_str)) {
        let mut volumes = level_of(policy, 150, 1);
        let mut numbered = level_of(policy, 150, 1);
        numbered.number_blocks(0);
        numbered.note_volumes(&[0, SECOND]);
        let mut random = crate::prng::Prng::new(5);
        for at in 0..3000 {
            let volume = at % 2;
            let kind = match random.below(4) {
                0 => AccessKind::Demotion,
                _ => AccessKind::Read,
            };
            let (from, step) = (random.below(300), random.below(3) + 1);
            for index in (from..from + 20).step_by(step as usize) {
                let block = BlockId::new(VolumeId(volume as u16), index);
                let number = BlockId::on_first(volume * SECOND + index);
                volumes.access(&Access::of(block, kind));
                numbered.access(&Access::of(number, kind));
                loop {
                    let next = (volumes.review(), numbered.review());
                    let as_number = |block: BlockId| {
                        BlockId::on_first(u64::from(block.volume().0) * SECOND + block.index())
                    };
                    assert_eq!(next.0.map(as_number), next.1, "{policy}");
                    let (Some(block), Some(number)) = next else {
                        break;
                    };
                    ahead += 1;
                    volumes.access(&Access::of(block, AccessKind::Preload));
                    numbered.access(&Access::of(number, AccessKind::Preload));
                }
            }
        }
        assert_eq!(volumes.counters(), numbered.counters(), "{policy}");
    }
    assert!(ahead > 10_000, "they read ahead, {ahead} blocks");
}

#[test]
fn windows_end_where_the_next_numbered_volume_begins() {
    for folios in ["single", "large"] {
        let text = format!("linux(readahead=32,folios={folios})");
        let mut cache = level_of(&text, 1000, 1);
        cache.note_volumes(&[0, 100]);
        let ahead: Vec<u64> = (0..100).flat_map(|index| read(&mut cache, index)).collect();
        assert_eq!(ahead.last(), Some(&99));
        assert_eq!(
            read(&mut cache, 100).first(),
            Some(&101),
            "it is a beginning"
        );
    }
}
