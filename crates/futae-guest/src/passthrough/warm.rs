//! The blocks of an earlier mount, which are loaded again.
//!
//! Files are known by their paths, since inode numbers are not those of before once a tree was copied. Each is looked up and
//! opened as the kernel would. Only some are open at a time; those with the blocks that go first come first, so that
//! the policy gets all blocks in their old order.

use super::access::Access;
use super::contents::Contents;
use super::mount::TreeHandle;
use super::numbers::ROOT;
use super::place::is_known_nameless;
use super::state::Passthrough;
use fuser::FileType;
use futae_engine::{SavedState, WarmState};
use futae_policy::{BlockId, VolumeId};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Component, Path};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// One in this many of the descriptors for known files is one of a file that is open here. Each has two more.
const OPEN_SHARE: usize = 8;
/// The pause between two looks at whether the blocks are there.
const PAUSE: Duration = Duration::from_millis(10);

const READS: Access = Access {
    reads: true,
    writes: false,
};

/// What became of the blocks of an earlier mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recalled {
    /// Blocks of files that are there, also if their file is shorter now, or other blocks have filled the cache.
    pub blocks: u64,
    /// Files that are there.
    pub files: u64,
    /// Files that are not there any more, or cannot be opened.
    pub files_missing: u64,
    /// Whether all files were looked for.
    pub is_whole: bool,
}

impl TreeHandle {
    /// The files of which the cache may have blocks, each with its volume and its path below. Files whose paths are not UTF-8 are
    /// left out, and deleted ones.
    #[must_use]
    pub fn sources(&self) -> Vec<(VolumeId, String)> {
        let tree = self.tree();
        let source = |contents: Arc<Contents>| {
            let place = contents.lower.place();
            if contents.is_gone() || place.is_ok_and(|place| is_known_nameless(&place)) {
                return None;
            }
            let path = match tree.nodes.of_key(contents.key) {
                Some(node) => tree.nodes.path_of(&node),
                None => contents.lower.path(),
            };
            Some((contents.volume(), path.into_os_string().into_string().ok()?))
        };
        let mut all: Vec<_> = tree.files.all().into_iter().filter_map(source).collect();
        // A state file has no more.
        all.truncate(usize::from(u16::MAX));
        all
    }

    /// Loads the blocks of an earlier mount again, as far as the files are there, and returns when they are loaded, or once
    /// `goes_on` is false.
    pub fn recall(&self, saved: &SavedState, goes_on: impl Fn() -> bool) -> Recalled {
        let sources: Vec<&str> = saved.sources().collect();
        let tree = self.tree();
        let capacity = tree.files.engine().status().capacity_blocks as usize;
        let mut rest = &saved.residents[..saved.residents.len().min(capacity)];
        let (mut recalled, mut found) = (Recalled::default(), HashMap::new());
        while !rest.is_empty() && goes_on() {
            let (before, group) = split_off_files(rest, tree.nodes.places_max() / OPEN_SHARE);
            recalled.blocks += self.recall_group(group, &sources, &mut found, &goes_on);
            rest = before;
        }
        recalled.files = found.values().filter(|is_there| **is_there).count() as u64;
        recalled.files_missing = found.len() as u64 - recalled.files;
        recalled.is_whole = rest.is_empty();
        recalled
    }

    /// Loads blocks of a few files, and returns how many. Notes of each file whether it is there.
    fn recall_group(
        &self,
        group: &[BlockId],
        sources: &[&str],
        found: &mut HashMap<VolumeId, bool>,
        goes_on: &impl Fn() -> bool,
    ) -> u64 {
        let tree = self.tree();
        let mut files: HashMap<VolumeId, Option<Held<'_>>> = HashMap::new();
        let mut residents = Vec::new();
        for block in group {
            let file = files.entry(block.volume()).or_insert_with(|| {
                let source = sources.get(usize::from(block.volume().0))?;
                let path = Path::new(source).strip_prefix(self.source()).ok()?;
                Held::open(tree, path).ok()
            });
            if let Some(file) = file {
                residents.push(BlockId::new(file.contents.volume(), block.index()));
            }
        }
        found.extend(files.iter().map(|(&file, held)| (file, held.is_some())));
        let count = residents.len() as u64;
        let engine = tree.files.engine();
        engine.recall(&WarmState {
            residents,
            history: Vec::new(),
        });
        while engine.is_loading() && goes_on() {
            thread::sleep(PAUSE);
        }
        count
    }
}

/// Splits off the longest end that has blocks of at most so many files.
fn split_off_files(blocks: &[BlockId], files_max: usize) -> (&[BlockId], &[BlockId]) {
    let mut files = HashSet::new();
    let fits = |block: &&BlockId| {
        files.insert(block.volume());
        files.len() <= files_max.max(1)
    };
    let length = blocks.iter().rev().take_while(fits).count();
    blocks.split_at(blocks.len() - length)
}

/// A file that is open for reading, and known as if the kernel had looked it up.
struct Held<'tree> {
    contents: Arc<Contents>,
    _known: Known<'tree>,
}

impl<'tree> Held<'tree> {
    /// Opens the file at a path from the root on.
    fn open(tree: &'tree Passthrough, path: &Path) -> Result<Self, Errno> {
        let mut known = Known {
            tree,
            numbers: Vec::new(),
        };
        let mut kind = FileType::Directory;
        for part in path.components() {
            let Component::Normal(name) = part else {
                return Err(Errno::INVAL);
            };
            kind = known.look_up(name)?;
        }
        if kind != FileType::RegularFile {
            return Err(Errno::ISDIR);
        }
        let node = tree.nodes.get(known.last())?;
        let class = tree.priority.class_of(&tree.nodes, &node);
        let access = (READS.reads, READS.writes);
        let (contents, _) = tree.files.open(&tree.nodes, &node, access, class)?;
        Ok(Self {
            contents,
            _known: known,
        })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // It is still known, so this cannot be the last close of a file that the kernel has forgotten.
        self.contents.close(READS);
    }
}

/// A path of files that are known as if the kernel had looked them up.
struct Known<'tree> {
    tree: &'tree Passthrough,
    numbers: Vec<u64>,
}

impl Known<'_> {
    fn last(&self) -> u64 {
        self.numbers.last().copied().unwrap_or(ROOT)
    }

    fn look_up(&mut self, name: &OsStr) -> Result<FileType, Errno> {
        let (node, _) = self.tree.lookup_node(self.last(), name)?;
        self.numbers.push(node.id);
        Ok(node.kind)
    }
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        for &id in self.numbers.iter().rev() {
            self.tree.forget_node(id, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(of: &[u16]) -> Vec<BlockId> {
        let block = |(index, &volume): (usize, &u16)| BlockId::new(VolumeId(volume), index as u64);
        of.iter().enumerate().map(block).collect()
    }

    #[test]
    fn a_group_has_few_files_and_all_blocks_in_their_order() {
        let all = blocks(&[1, 2, 1, 3, 4, 3, 4, 4]);
        let (before, group) = split_off_files(&all, 2);
        assert_eq!((before, group), (&all[..3], &all[3..]));
        assert_eq!(split_off_files(before, 2), (&all[..0], &all[..3]));
        assert_eq!(split_off_files(&all, 0), (&all[..6], &all[6..]));
        assert_eq!(split_off_files(&all, 9), (&all[..0], &all[..]));
    }
}
