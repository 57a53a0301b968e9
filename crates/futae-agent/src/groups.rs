//! What memory cgroups did: their counts with their directories, and which of them are no more.

use crate::proc;
use futae_agent_protocol::{Counters, GroupSample};
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Cgroups by their numbers, which are those of their directories and never used again.
#[derive(Debug, Default)]
pub struct Groups {
    paths: HashMap<u64, PathBuf>,
    /// Refaults of each since it was made.
    refaults: HashMap<u64, u64>,
    /// Those that were counted last and have no directory: pages that they leave behind are still evicted.
    gone: HashSet<u64>,
}

/// What came of a period.
#[derive(Debug, Default)]
pub struct Seen {
    /// What changed.
    pub samples: Vec<GroupSample>,
    /// Counted cgroups without a directory. What was counted of them is told; their counters may go.
    pub gone: Vec<u64>,
}

impl Groups {
    /// What `changed` in a period, where the programs count all of `counted`. `directories` finds the directories of all cgroups
    /// that there are, and is called if one is unknown.
    pub fn see(
        &mut self,
        counted: impl Iterator<Item = u64>,
        changed: Vec<(u64, Counters)>,
        directories: impl FnOnce() -> HashMap<u64, PathBuf>,
    ) -> Seen {
        let counted: Vec<u64> = counted.collect();
        self.paths.retain(|id, path| is_group(path, *id));
        let is_new = |id: &u64| !self.paths.contains_key(id) && !self.gone.contains(id);
        if counted.iter().any(is_new) {
            self.paths = directories();
        }
        let mut samples = Vec::new();
        for (id, mut counters) in changed {
            let path = self.paths.get(&id);
            // One without a directory has no file that tells.
            counters.refaults = path.map_or(0, |path| {
                let refaults = proc::group_refaults(path);
                let earlier = self.refaults.insert(id, refaults).unwrap_or(refaults);
                refaults.saturating_sub(earlier)
            });
            let path = path.map_or_else(String::new, |path| path.to_string_lossy().into_owned());
            samples.push(GroupSample { id, path, counters });
        }
        let gone = counted.iter().filter(|id| !self.paths.contains_key(id));
        self.gone = gone.copied().collect();
        self.refaults.retain(|id, _| self.paths.contains_key(id));
        Seen {
            samples,
            gone: self.gone.iter().copied().collect(),
        }
    }
}

/// Whether this is still the directory of that cgroup, and not of a later one with its name.
fn is_group(path: &Path, id: u64) -> bool {
    path.metadata().is_ok_and(|found| found.ino() == id)
}

/// The directories of memory cgroups by their numbers, in either version of cgroups.
pub fn directories() -> HashMap<u64, PathBuf> {
    fn walk(directory: &Path, paths: &mut HashMap<u64, PathBuf>) {
        let Ok(metadata) = directory.metadata() else {
            return;
        };
        paths.insert(metadata.ino(), directory.to_owned());
        let Ok(entries) = directory.read_dir() else {
            return;
        };
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                walk(&entry.path(), paths);
            }
        }
    }
    let mut paths = HashMap::new();
    let first = Path::new("/sys/fs/cgroup/memory");
    let root = if first.exists() {
        first
    } else {
        Path::new("/sys/fs/cgroup")
    };
    walk(root, &mut paths);
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A directory with this number of refaults, which stands for a cgroup.
    fn group(place: &Path, name: &str, refaults: u64) -> (u64, PathBuf) {
        let path = place.join(name);
        fs::create_dir_all(&path).expect("a directory");
        let text = format!("cache 1\nworkingset_refault_file {refaults}\n");
        fs::write(path.join("memory.stat"), text).expect("a file");
        (path.metadata().expect("there").ino(), path)
    }

    fn some(id: u64) -> (u64, Counters) {
        let accesses = 5;
        (
            id,
            Counters {
                accesses,
                ..Counters::default()
            },
        )
    }

    #[test]
    fn a_group_that_is_gone_is_told_once_more_and_looked_for_once() {
        let place = tempfile::tempdir().expect("a directory");
        let (one, other) = (
            group(place.path(), "one", 10),
            group(place.path(), "other", 10),
        );
        let mut groups = Groups::default();
        let mut walks = 0;
        let both = || HashMap::from([one.clone(), other.clone()]);
        let mut see = |ids: &[u64], there: HashMap<u64, PathBuf>| {
            let changed = ids.iter().copied().map(some).collect();
            groups.see(ids.iter().copied(), changed, || {
                walks += 1;
                there
            })
        };
        let seen = see(&[one.0, other.0], both());
        assert_eq!((seen.samples.len(), seen.gone.len()), (2, 0));
        assert_eq!(seen.samples[0].path, one.1.to_string_lossy());
        group(place.path(), "one", 17);
        fs::remove_dir_all(&other.1).expect("there");
        // What it left behind is evicted for a while.
        for _ in 0..3 {
            let seen = see(&[one.0, other.0], HashMap::from([one.clone()]));
            assert_eq!(seen.gone, [other.0]);
            let refaults = seen.samples.iter().map(|sample| sample.counters.refaults);
            assert_eq!(refaults.sum::<u64>() % 7, 0);
            assert_eq!(seen.samples[1].path, "");
        }
        assert!(see(&[one.0], both()).gone.is_empty());
        // The first one, and the one that had been there.
        assert_eq!(walks, 2);
    }
}
