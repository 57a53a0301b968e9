//! Files read and written past the page cache, one aligned buffer at a time.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const ALIGNMENT: usize = 4096;

/// Bytes at an address that direct I/O takes.
#[derive(Clone, Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    begin: usize,
    length: usize,
}

impl Buffer {
    /// `length` zeroes.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let bytes = vec![0; length + ALIGNMENT].into_boxed_slice();
        let begin = bytes.as_ptr().align_offset(ALIGNMENT);
        Self {
            bytes,
            begin,
            length,
        }
    }

    /// The bytes.
    #[must_use]
    pub fn get(&self) -> &[u8] {
        &self.bytes[self.begin..self.begin + self.length]
    }

    /// The bytes, to write to.
    pub fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.begin..self.begin + self.length]
    }
}

/// A file open for direct reads and writes.
#[derive(Debug)]
pub struct Direct {
    file: File,
}

impl Direct {
    /// Opens an existing file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = i32::try_from(OFlags::DIRECT.bits()).expect("flags are small");
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path)?;
        Ok(Self { file })
    }

    /// Fills the buffer from `offset` on.
    pub fn read(&self, offset: u64, buffer: &mut Buffer) -> io::Result<()> {
        self.file.read_exact_at(buffer.get_mut(), offset)
    }

    /// Writes the buffer from `offset` on.
    pub fn write(&self, offset: u64, buffer: &Buffer) -> io::Result<()> {
        self.file.write_all_at(buffer.get(), offset)
    }

    /// Brings everything onto stable storage.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
