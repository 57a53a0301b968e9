//! A guest, or its hypervisor, that breaks every rule. Its own queue may be stopped, its session ended; others go on, and
//! nothing of theirs changes.

use crate::rig::{BAD, DONE, IN, OUT, Rig, SIZE, stamped};
use crate::ring::{Descriptor, INDIRECT, MEMORY_BYTES, NEXT, Queue, RingClient, WRITE, Wish};
use futae_testkit::wait::eventually;

const HEADER: u64 = 0xA000;
const STATUS: u64 = 0xB000;
const DATA: u64 = 0x1_0000;
const TABLE: u64 = 0xC000;

fn part(address: u64, length: u32, flags: u16, next: u16) -> Descriptor {
    Descriptor {
        address,
        length,
        flags,
        next,
    }
}

/// Writes a header of a read of sector 0 and offers what begins at descriptor 0.
fn send(queue: &mut Queue, kind: u32, parts: &[Descriptor]) {
    queue.put(&u128::from(kind).to_le_bytes(), HEADER);
    for (at, &part) in (0..).zip(parts) {
        queue.describe(at, part);
    }
    queue.offer(0);
    queue.publish();
}

/// Chains that nobody can answer, since they have no place for a status or are none. The guest's queue is stopped.
fn impossible() -> Vec<(&'static str, Vec<Descriptor>)> {
    let header = part(HEADER, 16, NEXT, 1);
    let beyond = MEMORY_BYTES - 8;
    vec![
        ("a chain that is a loop", vec![part(HEADER, 16, NEXT, 0)]),
        (
            "a loop of two",
            vec![header, part(DATA, 512, NEXT | WRITE, 0)],
        ),
        (
            "a number beyond the table",
            vec![part(HEADER, 16, NEXT, 64)],
        ),
        (
            "a number far beyond",
            vec![part(HEADER, 16, NEXT, u16::MAX)],
        ),
        ("nothing to write to", vec![part(HEADER, 16, 0, 0)]),
        ("an empty descriptor", vec![part(HEADER, 0, 0, 0)]),
        (
            "an empty place for the status",
            vec![header, part(STATUS, 0, WRITE, 0)],
        ),
        (
            "an address outside",
            vec![header, part(MEMORY_BYTES, 512, WRITE, 0)],
        ),
        ("an end outside", vec![header, part(beyond, 512, WRITE, 0)]),
        (
            "an address that wraps",
            vec![header, part(u64::MAX - 8, 512, WRITE, 0)],
        ),
        (
            "a length without end",
            vec![header, part(0, u32::MAX, WRITE, 0)],
        ),
        (
            "a header outside",
            vec![part(MEMORY_BYTES, 16, NEXT, 1), part(STATUS, 1, WRITE, 0)],
        ),
        (
            "a buffer to read behind one to write",
            vec![
                header,
                part(DATA, 512, NEXT | WRITE, 2),
                part(STATUS, 1, 0, 0),
            ],
        ),
        ("an empty indirect table", vec![part(TABLE, 0, INDIRECT, 0)]),
        ("a part of a descriptor", vec![part(TABLE, 24, INDIRECT, 0)]),
        (
            "an indirect table that goes on",
            vec![part(TABLE, 32, INDIRECT | NEXT, 1), header],
        ),
        (
            "an indirect table outside",
            vec![part(beyond, 32, INDIRECT, 0)],
        ),
        (
            "an indirect table without end",
            vec![part(TABLE, 0xFFFF_FFF0, INDIRECT, 0)],
        ),
        ("a table of zeroes", vec![part(DATA, 16 * 64, INDIRECT, 0)]),
    ]
}

/// Requests that have a place for a status but break another rule: they are answered with an error.
fn answerable() -> Vec<(&'static str, u32, Vec<Descriptor>)> {
    let header = part(HEADER, 16, NEXT, 1);
    let status = part(STATUS, 1, WRITE, 0);
    vec![
        (
            "a header cut short",
            IN,
            vec![part(HEADER, 15, NEXT, 1), status],
        ),
        ("no header", IN, vec![part(STATUS, 1, WRITE, 0)]),
        ("a read of nothing", IN, vec![header, status]),
        ("a write of nothing", OUT, vec![header, status]),
        (
            "a write into what is to be read",
            OUT,
            vec![header, part(DATA, 512, NEXT | WRITE, 2), status],
        ),
        (
            "a read of no whole sectors",
            IN,
            vec![header, part(DATA, 513, NEXT | WRITE, 2), status],
        ),
        (
            "a read beyond all bounds",
            IN,
            vec![
                header,
                part(0, MEMORY_BYTES as u32, NEXT | WRITE, 2),
                status,
            ],
        ),
    ]
}

/// Holds that the honest client and the store are as they were.
fn others_go_on(rig: &Rig, honest: &mut RingClient, what: &str) {
    let queue = &mut honest.queues[0];
    let answer = queue.request(IN, 8, &[], 4096);
    assert_eq!(
        (answer.status, answer.data),
        (DONE, stamped(4096, 4096)),
        "{what}"
    );
    assert!(rig.open.store.content() == stamped(0, SIZE), "{what}");
}

#[test]
fn chains_without_sense_stop_their_queue_alone() {
    let rig = Rig::new();
    let mut honest = RingClient::connect(&rig.honest.socket, Wish::default()).expect("a disk");
    for (what, parts) in impossible() {
        let wish = Wish {
            queues: 2,
            ..Wish::default()
        };
        let mut client = rig.client(wish);
        send(&mut client.queues[0], IN, &parts);
        eventually(what, || client.queues[0].has_failed());
        assert_eq!(client.queues[0].next_used(), None, "{what}");
        // The other queue of the same guest goes on, and so does a newcomer.
        let other = client.queues[1].request(IN, 0, &[], 4096);
        assert_eq!(
            (other.status, other.data),
            (DONE, stamped(0, 4096)),
            "{what}"
        );
        others_go_on(&rig, &mut honest, what);
        let mut newcomer = rig.client(Wish::default());
        assert_eq!(newcomer.queues[0].request(IN, 0, &[], 512).status, DONE);
    }
    drop(honest);
    let client = rig.client(Wish::default());
    rig.finish(client);
}

#[test]
fn requests_without_sense_are_answered_with_an_error() {
    let rig = Rig::new();
    let mut honest = RingClient::connect(&rig.honest.socket, Wish::default()).expect("a disk");
    let mut client = rig.client(Wish::default());
    for (what, kind, parts) in answerable() {
        let queue = &mut client.queues[0];
        queue.put(&[0xFF], STATUS);
        send(queue, kind, &parts);
        let mut used = None;
        eventually(what, || {
            used = queue.next_used();
            used.is_some()
        });
        assert_eq!(used.map(|(head, _)| head), Some(0), "{what}");
        assert_eq!(queue.byte(STATUS), BAD, "{what}");
        others_go_on(&rig, &mut honest, what);
    }
    assert_eq!(client.queues[0].request(IN, 0, &[], 512).status, DONE);
    drop(honest);
    rig.finish(client);
}

#[test]
fn a_chain_in_an_indirect_table_with_many_parts_and_empty_ones_is_read() {
    let rig = Rig::new();
    let mut client = rig.client(Wish::default());
    let queue = &mut client.queues[0];
    // The data in pieces of 512 bytes, the first of them empty: more parts than the queue has descriptors.
    let pieces = 100u16;
    queue.describe_in(TABLE, 0, part(HEADER, 16, NEXT, 1));
    queue.describe_in(TABLE, 1, part(DATA, 0, NEXT | WRITE, 2));
    for piece in 0..pieces {
        let address = DATA + 512 * u64::from(piece);
        queue.describe_in(
            TABLE,
            piece + 2,
            part(address, 512, NEXT | WRITE, piece + 3),
        );
    }
    queue.describe_in(TABLE, pieces + 2, part(STATUS, 1, WRITE, 0));
    let table = part(TABLE, 16 * (u32::from(pieces) + 3), INDIRECT, 0);
    send(queue, IN, &[table]);
    let mut used = None;
    eventually("an answer", || {
        used = queue.next_used();
        used.is_some()
    });
    assert_eq!(used, Some((0, 512 * u32::from(pieces) + 1)));
    assert_eq!(queue.byte(STATUS), DONE);
    let length = 512 * usize::from(pieces);
    assert_eq!(queue.bytes(DATA, length), stamped(0, length));
    rig.finish(client);
}

#[test]
fn indices_that_jump_and_heads_that_repeat_stop_their_queue_alone() {
    let rig = Rig::new();
    let mut honest = RingClient::connect(&rig.honest.socket, Wish::default()).expect("a disk");
    // Further than the queue is long.
    let mut client = rig.client(Wish::default());
    client.queues[0].publish_at(1000);
    client.queues[0].notify();
    eventually("a jump", || client.queues[0].has_failed());
    others_go_on(&rig, &mut honest, "a jump");
    drop(client);
    // A head that is no descriptor's.
    let mut client = rig.client(Wish::default());
    client.queues[0].offer(64);
    client.queues[0].publish();
    eventually("a head beyond", || client.queues[0].has_failed());
    drop(client);
    // A head twice, while the first is under way.
    let mut client = rig.client(Wish::default());
    rig.open.store.hold_reads(0..SIZE as u64);
    let queue = &mut client.queues[0];
    queue.ask(0, IN, 128, &[], 4096);
    queue.offer(0);
    queue.publish();
    eventually("a head twice", || queue.has_failed());
    rig.open.store.release();
    others_go_on(&rig, &mut honest, "heads");
    drop(honest);
    rig.finish(client);
}

#[test]
fn memory_that_is_taken_away_under_requests_is_not_written_to() {
    let rig = Rig::new();
    let mut honest = RingClient::connect(&rig.honest.socket, Wish::default()).expect("a disk");
    let mut client = rig.client(Wish {
        queues: 1,
        ..Wish::default()
    });
    rig.open.store.hold_reads(0..SIZE as u64);
    let queue = &mut client.queues[0];
    let outside = MEMORY_BYTES - 8192;
    queue.put(&[0x11; 4096], outside);
    send(
        queue,
        IN,
        &[
            part(HEADER, 16, NEXT, 1),
            part(outside, 4096, NEXT | WRITE, 2),
            part(STATUS, 1, WRITE, 0),
        ],
    );
    eventually("the read is under way", || rig.open.store.held() > 0);
    client.set_memory(MEMORY_BYTES / 2).expect("it may shrink");
    rig.open.store.release();
    let queue = &mut client.queues[0];
    eventually("an answer", || queue.next_used().is_some());
    assert_eq!(queue.byte(STATUS), BAD);
    assert_eq!(queue.bytes(outside, 4096), vec![0x11; 4096]);
    // And what is offered from there now is no memory any more.
    let parts = [
        part(HEADER, 16, NEXT, 1),
        part(outside, 4096, NEXT | WRITE, 2),
        part(STATUS, 1, WRITE, 0),
    ];
    send(queue, IN, &parts);
    eventually("it is refused", || queue.has_failed());
    others_go_on(&rig, &mut honest, "memory");
    drop(honest);
    rig.finish(client);
}

#[test]
fn orders_without_sense_end_their_session_alone() {
    let rig = Rig::new();
    let mut honest = RingClient::connect(&rig.honest.socket, Wish::default()).expect("a disk");
    let mut client = rig.client(Wish::default());
    let refused = client.set_memory(MEMORY_BYTES * 2);
    assert!(refused.is_err(), "more memory than its file has");
    let mut client = rig.client(Wish {
        queue_size: 64,
        ..Wish::default()
    });
    assert!(client.set_queue_size(0, 48).is_err(), "no power of two");
    let mut client = rig.client(Wish::default());
    assert!(client.set_queue_size(0, 2048).is_err(), "too many");
    let mut client = rig.client(Wish::default());
    client.stop(0).expect("it stops");
    client.set_memory(0x1000).expect("it may shrink");
    assert!(client.start(0).is_err(), "a queue outside of memory");
    others_go_on(&rig, &mut honest, "orders");
    drop(honest);
    let mut client = rig.client(Wish::default());
    assert_eq!(client.queues[0].request(IN, 0, &[], 512).status, DONE);
    rig.finish(client);
}
