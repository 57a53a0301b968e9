//! An object in blocks, the last ones of which are kept: for Parquet, whose reader goes back and forth between columns.

use super::Object;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a block.
const BLOCK_BYTES: u64 = 1 << 20;
/// Blocks that are kept: 16 MiB.
const KEPT: usize = 16;

/// Any part of an object.
#[derive(Clone)]
pub struct Blocks(Arc<Shared>);

struct Shared {
    object: Arc<Object>,
    /// By number; the one that was used last is first.
    kept: Mutex<VecDeque<(u64, Bytes)>>,
}

impl Blocks {
    pub fn new(object: Arc<Object>) -> Self {
        let kept = Mutex::default();
        Self(Arc::new(Shared { object, kept }))
    }

    /// Bytes of the object.
    pub fn bytes(&self) -> u64 {
        self.0.object.bytes()
    }

    /// What is there from `at` to the end of a block; nothing at the end.
    fn from(&self, at: u64) -> io::Result<Bytes> {
        if at >= self.bytes() {
            return Ok(Bytes::new());
        }
        let number = at / BLOCK_BYTES;
        let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let block = match kept.iter().position(|(kept, _)| *kept == number) {
            Some(place) => kept.remove(place),
            None => None,
        };
        let block = match block {
            Some((_, block)) => block,
            None => {
                let begin = number * BLOCK_BYTES;
                let range = begin..self.bytes().min(begin + BLOCK_BYTES);
                self.0.object.wait(self.0.object.begin(range))?
            }
        };
        kept.push_front((number, block.clone()));
        kept.truncate(KEPT);
        Ok(block.slice((at % BLOCK_BYTES) as usize..))
    }

    /// Exactly these bytes.
    pub fn exactly(&self, start: u64, length: usize) -> io::Result<Bytes> {
        let mut whole = BytesMut::new();
        while whole.len() < length {
            let part = self.from(start.saturating_add(whole.len() as u64))?;
            if part.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let part = part.slice(..part.len().min(length - whole.len()));
            if part.len() == length {
                return Ok(part);
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole.freeze())
    }

    /// Reads on from there.
    pub fn reader(&self, at: u64) -> impl Read + Send + use<> {
        let blocks = self.clone();
        Reader { blocks, at }
    }
}

struct Reader {
    blocks: Blocks,
    at: u64,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let part = self.blocks.from(self.at)?;
        let bytes = buffer.len().min(part.len());
        buffer[..bytes].copy_from_slice(&part[..bytes]);
        self.at += bytes as u64;
        Ok(bytes)
    }
}
