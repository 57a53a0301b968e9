//! What a malicious agent writes to its port.

use futae_agent_protocol::{Counters, Frame, Hello, Memory, Message, Pressure, References, Sample};
use futae_policy::Prng;
use std::fmt;

const MIB: usize = 1 << 20;
/// What is written of a flood again and again.
const FLOOD_BYTES: usize = MIB;
/// Frames of a flood are played so often: more than is taken in a period.
const FLOODS: usize = 36;

/// A way to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lie {
    /// Counts that cannot be.
    Huge,
    /// Counts below zero, as a wrong subtraction writes them.
    Negative,
    /// What an agent of this guest said before.
    Replay,
    /// As much as the port takes.
    Flood,
    /// Frames longer than there may be, or that announce more than comes.
    Oversized,
    /// No frames at all.
    Garbage,
    /// What could be true: that much more memory would help, all the time.
    Greedy,
}

impl Lie {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Huge,
        Self::Negative,
        Self::Replay,
        Self::Flood,
        Self::Oversized,
        Self::Garbage,
        Self::Greedy,
    ];

    /// Whether nothing of it may be believed.
    pub fn is_plain(self) -> bool {
        !matches!(self, Self::Flood | Self::Greedy)
    }

    /// How often each part is written.
    pub fn times(self) -> usize {
        if self == Self::Flood { FLOODS } else { 1 }
    }
}

impl fmt::Display for Lie {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Huge => "huge counts",
            Self::Negative => "negative counts",
            Self::Replay => "frames of its own, played again",
            Self::Flood => "a flood",
            Self::Oversized => "oversized messages",
            Self::Garbage => "garbage",
            Self::Greedy => "greed that could be true",
        };
        formatter.write_str(what)
    }
}

/// Says one lie: a run of an agent that was never heard before.
pub struct Liar<'a> {
    random: &'a mut Prng,
    sequence: u64,
    hello: Hello,
}

impl<'a> Liar<'a> {
    pub fn new(random: &'a mut Prng) -> Self {
        let hello = Hello {
            run: random.bits(),
            ..Hello::default()
        };
        Self {
            random,
            sequence: 0,
            hello,
        }
    }

    /// The parts of a lie: one is written in about a period. A replay has none, since it is made in the guest.
    pub fn parts(&mut self, lie: Lie, count: usize) -> Vec<Vec<u8>> {
        match lie {
            Lie::Replay => Vec::new(),
            Lie::Flood => vec![self.flood()],
            _ => (0..count).map(|_| self.part(lie)).collect(),
        }
    }

    fn part(&mut self, lie: Lie) -> Vec<u8> {
        let most = u64::MAX - self.random.below(3);
        match lie {
            Lie::Huge => [
                self.hello(),
                self.sample(most, 0, most, most),
                self.sample(most, most, most, 0),
            ]
            .concat(),
            Lie::Negative => [
                self.hello(),
                self.sample(5, most, 0, most),
                self.sample(most, most - 3, most, most),
            ]
            .concat(),
            Lie::Oversized => self.oversized(),
            Lie::Garbage => self.garbage(),
            Lie::Greedy => self.greedy(),
            Lie::Replay | Lie::Flood => Vec::new(),
        }
    }

    fn frame(&mut self, message: Message) -> Vec<u8> {
        let sequence = self.sequence;
        self.sequence += 1;
        Frame { sequence, message }.encode()
    }

    fn hello(&mut self) -> Vec<u8> {
        self.frame(Message::Hello(self.hello.clone()))
    }

    fn sample(&mut self, accesses: u64, misses: u64, cached: u64, full_us: u64) -> Vec<u8> {
        self.frame(Message::Sample(Sample {
            period_us: 500_000,
            total: Counters {
                accesses,
                misses,
                ..Counters::default()
            },
            memory: Memory {
                cached,
                ..Memory::default()
            },
            pressure: Some(Pressure {
                some_us: full_us,
                full_us,
            }),
            ..Sample::default()
        }))
    }

    /// Reads of pages that are spread evenly over this many; a quarter of all pages is in the sample.
    fn references(&mut self, count: usize, pages: u64) -> Vec<u8> {
        let pages = (0..count).map(|_| {
            let page = self.random.below(pages / 4);
            page.wrapping_mul(0x9E37_79B9_7F4A_7C15) << 24
        });
        let (threshold, pages) = (References::ALL / 4, pages.collect());
        self.frame(Message::References(References { threshold, pages }))
    }

    fn greedy(&mut self) -> Vec<u8> {
        // Evenly over 1 GiB, nearly all of it missed.
        let references = self.references(8192, 1 << 18);
        let sample = self.sample(200_000, 190_000, 1 << 27, 0);
        [self.hello(), references, sample].concat()
    }

    fn flood(&mut self) -> Vec<u8> {
        let mut said = self.hello();
        while said.len() < FLOOD_BYTES {
            said.extend(self.references(References::MAX_PAGES, 1 << 16));
            said.extend(self.sample(2000, 1000, 1 << 26, 0));
        }
        said
    }

    fn oversized(&mut self) -> Vec<u8> {
        let mut said = self.references(16, 1 << 10);
        // More than there may be: announced by a header that is whole, and by one that is not.
        said[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let damaged = said.clone();
        checksum(&mut said);
        said.extend(damaged);
        // All of it is there, and far more than a frame may have.
        let mut long = self.references(16, 1 << 10);
        long.resize(28 + MIB, b'x');
        let payload = crc32fast::hash(&long[28..]);
        long[8..12].copy_from_slice(&(MIB as u32).to_le_bytes());
        long[12..16].copy_from_slice(&payload.to_le_bytes());
        checksum(&mut long);
        said.extend(long);
        // The second half never comes.
        let broken = self.references(1000, 1 << 10);
        said.extend(&broken[..broken.len() / 2]);
        said
    }

    fn garbage(&mut self) -> Vec<u8> {
        let mut said: Vec<u8> = (0..1 << 15).map(|_| self.random.bits() as u8).collect();
        said.extend(b"FtRp".repeat(1000));
        said
    }
}

/// Has the header's checksum fit.
fn checksum(frame: &mut [u8]) {
    let checksum = crc32fast::hash(&frame[..24]);
    frame[24..28].copy_from_slice(&checksum.to_le_bytes());
}
