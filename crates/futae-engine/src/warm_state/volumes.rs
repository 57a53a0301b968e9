//! The volumes of a state and those of the cache that reads it, matched by their sources.

use super::error::WarmStateError;
use futae_policy::VolumeId;
use std::fmt;

/// Identifies the cache that a state belongs to. A state of another cache is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// The policy string.
    pub policy: String,
    /// The volumes whose blocks are remembered.
    pub volumes: Vec<NamedVolume>,
}

/// A volume of the cache, known by its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedVolume {
    /// Its number in this cache.
    pub volume: VolumeId,
    /// The source, by name.
    pub source: String,
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// A volume of a file that the cache does not have as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its source, by name.
    pub source: String,
    /// The size that it had, in bytes.
    pub saved_bytes: u64,
    /// The size of this source in the cache, in bytes; `None` if the cache does not have it.
    pub here_bytes: Option<u64>,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = shortened(&self.source);
        let saved = self.saved_bytes;
        match self.here_bytes {
            Some(here) => write!(f, "{source} had {saved} bytes, and has {here} bytes now"),
            None => write!(f, "{source} is not in this cache"),
        }
    }
}

/// A volume as a file names it: its source and its size in bytes.
pub(super) type SavedVolume = (String, u64);

impl Identity {
    /// Finds the volumes of a file among those of this cache: the number here for each position in
    /// the file, and the volumes that are not here. An error if none is here.
    pub(super) fn match_volumes(
        &self,
        saved: &[SavedVolume],
    ) -> Result<(Positions, Vec<LeftOut>), WarmStateError> {
        let (mut found, mut left_out): (Vec<(u16, &NamedVolume)>, _) = (Vec::new(), Vec::new());
        for (position, (source, saved_bytes)) in (0..).zip(saved) {
            let is_taken = |it: &NamedVolume| found.iter().any(|(_, taken)| *taken == it);
            let of_source = self.volumes.iter().filter(|it| it.source == *source);
            let mut free = of_source.clone().filter(|it| !is_taken(it));
            match free.find(|it| it.size_bytes == *saved_bytes) {
                Some(here) => found.push((position, here)),
                None => left_out.push(LeftOut {
                    source: source.clone(),
                    saved_bytes: *saved_bytes,
                    here_bytes: of_source.map(|it| it.size_bytes).next(),
                }),
            }
        }
        if found.is_empty() && !saved.is_empty() {
            return Err(self.refuse(saved, &left_out));
        }
        let pairs = found
            .iter()
            .map(|(position, here)| (*position, here.volume));
        Ok((
            Positions::new(pairs.map(|(from, to)| (VolumeId(from), to.0))),
            left_out,
        ))
    }

    /// Why none of the volumes of a file is one of this cache.
    fn refuse(&self, saved: &[SavedVolume], left_out: &[LeftOut]) -> WarmStateError {
        let resized = left_out
            .iter()
            .find_map(|it| Some((it.saved_bytes, it.here_bytes?)));
        let (what, saved, here) = match resized {
            Some((saved, here)) => ("size in bytes", saved.to_string(), here.to_string()),
            None => {
                let saved: Vec<_> = saved.iter().map(|(source, _)| source.as_str()).collect();
                let here: Vec<_> = self.volumes.iter().map(|it| it.source.as_str()).collect();
                ("source", saved.join(", "), here.join(", "))
            }
        };
        WarmStateError::Foreign {
            what,
            saved: shortened(&saved),
            here: shortened(&here),
        }
    }
}

/// For each volume number of one numbering the number in another one, or none.
pub(super) struct Positions(Vec<Option<VolumeId>>);

impl Positions {
    pub(super) fn new(pairs: impl Iterator<Item = (VolumeId, u16)>) -> Self {
        let mut table = Vec::new();
        for (from, to) in pairs {
            let from = usize::from(from.0);
            if table.len() <= from {
                table.resize(from + 1, None);
            }
            table[from] = Some(VolumeId(to));
        }
        Self(table)
    }

    pub(super) fn of(&self, from: u16) -> Option<VolumeId> {
        self.0.get(usize::from(from)).copied().flatten()
    }
}

/// A name in a message.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(300).collect()
}
