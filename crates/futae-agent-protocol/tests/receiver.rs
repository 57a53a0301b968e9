//! One receiver for all who listen to agents: a frame is believed once, evicted ranges go to a cache and
//! everything else to an allocator, beside the cache or at the other end of a relay.

use futae_agent_protocol::receiver::{
    AgentStatus, AgentVolume, Allowance, Dispatch, Endpoint, NoticeSink, Receiver, Relay,
    SampleSink, Stop,
};
use futae_agent_protocol::{
    Counters, Device, DeviceId, Frame, Hello, Message, Notices, Range, Reason, References, Sample,
    Source,
};
use futae_testkit::wait::eventually;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

const DISK: DeviceId = DeviceId {
    major: 254,
    minor: 0,
};
const SECOND: DeviceId = DeviceId {
    major: 254,
    minor: 16,
};
const OTHER: DeviceId = DeviceId { major: 8, minor: 0 };
const VOLUME_BYTES: u64 = 1 << 20;
const STEP_BYTES: u64 = 128 << 10;

/// A cache that notes what it is told.
#[derive(Clone, Default)]
struct Cache {
    volume: &'static str,
    bytes: u64,
    told: Arc<Mutex<Vec<std::ops::Range<u64>>>>,
}

impl Cache {
    fn of(volume: &'static str, bytes: u64) -> Self {
        Self {
            volume,
            bytes,
            ..Self::default()
        }
    }

    fn told(&self) -> Vec<std::ops::Range<u64>> {
        self.told.lock().expect("a lock").clone()
    }
}

impl NoticeSink for Cache {
    fn volume_name(&self) -> &str {
        self.volume
    }

    fn hello(&mut self, _: &Hello, _: Option<&Device>) {}

    fn volume_bytes(&self) -> u64 {
        self.bytes
    }

    fn step_bytes(&self) -> u64 {
        STEP_BYTES
    }

    fn evicted(&mut self, bytes: std::ops::Range<u64>, _: &Stop) -> bool {
        self.told.lock().expect("a lock").push(bytes);
        true
    }
}

/// An allocator that notes what it is told.
#[derive(Clone, Default)]
struct Allocator(Arc<Mutex<Vec<Frame>>>);

impl Allocator {
    fn samples(&self) -> Vec<u64> {
        let frames = self.0.lock().expect("a lock");
        let samples = frames.iter().filter_map(|frame| match &frame.message {
            Message::Sample(sample) => Some(sample.total.accesses),
            _ => None,
        });
        samples.collect()
    }
}

impl SampleSink for Allocator {
    fn take(&mut self, frame: &Frame) {
        self.0.lock().expect("a lock").push(frame.clone());
    }
}

fn hello(run: u64) -> Message {
    let disk = |id, name: &str, serial: &str| Device {
        id,
        name: name.to_owned(),
        serial: serial.to_owned(),
        ..Device::default()
    };
    Message::Hello(Hello {
        guest: "g\n".to_owned(),
        run,
        source: Source::Functions,
        devices: vec![disk(DISK, "vd\x1b[2J", "a"), disk(SECOND, "vdb", "b")],
        ..Hello::default()
    })
}

fn sample(accesses: u64) -> Message {
    let total = Counters {
        accesses,
        ..Counters::default()
    };
    Message::Sample(Sample {
        total,
        ..Sample::default()
    })
}

fn notices(device: DeviceId, ranges: &[(u64, u64)]) -> Message {
    let range = |&(start, count): &(u64, u64)| Range { start, count };
    Message::Notices(Notices {
        device,
        reason: Reason::Reclaim,
        ranges: ranges.iter().map(range).collect(),
    })
}

fn references(threshold: u32) -> Message {
    let pages = vec![1, 2, 3];
    Message::References(References { threshold, pages })
}

/// Says messages to a dispatch, numbered from `sequence`.
fn say(dispatch: &mut Dispatch, sequence: u64, messages: impl IntoIterator<Item = Message>) {
    let stop = Stop::new().expect("a descriptor");
    for (sequence, message) in (sequence..).zip(messages) {
        dispatch.frame(Frame { sequence, message }, &stop);
    }
}

#[test]
fn each_gets_its_part_and_all_is_checked_once() {
    let (cache, allocator) = (Cache::of("a", VOLUME_BYTES), Allocator::default());
    let mut dispatch = Dispatch::default()
        .notices_to(cache.clone())
        .samples_to(allocator.clone());
    say(
        &mut dispatch,
        0,
        [
            hello(7),
            notices(
                DISK,
                &[(0, 8), (u64::MAX, 1), (0, u64::MAX), (5, 0), (2047, 2)],
            ),
            notices(OTHER, &[(0, 8), (8, 8)]),
            notices(DISK, &[(200, 200)]),
            sample(100),
            references(u32::MAX),
        ],
    );
    // Cut at a multiple of the step.
    let told = [0..4096, 102_400..131_072, 131_072..204_800];
    assert_eq!(cache.told(), told);
    let frames = allocator.0.lock().expect("a lock").clone();
    assert_eq!(frames.len(), 3, "no notices: {frames:?}");
    assert_eq!(frames[2].message, references(References::ALL));
    let status = dispatch.status();
    let expected = AgentStatus {
        connected: true,
        last_frame_seconds: status.last_frame_seconds,
        guest: "g\u{fffd}".to_owned(),
        source: Some(Source::Functions),
        disk: "vd\u{fffd}[2J".to_owned(),
        volumes: vec![AgentVolume {
            name: "a".to_owned(),
            disk: "vd\u{fffd}[2J".to_owned(),
            ranges: 2,
            bytes: 4096 + 102_400,
        }],
        samples: 1,
        sampled_reads: 3,
        ranges: 2,
        bytes: 4096 + 102_400,
        refused_ranges: 6,
        other_disk_ranges: 2,
        ..AgentStatus::default()
    };
    assert_eq!(status, expected);
    dispatch.hung_up();
    assert!(!dispatch.status().connected);
    say(&mut dispatch, 6, [notices(DISK, &[(0, 8)])]);
    assert_eq!(dispatch.status().other_disk_ranges, 3, "which is its disk?");
}

#[test]
fn what_is_evicted_of_each_disk_goes_to_its_own_volume() {
    let (first, second) = (Cache::of("a", VOLUME_BYTES), Cache::of("b", 8192));
    let lacking = Cache::of("c", VOLUME_BYTES);
    let mut dispatch = Dispatch::default()
        .notices_to(lacking.clone())
        .notices_to(second.clone())
        .notices_to(first.clone());
    say(
        &mut dispatch,
        0,
        [
            hello(7),
            notices(DISK, &[(0, 8), (100, 8)]),
            // Each is held against the size of its own volume.
            notices(SECOND, &[(8, 8), (16, 8)]),
            notices(OTHER, &[(0, 8)]),
        ],
    );
    assert_eq!(first.told(), [0..4096, 51_200..55_296]);
    assert_eq!(second.told(), vec![4096..8192]);
    assert_eq!(lacking.told(), []);
    let status = dispatch.status();
    let refused = (status.refused_ranges, status.other_disk_ranges);
    assert_eq!((refused, status.ranges, status.bytes), ((2, 1), 3, 12_288));
    let volumes = status.volumes.iter();
    let volumes: Vec<_> = volumes
        .map(|volume| (volume.name.as_str(), volume.disk.as_str(), volume.ranges))
        .collect();
    let expected = [("c", "", 0), ("b", "vdb", 1), ("a", "vd\u{fffd}[2J", 2)];
    assert_eq!(volumes, expected);
    assert_eq!(status.disk, "", "that of the first");
    dispatch.hung_up();
    say(&mut dispatch, 4, [notices(SECOND, &[(0, 8)])]);
    assert_eq!(second.told().len(), 1, "which is its disk?");
}

#[test]
fn what_is_played_again_is_heard_by_nobody() {
    let (cache, allocator) = (Cache::of("a", VOLUME_BYTES), Allocator::default());
    let mut dispatch = Dispatch::default()
        .notices_to(cache.clone())
        .samples_to(allocator.clone());
    // Nobody has said who speaks.
    say(&mut dispatch, 5, [sample(1)]);
    let speech = || [hello(7), sample(2), notices(DISK, &[(0, 8)])];
    say(&mut dispatch, 0, speech());
    say(&mut dispatch, 0, speech());
    // Another run begins anew, an old one does not; nor what it said further than the new one has come.
    say(&mut dispatch, 0, [hello(8), sample(4)]);
    say(&mut dispatch, 0, speech());
    say(&mut dispatch, 3, [sample(8)]);
    // The new one goes on when it says again who it is.
    say(&mut dispatch, 2, [hello(8), sample(16)]);
    assert_eq!(allocator.samples(), [2, 4, 16]);
    assert_eq!(cache.told().len(), 1);
    assert_eq!(dispatch.status().replayed_frames, 8);
}

/// A receiver at a socket, with what it hands on.
struct Ear {
    stop: Stop,
    receiver: Receiver,
}

impl Ear {
    fn listen(path: &Path, dispatch: Dispatch) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        let endpoint = Endpoint::Listen(Box::new(listener));
        let stop = Stop::new().expect("a descriptor");
        let receiver = Receiver::start(endpoint, dispatch, Allowance::a_second(), &stop);
        let receiver = receiver.expect("a thread");
        Self { stop, receiver }
    }

    fn end(self) {
        self.stop.tell();
        self.receiver.join();
    }
}

struct Agent {
    stream: UnixStream,
    sequence: u64,
}

impl Agent {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("somebody listens");
        Self {
            stream,
            sequence: 0,
        }
    }

    fn say(&mut self, message: Message) {
        let sequence = self.sequence;
        self.sequence += 1;
        let bytes = Frame { sequence, message }.encode();
        self.stream.write_all(&bytes).expect("it is heard");
    }
}

#[test]
fn one_agent_serves_a_cache_and_an_allocator_elsewhere() {
    let place = tempfile::tempdir().expect("a directory");
    let (near, far) = (place.path().join("near"), place.path().join("far"));
    let stop = Stop::new().expect("a descriptor");
    let (relay, to_relay) = Relay::start(&far, &stop).expect("a thread");
    let cache = Cache::of("a", VOLUME_BYTES);
    let dispatch = Dispatch::default()
        .notices_to(cache.clone())
        .samples_to(to_relay);
    let ear = Ear::listen(&near, dispatch);
    let told = || cache.told().len();
    let mut agent = Agent::connect(&near);
    // Nobody balances yet: the cache is told all the same.
    for message in [hello(1), sample(1), notices(DISK, &[(0, 8)])] {
        agent.say(message);
    }
    eventually("the cache is told", || told() == 1);
    assert_eq!(relay.status().dropped_frames, 2);
    // An allocator that comes late, or is started again, hears who speaks before what is said next.
    for (number, accesses) in [(2, 10), (3, 20)] {
        let allocator = Allocator::default();
        let balance = Ear::listen(&far, Dispatch::default().samples_to(allocator.clone()));
        eventually("the relay connects", || relay.status().connected);
        agent.say(sample(accesses));
        agent.say(notices(DISK, &[(0, 8)]));
        eventually("the allocator is told", || {
            allocator.samples() == [accesses]
        });
        eventually("and the cache", || told() == number);
        let status = balance.receiver.status();
        assert_eq!((status.replayed_frames, status.broken_frames), (0, 0));
        assert!(
            status.connected && status.guest == "g\u{fffd}",
            "{status:?}"
        );
        balance.end();
        eventually("the relay sees its end", || !relay.status().connected);
    }
    stop.tell();
    relay.join();
    ear.end();
}

#[test]
fn an_allocator_that_does_not_read_slows_nobody() {
    let place = tempfile::tempdir().expect("a directory");
    let (near, far) = (place.path().join("near"), place.path().join("far"));
    let deaf = UnixListener::bind(&far).expect("a socket");
    let stop = Stop::new().expect("a descriptor");
    let (relay, to_relay) = Relay::start(&far, &stop).expect("a thread");
    let (_held, _) = deaf.accept().expect("the relay calls");
    eventually("it is connected", || relay.status().connected);
    let cache = Cache::of("a", VOLUME_BYTES);
    let dispatch = Dispatch::default()
        .notices_to(cache.clone())
        .samples_to(to_relay);
    let ear = Ear::listen(&near, dispatch);
    let mut agent = Agent::connect(&near);
    agent.say(hello(1));
    // More than sockets and the relay's line hold.
    for _ in 0..40 {
        let pages = vec![0; References::MAX_PAGES];
        let threshold = References::ALL;
        agent.say(Message::References(References { threshold, pages }));
    }
    agent.say(notices(DISK, &[(0, 8)]));
    eventually("the cache is told", || !cache.told().is_empty());
    let status = relay.status();
    assert!(status.dropped_frames > 20, "{status:?}");
    // It ends though nobody reads.
    stop.tell();
    relay.join();
    ear.end();
}

#[test]
fn a_new_connection_takes_the_place_of_one_that_may_be_dead() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("agent");
    let allocator = Allocator::default();
    let ear = Ear::listen(&path, Dispatch::default().samples_to(allocator.clone()));
    let mut first = Agent::connect(&path);
    first.say(hello(1));
    eventually("it is heard", || ear.receiver.status().connected);
    // It breaks off in a frame, and stays connected.
    let frame = Frame {
        sequence: 1,
        message: sample(1),
    };
    let bytes = frame.encode();
    let part = first.stream.write_all(&bytes[..bytes.len() / 2]);
    part.expect("it is heard");
    let mut second = Agent::connect(&path);
    second.say(hello(2));
    second.say(sample(2));
    eventually("the second is heard", || allocator.samples() == [2]);
    ear.end();
}
