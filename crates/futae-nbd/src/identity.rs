//! Which volume an export is, and which run of its server serves it.
//!
//! A client whose cache outlives a connection must know that it is the same volume that it finds
//! again: another image of the same size under the same name must not get what was written to the
//! first one. `docs/reference/wire.md` has the option by which it asks.

use crate::bytes::{Reader, pack};
use crate::constants::EXTENSION_VERSION;
use crate::error::WireError;

/// Length of a [`VolumeIdentity`] on the wire, in bytes.
pub const IDENTITY_BYTES: usize = 28;

/// What a server says of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeIdentity {
    /// The same for as long as it is the same volume, whatever becomes of its server.
    pub volume: [u8; 16],
    /// Another one for each run of the server, whose cache begins empty.
    pub run: u64,
}

impl VolumeIdentity {
    /// The reply's data.
    pub fn encode(&self) -> [u8; IDENTITY_BYTES] {
        pack(&[
            &EXTENSION_VERSION.to_be_bytes(),
            &0u16.to_be_bytes(),
            &self.volume,
            &self.run.to_be_bytes(),
        ])
    }

    /// Reads the reply's data, on the client. A later version may append fields.
    ///
    /// # Errors
    ///
    /// [`WireError::BadField`] if it is shorter than version 2 has it, or of a lower version.
    pub fn parse(data: &[u8]) -> Result<Self, WireError> {
        let bad = |field, found, wanted| WireError::BadField {
            message: "volume identity",
            field,
            found,
            wanted,
        };
        let cut = || bad("length", data.len() as u64, "version 2 has 28 bytes");
        let mut fields = Reader::new(data);
        let version = fields.u16().ok_or_else(cut)?;
        if version < EXTENSION_VERSION {
            return Err(bad(
                "version",
                version.into(),
                "the option began with version 2",
            ));
        }
        fields.u16().ok_or_else(cut)?;
        let volume = fields.take(16).and_then(|bytes| bytes.try_into().ok());
        Ok(Self {
            volume: volume.ok_or_else(cut)?,
            run: fields.u64().ok_or_else(cut)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_read_and_nothing_shorter() {
        let identity = VolumeIdentity {
            volume: *b"0123456789abcdef",
            run: 0x0102_0304_0506_0708,
        };
        let bytes = identity.encode();
        assert_eq!(&bytes[..4], [0, 2, 0, 0]);
        assert_eq!(VolumeIdentity::parse(&bytes).expect("whole"), identity);
        let longer = [&bytes[..], &[7; 3]].concat();
        assert_eq!(
            VolumeIdentity::parse(&longer).expect("a later version"),
            identity
        );
        for length in 0..bytes.len() {
            VolumeIdentity::parse(&bytes[..length]).expect_err("cut");
        }
        VolumeIdentity::parse(&[&[0, 1][..], &bytes[2..]].concat()).expect_err("version 1");
    }
}
