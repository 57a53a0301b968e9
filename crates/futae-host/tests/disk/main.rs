//! A vhost-user disk, asked by a client on the ring: what every request does, and what hostile ones do not.

#[path = "../common/mod.rs"]
mod common;
mod dirty;
mod hostile;
mod longer;
mod random;
mod rig;
mod ring;
mod room;

use crate::ring::{DATA_BYTES, READ_ONLY, RingClient, SLOTS, Wish};
use common::StoreEvent;
use futae_engine::LatencyStatus;
use futae_host::RateLimits;
use futae_testkit::wait::eventually;
use rig::{
    BAD, DISCARD, DONE, FLUSH, GET_ID, IN, OUT, Rig, SECTOR, SIZE, UNKNOWN, WRITE_ZEROES, stamped,
};

/// One range of a discard or a write of zeroes.
fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    let mut bytes = sector.to_le_bytes().to_vec();
    bytes.extend(sectors.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes
}

#[test]
fn every_kind_of_request_does_what_it_says() {
    let rig = Rig::new();
    let mut client = rig.client(Wish::default());
    assert_eq!(client.size_bytes().expect("a size"), SIZE as u64);
    let queue = &mut client.queues[0];
    let read = queue.request(IN, 8, &[], 4096);
    assert_eq!((read.status, read.written), (DONE, 4097));
    assert_eq!(read.data, stamped(4096, 4096));
    let data = vec![0xA5; 3 * SECTOR];
    assert_eq!(queue.request(OUT, 5, &data, 0).status, DONE);
    assert_eq!(queue.request(IN, 5, &[], data.len() as u32).data, data);
    assert_eq!(queue.request(FLUSH, 0, &[], 0).status, DONE);
    assert_eq!(rig.open.store.unflushed(), 0, "a flush reaches the store");
    let id = queue.request(GET_ID, 0, &[], 20);
    assert_eq!(&id.data, b"open\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    let zeroes = range(16, 8, 0);
    assert_eq!(queue.request(WRITE_ZEROES, 0, &zeroes, 0).status, DONE);
    assert_eq!(queue.request(IN, 16, &[], 4096).data, vec![0; 4096]);
    let two = [range(64, 8, 0), range(96, 16, 0)].concat();
    assert_eq!(queue.request(DISCARD, 0, &two, 0).status, DONE);
    let trims = |event: &StoreEvent| matches!(event, StoreEvent::Trim(_));
    assert_eq!(rig.open.store.count(trims), 2);
    // What is beside is as it was.
    let beside = queue.request(IN, 72, &[], 4096).data;
    assert_eq!(beside, stamped(72 * SECTOR as u64, 4096));
    assert_eq!(queue.request(77, 0, &[], 512).status, UNKNOWN);
    let counted = || {
        let status = rig.server.status();
        let mut volumes = status
            .engines
            .iter()
            .flat_map(|cache| &cache.engine.volumes);
        let open = volumes.find(|volume| volume.name == "open").expect("there");
        let count = |of: &LatencyStatus| (of.operation.clone(), of.count());
        open.latencies.iter().map(count).collect::<Vec<_>>()
    };
    let each = [
        ("read", 4),
        ("write", 1),
        ("flush", 1),
        ("trim", 1),
        ("zero", 1),
        ("other", 2),
    ];
    eventually("each has its latency", || {
        let wanted = each
            .iter()
            .map(|&(operation, count)| (operation.to_owned(), count));
        counted() == wanted.collect::<Vec<_>>()
    });
    rig.finish(client);
}

#[test]
fn requests_beyond_the_rate_of_a_disk_wait_and_those_of_others_do_not() {
    let rig = Rig::new();
    let mut client = rig.client(Wish::default());
    let mut honest = RingClient::connect(&rig.honest.socket, Wish::default()).expect("a disk");
    let limits = RateLimits {
        iops: Some(30),
        ..RateLimits::default()
    };
    assert!(rig.server.set_rates("open", limits).expect("there"));
    let queue = &mut client.queues[0];
    for slot in 0..8 {
        queue.ask(slot, IN, 8, &[], 4096);
    }
    queue.publish();
    // A tenth of a second's worth, and one.
    for _ in 0..4 {
        assert_eq!(queue.answer().status, DONE);
    }
    let delayed = || rig.server.status().exports[0].rates.delayed_requests;
    eventually("the next one waits", || delayed() == 1);
    for _ in 0..100 {
        assert_eq!(honest.queues[0].request(IN, 8, &[], 4096).status, DONE);
    }
    assert!(!queue.has_answered());
    assert!(
        rig.server
            .set_rates("open", RateLimits::default())
            .expect("there")
    );
    for _ in 0..4 {
        assert_eq!(queue.answer().data, stamped(4096, 4096));
    }
    drop(honest);
    rig.finish(client);
}

#[test]
fn requests_that_are_out_of_bounds_fail_and_change_nothing() {
    let rig = Rig::new();
    let mut client = rig.client(Wish::default());
    let queue = &mut client.queues[0];
    let sectors = (SIZE / SECTOR) as u64;
    let page = vec![0xEE; 4096];
    for (kind, sector, data, room) in [
        (IN, sectors - 7, &[][..], 4096),
        (IN, u64::MAX, &[], 4096),
        (IN, u64::MAX / 512, &[], 4096),
        (IN, 0, &[], 100),
        (OUT, sectors - 7, &page, 0),
        (OUT, u64::MAX - 6, &page, 0),
        (OUT, 0, &page[..700], 0),
        (DISCARD, 0, &range(sectors - 7, 8, 0), 0),
        (DISCARD, 0, &range(u64::MAX, 8, 0), 0),
        (DISCARD, 0, &range(0, 8, 0)[..15], 0),
        (DISCARD, 0, &range(0, 8, 0).repeat(33), 0),
        (WRITE_ZEROES, 0, &range(sectors - 7, 8, 0), 0),
    ] {
        let answer = queue.request(kind, sector, data, room);
        assert_eq!(answer.status, BAD, "kind {kind}, sector {sector}");
    }
    for flags in [2, u32::MAX] {
        let answer = queue.request(WRITE_ZEROES, 0, &range(0, 8, flags), 0);
        assert_eq!(answer.status, UNKNOWN, "flags {flags}");
    }
    assert!(rig.open.store.content() == stamped(0, SIZE));
    rig.finish(client);
}

#[test]
fn a_read_only_disk_says_so_and_refuses_every_change() {
    let rig = Rig::new();
    let mut client = RingClient::connect(&rig.fixed.socket, Wish::default()).expect("a disk");
    assert_ne!(client.features & READ_ONLY, 0);
    let queue = &mut client.queues[0];
    assert_eq!(queue.request(OUT, 0, &[1; 4096], 0).status, BAD);
    for kind in [DISCARD, WRITE_ZEROES] {
        assert_eq!(queue.request(kind, 0, &range(0, 8, 0), 0).status, BAD);
    }
    assert_eq!(queue.request(FLUSH, 0, &[], 0).status, DONE);
    assert_eq!(queue.request(IN, 0, &[], 4096).data, stamped(0, 4096));
    rig.finish(client);
}

#[test]
fn an_error_of_the_store_is_an_error_of_the_disk() {
    let rig = Rig::new();
    let mut client = rig.client(Wish::default());
    let queue = &mut client.queues[0];
    rig.open.store.fail(true);
    assert_eq!(queue.request(IN, 0, &[], 4096).status, BAD);
    assert_eq!(queue.request(OUT, 0, &[1; 4096], 0).status, BAD);
    rig.open.store.fail(false);
    assert_eq!(queue.request(IN, 0, &[], 4096).data, stamped(0, 4096));
    rig.finish(client);
}

/// A failed flush is told to each client of the cache once. A guest is one client, whatever queue it asks on.
#[test]
fn a_failed_flush_is_told_to_a_guest_on_one_of_its_queues() {
    let rig = Rig::new();
    let wish = Wish {
        queues: 4,
        ..Wish::default()
    };
    let mut client = rig.client(wish);
    let mut flush = |at: usize| client.queues[at].request(FLUSH, 0, &[], 0).status;
    rig.open.store.fail(true);
    assert_eq!(flush(0), BAD);
    rig.open.store.fail(false);
    for at in [1, 2, 3, 0] {
        assert_eq!(flush(at), DONE, "queue {at}");
    }
    rig.finish(client);
}

/// Every queue keeps all its slots under way, over an index that wraps, with either way of notifying.
#[test]
fn several_queues_answer_each_request_once() {
    for event_index in [true, false] {
        let rig = Rig::new();
        let wish = Wish {
            queues: 4,
            event_index,
            ..Wish::default()
        };
        let mut client = rig.client(wish);
        for round in 0..40u64 {
            for (at, queue) in client.queues.iter_mut().enumerate() {
                for slot in 0..SLOTS {
                    let sector = place(round, at, slot);
                    queue.ask(slot, IN, sector, &[], 4096);
                }
                queue.publish();
            }
            for (at, queue) in client.queues.iter_mut().enumerate() {
                let mut seen = [0; SLOTS as usize];
                for _ in 0..SLOTS {
                    let answer = queue.answer();
                    seen[usize::from(answer.slot)] += 1;
                    let sector = place(round, at, answer.slot);
                    assert_eq!(answer.data, stamped(sector * SECTOR as u64, 4096));
                }
                assert_eq!(seen, [1; SLOTS as usize], "queue {at}, round {round}");
                assert_eq!(queue.next_used(), None);
            }
        }
        rig.finish(client);
    }
}

fn place(round: u64, queue: usize, slot: u16) -> u64 {
    (round * 131 + queue as u64 * 17 + u64::from(slot) * 29) % (SIZE / 4096) as u64 * 8
}

/// With EVENT_IDX the device notifies when the used ring passes the index that the guest named, and not before.
#[test]
fn a_guest_is_notified_at_the_index_that_it_names() {
    let rig = Rig::new();
    let mut client = rig.client(Wish::default());
    let queue = &mut client.queues[0];
    queue.wish_event(3);
    assert_eq!(queue.request(IN, 0, &[], 4096).status, DONE);
    // Those for the new descriptor and at the start of the queue are not counted.
    queue.call.read().expect("the queue has started");
    for sector in [8, 16] {
        assert_eq!(queue.request(IN, sector, &[], 4096).status, DONE);
    }
    assert!(queue.call.read().is_err(), "three are answered, unheard");
    assert_eq!(queue.request(IN, 24, &[], 4096).status, DONE);
    eventually("the fourth is told of", || queue.call.read().is_ok());
    rig.finish(client);
}

/// A queue that is stopped has answered everything, and goes on where it was.
#[test]
fn a_queue_stops_once_it_has_answered_and_goes_on_where_it_was() {
    let rig = Rig::new();
    let mut client = rig.client(Wish::default());
    for round in 0..5u16 {
        for slot in 0..SLOTS {
            client.queues[0].ask(slot, IN, 8 * u64::from(slot), &[], DATA_BYTES as u32 / 2);
        }
        client.queues[0].publish();
        eventually("something is answered", || client.queues[0].has_answered());
        let base = client.stop(0).expect("it stops");
        let answered = std::iter::from_fn(|| client.queues[0].try_answer()).count() as u32;
        assert_eq!(base % 65_536, u32::from(client.queues[0].answered()));
        client.start(0).expect("it starts");
        let queue = &mut client.queues[0];
        queue.notify();
        (answered..u32::from(SLOTS)).for_each(|_| drop(queue.answer()));
        assert_eq!(queue.next_used(), None, "round {round}");
    }
    rig.finish(client);
}

/// What was asked before the connection ended is answered once, and the queue goes on behind it.
#[test]
fn a_client_that_connects_anew_goes_on_where_it_was() {
    let rig = Rig::new();
    let mut client = rig.client(Wish {
        inflight: true,
        ..Wish::default()
    });
    for round in 1..=20 {
        let queue = &mut client.queues[0];
        let data = vec![round; 4096];
        assert_eq!(queue.request(OUT, 8, &data, 0).status, DONE);
        client.reconnect_when_there();
        let queue = &mut client.queues[0];
        assert_eq!(queue.request(IN, 8, &[], 4096).data, data, "round {round}");
        assert_eq!(queue.answered(), 2 * u16::from(round));
    }
    rig.finish(client);
}

/// A client connects anew while the store still has a write of its earlier connection: the write is done once, and both
/// requests are answered once.
#[test]
fn a_queue_is_served_by_one_connection_at_a_time() {
    let rig = Rig::new();
    let mut client = rig.client(Wish {
        inflight: true,
        ..Wish::default()
    });
    let writes = |event: &StoreEvent| matches!(event, StoreEvent::Write(..));
    let data = vec![7; 4096];
    rig.open.store.hold_writes();
    let queue = &mut client.queues[0];
    queue.ask(0, OUT, 8, &data, 0);
    queue.publish();
    eventually("the store has the write", || rig.open.store.held() == 1);
    client.reconnect_when_there();
    let queue = &mut client.queues[0];
    queue.ask(1, IN, 64, &[], 4096);
    queue.publish();
    eventually("both connections are there", || {
        rig.server.status().connections == 2
    });
    rig.open.store.release();
    let (first, second) = (queue.answer(), queue.answer());
    assert_eq!((first.slot, first.status), (0, DONE));
    assert_eq!((second.slot, second.status), (1, DONE));
    assert_eq!(second.data, stamped(64 * SECTOR as u64, 4096));
    assert_eq!(queue.request(IN, 8, &[], 4096).data, data);
    assert_eq!(queue.answered(), 3);
    assert_eq!(rig.open.store.count(writes), 1, "it was done once");
    rig.finish(client);
}

/// A client without a record of its requests connects anew while the store still has a read of its earlier connection, and a
/// later write is answered: neither is done again.
#[test]
fn no_request_is_answered_twice_to_a_client_without_a_record() {
    let rig = Rig::new();
    let mut client = rig.client(Wish {
        inflight: false,
        ..Wish::default()
    });
    rig.open.store.hold_reads(0..4096);
    let queue = &mut client.queues[0];
    queue.ask(0, IN, 0, &[], 4096);
    queue.publish();
    eventually("the store has the read", || rig.open.store.held() == 1);
    queue.ask(1, OUT, 64, &[7; 4096], 0);
    queue.publish();
    assert_eq!(queue.answer().slot, 1);
    client.reconnect_when_there();
    eventually("both connections are there", || {
        rig.server.status().connections == 2
    });
    rig.open.store.release();
    let queue = &mut client.queues[0];
    let read = queue.answer();
    assert_eq!((read.slot, read.status), (0, DONE));
    assert_eq!(read.data, stamped(0, 4096));
    let next = queue.request(IN, 64, &[], 4096);
    assert_eq!((next.status, next.data), (DONE, vec![7; 4096]));
    assert_eq!(queue.answered(), 3);
    let writes = |event: &StoreEvent| matches!(event, StoreEvent::Write(..));
    assert_eq!(rig.open.store.count(writes), 1, "it was done once");
    rig.finish(client);
}

/// A driver that did not agree on FLUSH has no other way to make its changes durable.
#[test]
fn what_a_driver_without_flush_changed_is_durable_once_it_is_answered() {
    let rig = Rig::new();
    let store = &rig.open.store;
    let trims = |event: &StoreEvent| matches!(event, StoreEvent::Trim(_));
    let mut client = rig.client(Wish {
        flush: false,
        ..Wish::default()
    });
    let queue = &mut client.queues[0];
    assert_eq!(queue.request(OUT, 8, &[1; 4096], 0).status, DONE);
    assert_eq!(store.unflushed(), 0, "a write");
    let zeroes = range(16, 8, 0);
    assert_eq!(queue.request(WRITE_ZEROES, 0, &zeroes, 0).status, DONE);
    assert_eq!(store.unflushed(), 0, "zeroes");
    let two = [range(64, 8, 0), range(96, 16, 0)].concat();
    assert_eq!(queue.request(DISCARD, 0, &two, 0).status, DONE);
    assert_eq!(store.count(trims), 2);
    assert_eq!(store.events().last(), Some(&StoreEvent::Flush), "discards");
    // Nothing was discarded, so nothing is to be made durable.
    let events = store.events().len();
    assert_eq!(queue.request(DISCARD, 0, &range(0, 0, 0), 0).status, DONE);
    assert_eq!(store.events().len(), events);
    store.fail(true);
    assert_eq!(queue.request(DISCARD, 0, &two, 0).status, BAD);
    store.fail(false);
    assert_eq!(queue.request(IN, 8, &[], 4096).data, vec![1; 4096]);
    rig.finish(client);

    // One that agreed flushes when it wants to.
    let rig = Rig::new();
    let mut client = rig.client(Wish::default());
    let queue = &mut client.queues[0];
    assert_eq!(queue.request(OUT, 8, &[1; 4096], 0).status, DONE);
    assert_eq!(rig.open.store.unflushed(), 1);
    let discard = range(64, 8, 0);
    assert_eq!(queue.request(DISCARD, 0, &discard, 0).status, DONE);
    let flushes = |event: &StoreEvent| *event == StoreEvent::Flush;
    assert_eq!(rig.open.store.count(flushes), 0);
    rig.finish(client);
}
