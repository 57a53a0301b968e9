//! A machine whose memory has a ring, and its agent.

use crate::common::{BLOCK, Client, MemoryStore, Rig, export, pattern};
use futae_agent_protocol::evicted_pages::EvictedPage;
use futae_agent_protocol::in_place::{
    ENTRY_BYTES, Head, RingAnswer, RingOffer, VERSION, Verdict, encode_entry,
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

pub const SIZE: usize = 4 << 20;
pub const DISK: DeviceId = DeviceId {
    major: 254,
    minor: 0,
};
/// The guest's memory: the table in its pages 1 and 2, the ring from page 16 to its end.
pub const MEMORY_PAGES: u64 = 32;
pub const RING_PAGES: u64 = 16;
pub const OFFER: u64 = 99;

/// The second disk of a machine with two, half as large.
pub const DATA: DeviceId = DeviceId {
    major: 254,
    minor: 16,
};

pub fn data() -> Vec<u8> {
    pattern(2, SIZE / 2)
}

pub fn block_of(content: &[u8], index: u64) -> Vec<u8> {
    content[(index * BLOCK) as usize..][..BLOCK as usize].to_vec()
}

/// A machine of which a disk is a vhost-user device, and an agent in it.
pub struct Machine {
    pub rig: Rig,
    pub socket: PathBuf,
    pub frontend: Option<Frontend>,
    pub memory: File,
    pub agent: UnixStream,
    pub stream: Stream,
    pub sequence: u64,
    pub end: u64,
    pub content: Vec<u8>,
    _place: TempDir,
}

impl Machine {
    pub fn new() -> Self {
        Self::with_disks(&["disk"])
    }

    /// The last of the disks is the vhost-user device.
    pub fn with_disks(names: &[&str]) -> Self {
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
    pub fn attached() -> Self {
        Self::new().attach()
    }

    pub fn attach(self) -> Self {
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

    pub fn say(&mut self, message: Message) {
        let frame = Frame {
            sequence: self.sequence,
            message,
        };
        self.sequence += 1;
        self.agent.write_all(&frame.encode()).expect("a listener");
    }

    pub fn put(&self, address: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, address).expect("room");
    }

    pub fn offer(&mut self, change: impl FnOnce(&mut RingOffer)) -> RingAnswer {
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
    pub fn answer(&mut self) -> RingAnswer {
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
    pub fn next_verdict(&mut self, taken: u64) -> Verdict {
        loop {
            let answer = self.answer();
            if answer.verdict != Verdict::Reads || answer.taken >= taken {
                return answer.verdict;
            }
        }
    }

    pub fn wait_taken(&mut self, taken: u64) {
        assert_eq!(self.next_verdict(taken), Verdict::Reads);
    }

    /// Puts a page of block `index` into the ring and the table, as an agent would.
    pub fn evict(&mut self, device: DeviceId, index: u64, data: &[u8]) {
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

    pub fn head(&self, change: impl FnOnce(&mut Head)) {
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

    pub fn block(&self, index: u64) -> Vec<u8> {
        block_of(&self.content, index)
    }

    pub fn report(&self) -> InPlaceReport {
        let status = self.rig.server.status();
        status.feeds[0]
            .in_place
            .clone()
            .expect("a ring was offered")
    }

    pub fn demotions(&self) -> DemotionStatus {
        self.rig.engine.status().demotions
    }

    /// Has blocks served, so that the cache knows them and does not hold them.
    pub fn served(&self, blocks: std::ops::Range<u64>) -> Client {
        self.served_of("disk", blocks)
    }

    pub fn served_of(&self, export: &str, blocks: std::ops::Range<u64>) -> Client {
        let mut client = Client::unix(&self.rig.socket, export, &ClientWish::default());
        for index in blocks {
            client.read(index * BLOCK, BLOCK as u32).expect("read");
        }
        client
    }
}
