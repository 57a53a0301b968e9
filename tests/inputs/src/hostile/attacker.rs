//! Clients that keep some of the protocol, as an input says.

use crate::hostile::Script;
use futae_nbd::constants::*;
use futae_nbd::{ClientWish, Command, CommandFlags, DemotionWish, RequestHeader};
use futae_nbd::{client, extension};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What attackers write: no owner's bytes have these highest bits.
pub const MARK: u8 = 0b1101_0110;

/// Connections at a time.
const SLOTS: usize = 6;
/// How long a server may take for a handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// Attackers use these; the honest client's is not among them.
const EXPORTS: [&str; 4] = ["open", "fixed", "", "no such export"];
const COMMANDS: [u16; 10] = [
    CMD_READ,
    CMD_WRITE,
    CMD_DISC,
    CMD_FLUSH,
    CMD_TRIM,
    CMD_CACHE,
    CMD_WRITE_ZEROES,
    CMD_BLOCK_STATUS,
    CMD_DEMOTE,
    99,
];
const OPTIONS: [u32; 9] = [
    OPT_EXPORT_NAME,
    OPT_ABORT,
    OPT_LIST,
    OPT_STARTTLS,
    OPT_INFO,
    OPT_GO,
    OPT_STRUCTURED_REPLY,
    OPT_SET_META_CONTEXT,
    OPT_FUTAE_DEMOTION,
];

pub struct Attackers {
    socket: PathBuf,
    size: u64,
    block: u64,
    slots: [Option<UnixStream>; SLOTS],
    cookie: u64,
}

impl Attackers {
    pub fn new(socket: &Path, size: u64, block: u64) -> Self {
        let slots = std::array::from_fn(|_| None);
        Self {
            socket: socket.to_owned(),
            size,
            block,
            slots,
            cookie: 1,
        }
    }

    /// One thing that one of them does. What fails is what the server does with such clients.
    pub fn step(&mut self, script: &mut Script<'_>) {
        let slot = usize::from(script.byte()) % SLOTS;
        match script.byte() % 20 {
            0 => self.slots[slot] = self.connect(),
            1..5 => self.slots[slot] = self.enter(script),
            5 => self.say(slot, &option(script)),
            6 => self.say(slot, &(u32::from(script.byte()) & 3).to_be_bytes()),
            7 => {
                let request = self.any_request(script);
                let payload = script.word() as usize % 9000;
                self.say(slot, &[&request[..], &vec![MARK; payload]].concat());
            }
            8..12 => {
                let request = self.fair_request(script);
                self.say(slot, &request);
            }
            12..15 => {
                let demotion = self.demotion(script);
                self.say(slot, &demotion);
            }
            15 => self.burst(slot, script),
            16 => self.listen(slot, script.word() as usize * 16),
            17 => self.slots[slot] = None,
            18 => {
                if let Some(stream) = &self.slots[slot] {
                    let _ = stream.shutdown(script.pick(&[Shutdown::Read, Shutdown::Write]));
                }
            }
            _ => self.say(slot, script.bytes(64)),
        }
    }

    fn connect(&self) -> Option<UnixStream> {
        let stream = UnixStream::connect(&self.socket).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    }

    /// A client with a whole handshake.
    fn enter(&self, script: &mut Script<'_>) -> Option<UnixStream> {
        let wishes = script.byte();
        let wish = ClientWish {
            structured: wishes & 1 != 0,
            base_allocation: wishes & 2 != 0,
            demotion_block_bytes: (wishes & 4 != 0).then_some(self.block as u32),
            identity: wishes & 16 != 0,
        };
        let export = EXPORTS[usize::from(wishes & 8 != 0)];
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        client::negotiate(&mut stream, export, &wish).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    }

    /// Sends what the socket takes; the rest is cut off.
    fn say(&mut self, slot: usize, bytes: &[u8]) {
        if let Some(stream) = &mut self.slots[slot] {
            let _ = stream.write(bytes);
        }
    }

    fn listen(&mut self, slot: usize, most: usize) {
        if let Some(stream) = &mut self.slots[slot] {
            let _ = stream.read(&mut vec![0; most]);
        }
    }

    fn cookie(&mut self) -> u64 {
        self.cookie += 1;
        self.cookie
    }

    fn any_request(&mut self, script: &mut Script<'_>) -> [u8; REQUEST_HEADER_BYTES] {
        let edges = [
            0,
            1,
            self.size,
            self.size - 1,
            self.size / 2,
            4095,
            1 << 32,
            u64::MAX,
        ];
        let lengths = [
            0,
            1,
            512,
            4096,
            65_536,
            32 << 20,
            (32 << 20) + 1,
            1 << 31,
            u32::MAX,
        ];
        RequestHeader {
            flags: CommandFlags(script.word() as u16),
            command: Command::from_code(script.pick(&COMMANDS)),
            cookie: script.pick(&[0, self.cookie, u64::MAX]),
            offset: script.pick(&edges),
            length_bytes: script.pick(&lengths),
        }
        .encode()
    }

    /// A range in the volume; whole blocks mostly.
    fn range(&self, script: &mut Script<'_>) -> (u64, u64) {
        let shape = script.byte();
        let offset = script.below(self.size / self.block + 1) * self.block;
        let offset = if shape & 7 == 0 {
            script.below(self.size)
        } else {
            offset
        };
        let blocks = 1 + u64::from(shape >> 4);
        let bytes = if shape & 8 == 0 {
            blocks * self.block
        } else {
            1 + script.word()
        };
        let bytes = if shape == u8::MAX { self.size } else { bytes };
        (offset, bytes.min(self.size - offset.min(self.size - 1)))
    }

    /// A request that a server may well carry out.
    fn fair_request(&mut self, script: &mut Script<'_>) -> Vec<u8> {
        let command = Command::from_code(script.pick(&COMMANDS[..8]));
        let (offset, bytes) = self.range(script);
        let (offset, bytes) = match command {
            Command::Flush | Command::Disconnect => (0, 0),
            _ => (offset, bytes),
        };
        let flags = match command {
            Command::Write | Command::WriteZeroes | Command::Trim => {
                script.pick(&[CommandFlags::NONE, CommandFlags::FUA])
            }
            _ => CommandFlags::NONE,
        };
        let request = RequestHeader {
            flags,
            ..RequestHeader::new(command, self.cookie(), offset, bytes as u32)
        };
        let mut message = request.encode().to_vec();
        message.resize(message.len() + request.payload_bytes() as usize, MARK);
        message
    }

    /// Whole blocks demoted, with a number that may be of any time.
    fn demotion(&mut self, script: &mut Script<'_>) -> Vec<u8> {
        let blocks = self.size / self.block;
        let offset = script.below(blocks) * self.block;
        let bytes = (1 + u64::from(script.byte() % 4)) * self.block;
        let bytes = bytes.min(self.size - offset);
        let now = self.cookie();
        let sequence = script.pick(&[now, now, now, 0, u64::MAX]);
        let mut message = extension::demote_header(sequence, offset, bytes as u32).to_vec();
        message.resize(message.len() + bytes as usize, MARK);
        message
    }

    /// Many reads, whose replies nobody may ever receive.
    fn burst(&mut self, slot: usize, script: &mut Script<'_>) {
        let mut all = Vec::new();
        for _ in 0..script.byte() {
            let (offset, bytes) = self.range(script);
            let command = if script.is_over() {
                Command::Read
            } else {
                Command::Cache
            };
            let command = script.pick(&[Command::Read, Command::Read, command]);
            let cookie = self.cookie();
            all.extend(RequestHeader::new(command, cookie, offset, bytes as u32).encode());
        }
        self.say(slot, &all);
    }
}

/// A piece of a handshake: an option with data that fit it, or do not.
fn option(script: &mut Script<'_>) -> Vec<u8> {
    let kind = script.pick(&OPTIONS);
    let mut data = Vec::new();
    let name = script.pick(&EXPORTS);
    match kind {
        OPT_EXPORT_NAME => data.extend_from_slice(name.as_bytes()),
        OPT_INFO | OPT_GO => {
            data.extend_from_slice(&(name.len() as u32).to_be_bytes());
            data.extend_from_slice(name.as_bytes());
            data.extend_from_slice(&0u16.to_be_bytes());
        }
        OPT_SET_META_CONTEXT => {
            data.extend_from_slice(&(name.len() as u32).to_be_bytes());
            data.extend_from_slice(name.as_bytes());
            data.extend_from_slice(&1u32.to_be_bytes());
            data.extend_from_slice(&(BASE_ALLOCATION.len() as u32).to_be_bytes());
            data.extend_from_slice(BASE_ALLOCATION.as_bytes());
        }
        OPT_FUTAE_DEMOTION => {
            let blocks = [4096, 512, 65_536, 3, 0];
            data.extend_from_slice(&DemotionWish::new(script.pick(&blocks)).encode());
        }
        _ => {}
    }
    let spoil = script.byte();
    if spoil & 0x70 == 0x70 {
        data.extend_from_slice(script.bytes(usize::from(spoil & 15)));
    }
    let announced = data.len() as u32 + u32::from(spoil == u8::MAX);
    let mut message = OPTION_MAGIC.to_be_bytes().to_vec();
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&announced.to_be_bytes());
    message.extend_from_slice(&data);
    message
}

/// A read-only export that is handed other bytes, replies that nobody receives, a handshake in
/// pieces, and a bit of everything.
pub fn seeds() -> Vec<Vec<u8>> {
    let forged = |policy: u8| {
        // Enters the read-only export with the wish to demote, demotes, and leaves.
        let mut input = vec![policy, 0, 1, 0b1100];
        for block in 0..8 {
            input.extend([0, 8, 0, 1, 0, block]);
            input.extend([0, 12, 0, block, 0, 0]);
        }
        input.extend([0, 17]);
        input
    };
    let unread: Vec<u8> = [0, 0, 1, 1, 0, 15, 200]
        .into_iter()
        .chain(1..=250)
        .collect();
    let pieces = vec![
        1, 2, 0, 2, 6, 3, 2, 5, 8, 0, 0, 0, 2, 5, 6, 0, 0, 2, 5, 7, 0, 0, 2, 5, 5, 0, 0, 2, 7, 0,
        0, 0, 0, 3, 3, 0, 0, 2, 17,
    ];
    let everything: Vec<u8> = (0..=255u8)
        .flat_map(|byte| [byte % 6, byte, byte])
        .collect();
    vec![
        forged(0),
        forged(1),
        forged(2),
        forged(3),
        unread,
        pieces,
        everything,
    ]
}
