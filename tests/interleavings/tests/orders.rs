//! Every order of a few threads that hand something to each other.

use futae_interleavings::connection::{Connection, FRAME_BYTES, Urgency};
use futae_interleavings::evicted_pages::EvictedPage;
use futae_interleavings::extents::Pages;
use futae_interleavings::in_place::reader::RingReader;
use futae_interleavings::in_place::{RingAnswer, Verdict};
use futae_interleavings::lock_turns::LockTurns;
use futae_interleavings::mailbox::Mailbox;
use futae_interleavings::ring::{Ring, Seen, TABLE_PAGES};
use futae_interleavings::socket::Socket;
use futae_interleavings::system::SharedMemory;
use futae_interleavings::writer::InPlace;
use futae_interleavings::{DeviceId, PAGE_BYTES};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use std::time::Instant;

/// Runs the threads of `run` in every order with at most so many preemptions.
fn orders(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(run);
}

/// Sleeps as the loops of connections and queues do, until `wanted` results have come.
fn collect(mailbox: &Mailbox<u32>, wanted: usize) -> Vec<u32> {
    let (mut all, mut some) = (Vec::new(), Vec::new());
    while all.len() < wanted {
        mailbox.take(&mut some);
        all.append(&mut some);
        if all.len() < wanted && mailbox.may_sleep() {
            mailbox.bell().wait();
            mailbox.awake(true);
        }
    }
    all
}

#[test]
fn no_result_is_left_in_a_mailbox_of_a_thread_that_sleeps() {
    orders(3, || {
        let mailbox = Arc::new(Mailbox::new().expect("a bell"));
        let putters = [1, 2].map(|number| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.put(number))
        });
        let mut all = collect(&mailbox, 2);
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
        for putter in putters {
            putter.join().expect("it ends");
        }
    });
}

#[test]
fn a_sleeper_hears_of_its_end() {
    orders(3, || {
        let mailbox = Arc::new(Mailbox::<u32>::new().expect("a bell"));
        let stop = Arc::new(AtomicBool::new(false));
        let stopper = {
            let (mailbox, stop) = (Arc::clone(&mailbox), Arc::clone(&stop));
            thread::spawn(move || {
                stop.store(true, Ordering::SeqCst);
                mailbox.ring();
            })
        };
        let putter = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || mailbox.put(1))
        };
        let (mut taken, mut some) = (0, Vec::new());
        while !stop.load(Ordering::SeqCst) {
            mailbox.take(&mut some);
            taken += some.drain(..).count();
            if mailbox.may_sleep() && !stop.load(Ordering::SeqCst) {
                mailbox.bell().wait();
                mailbox.awake(true);
            }
        }
        putter.join().expect("it ends");
        stopper.join().expect("it ends");
        mailbox.take(&mut some);
        assert_eq!(taken + some.len(), 1);
    });
}

#[test]
fn a_long_request_gives_way_and_goes_on() {
    orders(3, || {
        let turns = Arc::new(LockTurns::new(0));
        let others = [1, 2].map(|_| {
            let turns = Arc::clone(&turns);
            thread::spawn(move || *turns.lock() += 1)
        });
        for _ in 0..2 {
            *turns.lock() += 10;
            turns.give_way();
        }
        for other in others {
            other.join().expect("it ends");
        }
        assert_eq!(*turns.lock(), 22);
    });
}

/// The page that entry `number` tells of, and where it lies in the ring.
fn evicted(number: u64) -> (EvictedPage, u64) {
    let device = DeviceId { major: 8, minor: 0 };
    let sector = number * 8;
    (EvictedPage { device, sector }, number * PAGE_BYTES)
}

/// What the page of entry `number` holds.
fn content(number: u64) -> u64 {
    100 + number
}

/// The number of the agent's offer.
const OFFER: u64 = 7;

/// An agent, and what the kernel's programs do.
struct Agent {
    writer: InPlace,
    ring: Ring,
    copied: u64,
    told: u64,
}

impl Agent {
    /// The kernel copies pages as long as there is room.
    fn copy(&mut self) {
        while self
            .ring
            .copy(self.copied * PAGE_BYTES, content(self.copied))
        {
            self.copied += 1;
        }
    }

    /// The agent tells of them likewise.
    fn tell(&mut self) {
        while self.writer.has_room() && self.told < self.copied {
            let (page, position) = evicted(self.told);
            let end = position + PAGE_BYTES;
            self.writer
                .put((Pages, page), (position, end), Instant::now());
            self.told += 1;
        }
    }

    fn hear(&mut self, taken: u64) {
        let answer = RingAnswer {
            offer: OFFER,
            verdict: Verdict::Reads,
            taken,
            why: String::new(),
        };
        self.writer.hear(&answer, &self.ring, Instant::now());
    }
}

/// An agent that has told of all pages that its table has room for, and a host that has opened its ring, with what it sees of the
/// guest.
fn guest(ring_pages: usize) -> (Agent, RingReader, Seen) {
    let table = SharedMemory::zeroed((TABLE_PAGES * PAGE_BYTES) as usize);
    let ring = Ring::zeroed(ring_pages);
    let writer = InPlace::new(table.clone(), &ring, OFFER).expect("a ring");
    let mut agent = Agent {
        writer,
        ring: ring.clone(),
        copied: 0,
        told: 0,
    };
    let offer = agent.writer.offer(Instant::now()).expect("it is due");
    let seen = Seen { table, ring };
    let reader = RingReader::open(offer, &seen).expect("a ring");
    agent.hear(0);
    agent.copy();
    agent.tell();
    (agent, reader, seen)
}

/// The host takes up to `most` entries, and believes those pages that are what their entries say.
fn take(reader: &mut RingReader, seen: &Seen, most: usize) {
    let mut entries = Vec::new();
    reader.entries(seen, most, &mut entries).expect("a ring");
    let mut copies = Vec::new();
    for entry in &entries {
        let mut data = [0; PAGE_BYTES as usize];
        assert!(reader.data(seen, entry, &mut data));
        copies.push((entry.number, entry.page, data));
    }
    let valid = reader.first_valid(seen).expect("a ring");
    for (_, page, data) in copies.iter().filter(|copy| copy.0 >= valid) {
        let number = page.sector / 8;
        let found = data.first_chunk().map(|word| u64::from_le_bytes(*word));
        assert_eq!(found, Some(content(number)), "of entry {number}");
    }
}

/// A host reads the first entry of a guest whose agent believes that this was read, and goes on. The kernel's programs have copied
/// all pages that the ring has room for before, and copy another one meanwhile if they are busy.
fn read_beside(ring_pages: usize, is_busy: bool) {
    let (mut agent, mut reader, seen) = guest(ring_pages);
    let host = thread::spawn(move || take(&mut reader, &seen, 1));
    agent.hear(1);
    if is_busy {
        agent.copy();
    }
    agent.tell();
    host.join().expect("it ends");
}

#[test]
fn a_page_whose_place_is_written_again_is_not_taken_for_the_old_one() {
    // The ring is as long as the table: the third page takes the place of the first.
    orders(3, || read_beside(2, true));
}

#[test]
fn an_entry_that_is_written_again_is_not_taken_for_the_old_one() {
    // The third entry takes the place of the first, but its page has a place of its own.
    orders(3, || read_beside(4, false));
}

#[test]
fn an_entry_is_there_when_the_table_says_so() {
    orders(3, || {
        let (mut agent, mut reader, seen) = guest(4);
        take(&mut reader, &seen, 2);
        let taken = reader.cursor();
        let host = thread::spawn(move || {
            take(&mut reader, &seen, 2);
            assert_eq!((reader.resyncs(), reader.missed()), (0, 0));
        });
        agent.hear(taken);
        agent.tell();
        host.join().expect("it ends");
    });
}

/// A connection whose socket takes so many bytes from callers that do not wait, and its sender thread.
fn connection(room: usize) -> (Arc<Connection>, thread::JoinHandle<()>) {
    let connection = Arc::new(Connection::over(Socket::with_room(room)));
    let sender = {
        let connection = Arc::clone(&connection);
        thread::spawn(move || connection.run())
    };
    (connection, sender)
}

/// The commands that came, of which none may be torn, and none may be sent twice.
fn commands(bytes: &[u8]) -> Vec<u8> {
    let frames = bytes.chunks(FRAME_BYTES);
    let all: Vec<_> = frames
        .map(|frame| {
            assert_eq!(frame, [frame[0]; FRAME_BYTES], "whole, in {bytes:?}");
            frame[0]
        })
        .collect();
    let mut each = all.clone();
    each.sort_unstable();
    each.dedup();
    assert_eq!(each.len(), all.len(), "each once, in {bytes:?}");
    all
}

#[test]
fn each_command_leaves_alone_however_urgent_it_is() {
    for urgency in [Urgency::Now, Urgency::Soon, Urgency::Hint] {
        // A full socket leaves it to the sender thread, a half of a command too.
        for room in [0, 1, FRAME_BYTES] {
            orders(3, move || {
                let (connection, sender) = connection(room);
                connection.push(1, urgency);
                // Nothing else makes it leave.
                let arrived = connection.socket.arrived(FRAME_BYTES);
                assert_eq!(commands(&arrived), [1]);
                connection.close();
                sender.join().expect("it ends");
            });
        }
    }
}

#[test]
fn commands_of_two_threads_leave_whole_and_in_order_and_the_connection_ends() {
    for room in [0, 1, 2 * FRAME_BYTES + 1] {
        orders(2, move || {
            let (connection, sender) = connection(room);
            let other = {
                let connection = Arc::clone(&connection);
                thread::spawn(move || connection.push(3, Urgency::Now))
            };
            connection.push(1, Urgency::Hint);
            connection.push(2, Urgency::Now);
            other.join().expect("it ends");
            connection.finish(4);
            sender.join().expect("it ends");
            assert!(connection.is_ending() && connection.socket.is_shut());
            assert_eq!(connection.hints_dropped(), 0);
            let all = commands(&connection.socket.arrived(0));
            let at = |number| all.iter().position(|&it| it == number);
            assert_eq!((all.len(), at(4)), (4, Some(3)), "{all:?}");
            assert!(at(1) < at(2), "{all:?}");
        });
    }
}

#[test]
fn a_group_of_commands_leaves_together_beside_another_thread() {
    for room in [0, FRAME_BYTES + 1, 4 * FRAME_BYTES] {
        orders(2, move || {
            let (connection, sender) = connection(room);
            let other = {
                let connection = Arc::clone(&connection);
                thread::spawn(move || connection.push(3, Urgency::Now))
            };
            connection.hold();
            connection.push(1, Urgency::Now);
            connection.push(2, Urgency::Now);
            connection.release();
            let all = commands(&connection.socket.arrived(3 * FRAME_BYTES));
            assert!(
                [[1, 2, 3], [3, 1, 2]].contains(&all[..].try_into().expect("three")),
                "{all:?}"
            );
            connection.close();
            other.join().expect("it ends");
            sender.join().expect("it ends");
        });
    }
}

#[test]
fn a_connection_that_breaks_ends_its_sender_thread() {
    orders(3, || {
        let (connection, sender) = connection(1);
        let breaker = {
            let connection = Arc::clone(&connection);
            thread::spawn(move || connection.socket.shut_down())
        };
        connection.push(1, Urgency::Now);
        connection.push(2, Urgency::Hint);
        breaker.join().expect("it ends");
        // The next command finds the socket shut, if none did before.
        connection.push(3, Urgency::Now);
        sender.join().expect("it ends");
    });
}
