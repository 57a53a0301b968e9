//! What is done to a file, and what must have been counted then.

use crate::system::{resident, touch};
use futae_agent::Args;
use futae_agent::probe::Probe;
use futae_agent_protocol::Counters;
use futae_testkit::wait::{PATIENCE, within};
use rustix::fs::{Advice, MemfdFlags, fadvise, ftruncate, memfd_create, sendfile};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long readahead that is under way may take.
const READAHEAD_MAX: Duration = Duration::from_secs(10);

/// Pages of the file.
pub const PAGES: u64 = 2048;
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// A file on a file system under test, and the probe that counts what happens to it.
pub struct Bench<'a> {
    probe: &'a Probe,
    what: String,
    path: PathBuf,
    inode: u64,
    last: Counters,
    /// What was found, for a person.
    pub lines: Vec<String>,
    /// What was wrong.
    pub problems: Vec<String>,
    /// Somebody else took pages of the file out of memory meanwhile, so that nothing is known for certain.
    pub disturbed: bool,
}

/// A probe with all that the cases need.
pub fn probe() -> Result<Probe, String> {
    use clap::Parser;
    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }
    let args = Cli::parse_from(["agent", "--top", "256"])
        .args
        .check()
        .expect("valid");
    let (probe, why) = Probe::start(&args);
    why.map_or(Ok(probe), Err)
}

fn numbers(count: u64, among: u64) -> Vec<u64> {
    // Each once: an odd step through a power of two meets all.
    (0..count)
        .map(|at| (at * 2_654_435_761 + 17) % among)
        .collect()
}

impl<'a> Bench<'a> {
    /// Makes a file of [`PAGES`] pages in `directory`.
    pub fn new(probe: &'a Probe, what: &str, directory: &Path) -> Self {
        let path = directory.join("cases");
        let _ = fs::remove_file(&path);
        let file = File::create(&path).expect("a file");
        let inode = file.metadata().expect("it is there").ino();
        let mut bench = Self {
            probe,
            what: what.to_owned(),
            path,
            inode,
            last: Counters::default(),
            lines: Vec::new(),
            problems: Vec::new(),
            disturbed: false,
        };
        bench.since();
        let bytes = vec![7; MIB as usize];
        for at in 0..PAGES * PAGE / MIB {
            file.write_all_at(&bytes, at * MIB).expect("room");
        }
        file.sync_all().expect("written");
        let counted = bench.since();
        bench.equals("write 1 MiB: written", PAGES, counted.written);
        bench.equals("write 1 MiB: dirtied", PAGES, counted.dirtied);
        // Anew, by a call that writes one file and reads the other.
        file.set_len(0).expect("empty");
        bench.since();
        let zeroes = memfd_create("zeroes", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&zeroes, PAGES * PAGE).expect("room");
        let mut at = 0;
        while at < PAGES * PAGE {
            let moved = sendfile(&file, &zeroes, Some(&mut at), 1 << 20).expect("room");
            assert!(moved > 0);
        }
        file.sync_all().expect("written");
        let counted = bench.since();
        bench.equals("sendfile to a file: written", PAGES, counted.written);
        bench
    }

    fn file(&self) -> File {
        File::open(&self.path).expect("it is there")
    }

    /// What has happened to the file.
    fn now(&self) -> Counters {
        let counts = self.probe.read().expect("counters");
        let mut now = Counters::default();
        for ((_, inode), counters) in counts.files {
            if inode == self.inode {
                now.add(&counters);
            }
        }
        now
    }

    /// What happened to the file since the last call.
    fn since(&mut self) -> Counters {
        let now = self.now();
        let since = now.since(&self.last);
        self.last = now;
        since
    }

    /// How many pages of the file are in memory once readahead has arrived. A page that is being read has been added and
    /// counted, and is not in memory yet. If the two counts never agree, the caller finds it.
    fn settled(&self, file: &File) -> u64 {
        let has_arrived = || {
            let since = self.now().since(&self.last);
            let is_all = since.evicted() > 0 || resident(file, PAGES) == since.added;
            is_all.then_some(()).ok_or(())
        };
        let _ = within(READAHEAD_MAX, has_arrived);
        resident(file, PAGES)
    }

    /// Within half a percent.
    fn equals(&mut self, case: &str, truth: u64, counted: u64) {
        let line = format!("{}: {case}: {counted} counted, {truth} true", self.what);
        if truth.abs_diff(counted) * 200 > truth {
            self.problems.push(line.clone());
        }
        self.lines.push(line);
    }

    /// Throws the file out of the page cache.
    fn drop_pages(&mut self) {
        let file = self.file();
        fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
        assert_eq!(resident(&file, PAGES), 0, "{}: it does not go", self.what);
        self.since();
    }

    /// Reads by `read`, which asks for this many pages, with nothing in memory and with all.
    fn cold_and_hot(&mut self, case: &str, pages: u64, mut read: impl FnMut(&File)) {
        self.drop_pages();
        let file = self.file();
        read(&file);
        let there = self.settled(&file);
        let counted = self.since();
        self.disturbed |= counted.evicted() > 0;
        self.equals(&format!("{case}, cold: accesses"), pages, counted.accesses);
        self.equals(&format!("{case}, cold: added"), there, counted.added);
        let summed = counted.misses + counted.readahead;
        self.equals(
            &format!("{case}, cold: misses and readahead"),
            there,
            summed,
        );
        read(&file);
        let counted = self.since();
        self.disturbed |= counted.evicted() > 0;
        self.equals(&format!("{case}, hot: accesses"), pages, counted.accesses);
        self.equals(&format!("{case}, hot: misses"), 0, counted.misses);
        self.equals(&format!("{case}, hot: added"), 0, counted.added);
    }

    /// Every case on this file; it is gone then.
    pub fn run(&mut self) {
        self.drop_pages();
        for (name, length) in [("4 KiB", PAGE), ("1 MiB", MIB)] {
            let mut buffer = vec![0; length as usize];
            self.cold_and_hot(&format!("sequential {name}"), PAGES, |file| {
                for at in 0..PAGES * PAGE / length {
                    file.read_exact_at(&mut buffer, at * length).expect("data");
                }
            });
        }
        self.random();
        self.end_of_file();
        self.cold_and_hot("splice", PAGES, splice);
        self.mapped();
        self.leaving();
    }

    fn random(&mut self) {
        let mut small = vec![0; PAGE as usize];
        let order = numbers(700, PAGES);
        self.cold_and_hot("random 4 KiB", 700, |file| {
            fadvise(file, 0, None, Advice::Random).expect("advice");
            for page in &order {
                file.read_exact_at(&mut small, page * PAGE).expect("data");
            }
        });
        self.drop_pages();
        let file = self.file();
        fadvise(&file, 0, None, Advice::Random).expect("advice");
        for page in &order {
            file.read_exact_at(&mut small, page * PAGE).expect("data");
        }
        let counted = self.since();
        self.equals("random 4 KiB, cold: misses", 700, counted.misses);
        let mut large = vec![0; MIB as usize];
        let order = numbers(60, PAGES - 256);
        self.cold_and_hot("random 1 MiB", 60 * 256, |file| {
            for page in &order {
                file.read_exact_at(&mut large, page * PAGE).expect("data");
            }
        });
    }

    /// Reads that ask for more than there is, as `cat` and `dd` do.
    fn end_of_file(&mut self) {
        let mut large = vec![0; MIB as usize];
        self.cold_and_hot("over the end", 500, |file| {
            for _ in 0..50 {
                let read = file.read_at(&mut large, (PAGES - 10) * PAGE).expect("data");
                assert_eq!(read as u64, 10 * PAGE);
            }
        });
    }

    fn mapped(&mut self) {
        for (name, advice) in [("in order", Advice::Normal), ("at random", Advice::Random)] {
            let order = match advice {
                Advice::Random => numbers(1000, PAGES),
                _ => (0..PAGES).collect(),
            };
            self.drop_pages();
            let file = self.file();
            fadvise(&file, 0, None, advice).expect("advice");
            let (faults, _) = touch(&file, PAGES, &order);
            let there = resident(&file, PAGES);
            let counted = self.since();
            self.equals(
                &format!("mapped {name}, cold: accesses"),
                faults,
                counted.accesses,
            );
            self.equals(&format!("mapped {name}, cold: added"), there, counted.added);
            let (faults, _) = touch(&file, PAGES, &order);
            let counted = self.since();
            self.equals(
                &format!("mapped {name}, hot: accesses"),
                faults,
                counted.accesses,
            );
            self.equals(&format!("mapped {name}, hot: misses"), 0, counted.misses);
        }
    }

    /// Pages leave because they are unwanted, because memory is needed, and with their file.
    fn leaving(&mut self) {
        self.drop_pages();
        self.fill();
        fadvise(self.file(), 0, None, Advice::DontNeed).expect("advice");
        let left = PAGES - resident(&self.file(), PAGES);
        let counted = self.since();
        self.equals("advised away: invalidated", left, counted.invalidated);
        self.reclaim();
        self.fill();
        let before = resident(&self.file(), PAGES);
        let half = PAGES / 2;
        let kept = resident(&self.file(), half);
        let file = File::options()
            .write(true)
            .open(&self.path)
            .expect("it is there");
        file.set_len(half * PAGE).expect("shorter");
        let counted = self.since();
        self.equals("truncated: truncated", before - kept, counted.truncated);
        drop(file);
        let kept = resident(&self.file(), half);
        fs::remove_file(&self.path).expect("it is there");
        // The pages go when nobody has the file open, and a child that another thread starts may have it until it becomes its program.
        // If they never go, the count tells.
        let have_gone = || {
            (self.now().since(&self.last).truncated > 0)
                .then_some(())
                .ok_or(())
        };
        let _ = within(PATIENCE, have_gone);
        let counted = self.since();
        self.equals("deleted: truncated", kept, counted.truncated);
        self.equals("deleted: other", 0, counted.reclaimed + counted.invalidated);
    }

    fn fill(&mut self) {
        let mut buffer = vec![0; MIB as usize];
        let file = self.file();
        for at in 0..PAGES * PAGE / MIB {
            file.read_exact_at(&mut buffer, at * MIB).expect("data");
        }
        self.disturbed |= self.since().evicted() > 0;
    }

    /// The file is read in a memory cgroup, of which the kernel then takes memory back.
    fn reclaim(&mut self) {
        let Some(group) = Group::new() else {
            self.lines
                .push(format!("{}: reclaim: no memory cgroups here", self.what));
            return;
        };
        group.enter();
        self.fill();
        group.leave();
        let before = resident(&self.file(), PAGES);
        group.reclaim();
        let after = resident(&self.file(), PAGES);
        let counted = self.since();
        assert!(before > after + 100, "{}: nothing was reclaimed", self.what);
        self.equals("reclaimed: reclaimed", before - after, counted.reclaimed);
        self.equals(
            "reclaimed: other",
            0,
            counted.truncated + counted.invalidated,
        );
        if self.probe.sees_refaults() {
            // In the same cgroup, since the kernel forgets what a cgroup evicted that is gone.
            let before = futae_agent::proc::vmstat().refaults;
            group.enter();
            self.fill_and_count("refaults", before);
            group.leave();
        }
    }

    /// Reads the file, parts of which were evicted. Nobody else may read what was evicted.
    fn fill_and_count(&mut self, case: &str, before: u64) {
        let mut buffer = vec![0; MIB as usize];
        let file = self.file();
        for at in 0..PAGES * PAGE / MIB {
            file.read_exact_at(&mut buffer, at * MIB).expect("data");
        }
        let counted = self.since();
        let truth = futae_agent::proc::vmstat().refaults - before;
        assert!(truth > 100, "{}: nothing refaulted", self.what);
        self.equals(
            &format!("reclaimed and read: {case}"),
            truth,
            counted.refaults,
        );
    }
}

/// `sendfile`, which is `splice` through a pipe of the kernel's own.
fn splice(file: &File) {
    let sink = File::options()
        .write(true)
        .open("/dev/null")
        .expect("a sink");
    let mut at = 0;
    while at < PAGES * PAGE {
        let moved = sendfile(&sink, file, Some(&mut at), 1 << 20).expect("sent");
        assert!(moved > 0);
    }
}

/// A memory cgroup, of either version.
struct Group {
    path: PathBuf,
    root: PathBuf,
    is_first: bool,
}

impl Group {
    fn new() -> Option<Self> {
        let first = Path::new("/sys/fs/cgroup/memory");
        let is_first = first.join("memory.force_empty").exists();
        let root = if is_first {
            first
        } else {
            Path::new("/sys/fs/cgroup")
        };
        if !is_first {
            fs::write(root.join("cgroup.subtree_control"), "+memory").ok()?;
        }
        let path = root.join(format!("futae-cases-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(Self {
            path,
            root: root.to_owned(),
            is_first,
        })
    }

    fn enter(&self) {
        fs::write(self.path.join("cgroup.procs"), "0").expect("it may enter");
    }

    fn leave(&self) {
        fs::write(self.root.join("cgroup.procs"), "0").expect("it may leave");
    }

    fn reclaim(&self) {
        let (name, what) = if self.is_first {
            ("memory.force_empty", "0")
        } else {
            ("memory.reclaim", "8M")
        };
        // It may say that it could not take all of it.
        let _ = fs::write(self.path.join(name), what);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.leave();
        let _ = fs::remove_dir(&self.path);
    }
}
