//! What an agent may say, from an input: frames of every kind with counts of any size.

use crate::hostile::Script;
use futae_agent_protocol::{
    Counters, Device, DeviceId, DeviceSample, Frame, Hello, Memory, Message,
};
use futae_agent_protocol::{Notices, Pressure, Range, Reason, References, Sample};

/// Bytes of the disk that is the export.
pub const SIZE: usize = 4 << 20;
pub const SECTORS: u64 = SIZE as u64 / 512;
const SECTORS_A_BLOCK: u64 = 8;

const DISK: DeviceId = DeviceId {
    major: 254,
    minor: 0,
};
/// Counts that may make sums overflow.
const COUNTS: [u64; 6] = [0, 1, 4096, 1 << 32, u64::MAX / 2, u64::MAX];
const NAMES: [&str; 6] = [
    "open",
    "",
    "\u{1b}[2J\u{1b}]0;x\u{7}",
    "\0\r\n",
    "\u{202e}tseug",
    "\u{9b}31m../../x",
];

/// A speech: its bytes, and what is in them.
pub struct Said {
    pub bytes: Vec<u8>,
    pub frames: Vec<Frame>,
    /// Blocks that its notices can cover at most.
    pub blocks: u64,
    /// Hellos of different runs.
    pub runs: usize,
}

pub fn speech(script: &mut Script<'_>) -> Said {
    let mut said = Said {
        bytes: Vec::new(),
        frames: Vec::new(),
        blocks: 0,
        runs: 1,
    };
    let mut runs = vec![1];
    say(&mut said, 0, hello(script, 1));
    let mut sequence = 1;
    while !script.is_over() && said.frames.len() < 64 {
        let message = match script.byte() % 12 {
            0 => {
                let run = script.pick(&[1, 2, 3, u64::MAX]);
                if !runs.contains(&run) {
                    runs.push(run);
                }
                Message::Hello(Hello {
                    run,
                    ..greeting(script)
                })
            }
            1..5 => few_ranges(script),
            5 => many_ranges(script),
            6 | 7 => sample(script),
            8 | 9 => references(script),
            10 => {
                let raw = script.bytes(40);
                said.bytes.extend_from_slice(raw);
                continue;
            }
            _ => {
                spoil(&mut said, sequence, script);
                continue;
            }
        };
        let number = script.pick(&[sequence, sequence, sequence, 0, sequence + 9]);
        sequence = sequence.max(number) + 1;
        say(&mut said, number, message);
    }
    said.runs = runs.len();
    said
}

fn say(said: &mut Said, sequence: u64, message: Message) {
    if let Message::Notices(notices) = &message {
        // Whatever is beyond the disk is refused.
        let blocks = |range: &Range| range.count.min(SECTORS).div_ceil(SECTORS_A_BLOCK) + 1;
        said.blocks += notices.ranges.iter().map(blocks).sum::<u64>();
    }
    let frame = Frame { sequence, message };
    said.bytes.extend(frame.encode());
    said.frames.push(frame);
}

/// A frame of which one byte is wrong.
fn spoil(said: &mut Said, sequence: u64, script: &mut Script<'_>) {
    let message = hello(script, 1);
    let mut bytes = Frame { sequence, message }.encode();
    let at = script.below(bytes.len() as u64) as usize;
    bytes[at] ^= 1 + script.byte() % 255;
    said.bytes.extend(bytes);
}

fn hello(script: &mut Script<'_>, run: u64) -> Message {
    Message::Hello(Hello {
        run,
        ..greeting(script)
    })
}

fn greeting(script: &mut Script<'_>) -> Hello {
    let shape = script.byte();
    let device = |minor: u32| Device {
        id: DeviceId { minor, ..DISK },
        name: NAMES[usize::from(shape) % NAMES.len()].to_owned(),
        serial: if shape & 64 == 0 {
            String::new()
        } else {
            "open".to_owned()
        },
        sectors: if shape & 128 == 0 { SECTORS } else { u64::MAX },
    };
    let disks = if shape & 32 == 0 {
        1
    } else {
        Hello::MAX_DEVICES as u32
    };
    Hello {
        guest: NAMES[usize::from(shape) % NAMES.len()].to_owned(),
        kernel: "x".repeat(usize::from(shape)),
        devices: (0..disks).map(device).collect(),
        ..Hello::default()
    }
}

fn few_ranges(script: &mut Script<'_>) -> Message {
    let range = |script: &mut Script<'_>| {
        let start = script.below(SECTORS / SECTORS_A_BLOCK) * SECTORS_A_BLOCK;
        match script.byte() % 8 {
            0 => Range {
                start: script.pick(&COUNTS),
                count: script.pick(&COUNTS),
            },
            1 => Range {
                start: start + 1,
                count: script.below(99),
            },
            2 => Range {
                start: 0,
                count: SECTORS,
            },
            _ => Range {
                start,
                count: script.below(16) * SECTORS_A_BLOCK,
            },
        }
    };
    let count = script.byte() % 12;
    let ranges = (0..count).map(|_| range(script)).collect();
    let device = if script.byte() == 255 {
        DeviceId::default()
    } else {
        DISK
    };
    let reason = if script.byte() == 255 {
        Reason::Invalidate
    } else {
        Reason::Reclaim
    };
    Message::Notices(Notices {
        device,
        reason,
        ranges,
    })
}

/// As many ranges as a frame holds, each of them the whole disk.
fn many_ranges(script: &mut Script<'_>) -> Message {
    let count = script.pick(&[SECTORS, SECTORS, u64::MAX, 1]);
    let ranges = vec![Range { start: 0, count }; Notices::MAX_RANGES];
    Message::Notices(Notices {
        device: DISK,
        reason: Reason::Reclaim,
        ranges,
    })
}

fn sample(script: &mut Script<'_>) -> Message {
    let counters = |script: &mut Script<'_>| {
        Counters::from_array(std::array::from_fn(|_| script.pick(&COUNTS)))
    };
    let total = counters(script);
    let device = DeviceSample {
        device: DISK,
        counters: total,
    };
    let devices = vec![device; usize::from(script.byte()) % Sample::MAX_DEVICES];
    let full_us = script.pick(&COUNTS);
    Message::Sample(Sample {
        period_us: script.pick(&COUNTS),
        total,
        devices,
        memory: Memory {
            free: script.pick(&COUNTS),
            cached: script.pick(&COUNTS),
            buffers: script.pick(&COUNTS),
            ..Memory::default()
        },
        pressure: Some(Pressure {
            some_us: full_us,
            full_us,
        }),
        notices_lost: script.pick(&COUNTS),
        notices_homeless: script.pick(&COUNTS),
        ..Sample::default()
    })
}

fn references(script: &mut Script<'_>) -> Message {
    let threshold = script.pick(&[0, 1, References::ALL / 4, References::ALL, u32::MAX]);
    let count = script.pick(&[1, 100, References::MAX_PAGES as u64]);
    let spread = script.pick(&[0, 1, 0x9E37_79B9_7F4A_7C15]);
    let pages = (0..count).map(|page| page.wrapping_mul(spread)).collect();
    Message::References(References { threshold, pages })
}

/// A frame of whole volumes, floods, other runs, and a bit of everything, to each who listens.
pub fn seeds() -> Vec<Vec<u8>> {
    let everything: Vec<u8> = (0..=255u8).flat_map(|byte| [byte, byte / 2, 3]).collect();
    let mut seeds = Vec::new();
    for listener in 0..6u8 {
        seeds.push(vec![listener, 0, 5, 0, 0]);
        seeds.push(vec![
            listener, 0, 1, 3, 0, 4, 7, 0, 9, 0, 7, 0, 0, 2, 0, 0, 0, 0, 0,
        ]);
        seeds.push(
            [
                vec![listener, 2, 0, 1, 0, 0, 6],
                vec![5; 30],
                vec![8, 3, 2, 2, 0],
            ]
            .concat(),
        );
        seeds.push([vec![listener, 1], everything.clone()].concat());
    }
    seeds
}
