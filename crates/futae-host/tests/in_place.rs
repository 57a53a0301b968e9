//! Rings in guests' memory: evicted pages are read there if the disk is a vhost-user device, and whatever the memory
//! holds, nothing enters the cache that the cache did not serve.

mod common;

use common::{BLOCK, Client, MemoryStore, Rig, eventually, export, pattern};
use futae_agent_protocol::evicted_pages::EvictedPage;
use futae_agent_protocol::in_place::{
    BEGIN_AT, ENTRY_BYTES, Head, RingAnswer, RingOffer, VERSION, Verdict, encode_entry,
};
use futae_agent_protocol::{Device, DeviceId, Frame, Hello, Message, Source, Stream};
use futae_engine::{DemotionStatus, OnRefusal, Verification};
use futae_host::{Access, FeedOptions, Gate, InPlaceReport, Listen};
use futae_nbd::ClientWish;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use tempfile::TempDir;
use vhost::vhost_user::Frontend;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo};

const SIZE: usize = 4 << 20;
const DISK: DeviceId = DeviceId {
    major: 254,
    minor: 0,
};
/// The guest's memory: the table in its pages 1 and 2, the ring from page 16 to its end.
const MEMORY_PAGES: u64 = 32;
const RING_PAGES: u64 = 16;
const OFFER: u64 = 99;

/// The second disk of a machine with two, half as large.
const DATA: DeviceId = DeviceId {
    major: 254,
    minor: 16,
};

fn data() -> Vec<u8> {
    pattern(2, SIZE / 2)
}

fn block_of(content: &[u8], index: u64) -> Vec<u8> {
    content[(index * BLOCK) as usize..][..BLOCK as usize].to_vec()
}

/// A machine of which a disk is a vhost-user device, and an agent in it.
struct Machine {
    rig: Rig,
    socket: PathBuf,
    frontend: Option<Frontend>,
    memory: File,
    agent: UnixStream,
    stream: Stream,
    sequence: u64,
    end: u64,
    content: Vec<u8>,
    _place: TempDir,
}

impl Machine {
    fn new() -> Self {
        Self::with_disks(&["disk"])
    }

    /// The last of the disks is the vhost-user device.
    fn with_disks(names: &[&str]) -> Self {
        let content = pattern(1, SIZE);
        let place = tempfile::tempdir().expect("a directory");
        let (feed, socket) = (
            place.path().join("agent.sock"),
            place.path().join("disk.sock"),
        );
        let options = FeedOptions {
            exports: names.iter().map(|&name| name.to_owned()).collect(),
            path: feed.clone(),
            access: Access::default(),
        };
        let gate = Gate {
            export: names.last().map(|&name| name.to_owned()),
            ..Gate::from(Listen::VhostUser(socket.clone()))
        };
        let rig = Rig::made(
            "exclusive",
            64,
            content.clone(),
            |all| {
                all.feeds = vec![options];
                all.gates.push(gate);
            },
            |disk| {
                let store = MemoryStore::new(data());
                let data = names.contains(&"data");
                let data = data.then(|| export(&disk.engine, "data", &store));
                [disk].into_iter().chain(data).collect()
            },
        );
        let how = Verification {
            memory_bytes: 1 << 20,
            on_refusal: OnRefusal::Drop,
            compare_with_store: true,
        };
        rig.engine.verify_demotions(how).expect("memory");
        let memory = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory"));
        memory.set_len(MEMORY_PAGES * BLOCK).expect("room");
        let agent = UnixStream::connect(&feed).expect("a feed");
        let mut machine = Self {
            rig,
            socket,
            frontend: None,
            memory,
            agent,
            stream: Stream::default(),
            sequence: 0,
            end: 0,
            content,
            _place: place,
        };
        let disk = |id, bytes: usize| Device {
            id,
            name: "vd".to_owned(),
            serial: String::new(),
            sectors: bytes as u64 / 512,
        };
        machine.say(Message::Hello(Hello {
            run: 1,
            source: Source::Tracepoints,
            devices: vec![disk(DISK, SIZE), disk(DATA, SIZE / 2)],
            ..Hello::default()
        }));
        let head = Head {
            offer: OFFER,
            ..Head::default()
        };
        machine.put(BLOCK, &head.encode());
        machine
    }

    /// With a disk that has given its memory.
    fn attached() -> Self {
        Self::new().attach()
    }

    fn attach(self) -> Self {
        let mut machine = self;
        let frontend = Frontend::connect(&machine.socket, 1).expect("a device");
        frontend.set_owner().expect("taken");
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: MEMORY_PAGES * BLOCK,
            userspace_addr: 1 << 32,
            mmap_offset: 0,
            mmap_handle: machine.memory.as_raw_fd(),
        };
        frontend.set_mem_table(&[region]).expect("taken");
        // Messages are answered in their order.
        frontend.get_features().expect("answered");
        machine.frontend = Some(frontend);
        machine
    }

    fn say(&mut self, message: Message) {
        let frame = Frame {
            sequence: self.sequence,
            message,
        };
        self.sequence += 1;
        self.agent.write_all(&frame.encode()).expect("a listener");
    }

    fn put(&self, address: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, address).expect("room");
    }

    fn offer(&mut self, change: impl FnOnce(&mut RingOffer)) -> RingAnswer {
        let mut offer = RingOffer {
            version: VERSION,
            offer: OFFER,
            table: vec![1, 2],
            ring: (RING_PAGES..MEMORY_PAGES).collect(),
        };
        change(&mut offer);
        self.say(Message::Ring(offer));
        self.answer()
    }

    /// The next thing that the host says.
    fn answer(&mut self) -> RingAnswer {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.stream.next_frame() {
                match frame.message {
                    Message::RingAnswer(answer) => return answer,
                    other => panic!("{other:?}"),
                }
            }
            let count = self.agent.read(&mut buffer).expect("an answer");
            assert!(count > 0, "the host has hung up");
            self.stream.feed(&buffer[..count]);
        }
    }

    /// Waits until so many entries are taken, or the host reads no more.
    fn next_verdict(&mut self, taken: u64) -> Verdict {
        loop {
            let answer = self.answer();
            if answer.verdict != Verdict::Reads || answer.taken >= taken {
                return answer.verdict;
            }
        }
    }

    fn wait_taken(&mut self, taken: u64) {
        assert_eq!(self.next_verdict(taken), Verdict::Reads);
    }

    /// Puts a page of block `index` into the ring and the table, as an agent would.
    fn evict(&mut self, device: DeviceId, index: u64, data: &[u8]) {
        let position = 40 + self.end * 4136;
        let ring = RING_PAGES * BLOCK;
        let at = position % ring;
        let (head, tail) = data.split_at(data.len().min((ring - at) as usize));
        self.put(ring + at, head);
        self.put(ring, tail);
        let sector = index.saturating_mul(BLOCK / 512);
        let entry = encode_entry(self.end, EvictedPage { device, sector }, position);
        let slot = self.end % (BLOCK / ENTRY_BYTES as u64);
        self.put(2 * BLOCK + slot * ENTRY_BYTES as u64, &entry);
        self.end += 1;
        self.head(|_| {});
    }

    fn head(&self, change: impl FnOnce(&mut Head)) {
        let mut head = Head {
            offer: OFFER,
            end: self.end,
            // A page has some bytes more than its data in the ring.
            begin: self.end.saturating_sub(RING_PAGES - 1),
            guest_ns: 5_000_000_000,
            guest_pages: self.end,
        };
        change(&mut head);
        self.put(BLOCK, &head.encode());
    }

    fn block(&self, index: u64) -> Vec<u8> {
        block_of(&self.content, index)
    }

    fn report(&self) -> InPlaceReport {
        let status = self.rig.server.status();
        status.feeds[0]
            .in_place
            .clone()
            .expect("a ring was offered")
    }

    fn demotions(&self) -> DemotionStatus {
        self.rig.engine.status().demotions
    }

    /// Has blocks served, so that the cache knows them and does not hold them.
    fn served(&self, blocks: std::ops::Range<u64>) -> Client {
        self.served_of("disk", blocks)
    }

    fn served_of(&self, export: &str, blocks: std::ops::Range<u64>) -> Client {
        let mut client = Client::unix(&self.rig.socket, export, &ClientWish::default());
        for index in blocks {
            client.read(index * BLOCK, BLOCK as u32).expect("read");
        }
        client
    }
}

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
