//! A state as its file has it, before its volumes are found here.

use super::error::{VERSION, WarmStateError};
use super::volumes::{SavedVolume, shortened};
use super::{MAGIC, VOLUME_SHIFT, read_file};
use futae_policy::{BlockId, VolumeId};
use std::path::Path;

/// A state as its file has it. The volume of a block is a position in the file's list of volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedState {
    block_bytes: u64,
    policy: String,
    pub(super) volumes: Vec<SavedVolume>,
    /// The blocks that were resident, safest first, next victim last.
    pub residents: Vec<BlockId>,
    pub(super) history: Vec<BlockId>,
}

impl SavedState {
    /// Reads the file at `path`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`WarmStateError`]: it cannot be read, or is no state file of this version.
    pub fn load(path: &Path) -> Result<Option<Self>, WarmStateError> {
        let bytes = read_file(path)?;
        bytes.map(|bytes| Self::decode(&bytes)).transpose()
    }

    /// An error if its blocks have another size than this, in bytes.
    ///
    /// # Errors
    ///
    /// [`WarmStateError::Foreign`].
    pub fn check_block(&self, block_bytes: u64) -> Result<(), WarmStateError> {
        if self.block_bytes == block_bytes {
            return Ok(());
        }
        Err(WarmStateError::Foreign {
            what: "block size in bytes",
            saved: self.block_bytes.to_string(),
            here: block_bytes.to_string(),
        })
    }

    /// An error if none of its sources is a file below this directory.
    ///
    /// # Errors
    ///
    /// [`WarmStateError::Foreign`].
    pub fn check_below(&self, directory: &Path) -> Result<(), WarmStateError> {
        let first = self.sources().next();
        let is_below = |source: &str| Path::new(source).starts_with(directory);
        match first {
            Some(first) if !self.sources().any(is_below) => Err(WarmStateError::Foreign {
                what: "source",
                saved: shortened(first),
                here: shortened(&directory.to_string_lossy()),
            }),
            _ => Ok(()),
        }
    }

    /// The policy that the blocks have their order from, if it is not this one.
    #[must_use]
    pub fn other_policy(&self, here: &str) -> Option<String> {
        (self.policy != here).then(|| shortened(&self.policy))
    }

    /// The sources of its volumes, in the order of their positions.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().map(|(source, _)| source.as_str())
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, WarmStateError> {
        let mut fields = Fields(bytes);
        if fields.take(MAGIC.len()).ok() != Some(MAGIC) {
            return Err(WarmStateError::Magic);
        }
        let version = u32::from_le_bytes(fields.array()?);
        if version != VERSION {
            return Err(WarmStateError::Version(version));
        }
        let (body, sum) = bytes
            .split_last_chunk::<4>()
            .ok_or(WarmStateError::Damaged(SHORT))?;
        if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
            return Err(WarmStateError::Damaged("its checksum is wrong"));
        }
        let (block_bytes, policy) = (fields.number()?, fields.text()?);
        let volumes = fields.volumes()?;
        let (residents, history) = (fields.number()?, fields.number()?);
        let saved = Self {
            block_bytes,
            policy,
            volumes,
            residents: fields.blocks(residents)?,
            history: fields.blocks(history)?,
        };
        match fields.0.len() {
            4 => Ok(saved),
            _ => Err(WarmStateError::Damaged("it is too long")),
        }
    }
}

const SHORT: &str = "it is too short";

/// The bytes that have not been decoded yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], WarmStateError> {
        let (taken, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(WarmStateError::Damaged(SHORT))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WarmStateError> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| WarmStateError::Damaged(SHORT))
    }

    fn number(&mut self) -> Result<u64, WarmStateError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<String, WarmStateError> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    fn volumes(&mut self) -> Result<Vec<SavedVolume>, WarmStateError> {
        let count = u32::from_le_bytes(self.array()?);
        if count > u32::from(u16::MAX) {
            return Err(WarmStateError::Damaged("it has too many volumes"));
        }
        (0..count)
            .map(|_| Ok((self.text()?, self.number()?)))
            .collect()
    }

    fn blocks(&mut self, count: u64) -> Result<Vec<BlockId>, WarmStateError> {
        let bytes = count.checked_mul(8).and_then(|n| usize::try_from(n).ok());
        let bytes = self.take(bytes.ok_or(WarmStateError::Damaged(SHORT))?)?;
        let (words, _) = bytes.as_chunks::<8>();
        let block = |word: &[u8; 8]| {
            let word = u64::from_le_bytes(*word);
            let position = VolumeId((word >> VOLUME_SHIFT) as u16);
            BlockId::new(position, word % BlockId::INDEX_LIMIT)
        };
        Ok(words.iter().map(block).collect())
    }
}
