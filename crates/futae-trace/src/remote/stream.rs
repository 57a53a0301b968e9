//! An object from its beginning, with ranges that are on the way ahead of the reader.

use super::Object;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Bytes of the first range, which is alone: many read no more of an object than its format.
const FIRST_BYTES: u64 = 64 << 10;
/// Bytes of the others.
const RANGE_BYTES: u64 = 2 << 20;
/// Ranges on the way or waiting, beside the one that is read: 8 MiB.
const AHEAD: usize = 4;

/// Reads an object in order.
pub struct Stream {
    object: Arc<Object>,
    /// Where the next range begins.
    next: u64,
    coming: VecDeque<JoinHandle<io::Result<Bytes>>>,
    /// What is left of the range that is read.
    now: Bytes,
}

impl Stream {
    pub fn new(object: Arc<Object>) -> Self {
        Self {
            object,
            next: 0,
            coming: VecDeque::new(),
            now: Bytes::new(),
        }
    }

    fn ask_ahead(&mut self) {
        let (ahead, bytes) = match self.next {
            0 => (1, FIRST_BYTES),
            _ => (AHEAD, RANGE_BYTES),
        };
        while self.coming.len() < ahead && self.next < self.object.bytes() {
            let end = self.object.bytes().min(self.next + bytes);
            self.coming.push_back(self.object.begin(self.next..end));
            self.next = end;
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.now.is_empty() {
            self.ask_ahead();
            let Some(first) = self.coming.pop_front() else {
                return Ok(0);
            };
            self.now = self.object.wait(first)?;
            if self.next > FIRST_BYTES {
                self.ask_ahead();
            }
        }
        let bytes = buffer.len().min(self.now.len());
        buffer[..bytes].copy_from_slice(&self.now.split_to(bytes));
        Ok(bytes)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.coming.iter().for_each(JoinHandle::abort);
    }
}
