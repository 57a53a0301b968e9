//! Agents tell of evicted pages: the cache gets those blocks, from memory or from the store, and whatever an agent
//! says, it affects its own volume alone.

mod common;

use common::{BLOCK, MemoryStore, Rig, StoreEvent, engine, eventually, export, pattern};
use futae_agent_protocol::{
    Device, DeviceId, Frame, Hello, Message, Notices, Range, Reason, Sample, Source,
};
use futae_host::{Access, AgentStatus, FeedOptions, HostError, Listen, Server, ServerOptions};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

const SIZE: usize = 1 << 20;
const DISK: DeviceId = DeviceId {
    major: 254,
    minor: 0,
};
const SECTORS: u64 = BLOCK / 512;

/// An agent, as far as a host can see.
struct Agent {
    stream: UnixStream,
    sequence: u64,
}

impl Agent {
    fn connect(path: &Path, run: u64) -> Self {
        Self::that_counts_by(Source::Tracepoints, path, run)
    }

    fn that_counts_by(source: Source, path: &Path, run: u64) -> Self {
        let stream = UnixStream::connect(path).expect("a feed");
        let mut agent = Self {
            stream,
            sequence: 0,
        };
        agent.greet(source, run, &[""]);
        agent
    }

    /// Says that there is a disk of the export's size with each of these serial numbers.
    fn greet(&mut self, source: Source, run: u64, serials: &[&str]) {
        let disk = |(minor, serial): (u32, &&str)| Device {
            id: DeviceId { minor, ..DISK },
            name: format!("vd{minor}"),
            serial: (*serial).to_owned(),
            sectors: SIZE as u64 / 512,
        };
        let hello = Hello {
            guest: "g\x1b[2J\n".into(),
            run,
            source,
            devices: (0..).zip(serials).map(disk).collect(),
            ..Hello::default()
        };
        self.say(Message::Hello(hello));
    }

    fn say(&mut self, message: Message) {
        let frame = Frame {
            sequence: self.sequence,
            message,
        };
        self.sequence += 1;
        self.stream
            .write_all(&frame.encode())
            .expect("somebody listens");
    }

    fn evict(&mut self, device: DeviceId, ranges: &[(u64, u64)]) {
        let ranges = ranges
            .iter()
            .map(|&(start, count)| Range { start, count })
            .collect();
        self.say(Message::Notices(Notices {
            device,
            reason: Reason::Reclaim,
            ranges,
        }));
    }
}

fn rig(policy: &str, slots: u32) -> (Rig, std::path::PathBuf, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("agent.sock");
    let feed = FeedOptions {
        exports: vec!["disk".into()],
        path: path.clone(),
        access: Access::default(),
    };
    let rig = Rig::with(policy, slots, pattern(1, SIZE), |options| {
        options.feeds = vec![feed];
    });
    (rig, path, directory)
}

fn store(seed: u64) -> std::sync::Arc<MemoryStore> {
    MemoryStore::new(pattern(seed, SIZE))
}

fn report(rig: &Rig) -> AgentStatus {
    rig.server.status().feeds[0].agent.clone()
}

#[test]
fn what_was_just_served_is_kept_without_another_read() {
    let (rig, path, _directory) = rig("exclusive(keep_served=true)", 64);
    assert!(rig.server.status().exports[0].is_blind);
    let mut agent = Agent::connect(&path, 1);
    eventually("the agent is seen", || {
        !rig.server.status().exports[0].is_blind
    });
    let mut client = rig.plain();
    client.read(3 * BLOCK, 4096).expect("read");
    assert_eq!(rig.store.reads(), 1);
    agent.evict(DISK, &[(3 * SECTORS, SECTORS)]);
    eventually("the notice arrives", || {
        rig.engine.status().counters.notices_in == 1
    });
    assert_eq!(report(&rig).guest, "g\u{fffd}[2J\u{fffd}", "no escapes");
    let status = rig.engine.status();
    assert_eq!((status.notice_reads, rig.store.reads()), (0, 1));
    agent.evict(DISK, &[(8 * SECTORS, 100 * SECTORS)]);
    eventually("the others are read", || {
        rig.engine.status().notice_reads == 100
    });
    eventually("and are there", || {
        rig.engine.status().resident_blocks == 64
    });
    assert_eq!(report(&rig).bytes, 101 * BLOCK);
    drop(agent);
    eventually("its end is seen", || {
        rig.server.status().exports[0].is_blind
    });
}

#[test]
fn nonsense_changes_nothing() {
    let (rig, path, _directory) = rig("exclusive", 64);
    let mut agent = Agent::connect(&path, 1);
    let other = DeviceId { major: 8, minor: 0 };
    agent.evict(other, &[(0, SECTORS)]);
    agent.evict(
        DISK,
        &[(u64::MAX, 1), (0, u64::MAX), (SIZE as u64 / 512, 1), (5, 0)],
    );
    agent
        .stream
        .write_all(b"FtRp is how a frame begins, but this is none")
        .expect("sent");
    let untold = Sample {
        notices_lost: 7,
        notices_homeless: u64::MAX,
        ..Sample::default()
    };
    agent.say(Message::Sample(untold));
    // A piece of a block is not the block.
    agent.evict(DISK, &[(1, SECTORS)]);
    eventually("all is heard", || report(&rig).frames == 5);
    eventually("all is counted", || report(&rig).broken_frames == 1);
    let heard = report(&rig);
    assert_eq!(
        (heard.refused_ranges, heard.ranges, heard.untold_pages),
        (5, 1, u64::MAX)
    );
    assert_eq!(heard.other_disk_ranges, 1);
    assert_eq!(rig.engine.status().counters.notices_in, 0);
    assert_eq!(rig.store.reads(), 0);
    // The same again, as somebody would who recorded it.
    agent.sequence = 1;
    agent.evict(DISK, &[(0, SECTORS)]);
    eventually("it is known", || report(&rig).replayed_frames == 1);
    assert_eq!(rig.engine.status().counters.notices_in, 0);
    // Another run of the agent begins anew, on a new connection.
    let mut agent = Agent::connect(&path, 2);
    agent.evict(DISK, &[(0, SECTORS)]);
    eventually("it is believed", || {
        rig.engine.status().counters.notices_in == 1
    });
}

#[test]
fn a_guest_affects_its_own_volume_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = engine("exclusive", 64);
    let stores = [1, 2].map(|seed| MemoryStore::new(pattern(seed, SIZE)));
    let exports = vec![
        export(&cache, "a", &stores[0]),
        export(&cache, "b", &stores[1]),
    ];
    let path = directory.path().join("b.sock");
    let listen = Listen::Unix(directory.path().join("nbd.sock"));
    let feeds = vec![FeedOptions {
        exports: vec!["b".into()],
        path: path.clone(),
        access: Access::default(),
    }];
    let options = ServerOptions {
        listen: vec![listen],
        feeds,
        ..ServerOptions::default()
    };
    let server = Server::start(options.clone(), exports).expect("it starts");
    let mut agent = Agent::connect(&path, 1);
    agent.evict(DISK, &[(0, 10 * SECTORS)]);
    // A block is resident from the decision on, before its store is asked for it.
    eventually("its blocks come", || {
        cache.status().resident_blocks == 10 && stores[1].reads() > 0
    });
    assert_eq!(stores[0].reads(), 0);
    let exports = server.status().exports;
    let blind: Vec<_> = exports.iter().map(|export| export.is_blind).collect();
    assert_eq!(
        blind,
        [true, false],
        "nobody tells what the guest of a evicts"
    );
    drop(server);
    assert!(!path.exists(), "the socket goes with the server");
    let refused = |names: &[&str]| {
        let feed = FeedOptions {
            exports: names.iter().map(|&name| name.to_owned()).collect(),
            path: path.clone(),
            access: Access::default(),
        };
        let cache = engine("lru", 8);
        let exports = vec![export(&cache, "a", &stores[0])];
        let options = ServerOptions {
            feeds: vec![feed],
            ..options.clone()
        };
        let started = Server::start(options, exports).map(drop);
        started.expect_err("a feed for nothing")
    };
    let error = refused(&["a", "c"]);
    assert!(matches!(error, HostError::NoSuchExport { .. }), "{error}");
    let error = refused(&[]);
    assert!(matches!(error, HostError::EmptyFeed { .. }), "{error}");
}

#[test]
fn one_feed_is_of_all_disks_of_its_guest() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("agent.sock");
    let (mine, foreign) = ([2, 3].map(store), store(4));
    let rig = Rig::made(
        "exclusive",
        64,
        pattern(1, SIZE),
        |options| {
            options.feeds = vec![FeedOptions {
                exports: vec!["b".into(), "a".into()],
                path: path.clone(),
                access: Access::default(),
            }];
        },
        |disk| {
            // One of them has a cache of its own.
            let own = engine("exclusive", 64);
            vec![
                export(&disk.engine, "foreign", &foreign),
                export(&disk.engine, "a", &mine[0]),
                export(&own, "b", &mine[1]),
                disk,
            ]
        },
    );
    let status = || rig.server.status();
    let blind = || -> Vec<bool> {
        let exports = status().exports.into_iter();
        exports.map(|export| export.is_blind).collect()
    };
    let mut agent = Agent::connect(&path, 1);
    eventually("it is heard", || report(&rig).connected);
    assert_eq!(blind(), [true; 4], "its disk may be either");
    // The second of its disks is the first export of the feed.
    agent.greet(Source::Tracepoints, 1, &["a", "b", "foreign"]);
    eventually("both are known", || blind() == [true, false, false, true]);
    for minor in 0..3 {
        let device = DeviceId { minor, ..DISK };
        let count = [3, 5, 7][minor as usize];
        agent.evict(device, &[(0, count * SECTORS)]);
    }
    eventually("all is heard", || report(&rig).refused_ranges == 1);
    let heard = report(&rig);
    let of_disks: Vec<_> = heard
        .volumes
        .iter()
        .map(|it| (it.name.as_str(), it.disk.as_str(), it.bytes / BLOCK))
        .collect();
    assert_eq!(of_disks, [("b", "vd1", 5), ("a", "vd0", 3)]);
    assert_eq!((heard.bytes / BLOCK, heard.other_disk_ranges), (8, 1));
    let notices = || {
        let volumes = status().engines.into_iter();
        let volumes = volumes.flat_map(|cache| cache.engine.volumes);
        let counts = volumes.map(|volume| (volume.name, volume.notices_in));
        let mut counts: Vec<_> = counts.filter(|(_, notices)| *notices > 0).collect();
        counts.sort_unstable();
        counts
    };
    let expected = [("a".to_owned(), 3), ("b".to_owned(), 5)];
    eventually("each cache is told", || notices() == expected);
    eventually("each store is read", || {
        mine.iter().all(|store| store.reads() > 0)
    });
    assert_eq!((foreign.reads(), rig.store.reads()), (0, 0));
    let said = serde_json::to_value(status()).expect("JSON");
    let feed = &said["feeds"][0];
    assert_eq!(
        (&feed["export"], &feed["disk"]),
        (&"b".into(), &"vd1".into())
    );
    assert_eq!(feed["exports"][1]["name"], "a");
    assert_eq!(feed["exports"][1]["disk"], "vd0");
    let stays = rig
        .server
        .remove_export("a", true)
        .expect_err("it has a feed");
    assert!(stays.contains("an agent reports on it"), "{stays}");
    // Another agent has one of the disks only.
    agent.greet(Source::Tracepoints, 1, &["a"]);
    eventually("b is gone", || blind() == [true, false, true, true]);
}

#[test]
fn a_frame_that_asks_for_everything_many_times_ends_with_the_server() {
    let (rig, path, _directory) = rig("lru", 256);
    rig.plain().read(0, SIZE as u32).expect("all of it is here");
    let agent = Agent::connect(&path, 1);
    let blocks = SIZE as u64 / BLOCK;
    let range = Range {
        start: 0,
        count: SIZE as u64 / 512,
    };
    let notices = Message::Notices(Notices {
        device: DISK,
        reason: Reason::Reclaim,
        ranges: vec![range; 8192],
    });
    let frame = Frame {
        sequence: 1,
        message: notices,
    };
    // Most of it waits in the socket while the server is busy with the beginning.
    let mut stream = agent.stream.try_clone().expect("a copy");
    let sender = std::thread::spawn(move || stream.write_all(&frame.encode()));
    let told = || rig.engine.status().counters.notices_in;
    eventually("it is being told", || told() > 0);
    let store = rig.store.clone();
    drop(rig.server.stop());
    let told = rig.engine.status().counters.notices_in;
    assert!(told < 8192 * blocks / 2, "{told} blocks told");
    assert!(store.events().contains(&StoreEvent::Flush));
    drop(sender.join());
}

#[test]
fn a_run_that_another_has_followed_is_over() {
    let (rig, path, _directory) = rig("exclusive", 64);
    for run in [1, 2] {
        drop(Agent::connect(&path, run));
        eventually("it is heard", || report(&rig).frames == run);
    }
    // The first run again, as somebody would who recorded it, with something to believe behind.
    let mut agent = Agent::connect(&path, 1);
    agent.evict(DISK, &[(0, SECTORS)]);
    eventually("all is heard", || report(&rig).frames == 4);
    eventually("none is believed", || report(&rig).replayed_frames == 2);
    assert_eq!(rig.engine.status().counters.notices_in, 0);
    assert!(
        report(&rig)
            .last_frame_seconds
            .is_some_and(|seconds| seconds >= 0.0)
    );
}

#[test]
fn an_agent_without_its_programs_does_not_look_healthy() {
    let (rig, path, _directory) = rig("exclusive", 64);
    let _agent = Agent::that_counts_by(Source::Vmstat, &path, 1);
    eventually("it is heard", || report(&rig).connected);
    assert_eq!(report(&rig).source, Some(Source::Vmstat));
    assert!(rig.server.status().exports[0].is_blind);
}

#[test]
fn a_cache_is_blind_while_no_disk_of_the_guest_is_the_export() {
    let (rig, path, _directory) = rig("exclusive", 64);
    let is_blind = || rig.server.status().exports[0].is_blind;
    let mut agent = Agent::connect(&path, 1);
    eventually("its only disk is taken for the export", || !is_blind());
    for (serials, expected) in [
        (&["", ""][..], true),
        (&["", "disk"], false),
        (&["other"], true),
    ] {
        agent.greet(Source::Tracepoints, 1, serials);
        eventually(&format!("{serials:?}"), || is_blind() == expected);
    }
}
