use super::super::encode_entry;
use super::*;
use crate::DeviceId;
use std::cell::{Cell, RefCell};

const PAGE: usize = PAGE_BYTES as usize;
const RING_PAGES: u64 = 4;
/// Page numbers: the table at 1 and 2, the ring at 8, 7, 6, 5.
const MEMORY_PAGES: usize = 9;
const OFFER: u64 = 77;

/// Changes memory before the read of this number.
type Change = dyn Fn(u64, &mut Vec<u8>);

/// A guest's memory, which may change with every read.
struct Guest {
    bytes: RefCell<Vec<u8>>,
    reads: Cell<u64>,
    change: Box<Change>,
}

impl RingMemory for Guest {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let mut bytes = self.bytes.borrow_mut();
        self.reads.set(self.reads.get() + 1);
        (self.change)(self.reads.get(), &mut bytes);
        let Some(from) = bytes
            .get(address as usize..)
            .and_then(|rest| rest.get(..into.len()))
        else {
            return false;
        };
        into.copy_from_slice(from);
        true
    }
}

impl Guest {
    fn new() -> Self {
        let guest = Self {
            bytes: RefCell::new(vec![0; MEMORY_PAGES * PAGE]),
            reads: Cell::new(0),
            change: Box::new(|_, _| {}),
        };
        guest.head(0, 0);
        guest
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn head(&self, begin: u64, end: u64) {
        let head = Head {
            offer: OFFER,
            begin,
            end,
            ..Head::default()
        };
        self.put(PAGE, &head.encode());
    }

    /// Entry `number` with a page at `position`.
    fn entry(&self, number: u64, position: u64) {
        let slot = number as usize % ENTRIES_A_PAGE;
        self.put(
            2 * PAGE + slot * ENTRY_BYTES,
            &encode_entry(number, page(number), position),
        );
    }

    /// A page of `byte` in the ring.
    fn data(&self, position: u64, byte: u8) {
        for at in position..position + PAGE_BYTES {
            let at = at % (RING_PAGES * PAGE_BYTES);
            let page = 8 - (at / PAGE_BYTES) as usize;
            self.put(page * PAGE + at as usize % PAGE, &[byte]);
        }
    }

    fn reader(&self) -> RingReader {
        RingReader::open(offer(), self).expect("a ring")
    }
}

fn page(number: u64) -> EvictedPage {
    EvictedPage {
        device: DeviceId {
            major: 254,
            minor: 3,
        },
        sector: number * 8,
    }
}

fn offer() -> RingOffer {
    RingOffer {
        version: VERSION,
        offer: OFFER,
        table: vec![1, 2],
        ring: vec![8, 7, 6, 5],
    }
}

fn entries(reader: &mut RingReader, guest: &Guest, most: usize) -> Vec<RingEntry> {
    let mut found = Vec::new();
    reader.entries(guest, most, &mut found).expect("a ring");
    found
}

#[test]
fn pages_are_read_in_their_order_and_around_the_end_of_the_ring() {
    let guest = Guest::new();
    let mut reader = guest.reader();
    assert!(entries(&mut reader, &guest, 9).is_empty());
    // The third goes around the end.
    let position = |number: u64| 40 + number * 5136;
    for number in 0..3 {
        guest.entry(number, position(number));
        guest.data(position(number), number as u8 + 1);
        guest.head(0, number + 1);
    }
    let mut found = entries(&mut reader, &guest, 2);
    assert_eq!(found.len(), 2);
    found.extend(entries(&mut reader, &guest, 2));
    for (entry, number) in found.iter().zip(0..) {
        assert_eq!((entry.number, entry.page), (number, page(number)));
        let mut data = [0; PAGE];
        assert!(reader.data(&guest, entry, &mut data));
        assert_eq!(data, [number as u8 + 1; PAGE]);
    }
    assert_eq!((found.len(), reader.cursor(), reader.resyncs()), (3, 3, 0));
    assert_eq!(reader.first_valid(&guest), Ok(0));
}

#[test]
fn a_reader_that_fell_behind_goes_on_with_what_is_there() {
    let guest = Guest::new();
    let mut reader = guest.reader();
    for number in 5..9 {
        guest.entry(number, 0);
    }
    guest.head(5, 9);
    let found = entries(&mut reader, &guest, 99);
    assert_eq!(
        found.iter().map(|entry| entry.number).collect::<Vec<_>>(),
        [5, 6, 7, 8]
    );
    assert_eq!((reader.resyncs(), reader.missed()), (1, 5));
}

#[test]
fn heads_that_make_no_sense_are_left_behind_with_bounded_work() {
    let slots = ENTRIES_A_PAGE as u64;
    for (begin, end) in [
        (0, u64::MAX),
        (u64::MAX, 0),
        (2, 1),
        (0, slots + 1),
        (u64::MAX, u64::MAX),
        (1, 9),
    ] {
        let guest = Guest::new();
        let mut reader = guest.reader();
        guest.head(begin, end);
        let before = guest.reads.get();
        // No entry has the number that it should have.
        assert!(
            entries(&mut reader, &guest, 1000).is_empty(),
            "{begin} {end}"
        );
        assert!(guest.reads.get() - before <= 3, "{begin} {end}");
        assert_eq!(reader.cursor(), end);
        assert!(reader.resyncs() > 0);
        assert!(entries(&mut reader, &guest, 1000).is_empty());
    }
}

#[test]
fn an_end_that_goes_back_is_followed_and_counted() {
    let guest = Guest::new();
    let mut reader = guest.reader();
    guest.entry(0, 0);
    guest.head(0, 1);
    assert_eq!(entries(&mut reader, &guest, 9).len(), 1);
    guest.head(0, 0);
    assert!(entries(&mut reader, &guest, 9).is_empty());
    assert_eq!(
        (reader.cursor(), reader.resyncs(), reader.missed()),
        (0, 1, 0)
    );
}

#[test]
fn what_changes_between_two_looks_is_looked_at_once() {
    // With every read of an entry its number, position and the head become something else.
    let mut guest = Guest::new();
    for number in 0..3 {
        guest.entry(number, number * 4104);
    }
    guest.head(0, 3);
    let mut reader = guest.reader();
    guest.change = Box::new(|reads, bytes| {
        // The reader was opened, and has read the head twice.
        if reads > 3 {
            bytes[PAGE + 24..PAGE + 64].fill(0xff);
            for slot in 0..3 {
                bytes[2 * PAGE + slot * ENTRY_BYTES + 24..][..8].fill(0xff);
            }
        }
    });
    let found = entries(&mut reader, &guest, 99);
    assert_eq!(found.len(), 3);
    for entry in &found {
        assert!(reader.data(&guest, entry, &mut [0; PAGE]), "{entry:?}");
    }
    assert_eq!(reader.first_valid(&guest), Err(NoRing::Head));
}

#[test]
fn pages_outside_of_memory_are_told_and_offers_that_cannot_be_are_refused() {
    let guest = Guest::new();
    let open = |change: &dyn Fn(&mut RingOffer)| {
        let mut one = offer();
        change(&mut one);
        RingReader::open(one, &guest).map(drop)
    };
    assert_eq!(open(&|_| {}), Ok(()));
    assert_eq!(open(&|one| one.version = 2), Err(NoRing::Version(2)));
    assert_eq!(open(&|one| one.offer = 1), Err(NoRing::Head));
    assert_eq!(open(&|one| one.table.clear()), Err(NoRing::Length));
    assert_eq!(open(&|one| one.table.truncate(1)), Err(NoRing::Length));
    assert_eq!(open(&|one| one.table[0] = 2), Err(NoRing::Head));
    assert_eq!(open(&|one| one.table[0] = u64::MAX), Err(NoRing::Memory));
    let too_long = RingOffer::MAX_TABLE_PAGES + 1;
    assert_eq!(
        open(&|one| one.table.resize(too_long, 1)),
        Err(NoRing::Length)
    );
    assert_eq!(open(&|one| one.ring.clear()), Err(NoRing::Length));
    assert_eq!(open(&|one| one.ring.truncate(3)), Err(NoRing::Length));
    let too_long = 2 * RingOffer::MAX_RING_PAGES;
    assert_eq!(
        open(&|one| one.ring.resize(too_long, 1)),
        Err(NoRing::Length)
    );

    guest.entry(0, 8);
    guest.entry(1, u64::MAX);
    guest.head(0, 2);
    let mut one = offer();
    one.ring = vec![8, 1 << 40, 6, u64::MAX / PAGE_BYTES];
    let mut reader = RingReader::open(one, &guest).expect("a ring");
    let found = entries(&mut reader, &guest, 9);
    for entry in &found {
        assert!(!reader.data(&guest, entry, &mut [0; PAGE]));
    }
    assert_eq!(found.len(), 2);
    let mut one = offer();
    one.table[1] = 1 << 52;
    let mut reader = RingReader::open(one, &guest).expect("the head is there");
    let ended = reader.entries(&guest, 9, &mut Vec::new());
    assert_eq!(ended, Err(NoRing::Memory));
}

#[test]
fn pages_that_overlap_are_read_like_others() {
    let guest = Guest::new();
    guest.entry(0, 0);
    guest.head(0, 1);
    let one = RingOffer {
        table: vec![1, 2],
        ring: vec![1, 1, 2, 2],
        ..offer()
    };
    let mut reader = RingReader::open(one, &guest).expect("a ring");
    let found = entries(&mut reader, &guest, 9);
    assert!(reader.data(&guest, &found[0], &mut [0; PAGE]));
}

#[test]
fn a_guest_that_begins_anew_ends_the_ring() {
    let guest = Guest::new();
    let mut reader = guest.reader();
    guest.put(PAGE, &[0; PAGE]);
    let ended = reader.entries(&guest, 9, &mut Vec::new());
    assert_eq!(ended, Err(NoRing::Head));
}
