//! What several tests of the codec share.

use futae_nbd::constants::*;
use futae_nbd::*;

/// An export of 64 MiB with everything.
pub fn export(name: &str) -> ExportInfo {
    ExportInfo {
        name: name.into(),
        description: String::new(),
        size_bytes: 64 << 20,
        read_only: false,
        preferred_block_bytes: 64 * 1024,
        capabilities: Capabilities::all(),
    }
}

/// A directory with a policy on demotion.
pub struct Shelf {
    pub exports: Vec<ExportInfo>,
    pub offer: DemotionOffer,
}

impl Shelf {
    /// Two exports, `vm1` and `vm2`, and terms with blocks of 64 KiB.
    pub fn new() -> Self {
        let terms = DemotionTerms::new(64 * 1024).expect("a block");
        Self {
            exports: vec![export("vm1"), export("vm2")],
            offer: DemotionOffer::Terms(terms),
        }
    }
}

impl ExportDirectory for Shelf {
    fn list(&self) -> Vec<ExportInfo> {
        self.exports.clone()
    }
    fn demotion(&self) -> DemotionOffer {
        self.offer
    }
}

/// Bytes from hexadecimal, blanks ignored; text in quotes stands for itself.
pub fn hex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, part) in text.split('"').enumerate() {
        if at % 2 == 1 {
            bytes.extend_from_slice(part.as_bytes());
            continue;
        }
        let digits: Vec<u8> = part.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        for pair in digits.chunks(2) {
            let pair = std::str::from_utf8(pair).expect("ASCII");
            bytes.push(u8::from_str_radix(pair, 16).expect("two digits"));
        }
    }
    bytes
}

/// One option as a client sends it.
pub fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// One option reply as a server sends it.
pub fn answer(number: u32, reply: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&reply.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// The data of `OPT_INFO` and `OPT_GO`.
pub fn go_data(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(infos.len() as u16).to_be_bytes());
    for info in infos {
        data.extend_from_slice(&info.to_be_bytes());
    }
    data
}

/// The data of the two metadata options.
pub fn meta_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend_from_slice(&(query.len() as u32).to_be_bytes());
        data.extend_from_slice(query.as_bytes());
    }
    data
}

/// The number, kind and data of every option reply in a server's output.
pub fn answers(mut bytes: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4"));
        assert_eq!(bytes[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        let end = 20 + word(16) as usize;
        found.push((word(8), word(12), bytes[20..end].to_vec()));
        bytes = &bytes[end..];
    }
    found
}
