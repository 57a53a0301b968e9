use super::*;
use futae_agent_protocol::DeviceId;
use rustix::fd::AsFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

const OFFER: u64 = 5;

/// A ring of one page, and a table with room for as many entries as a page has.
struct Rig {
    ring: Ring,
    ring_memory: SharedMemory,
    table: SharedMemory,
    in_place: InPlace,
    begin: Instant,
}

fn shared(pages: usize) -> impl Fn() -> SharedMemory {
    let memory = memfd_create("test", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&memory, (pages * PAGE) as u64).expect("room");
    move || SharedMemory::of(memory.as_fd(), 0, pages * PAGE, true).expect("mapped")
}

impl Rig {
    fn new() -> Self {
        let memory = memfd_create("ring", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&memory, 4 * PAGE_BYTES).expect("room");
        let table = shared(2);
        let offer = RingOffer {
            version: VERSION,
            offer: OFFER,
            ..RingOffer::default()
        };
        Self {
            ring: Ring::of(memory.as_fd(), PAGE_BYTES).expect("a ring"),
            ring_memory: SharedMemory::of(memory.as_fd(), 0, PAGE, false).expect("mapped"),
            in_place: InPlace::with(table(), offer),
            table: table(),
            begin: Instant::now(),
        }
    }

    fn at(&self, milliseconds: u64) -> Instant {
        self.begin + Duration::from_millis(milliseconds)
    }

    fn put(&mut self, index: u64, now: Instant) {
        let pages = Pages {
            index,
            pages: 1,
            ..Pages::default()
        };
        let page = EvictedPage {
            device: DeviceId::default(),
            sector: 8 * index,
        };
        self.in_place
            .put((pages, page), (100 * index, 100 * index + 100), now);
    }

    fn hear(&mut self, verdict: Verdict, taken: u64, now: Instant) {
        let answer = RingAnswer {
            offer: OFFER,
            verdict,
            taken,
            why: "why".to_owned(),
        };
        self.in_place.hear(&answer, &self.ring, now);
    }

    fn expire(&mut self, now: Instant) -> Vec<u64> {
        let mut left = Vec::new();
        self.in_place.expire(&self.ring, now, &mut left);
        left.iter().map(|pages| pages.index).collect()
    }

    /// How far the table has got, and up to where the ring was given back.
    fn told(&self) -> (u64, u64, u64) {
        let table = |at| self.table.load(at);
        (table(BEGIN_AT), table(END_AT), self.ring_memory.load(0))
    }
}

#[test]
fn the_ring_is_given_back_as_the_host_reads_it() {
    let mut rig = Rig::new();
    assert!(!rig.in_place.is_read());
    rig.hear(Verdict::Reads, 0, rig.begin);
    assert!(rig.in_place.is_read());
    (0..3).for_each(|index| rig.put(index, rig.begin));
    assert_eq!(rig.told(), (0, 3, 0));
    let mut entry = [0; ENTRY_BYTES];
    assert!(rig.table.read(PAGE + ENTRY_BYTES, &mut entry));
    let page = EvictedPage {
        device: DeviceId::default(),
        sector: 8,
    };
    assert_eq!(entry, encode_entry(1, page, 100));
    rig.hear(Verdict::Reads, 2, rig.begin);
    assert_eq!(rig.told(), (2, 3, 200));
    // More than waits, and less than was said before.
    rig.hear(Verdict::Reads, u64::MAX, rig.begin);
    rig.hear(Verdict::Reads, 1, rig.begin);
    assert_eq!(rig.told(), (3, 3, 300));
    assert!(rig.expire(rig.at(4000)).is_empty());
}

#[test]
fn a_slow_host_costs_the_data_and_one_that_is_gone_the_way() {
    let mut rig = Rig::new();
    rig.hear(Verdict::Reads, 0, rig.begin);
    rig.put(0, rig.at(0));
    rig.put(1, rig.at(1500));
    assert!(rig.expire(rig.at(1999)).is_empty());
    assert_eq!(rig.expire(rig.at(2000)), [0], "told of without its data");
    assert_eq!(rig.told(), (1, 2, 100));
    // It says that it reads, and reads nothing of what waits.
    rig.hear(Verdict::Reads, 0, rig.at(3000));
    assert!(rig.in_place.is_read());
    rig.put(2, rig.at(4900));
    assert_eq!(rig.expire(rig.at(5100)), [1, 2]);
    assert!(!rig.in_place.is_read());
    assert_eq!(rig.told(), (3, 3, 300));
}

#[test]
fn a_host_that_has_nothing_to_read_and_speaks_is_there() {
    let mut rig = Rig::new();
    for second in 0..20 {
        rig.hear(Verdict::Reads, 0, rig.at(1000 * second));
        assert!(rig.expire(rig.at(1000 * second + 900)).is_empty());
        assert!(rig.in_place.is_read());
    }
    rig.put(0, rig.at(24_000));
    assert!(rig.expire(rig.at(24_001)).is_empty());
    assert_eq!(rig.expire(rig.at(29_000)), [0]);
    assert!(!rig.in_place.is_read());
}

#[test]
fn a_host_that_refuses_is_asked_again_later_and_another_at_once() {
    let mut rig = Rig::new();
    let is_offered = |rig: &mut Rig, at: u64| rig.in_place.offer(rig.at(at)).is_some();
    assert!(is_offered(&mut rig, 0) && !is_offered(&mut rig, 1));
    rig.hear(Verdict::Reads, 0, rig.begin);
    rig.put(0, rig.begin);
    assert!(!is_offered(&mut rig, 60_000), "it is read");
    rig.hear(Verdict::Refuses, 0, rig.begin);
    assert!(!rig.in_place.is_read());
    assert_eq!(rig.expire(rig.begin), [0]);
    assert!(!is_offered(&mut rig, 4999) && is_offered(&mut rig, 5000));
    rig.in_place.connected();
    assert!(is_offered(&mut rig, 5001));
    // What another offer is answered is not for this one.
    let other = RingAnswer {
        offer: OFFER + 1,
        verdict: Verdict::Reads,
        ..RingAnswer::default()
    };
    rig.in_place.hear(&other, &rig.ring, rig.begin);
    assert!(!rig.in_place.is_read());
}

#[test]
fn a_table_that_is_full_takes_no_more() {
    let mut rig = Rig::new();
    rig.hear(Verdict::Reads, 0, rig.begin);
    for index in 0..ENTRIES_A_PAGE as u64 {
        assert!(rig.in_place.has_room());
        rig.put(index, rig.begin);
    }
    assert!(!rig.in_place.has_room());
    rig.hear(Verdict::Reads, 1, rig.begin);
    assert!(rig.in_place.has_room());
}
