//! The state of a cache that survives a restart, and its file.
//!
//! The file holds names of blocks and no data. It is a hint: whatever it says, every block is read
//! from its store again.
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | `futaemem` |
//! | 4 | version, 2 |
//! | 8, 4 + n | bytes of a block, policy; each text is preceded by its length |
//! | 4 | number of volumes |
//! | 4 + n, 8 each | the volumes: source, its bytes |
//! | 8, 8 | number of resident blocks, number of blocks in the history |
//! | 8 each | the resident blocks, safest first; the history, oldest first |
//! | 4 | CRC-32 of all before |
//!
//! All numbers are little-endian. The upper 16 bits of a block are the position of its volume in the
//! list of volumes, counted from 0; the lower bits are its index there. A cache that has its volumes
//! in another order, or other volumes beside them, finds its blocks by the sources.

mod error;
mod saved;
mod volumes;

pub use error::WarmStateError;
pub use saved::SavedState;
pub use volumes::{Identity, LeftOut, NamedVolume};

use error::VERSION;
use futae_policy::BlockId;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use volumes::Positions;

const MAGIC: &[u8; 8] = b"futaemem";
/// A cache has fewer than 2^32 slots; a longer file is not read.
const FILE_BYTES_MAX: u64 = 64 << 30;

/// The bit position of the volume's number in a block's number.
const VOLUME_SHIFT: u32 = BlockId::INDEX_LIMIT.trailing_zeros();

/// State that is worth keeping over a restart: hints, not data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WarmState {
    /// The blocks that were resident, safest first, next victim last.
    pub residents: Vec<BlockId>,
    /// The policy's history, oldest first.
    pub history: Vec<BlockId>,
}

/// What a file holds for a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The state, without the blocks of volumes that were left out.
    pub state: WarmState,
    /// The volumes of the file that the cache does not have.
    pub left_out: Vec<LeftOut>,
    /// The policy that the blocks have their order from, if it is not that of the cache. Its history is left out: it
    /// would mean something else to another policy.
    pub other_policy: Option<String>,
}

impl WarmState {
    /// Reads the file at `path`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`WarmStateError`]: the cache starts without it.
    pub fn load(path: &Path, identity: &Identity) -> Result<Option<Loaded>, WarmStateError> {
        let bytes = read_file(path)?;
        bytes
            .map(|bytes| Self::decode(&bytes, identity))
            .transpose()
    }

    /// Replaces the file at `path`. If that fails, the old file stays. A file that is not empty and no state file of
    /// any version is never replaced: it may be an image.
    ///
    /// # Errors
    ///
    /// The operating system's error.
    pub fn save(&self, path: &Path, identity: &Identity) -> io::Result<()> {
        if !is_replaceable(path)? {
            return Err(io::Error::other(
                "the file is no state file of futae, and is not overwritten; name another file",
            ));
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        // One that was left by a process which was killed goes.
        check_replaceable(&new)?;
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let written = self.write_and_rename(&new, path, identity);
        if written.is_err() {
            // The old file stays; the incomplete new one is removed.
            let _ = fs::remove_file(&new);
        }
        written
    }

    /// Moves the file at `path` to `path.old`, in place of an earlier one.
    ///
    /// # Errors
    ///
    /// The operating system's error; or what is at `path.old` is no state file.
    pub fn set_aside(path: &Path) -> io::Result<()> {
        let mut old = path.as_os_str().to_owned();
        old.push(".old");
        let old = PathBuf::from(old);
        check_replaceable(&old)?;
        match fs::rename(path, &old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn write_and_rename(&self, new: &Path, path: &Path, identity: &Identity) -> io::Result<()> {
        // Never through a link that somebody put there meanwhile, and nobody else is to read which blocks are in use.
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(new)?;
        file.write_all(&self.encode(identity))?;
        file.sync_all()?;
        fs::rename(new, path)?;
        let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Encodes the state as the bytes of a file, without the blocks of volumes that `identity` does
    /// not have.
    #[must_use]
    pub fn encode(&self, identity: &Identity) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.as_bytes());
        };
        out.extend(identity.block_bytes.to_le_bytes());
        text(&mut out, &identity.policy);
        out.extend((identity.volumes.len() as u32).to_le_bytes());
        for known in &identity.volumes {
            text(&mut out, &known.source);
            out.extend(known.size_bytes.to_le_bytes());
        }
        let positions = identity.volumes.iter().map(|known| known.volume);
        let positions = Positions::new(positions.zip(0..));
        let words = |list: &[BlockId]| -> Vec<u64> {
            let words = list.iter().filter_map(|&block| {
                let position = positions.of(block.volume().0)?;
                Some((u64::from(position.0) << VOLUME_SHIFT) | block.index())
            });
            words.collect()
        };
        let lists = [words(&self.residents), words(&self.history)];
        for list in &lists {
            out.extend((list.len() as u64).to_le_bytes());
        }
        for word in lists.iter().flatten() {
            out.extend(word.to_le_bytes());
        }
        let sum = crc32fast::hash(&out);
        out.extend(sum.to_le_bytes());
        out
    }

    /// Decodes the bytes of a file, if they belong to the cache that `here` describes.
    ///
    /// # Errors
    ///
    /// [`WarmStateError`] for anything else.
    pub fn decode(bytes: &[u8], here: &Identity) -> Result<Loaded, WarmStateError> {
        let saved = SavedState::decode(bytes)?;
        saved.check_block(here.block_bytes)?;
        let (volumes, left_out) = here.match_volumes(&saved.volumes)?;
        let here_of = |&block: &BlockId| {
            let volume = volumes.of(block.volume().0)?;
            Some(BlockId::new(volume, block.index()))
        };
        let other_policy = saved.other_policy(&here.policy);
        // It would mean something else to another policy.
        let history = match other_policy {
            None => saved.history.iter().filter_map(here_of).collect(),
            Some(_) => Vec::new(),
        };
        Ok(Loaded {
            state: Self {
                residents: saved.residents.iter().filter_map(here_of).collect(),
                history,
            },
            left_out,
            other_policy,
        })
    }
}

/// The bytes of a file that may be a state file; `None` if there is none.
fn read_file(path: &Path) -> Result<Option<Vec<u8>>, WarmStateError> {
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(WarmStateError::Magic);
    }
    let mut file = File::open(path)?;
    let mut bytes = begin_of(&mut file)?;
    // It may be an image, larger than this machine's memory.
    if bytes != MAGIC {
        return Err(WarmStateError::Magic);
    }
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The bytes of a file that would be the magic number of a state file.
fn begin_of(file: &mut File) -> io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut begin)?;
    Ok(begin)
}

/// An error if a file beside the state file would be lost by being replaced.
fn check_replaceable(path: &Path) -> io::Result<()> {
    match is_replaceable(path)? {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{} is no state file of futae, and is not overwritten; move it",
            path.display()
        ))),
    }
}

/// Whether nothing is lost if the file at `path` is replaced.
fn is_replaceable(path: &Path) -> io::Result<bool> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        other => other?,
    };
    // A link itself is replaced, and not the file behind it.
    if metadata.is_symlink() {
        return Ok(true);
    }
    // To open a pipe would be to wait for another program.
    if !metadata.is_file() {
        return Ok(false);
    }
    let begin = begin_of(&mut File::open(path)?)?;
    Ok(begin.is_empty() || begin == MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_policy::VolumeId;

    fn volume(number: u16, source: &str) -> NamedVolume {
        NamedVolume {
            volume: VolumeId(number),
            source: source.into(),
            size_bytes: 1 << 30,
        }
    }

    fn identity() -> Identity {
        Identity {
            block_bytes: 1 << 20,
            policy: "lfu-history(history=100)".into(),
            volumes: vec![volume(0, "/srv/disk.img"), volume(2, "/srv/other.img")],
        }
    }

    fn state() -> WarmState {
        WarmState {
            residents: [(0, 3), (2, 1), (0, 4)]
                .map(|(volume, index)| BlockId::new(VolumeId(volume), index))
                .to_vec(),
            history: [1, 5, 9, 2, 6].map(BlockId::on_first).to_vec(),
        }
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        for warm in [state(), WarmState::default()] {
            let bytes = warm.encode(&identity());
            let read = WarmState::decode(&bytes, &identity());
            assert_eq!(
                read.expect("whole and ours"),
                Loaded {
                    state: warm,
                    left_out: Vec::new(),
                    other_policy: None,
                }
            );
        }
    }

    #[test]
    fn volumes_are_found_by_their_sources() {
        let bytes = state().encode(&identity());
        let mut here = identity();
        here.volumes = vec![volume(0, "/srv/new.img"), volume(1, "/srv/other.img")];
        let read = WarmState::decode(&bytes, &here).expect("one is here");
        let blocks = [BlockId::new(VolumeId(1), 1)];
        assert_eq!(
            (read.state.residents.as_slice(), read.state.history.len()),
            (&blocks[..], 0)
        );
        let said: Vec<_> = read.left_out.iter().map(LeftOut::to_string).collect();
        assert_eq!(said, ["/srv/disk.img is not in this cache"]);
        here.volumes.push(volume(2, "/srv/disk.img"));
        here.volumes[2].size_bytes = 4096;
        let read = WarmState::decode(&bytes, &here).expect("one is as it was");
        let said = read.left_out[0].to_string();
        assert!(said.contains("1073741824 bytes, and has 4096"), "{said}");
    }

    #[test]
    fn blocks_of_volumes_without_a_name_are_not_saved() {
        let mut few = identity();
        few.volumes.remove(0);
        let read = WarmState::decode(&state().encode(&few), &identity()).expect("whole");
        assert_eq!(read.state.residents, [BlockId::new(VolumeId(2), 1)]);
    }

    #[test]
    fn a_single_wrong_bit_or_missing_byte_is_seen() {
        let bytes = state().encode(&identity());
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x10;
            assert!(WarmState::decode(&wrong, &identity()).is_err(), "byte {at}");
            let short = &bytes[..at];
            assert!(WarmState::decode(short, &identity()).is_err(), "{at} bytes");
        }
        let long = [bytes.as_slice(), &[0]].concat();
        assert!(WarmState::decode(&long, &identity()).is_err());
    }

    #[test]
    fn what_is_of_another_cache_says_so() {
        let bytes = state().encode(&identity());
        let refused = |change: fn(&mut Identity)| {
            let mut here = identity();
            change(&mut here);
            let error = WarmState::decode(&bytes, &here).expect_err("it is foreign");
            error.to_string()
        };
        let said = refused(|here| here.volumes.iter_mut().for_each(|it| it.size_bytes += 1));
        assert!(said.contains("size in bytes"), "{said}");
        let said = refused(|here| here.block_bytes *= 2);
        assert!(said.contains("block size"), "{said}");
        let said = refused(|here| here.volumes.iter_mut().for_each(|it| it.source.push('2')));
        assert!(said.contains("/srv/disk.img2"), "{said}");
        assert!(matches!(
            WarmState::decode(b"something else entirely", &identity()),
            Err(WarmStateError::Magic)
        ));
    }

    #[test]
    fn blocks_of_another_policy_are_of_use_and_its_history_is_not() {
        let mut here = identity();
        here.policy = "lru".into();
        let read = WarmState::decode(&state().encode(&identity()), &here).expect("of use");
        assert_eq!(read.state.residents, state().residents);
        assert_eq!(read.state.history, []);
        assert_eq!(read.other_policy, Some(identity().policy));
    }

    #[test]
    fn what_is_beside_the_file_is_not_written_through_or_lost() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let directory = tempfile::tempdir().expect("a directory");
        let place = |name: &str| directory.path().join(name);
        let (path, new, victim) = (place("state"), place("state.new"), place("victim"));
        fs::write(&victim, "of somebody else").expect("a file");
        let is_whole = || fs::read_to_string(&victim).expect("it is there") == "of somebody else";
        symlink(&victim, &new).expect("a link");
        state().save(&path, &identity()).expect("saved");
        assert!(is_whole() && !path.is_symlink());
        let mode = fs::metadata(&path).expect("it is there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        fs::hard_link(&victim, &new).expect("another name");
        let refused = state().save(&path, &identity());
        let refused = refused.expect_err("a file of somebody else").to_string();
        assert!(refused.contains("state.new is no state file"), "{refused}");
        assert!(is_whole() && new.exists());
        fs::remove_file(&new).expect("removed");
        // Left by a process that was killed.
        fs::write(&new, MAGIC).expect("a file");
        state().save(&path, &identity()).expect("saved");
        assert!(!new.exists());
    }

    #[test]
    fn an_image_is_refused_without_being_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("disk.img");
        let image = File::create(&path).expect("a file");
        image.set_len(64 << 20).expect("a long one");
        let read_bytes = || -> u64 {
            let counts = fs::read_to_string("/proc/thread-self/io").expect("procfs");
            let read = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
            read.expect("a count").parse().expect("a number")
        };
        let before = read_bytes();
        let refused = WarmState::load(&path, &identity()).expect_err("an image");
        assert!(matches!(refused, WarmStateError::Magic), "{refused}");
        assert!(read_bytes() - before < 1 << 20);
    }

    #[test]
    fn a_file_goes_aside_but_replaces_no_other() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state");
        WarmState::set_aside(&path).expect("there is none");
        for _ in 0..2 {
            state().save(&path, &identity()).expect("saved");
            WarmState::set_aside(&path).expect("moved");
            assert!(!path.exists());
        }
        let old = directory.path().join("state.old");
        let read = WarmState::load(&old, &identity()).expect("readable");
        assert_eq!(read.map(|read| read.state), Some(state()));
        fs::write(&old, "an image").expect("written");
        state().save(&path, &identity()).expect("saved");
        WarmState::set_aside(&path).expect_err("it is something else");
        assert!(path.exists());
    }

    #[test]
    fn saving_replaces_the_old_file_or_leaves_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state");
        let load = || {
            let loaded = WarmState::load(&path, &identity()).expect("readable");
            loaded.map(|loaded| loaded.state)
        };
        assert_eq!(load(), None);
        WarmState::default()
            .save(&path, &identity())
            .expect("saved");
        state().save(&path, &identity()).expect("saved");
        assert_eq!(load(), Some(state()));
        let names = fs::read_dir(directory.path()).expect("a list").count();
        assert_eq!(names, 1, "something else was left");
        let nowhere = directory.path().join("no/such/place");
        assert!(state().save(&nowhere, &identity()).is_err());
    }
}
