//! A guest's memory that is made to harm, and changes while it is read, under the reader of rings of evicted pages.
//! Whatever is there: work is bounded, entries have their numbers in order, data come whole or not at all.
//!
//! The input is an offer (which pages), where the memory begins, and what is written into it before each read.

use futae_agent_protocol::PAGE_BYTES;
use futae_agent_protocol::evicted_pages::EvictedPage;
use futae_agent_protocol::in_place::{
    ENTRIES_A_PAGE, ENTRY_BYTES, Head, NoRing, RingEntry, RingMemory, RingOffer, RingReader,
    VERSION, encode_entry,
};
use std::cell::RefCell;

const PAGE: usize = PAGE_BYTES as usize;
const MEMORY_PAGES: usize = 12;
const OFFER: u64 = 7;
const MOST: usize = 64;
const TURNS: usize = 8;

/// Takes the input apart; zeroes at its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// Small numbers mostly, and those at which sums overflow.
    fn number(&mut self) -> u64 {
        let (kind, low) = (self.byte(), u64::from(self.byte()));
        match kind % 8 {
            0..4 => low,
            4 => low * 256 + u64::from(self.byte()),
            5 => u64::MAX - low,
            6 => 1 << (low % 64),
            _ => (u64::MAX / PAGE_BYTES).wrapping_add(low).wrapping_sub(128),
        }
    }
}

struct Guest<'a> {
    bytes: RefCell<Vec<u8>>,
    changes: RefCell<Input<'a>>,
    reads: RefCell<usize>,
}

impl Guest<'_> {
    /// Does what the input says next to the memory.
    fn change(&self) {
        let (mut input, mut bytes) = (self.changes.borrow_mut(), self.bytes.borrow_mut());
        let mut put = |at: usize, new: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + new.len()) {
                place.copy_from_slice(new);
            }
        };
        match input.byte() % 8 {
            1 => {
                let head = Head {
                    offer: OFFER,
                    begin: input.number(),
                    end: input.number(),
                    guest_ns: input.number(),
                    guest_pages: 0,
                };
                put(PAGE, &head.encode());
            }
            2 | 3 => {
                let (number, slot) = (input.number(), usize::from(input.byte()));
                let page = EvictedPage {
                    device: Default::default(),
                    sector: input.number(),
                };
                let entry = encode_entry(number, page, input.number());
                put(2 * PAGE + slot * ENTRY_BYTES, &entry);
            }
            4 => {
                // Entries that are as they should be, from a number on.
                let first = input.number();
                for number in first..first.saturating_add(40) {
                    let slot = (number % (2 * ENTRIES_A_PAGE) as u64) as usize;
                    let page = EvictedPage {
                        device: Default::default(),
                        sector: number,
                    };
                    let entry = encode_entry(number, page, number.wrapping_mul(4136));
                    put(2 * PAGE + slot * ENTRY_BYTES, &entry);
                }
            }
            5 => {
                let at = input.number() as usize % (MEMORY_PAGES * PAGE);
                let byte = input.byte();
                put(at, &[byte]);
            }
            // Memory is removed.
            6 => {
                let pages = usize::from(input.byte()) % (MEMORY_PAGES + 1);
                bytes.truncate(pages * PAGE);
            }
            _ => {}
        }
    }
}

impl RingMemory for Guest<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.change();
        *self.reads.borrow_mut() += 1;
        let bytes = self.bytes.borrow();
        let from = usize::try_from(address)
            .ok()
            .and_then(|at| bytes.get(at..)?.get(..into.len()));
        from.inspect(|from| into.copy_from_slice(from)).is_some()
    }
}

/// One input.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let mut offer = RingOffer {
        version: VERSION,
        offer: OFFER,
        table: vec![1, 2, 3],
        ring: vec![4, 5, 6, 7],
    };
    for _ in 0..input.byte() % 4 {
        let (which, at, page) = (input.byte(), usize::from(input.byte()), input.number());
        match which % 4 {
            0 => offer.table[at % 3] = page,
            1 => offer.ring[at % 4] = page,
            2 => offer.ring.truncate(at % 5),
            _ => offer.version = page as u32,
        }
        offer.ring.resize(4, 4);
    }
    let guest = Guest {
        bytes: RefCell::new(vec![0; MEMORY_PAGES * PAGE]),
        changes: RefCell::new(input),
        reads: RefCell::default(),
    };
    let head = Head {
        offer: OFFER,
        ..Head::default()
    };
    guest.bytes.borrow_mut()[PAGE..PAGE + 64].copy_from_slice(&head.encode());
    let Ok(mut reader) = RingReader::open(offer, &guest) else {
        return;
    };
    for _ in 0..TURNS {
        let (mut entries, before) = (Vec::<RingEntry>::new(), (reader.missed(), reader.resyncs()));
        *guest.reads.borrow_mut() = 0;
        let told = reader.entries(&guest, MOST, &mut entries);
        assert!(*guest.reads.borrow() <= 1 + MOST + 1, "bounded work");
        assert!(entries.len() <= MOST);
        assert!(reader.missed() >= before.0 && reader.resyncs() >= before.1);
        let numbers = entries
            .windows(2)
            .all(|two| two[0].number + 1 == two[1].number);
        assert!(numbers, "in order: {entries:?}");
        if let Some(last) = entries.last() {
            assert!(last.number < reader.cursor());
        }
        for entry in &entries {
            *guest.reads.borrow_mut() = 0;
            let _ = reader.data(&guest, entry, &mut [0; PAGE]);
            assert!(*guest.reads.borrow() <= 2);
        }
        match told.and_then(|()| reader.first_valid(&guest).map(drop)) {
            Ok(()) => {}
            Err(NoRing::Head | NoRing::Memory) => return,
            Err(other) => panic!("{other:?} comes with the offer"),
        }
    }
}
