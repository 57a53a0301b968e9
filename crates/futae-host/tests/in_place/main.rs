//! Rings in guests' memory: evicted pages are read there if the disk is a vhost-user device, and whatever the memory
//! holds, nothing enters the cache that the cache did not serve.

#[path = "../common/mod.rs"]
mod common;
mod machine;

use common::{BLOCK, eventually};
use futae_agent_protocol::DeviceId;
use futae_agent_protocol::in_place::{BEGIN_AT, RingOffer, Verdict};
use futae_host::InPlaceReport;
use machine::*;

#[test]
fn pages_in_the_guests_memory_come_back_without_a_read_of_the_store() {
    let mut machine = Machine::attached();
    let mut client = machine.served(0..40);
    let answer = machine.offer(|_| {});
    assert_eq!(
        (answer.offer, answer.verdict, answer.taken),
        (OFFER, Verdict::Reads, 0)
    );
    // More than the ring is long, each once the one before was read.
    for index in 0..40 {
        let data = machine.block(index);
        machine.evict(DISK, index, &data);
        machine.wait_taken(index + 1);
    }
    let demotions = machine.demotions();
    assert_eq!(demotions.demotions_verified, 40, "{demotions:?}");
    let report = machine.report();
    assert!(report.reading && report.seconds > 0.0, "{report:?}");
    let expected = InPlaceReport {
        reading: true,
        offers: 1,
        pages: 40,
        seconds: report.seconds,
        guest_seconds: 5.0,
        guest_pages: 40,
        ..InPlaceReport::default()
    };
    assert_eq!(report, expected);
    eventually("the blocks are compared with the store", || {
        machine.demotions().demotions_compared == 40
    });
    assert_eq!(machine.demotions().demotions_wrong, 0);
    let before = machine.rig.engine.status().store_reads;
    for index in 0..40 {
        let data = client.read(index * BLOCK, BLOCK as u32).expect("read");
        assert_eq!(data, machine.block(index));
    }
    assert_eq!(machine.rig.engine.status().store_reads, before);
}

#[test]
fn one_ring_has_the_pages_of_all_disks_of_a_machine() {
    let mut machine = Machine::with_disks(&["disk", "data"]).attach();
    let mut clients = ["disk", "data"].map(|name| machine.served_of(name, 0..20));
    let answer = machine.offer(|_| {});
    assert_eq!(answer.verdict, Verdict::Reads, "{answer:?}");
    for index in 0..20 {
        let (device, page) = match index % 2 {
            0 => (DISK, machine.block(index)),
            _ => (DATA, block_of(&data(), index)),
        };
        machine.evict(device, index, &page);
        machine.wait_taken(index + 1);
    }
    let other = DeviceId { major: 8, minor: 0 };
    machine.evict(other, 0, &[0; BLOCK as usize]);
    machine.evict(DATA, SIZE as u64 / 2 / BLOCK, &[0; BLOCK as usize]);
    machine.wait_taken(22);
    assert_eq!(machine.demotions().demotions_verified, 20);
    let report = machine.report();
    assert_eq!((report.pages, report.foreign_pages), (20, 2), "{report:?}");
    let before = machine.rig.engine.status().store_reads;
    for index in 0..20 {
        let at = index as usize % 2;
        let read = clients[at].read(index * BLOCK, BLOCK as u32);
        let expected = [&machine.content, &data()][at].clone();
        assert_eq!(read.expect("read"), block_of(&expected, index));
    }
    assert_eq!(machine.rig.engine.status().store_reads, before);
}

#[test]
fn a_disk_whose_pages_keep_differing_is_left_out_alone() {
    let mut machine = Machine::with_disks(&["disk", "data"]).attach();
    let _clients =
        [("disk", 400), ("data", 500)].map(|(name, end)| machine.served_of(name, 0..end));
    machine.offer(|_| {});
    let forged = [8; BLOCK as usize];
    let differs = |machine: &Machine| {
        let status = machine.rig.engine.status();
        let mut volumes = status.volumes.iter();
        volumes.any(|it| it.name == "data" && it.demotions_keep_differing)
    };
    let mut blocks = 0..500;
    while !differs(&machine) {
        machine.evict(DATA, blocks.next().expect("it is judged"), &forged);
        machine.wait_taken(machine.end);
    }
    let (compared, before) = (machine.demotions(), machine.report());
    assert_eq!(before.differing_pages, 0);
    let notices = |machine: &Machine| machine.rig.engine.status().counters.notices_in;
    let told = notices(&machine);
    let sent = 128;
    for index in blocks.take(sent) {
        machine.evict(DATA, index, &forged);
        machine.wait_taken(machine.end);
    }
    // One in 64 is still compared.
    let report = machine.report();
    assert_eq!(report.differing_pages, sent as u64 - 2, "{report:?}");
    assert_eq!(report.pages, before.pages + 2, "{report:?}");
    eventually("the others are told", || {
        notices(&machine) - told >= sent as u64 - 2
    });
    for index in 0..3 {
        let page = machine.block(index);
        machine.evict(DISK, index, &page);
        machine.wait_taken(machine.end);
    }
    let demotions = machine.demotions();
    let verified = demotions.demotions_verified - compared.demotions_verified;
    assert_eq!(verified, 3, "{demotions:?}");
    assert!(machine.report().reading);
    // Once the other is no better, nothing is left to read.
    let mut blocks = 3..400;
    let mut verdict = Verdict::Reads;
    while verdict == Verdict::Reads {
        machine.evict(DISK, blocks.next().expect("it is judged"), &forged);
        verdict = machine.next_verdict(machine.end);
    }
    let report = machine.report();
    assert!(!report.reading && report.why_not.contains("not what the disk holds"));
}

#[test]
fn forged_pages_and_those_of_other_disks_do_not_enter() {
    let mut machine = Machine::attached();
    let _client = machine.served(0..4);
    machine.offer(|_| {});
    let (other, beyond) = (DeviceId { major: 8, minor: 0 }, SIZE as u64 / BLOCK);
    let data = machine.block(0);
    machine.evict(DISK, 1, &data);
    machine.evict(DISK, 0, &[8; BLOCK as usize]);
    machine.evict(other, 0, &data);
    machine.evict(DISK, beyond, &data);
    machine.evict(DISK, u64::MAX, &data);
    machine.wait_taken(5);
    let demotions = machine.demotions();
    let counts = (demotions.demotions_different, demotions.demotions_verified);
    assert_eq!(counts, (2, 0), "{demotions:?}");
    let report = machine.report();
    assert_eq!((report.pages, report.foreign_pages), (2, 3), "{report:?}");
}

#[test]
fn what_was_given_up_meanwhile_is_missed_and_the_rest_goes_on() {
    let mut machine = Machine::attached();
    let _client = machine.served(0..4);
    machine.end = 7;
    machine.head(|_| {});
    machine.offer(|_| {});
    // Nothing is as it was left: ten entries more than there is room for, then an end that goes back.
    machine.head(|head| head.end = 100_000);
    eventually("it is noticed", || machine.report().resyncs > 0);
    machine.end = 3;
    machine.head(|_| {});
    eventually("it is followed", || machine.report().resyncs > 1);
    machine.end = 8;
    machine.head(|head| head.begin = 8);
    machine.wait_taken(8);
    let data = machine.block(2);
    machine.evict(DISK, 2, &data);
    // The agent's other words are in the same head.
    machine.put(BLOCK + BEGIN_AT as u64, &8u64.to_le_bytes());
    eventually("pages come again", || {
        machine.demotions().demotions_verified == 1
    });
    let report = machine.report();
    assert!(report.reading && report.missed_pages >= 5, "{report:?}");
}

#[test]
fn a_ring_that_is_not_there_is_refused_with_the_reason() {
    let mut machine = Machine::new();
    let refused = |machine: &mut Machine, change: &dyn Fn(&mut RingOffer), why: &str| {
        let answer = machine.offer(change);
        assert_eq!(answer.verdict, Verdict::Refuses);
        assert!(answer.why.contains(why), "{answer:?}");
        assert_eq!(machine.report().why_not, answer.why);
    };
    refused(&mut machine, &|_| {}, "is a vhost-user device");
    drop(machine);
    let mut machine = Machine::attached();
    refused(&mut machine, &|offer| offer.version = 9, "version");
    refused(&mut machine, &|offer| offer.ring.clear(), "no pages");
    refused(&mut machine, &|offer| offer.offer = 1, "does not hold it");
    refused(
        &mut machine,
        &|offer| offer.table[0] = MEMORY_PAGES,
        "not in the guest's memory",
    );
    assert_eq!(machine.report().offers, 4);
    assert!(!machine.report().reading);
}

#[test]
fn pages_outside_of_memory_are_counted_and_a_machine_that_goes_ends_it() {
    let mut machine = Machine::attached();
    let _client = machine.served(0..4);
    machine.offer(|offer| offer.ring[1] = 1 << 50);
    let data = machine.block(0);
    machine.evict(DISK, 0, &data);
    machine.wait_taken(1);
    assert_eq!(machine.report().unreadable_pages, 1);
    drop(machine.frontend.take());
    let last = std::iter::repeat_with(|| machine.answer());
    let last = last
        .into_iter()
        .find(|answer| answer.verdict == Verdict::Refuses);
    assert!(last.is_some_and(|answer| answer.why.contains("memory")));
    eventually("it is not read any more", || !machine.report().reading);
    // Another that begins where the first was.
    let answer = machine.offer(|_| {});
    assert_eq!(answer.verdict, Verdict::Refuses);
}

#[test]
fn a_guest_that_begins_anew_ends_the_ring() {
    let mut machine = Machine::attached();
    machine.offer(|_| {});
    machine.put(BLOCK, &[0; BLOCK as usize]);
    while machine.answer().verdict == Verdict::Reads {}
    assert!(!machine.report().reading);
    machine.head(|_| {});
    assert_eq!(
        machine.offer(|_| {}).verdict,
        Verdict::Reads,
        "and it begins again"
    );
}
