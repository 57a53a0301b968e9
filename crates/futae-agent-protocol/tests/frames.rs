//! What is written is read again, whatever is around it; nothing that is fed can do harm.

use futae_agent_protocol::in_place::{RingAnswer, RingOffer, Verdict};
use futae_agent_protocol::*;
use proptest::prelude::*;

fn counters() -> impl Strategy<Value = Counters> {
    any::<[u64; Counters::FIELDS]>().prop_map(Counters::from_array)
}

fn device_id() -> impl Strategy<Value = DeviceId> {
    any::<(u32, u32)>().prop_map(|(major, minor)| DeviceId { major, minor })
}

fn hello() -> impl Strategy<Value = Hello> {
    let source = prop::sample::select(vec![Source::Tracepoints, Source::Functions, Source::Vmstat]);
    let device = (device_id(), ".{0,9}", "[a-z]{0,9}", any::<u64>()).prop_map(
        |(id, name, serial, sectors)| Device {
            id,
            name,
            serial,
            sectors,
        },
    );
    let devices = prop::collection::vec(device, 0..4);
    (
        ".{0,20}",
        ".{0,20}",
        any::<[u8; 16]>(),
        any::<u64>(),
        source,
        devices,
    )
        .prop_map(|(guest, kernel, boot, run, source, devices)| Hello {
            guest,
            kernel,
            boot: BootId(boot),
            run,
            source,
            devices,
        })
}

fn sample() -> impl Strategy<Value = Sample> {
    let device =
        (device_id(), counters()).prop_map(|(device, counters)| DeviceSample { device, counters });
    let group = (any::<u64>(), ".{0,30}", counters())
        .prop_map(|(id, path, counters)| GroupSample { id, path, counters });
    let file =
        (device_id(), any::<u64>(), counters()).prop_map(|(device, inode, counters)| FileSample {
            device,
            inode,
            counters,
        });
    let lists = (
        prop::collection::vec(device, 0..4),
        prop::collection::vec(group, 0..4),
        prop::collection::vec(file, 0..4),
    );
    let pressure = prop::option::of(any::<(u64, u64)>());
    (any::<[u64; 10]>(), counters(), lists, pressure).prop_map(
        |(numbers, total, (devices, groups, files), pressure)| Sample {
            at_us: numbers[0],
            period_us: numbers[1],
            total,
            devices,
            groups,
            files,
            memory: Memory {
                total: numbers[2],
                free: numbers[3],
                available: numbers[4],
                cached: numbers[5],
                buffers: numbers[6],
            },
            pressure: pressure.map(|(some_us, full_us)| Pressure { some_us, full_us }),
            notices_lost: numbers[7],
            notices_homeless: numbers[8],
            references_lost: numbers[9],
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    let range = any::<(u64, u64)>().prop_map(|(start, count)| Range { start, count });
    let reason = prop::sample::select(vec![Reason::Reclaim, Reason::Invalidate]);
    let notices = (device_id(), reason, prop::collection::vec(range, 0..40)).prop_map(
        |(device, reason, ranges)| Notices {
            device,
            reason,
            ranges,
        },
    );
    let references = (any::<u32>(), prop::collection::vec(any::<u64>(), 0..40))
        .prop_map(|(threshold, pages)| References { threshold, pages });
    let pages = || prop::collection::vec(any::<u64>(), 0..40);
    let ring = (any::<u32>(), any::<u64>(), pages(), pages());
    let ring = ring.prop_map(|(version, offer, table, ring)| RingOffer {
        version,
        offer,
        table,
        ring,
    });
    let verdict = prop::sample::select(vec![Verdict::Reads, Verdict::Refuses]);
    let answer = (any::<u64>(), verdict, any::<u64>(), "[a-zé ]{0,40}");
    let answer = answer.prop_map(|(offer, verdict, taken, why)| RingAnswer {
        offer,
        verdict,
        taken,
        why,
    });
    let replacement = prop::sample::select(vec![Replacement::Linux, Replacement::Mglru]);
    let page_cache = (replacement, any::<(u64, bool)>());
    let page_cache = page_cache.prop_map(|(replacement, (bytes, large))| PageCache {
        replacement,
        read_ahead_bytes: bytes,
        large_folios: large,
    });
    prop_oneof![
        hello().prop_map(Message::Hello),
        sample().prop_map(Message::Sample),
        notices.prop_map(Message::Notices),
        references.prop_map(Message::References),
        ring.prop_map(Message::Ring),
        answer.prop_map(Message::RingAnswer),
        page_cache.prop_map(Message::PageCache),
    ]
}

fn frames() -> impl Strategy<Value = Vec<Frame>> {
    let frame =
        (any::<u64>(), message()).prop_map(|(sequence, message)| Frame { sequence, message });
    prop::collection::vec(frame, 1..8)
}

fn all(stream: &mut Stream, bytes: &[u8], step: usize) -> Vec<Frame> {
    let mut read = Vec::new();
    for piece in bytes.chunks(step) {
        stream.feed(piece);
        while let Some(frame) = stream.next_frame() {
            read.push(frame);
        }
    }
    read
}

proptest! {
    #[test]
    fn frames_are_read_as_they_were_written(frames in frames(), step in 1usize..5000) {
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        let mut stream = Stream::default();
        prop_assert_eq!(&all(&mut stream, &bytes, step), &frames);
        let clean = Health { frames: frames.len() as u64, ..Health::default() };
        prop_assert_eq!(stream.health(), clean);
        prop_assert_eq!(stream.pending(), 0);
        for frame in frames {
            prop_assert_eq!(Frame::from_json(&frame.to_json()), Ok(frame));
        }
    }

    /// What stands before, and one frame that is damaged, cost no other frame.
    #[test]
    fn a_damaged_frame_costs_itself_alone(
        frames in frames(),
        before in prop::collection::vec(any::<u8>(), 0..60),
        flip in any::<(prop::sample::Index, u8)>(),
        step in 1usize..5000,
    ) {
        let mut damaged = frames[0].encode();
        let at = flip.0.index(damaged.len());
        damaged[at] ^= flip.1 | 1;
        let mut bytes = before;
        bytes.extend_from_slice(&damaged);
        bytes.extend(frames.iter().flat_map(Frame::encode));
        let mut stream = Stream::default();
        prop_assert_eq!(all(&mut stream, &bytes, step), frames);
    }

    #[test]
    fn anything_can_be_fed(
        bytes in prop::collection::vec(prop_oneof![Just(b'F'), Just(b't'), any::<u8>()], 0..3000),
        step in 1usize..100,
    ) {
        let mut stream = Stream::default();
        all(&mut stream, &bytes, step);
        prop_assert!(stream.pending() <= bytes.len());
    }
}

/// A header whose checksums are right can announce what it likes: it is not kept waiting for
/// more than the largest frame, and memory is not reserved for lists that do not come.
#[test]
fn lists_that_do_not_come_are_refused() {
    let references = References {
        threshold: 1,
        pages: vec![1, 2, 3],
    };
    let mut bytes = Frame {
        sequence: 1,
        message: Message::References(references),
    }
    .encode();
    let header = 28;
    bytes[header + 4..header + 8].copy_from_slice(&u32::MAX.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[header..]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..24]);
    bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
    let mut stream = Stream::default();
    assert!(all(&mut stream, &bytes, 7).is_empty());
    assert_eq!(stream.health().broken_frames, 1);
}

/// Kinds and versions of the future are passed over whole.
#[test]
fn unknown_frames_are_passed_over() {
    let hello = Frame {
        sequence: 1,
        message: Message::Hello(Hello::default()),
    };
    for (at, value) in [(4, 2), (5, 77)] {
        let mut bytes = hello.encode();
        bytes[at] = value;
        let checksum = crc32fast::hash(&bytes[..24]);
        bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
        bytes.extend(hello.encode());
        for step in [1, 10, 1000] {
            let mut stream = Stream::default();
            assert_eq!(all(&mut stream, &bytes, step), std::slice::from_ref(&hello));
            assert_eq!(stream.health().unknown_frames, 1);
            assert_eq!(stream.health().skipped_bytes, 0);
        }
    }
}

/// Lists and texts that are too long are cut, so that what is written can always be read.
#[test]
fn the_largest_messages_fit() {
    let long = "é".repeat(200);
    let hello = Hello {
        guest: long,
        devices: vec![Device::default(); 100],
        ..Hello::default()
    };
    let notices = Notices {
        ranges: vec![Range::default(); 10_000],
        ..Notices::default()
    };
    let group = GroupSample {
        path: "x".repeat(300),
        ..GroupSample::default()
    };
    let sample = Sample {
        devices: vec![DeviceSample::default(); 100],
        groups: vec![group; 1000],
        files: vec![FileSample::default(); 1000],
        ..Sample::default()
    };
    let references = References {
        threshold: 1,
        pages: vec![5; 20_000],
    };
    let ring = RingOffer {
        table: vec![7; 20_000],
        ring: vec![7; 20_000],
        ..RingOffer::default()
    };
    let answer = RingAnswer {
        why: "w".repeat(300),
        ..RingAnswer::default()
    };
    let mut stream = Stream::default();
    let mut sizes = Vec::new();
    for message in [
        Message::Hello(hello),
        Message::Notices(notices),
        Message::Sample(sample),
        Message::References(references),
        Message::Ring(ring),
        Message::RingAnswer(answer),
    ] {
        let bytes = Frame {
            sequence: 0,
            message,
        }
        .encode();
        assert!(bytes.len() <= 28 + MAX_PAYLOAD_BYTES);
        stream.feed(&bytes);
        sizes.push(match stream.next_frame().expect("a frame").message {
            Message::Hello(hello) => {
                assert_eq!(hello.guest.len(), 254);
                hello.devices.len()
            }
            Message::Notices(notices) => notices.ranges.len(),
            Message::Sample(sample) => {
                sample.devices.len() + sample.groups.len() + sample.files.len()
            }
            Message::References(references) => references.pages.len(),
            Message::Ring(offer) => offer.table.len() + offer.ring.len(),
            Message::RingAnswer(answer) => answer.why.len(),
            Message::PageCache(_) => unreachable!("it has no lists"),
        });
    }
    let expected = [64, 8192, 64 + 256 + 256, 16_384, 129 + 16_384, 255];
    assert_eq!(sizes, expected);
}

#[test]
fn a_boot_id_is_read_as_the_kernel_writes_it() {
    let text = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
    let boot = BootId::parse(&format!("{text}\n")).expect("a boot id");
    assert_eq!(boot.to_string(), text);
    for wrong in [
        "",
        "0f",
        &format!("{text}0"),
        "zf1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
    ] {
        assert_eq!(BootId::parse(wrong), None);
    }
    assert!(Frame::from_json("{}").is_err());
    assert!(Frame::from_json(&" ".repeat(5 << 20)).is_err());
}
