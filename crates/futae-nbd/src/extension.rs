//! Demotion: a client that evicts a block sends its data. `docs/reference/wire.md` has the wire format
//! and the rules; here are its three messages.

use crate::bytes::{Reader, pack};
use crate::constants::{CMD_DEMOTE, MAX_PAYLOAD_BYTES, REQUEST_MAGIC};
use crate::error::WireError;

/// The version of the extension that this crate speaks.
pub const DEMOTION_VERSION: u16 = 1;
/// Length of [`DemotionWish`] on the wire, in bytes.
pub const WISH_BYTES: usize = 8;
/// Length of [`DemotionTerms`] on the wire, in bytes.
pub const TERMS_BYTES: usize = 12;
/// Smallest block that either side may name, in bytes.
pub const BLOCK_BYTES_MIN: u32 = 512;
/// Largest block that either side may name, in bytes.
pub const BLOCK_BYTES_MAX: u32 = 256 * 1024 * 1024;

fn is_block(bytes: u32) -> bool {
    bytes.is_power_of_two() && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&bytes)
}

/// What the client sends with `OPT_FUTAE_DEMOTION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemotionWish {
    /// Highest version that the client speaks, at least 1.
    pub version: u16,
    /// Reserved; 0 in version 1.
    pub flags: u16,
    /// Block of the client's cache, in bytes: a power of two from 512 B to 256 MiB.
    pub block_bytes: u32,
}

impl DemotionWish {
    /// The wish of a client of this version.
    pub const fn new(block_bytes: u32) -> Self {
        Self {
            version: DEMOTION_VERSION,
            flags: 0,
            block_bytes,
        }
    }

    /// The option's data.
    pub fn encode(&self) -> [u8; WISH_BYTES] {
        pack(&[
            &self.version.to_be_bytes(),
            &self.flags.to_be_bytes(),
            &self.block_bytes.to_be_bytes(),
        ])
    }

    /// Reads the option's data. `None` if it is malformed, to be answered with `REP_ERR_INVALID`.
    /// A later version may append fields, which are ignored, and use the flags.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let mut fields = Reader::new(data);
        let wish = Self {
            version: fields.u16()?,
            flags: fields.u16()?,
            block_bytes: fields.u32()?,
        };
        let understood = match wish.version {
            0 => false,
            DEMOTION_VERSION => wish.flags == 0 && fields.is_empty(),
            _ => true,
        };
        (understood && is_block(wish.block_bytes)).then_some(wish)
    }
}

/// What the server answers: the terms on which it accepts demotions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DemotionTerms {
    /// The version both sides will use, at most the client's.
    pub version: u16,
    /// Reserved; 0 in version 1.
    pub flags: u16,
    /// Block of the server's cache, in bytes; a demotion covers whole blocks of this size.
    pub block_bytes: u32,
    /// Longest payload of one demotion, in bytes: at least `block_bytes`, at most 32 MiB.
    pub longest_bytes: u32,
}

impl DemotionTerms {
    /// The terms of a server whose cache has such blocks. `None` if demotion cannot work: not a
    /// block size, or longer than a payload may be (32 MiB).
    pub const fn new(block_bytes: u32) -> Option<Self> {
        if block_bytes.is_power_of_two()
            && block_bytes >= BLOCK_BYTES_MIN
            && block_bytes <= MAX_PAYLOAD_BYTES
        {
            let longest_bytes = MAX_PAYLOAD_BYTES;
            Some(Self {
                version: DEMOTION_VERSION,
                flags: 0,
                block_bytes,
                longest_bytes,
            })
        } else {
            None
        }
    }

    /// The option reply's data.
    pub fn encode(&self) -> [u8; TERMS_BYTES] {
        pack(&[
            &self.version.to_be_bytes(),
            &self.flags.to_be_bytes(),
            &self.block_bytes.to_be_bytes(),
            &self.longest_bytes.to_be_bytes(),
        ])
    }

    /// Reads the option reply's data, on the client.
    ///
    /// # Errors
    ///
    /// [`WireError::BadField`] names what a server of version 1 would not send.
    pub fn parse(data: &[u8]) -> Result<Self, WireError> {
        let bad = |field, found: u64, wanted| WireError::BadField {
            message: "demotion terms",
            field,
            found,
            wanted,
        };
        let Ok(exact) = <&[u8; TERMS_BYTES]>::try_from(data) else {
            return Err(bad("length", data.len() as u64, "version 1 has 12 bytes"));
        };
        let [v0, v1, f0, f1, b0, b1, b2, b3, l0, l1, l2, l3] = *exact;
        let terms = Self {
            version: u16::from_be_bytes([v0, v1]),
            flags: u16::from_be_bytes([f0, f1]),
            block_bytes: u32::from_be_bytes([b0, b1, b2, b3]),
            longest_bytes: u32::from_be_bytes([l0, l1, l2, l3]),
        };
        if terms.version != DEMOTION_VERSION {
            return Err(bad(
                "version",
                terms.version.into(),
                "the client offered version 1 only",
            ));
        }
        if !is_block(terms.block_bytes) {
            return Err(bad(
                "block_bytes",
                terms.block_bytes.into(),
                "not a block size",
            ));
        }
        if !(terms.block_bytes..=MAX_PAYLOAD_BYTES).contains(&terms.longest_bytes) {
            let wanted = "must be from one block to 32 MiB";
            return Err(bad("longest_bytes", terms.longest_bytes.into(), wanted));
        }
        Ok(terms)
    }

    /// Whether a client with such blocks can demote a block as it stands: its block must be a
    /// multiple of the server's, and fit in one demotion.
    pub const fn suits(&self, client_block_bytes: u32) -> bool {
        client_block_bytes.is_multiple_of(self.block_bytes)
            && client_block_bytes <= self.longest_bytes
    }

    /// Why a demotion of this range cannot be believed, if it cannot: a rule of shape, not of
    /// freshness. `size_bytes` is the volume's; only its last block may be short.
    pub fn misfit(&self, offset: u64, length_bytes: u32, size_bytes: u64) -> Option<&'static str> {
        let block = u64::from(self.block_bytes);
        if length_bytes == 0 {
            return Some("empty");
        }
        if length_bytes > self.longest_bytes {
            return Some("longer than the agreed longest demotion");
        }
        let Some(end) = offset
            .checked_add(length_bytes.into())
            .filter(|&end| end <= size_bytes)
        else {
            return Some("beyond the end of the volume");
        };
        if !offset.is_multiple_of(block) {
            return Some("offset is not at a block");
        }
        if !end.is_multiple_of(block) && end != size_bytes {
            return Some("length is not of whole blocks");
        }
        None
    }
}

/// What a server does with a client's wish to demote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DemotionOffer {
    /// As a server that never heard of the extension: `REP_ERR_UNSUP`.
    Unknown,
    /// The operator forbids it: `REP_ERR_POLICY`.
    Forbidden,
    /// Accepted on these terms.
    Terms(DemotionTerms),
}

/// The header of a DEMOTE request; its data follow. `sequence` is the moment of the client's
/// decision among all its requests on the connection.
pub fn demote_header(sequence: u64, offset: u64, length_bytes: u32) -> [u8; 28] {
    pack(&[
        &REQUEST_MAGIC.to_be_bytes(),
        &0u16.to_be_bytes(),
        &CMD_DEMOTE.to_be_bytes(),
        &sequence.to_be_bytes(),
        &offset.to_be_bytes(),
        &length_bytes.to_be_bytes(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_powers_of_two_within_the_bounds() {
        for (block_bytes, is_good) in [
            (0, false),
            (256, false),
            (512, true),
            (768, false),
            (1 << 20, true),
            (256 << 20, true),
            (512 << 20, false),
        ] {
            let wish = DemotionWish::new(block_bytes);
            let read = DemotionWish::parse(&wish.encode());
            assert_eq!(read, is_good.then_some(wish), "{block_bytes}");
        }
    }
}
