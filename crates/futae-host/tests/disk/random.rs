//! Chains at random, many to a queue: most break a rule, some are whole requests. Whatever they are, the server goes on, and
//! nothing of others changes.

use crate::rig::{DONE, IN, Rig, SIZE, stamped};
use crate::ring::{Descriptor, INDIRECT, MEMORY_BYTES, NEXT, Queue, RingClient, WRITE, Wish};
use futae_policy::Prng;

const GUESTS: u64 = 300;
const QUEUE_SIZE: u16 = 16;
/// Where headers, data and tables of the queue begin.
const PLACES: [u64; 4] = [0xA000, 0xC000, 0x1_0000, 0x2_0000];

fn address(random: &mut Prng) -> u64 {
    match random.below(12) {
        0 => MEMORY_BYTES - random.below(64),
        1 => u64::MAX - random.below(64),
        2 => random.below(u64::MAX),
        3 => random.below(MEMORY_BYTES),
        _ => PLACES[random.below(4) as usize] + 16 * random.below(32),
    }
}

fn length(random: &mut Prng) -> u32 {
    match random.below(10) {
        0 => 0,
        1 => u32::MAX - random.below(64) as u32,
        2 => random.below(1 << 21) as u32,
        3 => 1,
        4 | 5 => 16,
        6 => 16 * random.below(40) as u32,
        _ => 512 * random.below(16) as u32,
    }
}

fn descriptor(random: &mut Prng) -> Descriptor {
    let flags = [
        NEXT,
        NEXT,
        NEXT | WRITE,
        NEXT | WRITE,
        WRITE,
        WRITE,
        INDIRECT,
        0,
    ];
    let odd = random.below(30) == 0;
    Descriptor {
        address: address(random),
        length: length(random),
        flags: if odd {
            random.below(1 << 16) as u16
        } else {
            flags[random.below(8) as usize]
        },
        next: random.below(u64::from(QUEUE_SIZE) + 2) as u16,
    }
}

/// Fills a queue's table, another table that may be named as an indirect one, and headers; offers some heads.
fn play(queue: &mut Queue, random: &mut Prng) {
    for at in 0..QUEUE_SIZE {
        queue.describe(at, descriptor(random));
    }
    for place in PLACES {
        for at in 0..32 {
            queue.describe_in(place, at, descriptor(random));
        }
        // A kind that there is, and a sector that may be there.
        let kinds = [0u32, 0, 1, 1, 4, 8, 11, 13, 99];
        let header = u128::from(kinds[random.below(9) as usize])
            | u128::from(random.below(SIZE as u64 / 400)) << 64;
        queue.put(&header.to_le_bytes(), place + 16 * random.below(32));
    }
    for _ in 0..random.below(8) {
        queue.offer(random.below(u64::from(QUEUE_SIZE)) as u16);
    }
    if random.below(20) == 0 {
        queue.publish_at(random.below(1 << 16) as u16);
    } else {
        queue.publish();
    }
    queue.notify();
}

#[test]
fn chains_at_random_change_nothing_of_others() {
    let rig = Rig::new();
    let mut honest = RingClient::connect(&rig.honest.socket, Wish::default()).expect("a disk");
    let mut random = Prng::new(16);
    for guest in 0..GUESTS {
        let disk = [&rig.open, &rig.fixed][(guest % 2) as usize];
        let wish = Wish {
            queue_size: QUEUE_SIZE,
            event_index: guest % 3 > 0,
            ..Wish::default()
        };
        let mut client = RingClient::connect(&disk.socket, wish).expect("a disk");
        play(&mut client.queues[0], &mut random);
        // A queue that stops has answered all that it took.
        client.stop(0).expect("it stops");
        if guest % 16 == 0 {
            let sector = 8 * (guest % 100);
            let answer = honest.queues[0].request(IN, sector, &[], 4096);
            assert_eq!(answer.status, DONE, "guest {guest}");
            assert!(answer.data == stamped(512 * sector, 4096), "guest {guest}");
        }
    }
    for disk in [&rig.honest, &rig.fixed] {
        assert!(disk.store.content() == stamped(0, SIZE));
    }
    rig.finish(honest);
}
