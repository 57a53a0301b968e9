//! Channel disks: evicted pages enter the cache with their data if they are what it served, and nothing
//! else that is written to a channel does.

mod common;

use common::{BLOCK, MemoryStore, Rig, eventually, export, pattern};
use futae_agent_protocol::evicted_pages::{
    CHANNEL_BYTES, EvictedPage, EvictedPages, HEAD_BYTES, MAGIC,
};
use futae_agent_protocol::{Device, DeviceId, Frame, Hello, Message, Source};
use futae_engine::{DemotionStatus, OnRefusal, Verification};
use futae_host::{Access, ChannelReport, FeedOptions, Gate, Listen};
use futae_nbd::{ClientWish, Command};
use futae_testkit::nbd::{Client, Plain};
use std::io::Write;
use std::os::unix::net::UnixStream;

const SIZE: usize = 1 << 20;
const DISK: DeviceId = DeviceId {
    major: 254,
    minor: 0,
};

/// The guest's second disk, half as large.
const DATA: DeviceId = DeviceId {
    major: 254,
    minor: 16,
};

/// A server whose exports have a feed and a channel, and an agent that has said which disk each export is.
struct Guest {
    rig: Rig,
    _agent: UnixStream,
    channel: Client,
    content: Vec<u8>,
    data: Vec<u8>,
    sequence: u64,
}

impl Guest {
    fn new() -> Self {
        let (content, data) = (pattern(1, SIZE), pattern(2, SIZE / 2));
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("agent.sock");
        let feed = FeedOptions {
            exports: vec!["disk".into(), "data".into()],
            path: path.clone(),
            access: Access::default(),
        };
        let rig = Rig::made(
            "exclusive",
            64,
            content.clone(),
            |options| {
                options.feeds = vec![feed];
                options.channels = true;
                let private = place.path().join("private.sock");
                options.gates.push(Gate {
                    export: Some("disk".into()),
                    ..Gate::from(Listen::Unix(private))
                });
            },
            |disk| {
                let store = MemoryStore::new(data.clone());
                let data = export(&disk.engine, "data", &store);
                vec![disk, data]
            },
        );
        let how = Verification {
            memory_bytes: 1 << 20,
            on_refusal: OnRefusal::Drop,
            compare_with_store: true,
        };
        rig.engine.verify_demotions(how).expect("memory");
        let wish = ClientWish::default();
        let channel = Client::unix(&place.path().join("private.sock"), "disk.evictions", &wish);
        let mut agent = UnixStream::connect(&path).expect("a feed");
        let disk = |id, bytes: usize| Device {
            id,
            name: "vd".to_owned(),
            serial: String::new(),
            sectors: bytes as u64 / 512,
        };
        let hello = Hello {
            run: 1,
            source: Source::Tracepoints,
            devices: vec![disk(DISK, SIZE), disk(DATA, SIZE / 2)],
            ..Hello::default()
        };
        let frame = Frame {
            sequence: 0,
            message: Message::Hello(hello),
        };
        agent.write_all(&frame.encode()).expect("a listener");
        eventually("the agent is known", || {
            rig.server.status().feeds[0].agent.connected
        });
        Self {
            rig,
            _agent: agent,
            channel,
            content,
            data,
            sequence: 0,
        }
    }

    fn block(&self, index: u64) -> &[u8] {
        &self.content[(index * BLOCK) as usize..][..BLOCK as usize]
    }

    /// Writes a batch of pages of a disk, each at a block of it.
    fn evict(&mut self, device: DeviceId, pages: &[(u64, Vec<u8>)]) {
        let pages = pages.iter();
        let pages: Vec<_> = pages
            .map(|(index, data)| (device, *index, data.clone()))
            .collect();
        self.evict_of_all(&pages);
    }

    /// The same of several disks.
    fn evict_of_all(&mut self, pages: &[(DeviceId, u64, Vec<u8>)]) {
        self.sequence += 1;
        let page = |&(device, index, _): &(DeviceId, u64, Vec<u8>)| EvictedPage {
            device,
            sector: index * BLOCK / 512,
        };
        let batch = EvictedPages {
            run: 1,
            sequence: self.sequence,
            pages: pages.iter().map(page).collect(),
        };
        let mut head = [0; HEAD_BYTES];
        batch.encode(&mut head);
        let data: Vec<u8> = pages.iter().flat_map(|(.., data)| data.clone()).collect();
        let bytes = [&head[..], &data].concat();
        assert_eq!(self.channel.write(0, &bytes), None, "the channel takes it");
    }

    fn channel_report(&self) -> ChannelReport {
        let status = self.rig.server.status();
        status.feeds[0].channel.expect("the export has a channel")
    }

    fn demotions(&self) -> DemotionStatus {
        self.rig.engine.status().demotions
    }
}

#[test]
fn a_page_that_was_served_comes_back_without_a_read_of_the_store() {
    let mut guest = Guest::new();
    let mut reader = guest.rig.plain();
    for index in 0..3 {
        reader.read(index * BLOCK, BLOCK as u32).expect("read");
    }
    let pages: Vec<_> = (0..3)
        .map(|index| (index, guest.block(index).to_vec()))
        .collect();
    guest.evict(DISK, &pages);
    assert_eq!(guest.demotions().demotions_verified, 3);
    eventually("the blocks are compared with the store", || {
        guest.demotions().demotions_compared == 3
    });
    assert_eq!(guest.demotions().demotions_wrong, 0);
    let before = guest.rig.engine.status().store_reads;
    for index in 0..3 {
        let data = reader.read(index * BLOCK, BLOCK as u32).expect("read");
        assert_eq!(data, guest.block(index));
    }
    assert_eq!(guest.rig.engine.status().store_reads, before);
    let expected = ChannelReport {
        batches: 1,
        pages: 3,
        ..ChannelReport::default()
    };
    assert_eq!(guest.channel_report(), expected);
}

#[test]
fn one_channel_takes_the_pages_of_all_disks_of_a_guest() {
    let mut guest = Guest::new();
    let wish = ClientWish::default();
    let mut readers = ["disk", "data"].map(|name| Client::unix(&guest.rig.socket, name, &wish));
    for reader in &mut readers {
        for index in 0..3 {
            reader.read(index * BLOCK, BLOCK as u32).expect("read");
        }
    }
    let page = |of: &[u8], index: u64| of[(index * BLOCK) as usize..][..BLOCK as usize].to_vec();
    let (disk, data) = (guest.content.clone(), guest.data.clone());
    guest.evict_of_all(&[
        (DATA, 0, page(&data, 0)),
        (DISK, 1, page(&disk, 1)),
        (DATA, 2, page(&data, 2)),
        // Within the first disk, and beyond the end of the second.
        (DATA, SIZE as u64 / 2 / BLOCK, page(&disk, 2)),
        // What the other disk holds there.
        (DISK, 2, page(&data, 2)),
    ]);
    let demotions = guest.demotions();
    let counts = (demotions.demotions_verified, demotions.demotions_different);
    assert_eq!(counts, (3, 1), "{demotions:?}");
    let report = guest.channel_report();
    assert_eq!((report.pages, report.foreign_pages), (4, 1));
    let before = guest.rig.engine.status().store_reads;
    let [mut first, mut second] = readers;
    for index in [0, 2] {
        let read = second.read(index * BLOCK, BLOCK as u32).expect("read");
        assert_eq!(read, page(&data, index));
    }
    let read = first.read(BLOCK, BLOCK as u32).expect("read");
    assert_eq!(read, page(&disk, 1));
    assert_eq!(guest.rig.engine.status().store_reads, before);
    let names = guest.rig.server.export_names();
    assert_eq!(
        names,
        ["disk", "data"],
        "there is one channel, and it is no export"
    );
    let other = Plain::connect(&guest.rig.socket, "data.evictions");
    assert!(other.is_err(), "the channel has the name of the first");
}

#[test]
fn forged_and_replayed_pages_and_those_of_other_disks_do_not_enter() {
    let mut guest = Guest::new();
    let mut writer = guest.rig.plain();
    writer.read(0, BLOCK as u32).expect("read");
    let stale = guest.block(0).to_vec();
    assert_eq!(writer.write(0, &[7; BLOCK as usize]), None);
    // Stale, forged, never served.
    let served = guest.block(1).to_vec();
    guest.evict(
        DISK,
        &[
            (0, stale),
            (0, vec![8; BLOCK as usize]),
            (1, served.clone()),
        ],
    );
    let demotions = guest.demotions();
    let refused = demotions.demotions_different + demotions.demotions_unknown;
    let resident = demotions.demotions_resident;
    assert_eq!((refused + resident, demotions.demotions_verified), (3, 0));
    // Another disk, and beyond the end of the volume.
    let other = DeviceId {
        major: 254,
        minor: 32,
    };
    guest.evict(other, &[(1, served.clone())]);
    guest.evict(
        DISK,
        &[
            (SIZE as u64 / BLOCK, served.clone()),
            (u64::MAX / BLOCK, served),
        ],
    );
    assert_eq!(guest.channel_report().foreign_pages, 3);
    let data = guest.rig.plain().read(0, BLOCK as u32).expect("read");
    assert_eq!(data, [7; BLOCK as usize]);
}

#[test]
fn what_is_no_batch_is_counted_and_taken() {
    let mut guest = Guest::new();
    let head = guest.channel.read(0, BLOCK as u32).expect("read");
    assert!(head.starts_with(&MAGIC), "an agent finds the channel by it");
    for bytes in [
        vec![0; 4096],
        vec![0xFF; 8192],
        [&MAGIC[..], &[0xFF; 4080]].concat(),
    ] {
        assert_eq!(guest.channel.write(0, &bytes), None, "it is only counted");
    }
    assert_eq!(guest.channel.write(8192, &[0; 4096]), None);
    let flushed = guest.channel.simple(Command::Flush, 0, 0);
    assert!(flushed.error.is_none(), "there is nothing to flush");
    assert_eq!(guest.channel_report().malformed_batches, 4);
    assert_eq!(guest.channel.export.size_bytes, CHANNEL_BYTES);
    let status = guest.rig.server.status();
    assert_eq!(
        (status.exports.len(), status.engines.len()),
        (2, 1),
        "channels are no exports"
    );
}
