//! A message with its number, as bytes or as a line of JSON.

use crate::{Message, binary};
use serde::{Deserialize, Serialize};
use std::fmt;

/// First bytes of a frame.
pub(crate) const MAGIC: [u8; 4] = *b"FtRp";
/// The version written here, and the only one read.
pub(crate) const VERSION: u8 = 1;
/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 28;

/// Largest payload that is written or read.
pub const MAX_PAYLOAD_BYTES: usize = 256 << 10;

/// Longest line of JSON that is read, in bytes.
const MAX_LINE_BYTES: usize = 4 << 20;

/// A message with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Frames that this run of the agent sent before. A reader sees by it what was lost, and does
    /// not take the same frame twice.
    pub sequence: u64,
    /// What is said.
    #[serde(flatten)]
    pub message: Message,
}

impl Frame {
    /// The frame as bytes: magic, version, kind, two bytes of zero, length and checksum of the
    /// payload, sequence, checksum of the header; then the payload. Lists and texts longer than their message
    /// allows are cut.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        binary::write(&self.message, &mut bytes);
        let payload = &bytes[HEADER_BYTES..];
        debug_assert!(payload.len() <= MAX_PAYLOAD_BYTES);
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&[VERSION, binary::kind(&self.message), 0, 0]);
        header.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(0).to_le_bytes());
        header.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        header.extend_from_slice(&self.sequence.to_le_bytes());
        header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
        bytes[..HEADER_BYTES].copy_from_slice(&header);
        bytes
    }

    /// The frame as a line of JSON, without its end.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what [`Frame::to_json`] wrote.
    ///
    /// # Errors
    /// If it is not that, or longer than 4 MiB.
    pub fn from_json(line: &str) -> Result<Self, JsonError> {
        if line.len() > MAX_LINE_BYTES {
            return Err(JsonError(format!(
                "a line of {} bytes is too long for a frame",
                line.len()
            )));
        }
        serde_json::from_str(line).map_err(|error| JsonError(error.to_string()))
    }
}

/// Why a line is no frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError(String);

impl fmt::Display for JsonError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "not a frame of an agent: {}", self.0)
    }
}

impl std::error::Error for JsonError {}
