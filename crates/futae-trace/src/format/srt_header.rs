//! What the header of an SRT trace tells of the disks.
//!
//! It is a list of `name = value`, among them `disks = { 0 -> { blockmajor = 8, charactermajor = 7, sectorsize = 256, ... },
//! ... }`. A device is a number: the major number of its driver, the disk, and the disk's section in the lowest byte. Sectors
//! are counted from the beginning of the disk, whatever the section.

use super::TraceErrorKind;
use std::collections::BTreeMap;

/// The sectors of a disk of which nothing is told, as DiskSim takes them.
const USUAL_SECTOR_BYTES: u64 = 512;
/// The largest sector that is believed.
const SECTOR_BYTES_MAX: u64 = 64 << 10;

/// What is known of the disks.
#[derive(Debug, Default)]
pub struct Header {
    /// By the number of the disk.
    sector_bytes: BTreeMap<u32, u64>,
    /// The major number by which a disk is read in blocks, by that for characters.
    block_major: BTreeMap<u32, u32>,
}

impl Header {
    /// Takes what is needed out of a header; what it does not understand it passes over.
    pub fn of(text: &str) -> Self {
        let tokens = tokens(text);
        let mut header = Self::default();
        // Where the list of disks is open, and which disk in it.
        let (mut depth, mut list, mut disk) = (0usize, None, None);
        let (mut block, mut before) = (None, ["", ""]);
        for token in tokens {
            match token {
                "{" => {
                    match before {
                        ["disks", "="] => list = Some(depth + 1),
                        [number, "->"] if list == Some(depth) => disk = number.parse::<u32>().ok(),
                        _ => {}
                    }
                    depth += 1;
                }
                "}" => {
                    list = list.filter(|&list| depth > list);
                    depth = depth.saturating_sub(1);
                }
                value => match before {
                    ["sectorsize", "="] => {
                        let bytes = value
                            .parse()
                            .ok()
                            .filter(|b| (1..=SECTOR_BYTES_MAX).contains(b));
                        if let (Some(disk), Some(bytes)) = (disk, bytes) {
                            header.sector_bytes.insert(disk, bytes);
                        }
                    }
                    ["blockmajor", "="] => block = value.parse().ok(),
                    ["charactermajor", "="] => {
                        if let (Some(block), Ok(character)) = (block, value.parse()) {
                            header.block_major.insert(character, block);
                        }
                    }
                    _ => {}
                },
            }
            before = [before[1], token];
        }
        header
    }

    /// The size of the sectors of a device.
    pub fn sector_bytes(&self, device: u32) -> Result<u64, TraceErrorKind> {
        let disk = device >> 8 & 0xFF;
        let mut all = self.sector_bytes.values();
        let of_all = match all.next() {
            None => Some(USUAL_SECTOR_BYTES),
            Some(first) => all.all(|other| other == first).then_some(*first),
        };
        let known = self.sector_bytes.get(&disk).copied().or(of_all);
        known.ok_or_else(|| TraceErrorKind::Field {
            text: format!("disk {disk}"),
            expected: "one of the disks whose sectorsize is in the header",
        })
    }

    /// The name of a device's disk: its driver and its disk, in hexadecimal.
    pub fn disk(&self, device: u32) -> String {
        let major = device >> 24;
        let major = self.block_major.get(&major).copied().unwrap_or(major);
        format!("{major:02x}{:04x}", device >> 8 & 0xFFFF)
    }
}

/// Names, numbers, quoted text and signs.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let bytes = match first {
            '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            '-' if rest.starts_with("->") => 2,
            c if is_sign(c) => 1,
            _ => rest[first.len_utf8()..]
                .find(|c: char| is_sign(c) || c == '"' || c.is_whitespace())
                .map_or(rest.len(), |end| end + first.len_utf8()),
        };
        let (token, after) = rest.split_at(bytes);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

fn is_sign(c: char) -> bool {
    matches!(c, '{' | '}' | '(' | ')' | '=' | ',' | ';')
}

#[cfg(test)]
mod tests {
    use super::Header;

    const TEXT: &str = "$$TR_IOREC-1.3 (x)\0\nversion = 1.3;\ndescription = \"0 -> { sectorsize = 9 }\";\n\
        disks = {\n 0 -> {\n adaptor = 1 -> { hp_ib, 1.2 },\n blockmajor = 8,\n charactermajor = 7,\n sectorsize = 256,\n\
        sections = { 8 -> { \"/\", size = (1 2) } }\n },\n 3 -> { sectorsize=1024 }\n };\n\x0C";

    #[test]
    fn disks_have_the_sectors_that_the_header_tells() {
        let header = Header::of(TEXT);
        assert_eq!(header.sector_bytes(0x0800_0008).ok(), Some(256));
        assert_eq!(header.sector_bytes(0x0800_0307).ok(), Some(1024));
        let error = header.sector_bytes(0x0800_0500).expect_err("no such disk");
        assert!(error.to_string().contains("disk 5"), "{error}");
    }

    #[test]
    fn sectors_of_one_size_are_those_of_all_disks() {
        let one = Header::of("disks = { 0 -> { sectorsize = 256 } };");
        assert_eq!(one.sector_bytes(0x0800_0500).ok(), Some(256));
        assert_eq!(Header::of("").sector_bytes(0).ok(), Some(512));
        assert_eq!(
            Header::of("disks = { 0 -> { sectorsize = 0 } }")
                .sector_bytes(0)
                .ok(),
            Some(512)
        );
    }

    #[test]
    fn a_disk_is_one_volume_by_either_driver_and_in_every_section() {
        let header = Header::of(TEXT);
        for device in [0x0800_0008, 0x0800_000E, 0x0700_0008] {
            assert_eq!(header.disk(device), "080000");
        }
        assert_eq!(header.disk(0x1F01_6000), "1f0160");
    }
}
