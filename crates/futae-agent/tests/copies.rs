//! What the programs copy of an evicted page is what its file holds.

use clap::Parser;
use futae_agent::args::Args;
use futae_agent::probe::Probe;
use futae_testkit::need::{Need, skip};
use futae_testkit::wait::within;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PAGES: u64 = 512;
const PAGE: usize = 4096;
/// Makes pages different from each other.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

/// A memory cgroup, and the file by which its page cache is reclaimed.
struct Group {
    directory: PathBuf,
    reclaim: &'static str,
    bytes: &'static str,
}

impl Group {
    fn new() -> std::io::Result<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let (parent, reclaim, bytes) = match root.join("cgroup.controllers").exists() {
            true => (root.to_owned(), "memory.reclaim", "1G"),
            false => (root.join("memory"), "memory.force_empty", "0"),
        };
        let directory = parent.join(format!("futae-copies-{}", std::process::id()));
        fs::create_dir(&directory)?;
        Ok(Self {
            directory,
            reclaim,
            bytes,
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

fn page(index: u64) -> Vec<u8> {
    (index + 1)
        .wrapping_mul(STEP)
        .to_le_bytes()
        .repeat(PAGE / 8)
}

#[test]
fn copied_pages_are_what_their_file_holds() {
    let args = Line::parse_from(["agent", "--evictions"]).args.check();
    let (mut probe, why) = Probe::start(&args.expect("good"));
    let mut copies = match probe.take_copies() {
        Ok(copies) => copies,
        Err(no_copies) => return skip(Need::Ebpf, &why.unwrap_or(no_copies)),
    };
    let group = match Group::new() {
        Ok(group) => group,
        Err(error) => return skip(Need::Cgroup, &error.to_string()),
    };
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = place.path().join("file");
    let content: Vec<u8> = (0..PAGES).flat_map(page).collect();
    fs::write(&path, content).expect("room");
    let file = fs::File::open(&path).expect("it is there");
    file.sync_all().expect("written");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
    let inode = file.metadata().expect("it is there").ino();

    let enter = "echo $$ >\"$1/cgroup.procs\" && exec cat \"$2\"";
    let mut read = Command::new("sh");
    read.args(["-c", enter, "sh"])
        .arg(&group.directory)
        .arg(&path);
    let read = read.output().expect("sh");
    assert_eq!(read.stdout.len() as u64, PAGES * PAGE as u64, "{read:?}");
    let mut seen = std::collections::BTreeSet::new();
    let all = within(PATIENCE, || {
        // It says so if there was not as much to reclaim as it was told.
        let _ = fs::write(group.directory.join(group.reclaim), group.bytes);
        while let Some(record) = copies.ring.next_record() {
            let Some(what) = copies.notice(&record).filter(|what| what.inode == inode) else {
                continue;
            };
            let mut data = vec![0; PAGE];
            assert!(copies.ring.read(copies.data_at(&record), &mut data));
            assert!(data == page(what.index), "page {} is another", what.index);
            seen.insert(what.index);
        }
        copies.ring.release_all();
        (seen.len() as u64 >= PAGES / 2)
            .then_some(())
            .ok_or("few were reclaimed")
    });
    assert_eq!(all, Ok(()), "{} of {PAGES} pages", seen.len());
    assert_eq!(programs(), 1, "none runs where pages are read");
    let counts = probe.read().expect("counters");
    assert!(counts.devices.is_empty() && counts.total.accesses == 0);
    let (_, copy_ns) = probe.copy_counts();
    assert!(copy_ns > 0, "one copy in so many is timed");
    drop(probe);
    let args = Line::parse_from(["agent", "--evictions", "--count", "reads"]).args;
    let (_probe, why) = Probe::start(&args.check().expect("good"));
    assert!(programs() > 4, "{} with reads; {why:?}", programs());
}

/// Programs that this process has in the kernel.
fn programs() -> usize {
    let descriptors = fs::read_dir("/proc/self/fdinfo").expect("it is mounted");
    let about = descriptors.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    let number = |text: String| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix("prog_id:").map(str::to_owned))
    };
    about
        .filter_map(number)
        .collect::<std::collections::BTreeSet<_>>()
        .len()
}
