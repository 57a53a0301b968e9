//! The dirty log: what the disk writes into a guest's memory is marked, and nothing else is; a guest that is moved by these
//! marks alone has lost nothing.

use crate::rig::{
    BAD, DISCARD, DONE, FLUSH, GET_ID, IN, OUT, Rig, SECTOR, SIZE, UNKNOWN, WRITE_ZEROES, stamped,
};
use crate::ring::{
    Area, DATA_BYTES, Descriptor, Log, MEMORY_BYTES, NEXT, PAGE_BYTES, Queue, RingClient, SLOTS,
    WRITE, Wish,
};
use futae_policy::Prng;
use futae_testkit::store::StoreEvent;
use futae_testkit::wait::eventually;
use std::collections::BTreeSet;

/// As large as it may be: the used ring is in three pages.
const QUEUE_SIZE: u16 = 1024;
const PAGE: usize = PAGE_BYTES as usize;

fn page(address: u64) -> u64 {
    address / PAGE_BYTES
}

fn snapshot(queue: &Queue) -> Vec<u8> {
    queue.bytes(0, MEMORY_BYTES as usize)
}

/// Pages that differ.
fn differing(one: &[u8], other: &[u8]) -> BTreeSet<u64> {
    let pairs = one.chunks(PAGE).zip(other.chunks(PAGE)).zip(0..);
    pairs
        .filter(|((one, other), _)| one != other)
        .map(|(_, page)| page)
        .collect()
}

fn used_entry(area: Area, index: u16) -> u64 {
    area.used + 4 + 8 * u64::from(index % QUEUE_SIZE)
}

/// Where the device says from which index on it wants to be notified, the last that it has in the used ring.
fn wish(area: Area) -> u64 {
    area.used + 4 + 8 * u64::from(QUEUE_SIZE)
}

/// A client whose log has nothing but what its requests mark.
struct Watched {
    client: RingClient,
    log: Log,
    event_index: bool,
}

impl Watched {
    fn new(rig: &Rig, event_index: bool) -> Self {
        let mut client = rig.client(Wish {
            queue_size: QUEUE_SIZE,
            event_index,
            ..Wish::default()
        });
        // So that entries are in another page of the used ring than its index.
        for _ in 0..520 {
            client.queues[0].request(FLUSH, 0, &[], 0);
        }
        let log = Log::new().expect("a log");
        client.log_to(&log).expect("it is logged");
        Self {
            client,
            log,
            event_index,
        }
    }

    /// Asks, and finds marked what the device wrote: the used ring, the status, and these places.
    fn expect(&mut self, what: &str, places: &[u64], ask: impl FnOnce(&mut Queue) -> u8) {
        let area = self.client.queues[0].area();
        // A queue that starts marks all of its used ring, for a server that died.
        let last = page(wish(area));
        eventually("the queue has started", || {
            self.log.marked().contains(&last)
        });
        let _ = self.log.take();
        let before = snapshot(&self.client.queues[0]);
        let index = self.client.queues[0].answered();
        let status = ask(&mut self.client.queues[0]);
        self.client.stop(0).expect("it stops");
        let mut marked = self.log.take();
        let after = snapshot(&self.client.queues[0]);
        let lies = |place: u64, begin: u64, end: u64| (page(begin)..=page(end)).contains(&place);
        // What the client itself writes is not the device's concern.
        let is_devices = |&place: &u64| {
            lies(place, area.used, area.headers - 1) || places.iter().any(|&at| page(at) == place)
        };
        let changed: BTreeSet<u64> = differing(&before, &after)
            .into_iter()
            .filter(is_devices)
            .collect();
        assert!(
            changed.is_subset(&marked),
            "{what} ({status}): changed {changed:?}, marked {marked:?}"
        );
        let mut expected: BTreeSet<u64> = places.iter().copied().map(page).collect();
        expected.extend([area.statuses, area.used, used_entry(area, index)].map(page));
        if self.event_index {
            // Whether it slept in between is its own affair.
            marked.remove(&last);
        }
        assert_eq!(marked, expected, "{what} ({status})");
        self.client.start(0).expect("it starts");
    }
}

#[test]
fn the_log_has_every_page_that_a_request_writes_and_no_other() {
    for event_index in [true, false] {
        let rig = Rig::new();
        let mut watched = Watched::new(&rig, event_index);
        let data = watched.client.queues[0].area().data;
        let plain = |kind: u32, sector: u64, sent: Vec<u8>, room: u32, status: u8| {
            move |queue: &mut Queue| {
                let answer = queue.request(kind, sector, &sent, room);
                assert_eq!(answer.status, status, "kind {kind}");
                answer.status
            }
        };
        let three = [data, data + PAGE_BYTES, data + 2 * PAGE_BYTES];
        watched.expect(
            "a miss",
            &three,
            plain(IN, 8, vec![], 9000 / 512 * 512, DONE),
        );
        watched.expect("a hit", &three[..1], plain(IN, 8, vec![], 4096, DONE));
        // Over whatever was there.
        watched.client.queues[0].put(&[0x5A; 4096], data);
        watched.expect("a hit again", &three[..1], plain(IN, 8, vec![], 4096, DONE));
        watched.expect(
            "an identity",
            &three[..1],
            plain(GET_ID, 0, vec![], 20, DONE),
        );
        watched.expect("a write", &[], plain(OUT, 64, vec![7; 8192], 0, DONE));
        watched.expect("a flush", &[], plain(FLUSH, 0, vec![], 0, DONE));
        let range = [64u64.to_le_bytes(), 8u64.to_le_bytes()].concat();
        watched.expect("a discard", &[], plain(DISCARD, 0, range.clone(), 0, DONE));
        watched.expect("zeroes", &[], plain(WRITE_ZEROES, 0, range, 0, DONE));
        watched.expect("an unknown kind", &[], plain(77, 0, vec![], 512, UNKNOWN));
        watched.expect("out of bounds", &[], plain(IN, u64::MAX, vec![], 4096, BAD));
        rig.open.store.fail_reads(true);
        watched.expect("a failed read", &[], plain(IN, 800, vec![], 4096, BAD));
        rig.open.store.fail_reads(false);
        // Twelve bytes over the end of a page, and the rest elsewhere.
        let pieces = [(data + 4090, 12), (data + 3 * PAGE_BYTES + 100, 500)];
        let places = [data, data + PAGE_BYTES, data + 3 * PAGE_BYTES];
        watched.expect("pieces", &places, |queue| scattered(queue, 24, &pieces));
        // No more marks when the migration was called off.
        watched.client.end_log().expect("it ends");
        let _ = watched.log.take();
        let answer = watched.client.queues[0].request(IN, 8, &[], 4096);
        assert_eq!(answer.status, DONE);
        watched.client.stop(0).expect("it stops");
        assert_eq!(watched.log.take(), BTreeSet::new());
        rig.finish(watched.client);
    }
}

/// Its state is answered when its writes are on stable storage. Who waits for it does not keep the server from ending.
#[test]
fn a_guest_that_cannot_leave_does_not_hold_up_the_end_of_the_server() {
    let Rig {
        server,
        engine,
        open,
        _directory,
        ..
    } = Rig::new();
    let mut client = RingClient::connect(&open.socket, Wish::default()).expect("a frontend");
    let log = Log::new().expect("a log");
    client.log_to(&log).expect("it is logged");
    open.store.fail_writes(true);
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| client.stop(0));
        eventually("a flush has failed", || engine.status().errors > 0);
        let report = server.stop();
        assert_eq!(report.flush_errors.len(), 1, "its own");
        leaving
            .join()
            .expect("no panic")
            .expect_err("it is not let go");
    });
}

/// What is to be flushed waits in the cache, and takes memory.
#[test]
fn a_frontend_that_begins_migrations_without_end_has_one_flush_under_way() {
    let rig = Rig::new();
    let mut client = rig.client(Wish::default());
    let log = Log::new().expect("a log");
    rig.open.store.hold_flushes();
    for _ in 0..50 {
        client.log_to(&log).expect("it begins");
        client.end_log().expect("it is called off");
    }
    client.size_bytes().expect("all has been heard");
    rig.open.store.release();
    client.log_to(&log).expect("it begins");
    client.stop(0).expect("it stops");
    let flushes = rig.open.store.count(|event| *event == StoreEvent::Flush);
    // The first of them, the last, and the one for which the guest stood still.
    assert!((2..=3).contains(&flushes), "{flushes}");
    rig.finish(client);
}

/// Reads a sector into these pieces of memory; the status.
fn scattered(queue: &mut Queue, sector: u64, pieces: &[(u64, u32)]) -> u8 {
    let area = queue.area();
    queue.put(&(u128::from(sector) << 64).to_le_bytes(), area.headers);
    queue.put(&[0xFF], area.statuses);
    let mut parts = vec![(area.headers, 16, NEXT)];
    parts.extend(pieces.iter().map(|&(at, bytes)| (at, bytes, NEXT | WRITE)));
    parts.push((area.statuses, 1, WRITE));
    for (at, (address, length, flags)) in (0..).zip(parts) {
        let next = at + 1;
        queue.describe(
            at,
            Descriptor {
                address,
                length,
                flags,
                next,
            },
        );
    }
    queue.offer(0);
    queue.publish();
    queue.answer();
    let read: Vec<u8> = pieces
        .iter()
        .flat_map(|&(at, bytes)| queue.bytes(at, bytes as usize))
        .collect();
    assert_eq!(read, stamped(sector * SECTOR as u64, SECTOR));
    queue.byte(area.statuses)
}

/// The guest's memory where it is moved to.
struct Moving<'a> {
    random: Prng,
    to: &'a RingClient,
    /// What each slot of each queue asked for last: first sector and bytes.
    asked: Vec<[Option<(u64, u32)>; SLOTS as usize]>,
    answers: u64,
}

impl Moving<'_> {
    /// Copies pages from where it runs.
    fn copy(&self, from: &RingClient, pages: impl IntoIterator<Item = u64>) {
        for place in pages {
            let bytes = from.queues[0].bytes(place * PAGE_BYTES, PAGE);
            self.to.queues[0].put(&bytes, place * PAGE_BYTES);
        }
    }

    /// Copies what the guest itself writes: descriptors and the available ring, headers, and statuses before they are answered.
    fn copy_of_guest(&self, from: &RingClient) {
        for queue in &from.queues {
            let area = queue.area();
            let asks = page(area.table)..page(area.used);
            self.copy(from, asks.chain(page(area.headers)..page(area.data)));
        }
    }

    /// Takes the answers that there are and checks their data.
    fn collect(&mut self, client: &mut RingClient) {
        for (queue, asked) in client.queues.iter_mut().zip(&mut self.asked) {
            while let Some(answer) = queue.try_answer() {
                let place = asked[usize::from(answer.slot)].take();
                let (sector, bytes) = place.expect("it was asked for, once");
                let expected = stamped(sector * SECTOR as u64, bytes as usize);
                assert!(answer.status == DONE && answer.data == expected, "{sector}");
                self.answers += 1;
            }
        }
    }

    /// Asks for something in every slot that is free.
    fn ask(&mut self, client: &mut RingClient) {
        for (queue, asked) in client.queues.iter_mut().zip(&mut self.asked) {
            for (slot, place) in (0..).zip(asked.iter_mut()) {
                if place.is_some() {
                    continue;
                }
                let bytes = 512 * (1 + self.random.below(DATA_BYTES / 2048)) as u32;
                let sectors = (SIZE as u64 - u64::from(bytes)) / SECTOR as u64;
                let sector = self.random.below(sectors + 1);
                queue.ask(slot, IN, sector, &[], bytes);
                *place = Some((sector, bytes));
            }
            queue.publish();
        }
    }
}

/// Two hypervisors have the disk at once. One runs the guest, whose queues are always full, and copies its memory by the marks,
/// of logs that it exchanges; what is under way when it stops the queues is marked, too. The other goes on.
#[test]
fn a_guest_that_is_moved_by_the_marks_has_all_its_memory() {
    for seed in 0..4 {
        let rig = Rig::new();
        rig.open.store.shuffle();
        let mut from = rig.client(Wish {
            queues: 4,
            event_index: seed % 2 == 0,
            ..Wish::default()
        });
        let mut to = from.beside().expect("another frontend");
        let mut moving = Moving {
            random: Prng::new(seed),
            to: &to,
            asked: vec![[None; SLOTS as usize]; 4],
            answers: 0,
        };
        moving.ask(&mut from);
        let (mut log, mut retired) = (Log::new().expect("a log"), Vec::new());
        from.log_to(&log).expect("it is logged");
        moving.copy(&from, 0..MEMORY_BYTES / PAGE_BYTES);
        for round in 0..60 {
            moving.ask(&mut from);
            eventually("something is answered", || {
                from.queues.iter().any(Queue::has_answered)
            });
            moving.collect(&mut from);
            let pages = if round % 2 == 0 {
                log.take()
            } else {
                let next = Log::new().expect("a log");
                from.log_to(&next).expect("it takes another");
                let last = std::mem::replace(&mut log, next);
                let pages = last.take();
                retired.push(last);
                pages
            };
            moving.copy(&from, pages);
            moving.copy_of_guest(&from);
        }
        // The last of them are under way in the store when the queues stop.
        rig.open.store.hold_reads(0..SIZE as u64);
        eventually("reads wait", || {
            moving.collect(&mut from);
            moving.ask(&mut from);
            rig.open.store.held() > 0
        });
        let pages = log.take();
        moving.copy(&from, pages);
        moving.copy_of_guest(&from);
        let store = &rig.open.store;
        std::thread::scope(|scope| {
            scope.spawn(|| store.release());
            for index in 0..4 {
                let base = from.stop(index).expect("it stops");
                let used = from.queues[index].area().used + 2;
                let used = from.queues[index].bytes(used, 2);
                assert_eq!(base, u32::from(u16::from_le_bytes([used[0], used[1]])));
            }
        });
        let pages = log.take();
        moving.copy(&from, pages);
        let (here, there) = (snapshot(&from.queues[0]), snapshot(&moving.to.queues[0]));
        let lost = differing(&here, &there);
        assert_eq!(lost, BTreeSet::new(), "seed {seed}: pages are lost");
        // Nobody has marked anything in a log that was exchanged.
        for last in retired {
            assert_eq!(last.marked(), BTreeSet::new(), "seed {seed}");
        }
        let Moving {
            mut asked, answers, ..
        } = moving;
        assert!(answers > 0);
        to.take_over(&from).expect("it goes on");
        for (queue, asked) in to.queues.iter_mut().zip(&mut asked) {
            for _ in 0..asked.iter().flatten().count() {
                let answer = queue.answer();
                let (sector, bytes) = asked[usize::from(answer.slot)].take().expect("once");
                assert!(answer.data == stamped(sector * SECTOR as u64, bytes as usize));
            }
            assert_eq!(
                queue.request(OUT, 8, &[seed as u8 + 1; 512], 0).status,
                DONE
            );
        }
        drop(from);
        for queue in &mut to.queues {
            let read = queue.request(IN, 8, &[], 512);
            assert_eq!(read.data, [seed as u8 + 1; 512], "the first one is gone");
        }
        rig.finish(to);
    }
}
