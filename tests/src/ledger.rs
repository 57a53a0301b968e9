//! Writers that keep their own record of what they wrote and what was promised to them.

use crate::BLOCK;
use crate::direct::Buffer;
use futae_policy::Prng;
use futae_testkit::nbd::{Outcome, Plain};
use futae_testkit::stamp::Stamp;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Blocks that one write covers at most.
const RUN_BLOCKS_MAX: u64 = 8;

/// Versions of one block.
#[derive(Clone, Copy, Debug, Default)]
struct Versions {
    /// The newest that a write was started for.
    attempted: u64,
    /// The newest whose write was answered.
    answered: u64,
    /// The newest that a flush covered.
    flushed: u64,
}

/// What a crash may not take away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Whatever was answered.
    Answered,
    /// What a flush covered.
    Flushed,
}

/// Where a writer writes. `Err` means that the other side is gone.
pub trait Volume {
    /// Reads one block or several.
    fn read(&mut self, offset: u64, buffer: &mut Buffer) -> io::Result<()>;
    /// Writes one block or several.
    fn write(&mut self, offset: u64, buffer: &Buffer) -> io::Result<()>;
    /// Promises that what was answered is safe.
    fn flush(&mut self) -> io::Result<()>;
}

/// An export of a server, without a mount.
pub struct Served(pub Plain);

fn answered<T>(outcome: Outcome<T>) -> io::Result<T> {
    outcome?.map_err(io::Error::other)
}

impl Volume for Served {
    fn read(&mut self, offset: u64, buffer: &mut Buffer) -> io::Result<()> {
        let data = answered(self.0.read(offset, buffer.get().len()))?;
        buffer.get_mut().copy_from_slice(&data);
        Ok(())
    }
    fn write(&mut self, offset: u64, buffer: &Buffer) -> io::Result<()> {
        answered(self.0.write(offset, buffer.get()))
    }
    fn flush(&mut self) -> io::Result<()> {
        answered(self.0.flush())
    }
}

/// The record of one writer, which owns the blocks `first..end`.
#[derive(Clone, Debug)]
pub struct Ledger {
    first: u64,
    blocks: Vec<Versions>,
    /// Blocks answered since the last flush.
    unflushed: BTreeSet<u64>,
    prng: Prng,
    promise: Promise,
    /// Flushes that were answered.
    pub flushes: u64,
    /// Writes that were answered.
    pub writes: u64,
}

impl Ledger {
    /// A record of blocks whose version is 0.
    #[must_use]
    pub fn new(first: u64, end: u64, seed: u64) -> Self {
        Self {
            first,
            blocks: vec![Versions::default(); (end - first) as usize],
            unflushed: BTreeSet::new(),
            prng: Prng::new(seed),
            promise: Promise::Answered,
            flushes: 0,
            writes: 0,
        }
    }

    /// The same, of a volume that promises less.
    #[must_use]
    pub fn promised(self, promise: Promise) -> Self {
        Self { promise, ..self }
    }

    /// Writes, reads and flushes at random until the other side is gone. Whatever is read must
    /// be what was written last.
    pub fn work(&mut self, volume: &mut impl Volume) -> io::Error {
        loop {
            let done = match self.prng.below(24) {
                0 => self.flush(volume),
                1..8 => self.read(volume),
                _ => self.write(volume),
            };
            if let Err(error) = done {
                return error;
            }
        }
    }

    /// Some blocks in a row.
    fn draw(&mut self) -> std::ops::Range<u64> {
        let count = self.blocks.len() as u64;
        let begin = self.prng.below(count);
        let length = 1 + self.prng.below(RUN_BLOCKS_MAX.min(count - begin));
        begin..begin + length
    }

    fn offset(&self, index: u64) -> u64 {
        (self.first + index) * BLOCK as u64
    }

    fn stamp(&self, index: u64, version: u64) -> Stamp {
        Stamp {
            block: self.first + index,
            version,
        }
    }

    fn write(&mut self, volume: &mut impl Volume) -> io::Result<()> {
        let run = self.draw();
        let mut buffer = Buffer::new(BLOCK * run.clone().count());
        for (index, block) in run.clone().zip(buffer.get_mut().chunks_exact_mut(BLOCK)) {
            self.blocks[index as usize].attempted += 1;
            let version = self.blocks[index as usize].attempted;
            self.stamp(index, version).fill(block);
        }
        volume.write(self.offset(run.start), &buffer)?;
        for index in run {
            let versions = &mut self.blocks[index as usize];
            versions.answered = versions.attempted;
            self.unflushed.insert(index);
        }
        self.writes += 1;
        Ok(())
    }

    fn read(&mut self, volume: &mut impl Volume) -> io::Result<()> {
        let run = self.draw();
        let mut buffer = Buffer::new(BLOCK * run.clone().count());
        volume.read(self.offset(run.start), &mut buffer)?;
        for (index, block) in run.zip(buffer.get().chunks_exact(BLOCK)) {
            let expected = self.stamp(index, self.blocks[index as usize].answered);
            let found = Stamp::read(block);
            assert_eq!(
                found,
                Some(expected),
                "a read gives something else than the last write"
            );
        }
        Ok(())
    }

    fn flush(&mut self, volume: &mut impl Volume) -> io::Result<()> {
        volume.flush()?;
        self.flushes += 1;
        for index in std::mem::take(&mut self.unflushed) {
            let versions = &mut self.blocks[index as usize];
            versions.flushed = versions.answered;
        }
        Ok(())
    }

    /// Panics unless the image holds every block whole, and every version that was promised. The
    /// record goes on from what the image holds.
    pub fn check(&mut self, image: &Path) {
        let image = File::open(image).expect("the image");
        let mut bytes = vec![0; BLOCK];
        for index in 0..self.blocks.len() as u64 {
            let read = image.read_exact_at(&mut bytes, self.offset(index));
            read.expect("the image can be read");
            let block = self.first + index;
            let Some(found) = Stamp::read(&bytes) else {
                panic!("block {block} is torn");
            };
            assert_eq!(found.block, block, "the content of another block");
            let versions = &mut self.blocks[index as usize];
            let what = format!("block {block} has version {}: {versions:?}", found.version);
            assert!(
                found.version >= versions.flushed,
                "a flushed write is lost: {what}"
            );
            assert!(
                self.promise == Promise::Flushed || found.version >= versions.answered,
                "an answered write is lost: {what}"
            );
            assert!(found.version <= versions.attempted, "never written: {what}");
            *versions = Versions {
                attempted: found.version,
                answered: found.version,
                flushed: found.version,
            };
        }
        self.unflushed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A file that takes some operations and then is gone; it may forget a flushed write.
    struct Failing {
        file: File,
        left: u32,
        forgets: bool,
    }

    impl Failing {
        fn go(&mut self) -> io::Result<()> {
            self.left = self
                .left
                .checked_sub(1)
                .ok_or(io::ErrorKind::NotConnected)?;
            Ok(())
        }
    }

    impl Volume for Failing {
        fn read(&mut self, offset: u64, buffer: &mut Buffer) -> io::Result<()> {
            self.go()?;
            self.file.read_exact_at(buffer.get_mut(), offset)
        }
        fn write(&mut self, offset: u64, buffer: &Buffer) -> io::Result<()> {
            self.go()?;
            if self.forgets && self.left == 1 {
                return Ok(());
            }
            self.file.write_all_at(buffer.get(), offset)
        }
        fn flush(&mut self) -> io::Result<()> {
            self.go()
        }
    }

    /// Some operations differ by seed: the last but one is a write, or not.
    fn outcome(forgets: bool, promise: Promise) -> Result<(), String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("image");
        for seed in 0..20 {
            fs::write(&path, blank()).expect("an image");
            let file = File::options().read(true).write(true).open(&path);
            let mut volume = Failing {
                file: file.expect("the image"),
                left: 100,
                forgets,
            };
            let mut ledger = Ledger::new(8, 40, seed).promised(promise);
            ledger.work(&mut volume);
            let checked = catch_unwind(AssertUnwindSafe(|| ledger.check(&path)));
            checked.map_err(|_| format!("seed {seed}"))?;
        }
        Ok(())
    }

    fn blank() -> Vec<u8> {
        let mut bytes = vec![0; 64 * BLOCK];
        for (block, bytes) in (0..).zip(bytes.chunks_exact_mut(BLOCK)) {
            Stamp { block, version: 0 }.fill(bytes);
        }
        bytes
    }

    #[test]
    fn a_good_volume_passes_and_a_forgetful_one_does_not() {
        assert_eq!(outcome(false, Promise::Answered), Ok(()));
        let forgotten = outcome(true, Promise::Answered);
        assert!(forgotten.is_err(), "a forgotten write goes unseen");
        assert_eq!(outcome(true, Promise::Flushed), Ok(()), "nobody flushed it");
    }
}
