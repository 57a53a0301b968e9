//! `futae mount --residency kernel`: the kernel's page cache of the mount holds the blocks, and the policy decides which.

mod demoted;
mod mapped;
mod marks;
mod memory;
mod trees;
mod unread;
mod write_back;

use futae_policy::Prng;
use futae_testkit::stamp::Stamp;
use futae_testkit::wait::{PATIENCE, within};
use futae_tests::BLOCK;
use futae_tests::binary::{futae, run};
use futae_tests::direct::{Buffer, Direct};
use futae_tests::kernel_pages::{
    self, BLOCKS, SETTLED_EVERY, SLOTS, assert_as_simulated, can_run, number, pages_of, settle,
    stream,
};
use futae_tests::process::Running;
use futae_tests::rings;
use futae_tests::stage::Stage;
use futae_tests::tools::{Need, skip, text};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

/// A mount of an image of this many blocks, with room for fewer.
fn mounted(blocks: u64, cache_blocks: u64, policy: &str) -> Stage {
    mounted_with(blocks, cache_blocks, policy, &[])
}

fn mounted_with(blocks: u64, cache_blocks: u64, policy: &str, words: &[&str]) -> Stage {
    let mut stage = Stage::new(blocks);
    let mut command = command(&stage, cache_blocks, policy);
    command.args(words);
    stage.start_mount(command);
    stage
}

fn command(stage: &Stage, cache_blocks: u64, policy: &str) -> Command {
    let cache = format!("{cache_blocks}blocks");
    let control = format!("unix:{}", stage.control.display());
    stage.mount_image_command(&[
        "--residency",
        "kernel",
        "--cache",
        &cache,
        "--policy",
        policy,
        "--control",
        &control,
    ])
}

fn engine(stage: &Stage) -> Value {
    stage.status()["engines"][0].clone()
}

fn audit(stage: &Stage) -> u64 {
    kernel_pages::audit(&[stage.file()], || engine(stage))
}

fn check(file: &File, block: u64, version: u64) {
    kernel_pages::check(file, block, Stamp { block, version });
}

/// Reads by the page cache miss as often as the simulator says, within a point; and the counts are of every read.
fn as_simulated(name: &str) {
    policies_as_simulated(name, &["sieve", "s3-fifo", "clock"], &[]);
}

fn policies_as_simulated(name: &str, policies: &[&str], words: &[&str]) {
    if !can_run() {
        return;
    }
    let reads = stream(name);
    for policy in policies {
        let mut stage = mounted_with(BLOCKS, SLOTS.into(), policy, words);
        let file = File::open(stage.file()).expect("the file");
        for some in reads.chunks(SETTLED_EVERY) {
            some.iter().for_each(|&block| check(&file, block, 0));
            settle(|| engine(&stage));
        }
        audit(&stage);
        drop(file);
        let status = stage.stop_mount()["status"].clone();
        assert_as_simulated(name, policy, &reads, &status);
    }
}

#[test]
fn a_mild_zipf_hits_as_simulated() {
    as_simulated("zipf 0.8");
}

#[test]
fn a_strong_zipf_hits_as_simulated() {
    as_simulated("zipf 1.1");
}

#[test]
fn a_loop_with_a_scan_hits_as_simulated() {
    as_simulated("loop with scan");
}

#[test]
fn a_middle_that_moves_hits_as_simulated() {
    as_simulated("normal with shift");
}

#[test]
fn normal_volumes_take_no_page_from_protected_ones() {
    if !can_run() {
        return;
    }
    let mut stage = Stage::new(2048);
    let hot = stage.path("hot.img");
    fs::copy(&stage.image, &hot).expect("a copy");
    let sources = [
        format!("hot={},protected", text(&hot)),
        format!("cold={}", text(&stage.image)),
    ];
    let mut command = futae(&["mount", &sources[0], &sources[1]]);
    command
        .arg(&stage.mountpoint)
        .args(["--json", "--residency", "kernel"]);
    command.args(["--cache", "300blocks", "--policy", "directory(sieve)"]);
    let control = format!("unix:{}", text(&stage.control));
    command.args(["--control", &control]);
    let ready = stage.start_mount_of_any(command);
    assert_eq!(ready["residency"], "kernel", "{ready}");
    let [hot, cold] = ["hot", "cold"].map(|name| stage.mountpoint.join(name));
    let files = [&hot, &cold].map(|path| File::open(path).expect("a file"));
    for block in 0..200 {
        check(&files[0], block, 0);
    }
    // Machines that give memory back ahead of need take idle pages.
    let assert_stays = || {
        let pages = pages_of(&hot);
        let taken = number(&engine(&stage)["kernel"], "reclaimed");
        assert!(pages + taken >= 200, "{pages} {taken}");
    };
    for block in 0..2048 {
        check(&files[1], block, 0);
        if block % 256 == 0 {
            assert_stays();
        }
    }
    assert_stays();
    let few = || {
        (pages_of(&cold) <= 100)
            .then_some(())
            .ok_or_else(|| pages_of(&cold))
    };
    within(PATIENCE, few).expect("the rest is for the others");
    drop(files);
    stage.stop_mount();
}

#[test]
fn no_page_is_stale() {
    no_page_is_stale_under("s3-fifo", &[], Users::Stay);
}

/// How long writers have the file open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Users {
    /// All the time.
    Stay,
    /// For one operation.
    ComeAndGo,
}

/// Writes of every kind, in random order, with evictions all the time: a read never shows what was there before.
fn no_page_is_stale_under(policy: &str, words: &[&str], users: Users) {
    if !can_run() {
        return;
    }
    let mut stage = mounted_with(STALE_BLOCKS, 40, policy, words);
    let versions = change_at_random(&stage, users);
    // Pages that were written in part are there without being whole: the kernel does not count these.
    let agree = || {
        let status = engine(&stage);
        let kernel = number(&status["kernel"], "pages");
        let waits = number(&status["kernel"], "waiting");
        // Resident blocks that nobody has read yet need have no page.
        let unread = number(&status, "loading_blocks");
        let is_alike = waits == 0 && kernel + unread == number(&status, "resident_blocks");
        is_alike.then_some(kernel).ok_or(status)
    };
    let pages = within(PATIENCE, agree).expect("both have the same pages");
    assert!(pages <= 40 && pages_of(&stage.file()) <= pages, "{pages}");
    stage.stop_mount();
    check_image(&stage, &versions);
}

const STALE_BLOCKS: u64 = 256;

/// The image has the version of each block, or a hole.
fn check_image(stage: &Stage, versions: &[Option<u64>]) {
    let image = File::open(&stage.image).expect("the image");
    for (block, version) in (0..).zip(versions) {
        if let Some(version) = version {
            check(&image, block, *version);
        }
    }
}

/// Changes and reads the file; what it holds then: the version of each block, none for a hole.
fn change_at_random(stage: &Stage, users: Users) -> Vec<Option<u64>> {
    let blocks = STALE_BLOCKS;
    let writers = || {
        let file = File::options().read(true).write(true).open(stage.file());
        let direct = Direct::open(&stage.file());
        (file.expect("the file"), direct.expect("the file"))
    };
    let stay = (users == Users::Stay).then(writers);
    let reader = File::open(stage.file()).expect("the file");
    let mut versions = vec![Some(0); blocks as usize];
    let (mut prng, mut bytes, mut aligned) = (Prng::new(11), vec![0; BLOCK], Buffer::new(BLOCK));
    for version in 1..4000 {
        let block = prng.below(blocks);
        let offset = block * BLOCK as u64;
        let known = &mut versions[block as usize];
        let kind = prng.below(10);
        let come = (stay.is_none() && kind < 5).then(writers);
        match (kind, stay.as_ref().or(come.as_ref())) {
            (0, Some((file, _))) => {
                Stamp { block, version }.fill(&mut bytes);
                file.write_all_at(&bytes, offset).expect("a write");
                *known = Some(version);
            }
            // In parts: the page is there half written in between.
            (1, Some((file, _))) => {
                Stamp { block, version }.fill(&mut bytes);
                file.write_all_at(&bytes[..1000], offset).expect("a write");
                file.write_all_at(&bytes[1000..], offset + 1000)
                    .expect("a write");
                *known = Some(version);
            }
            (2, Some((_, direct))) => {
                Stamp { block, version }.fill(aligned.get_mut());
                direct.write(offset, &aligned).expect("a direct write");
                *known = Some(version);
            }
            (3, Some((file, _))) => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, hole, offset, BLOCK as u64).expect("a hole");
                *known = None;
            }
            (4, Some((_, direct))) => {
                direct.read(offset, &mut aligned).expect("a direct read");
                let seen = Stamp::read(aligned.get());
                assert_eq!(
                    seen,
                    Some(Stamp {
                        block,
                        version: known.unwrap_or(0)
                    })
                    .filter(|_| known.is_some())
                );
            }
            _ => match *known {
                Some(version) => check(&reader, block, version),
                None => {
                    reader.read_exact_at(&mut bytes, offset).expect("a read");
                    assert!(
                        bytes.iter().all(|&byte| byte == 0),
                        "block {block} is a hole"
                    );
                }
            },
        }
    }
    let (file, _) = writers();
    assert!(file.set_len(0).is_err(), "a volume has its size");
    assert!(fs::rename(stage.file(), stage.mountpoint.join("other")).is_err());
    versions
}

#[test]
fn what_the_kernel_gives_up_is_not_resident_and_a_resize_is_followed() {
    if !can_run() {
        return;
    }
    let mut stage = mounted(512, 200, "sieve");
    let file = File::open(stage.file()).expect("the file");
    (0..150).for_each(|block| check(&file, block, 0));
    assert_eq!(audit(&stage), 150);
    assert_eq!(stage.status()["residency"], "kernel");
    fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    assert_eq!(audit(&stage), 0);
    assert_eq!(number(&engine(&stage)["kernel"], "reclaimed"), 150);
    (0..400).for_each(|block| check(&file, block, 0));
    assert_eq!(audit(&stage), 200);
    let resized = stage.order("{\"command\":\"resize\",\"cache\":\"50blocks\"}");
    assert_eq!(resized["capacity_blocks"], 50, "{resized}");
    assert_eq!(audit(&stage), 50);
    let refused = stage
        .order("{\"command\":\"policy\",\"policy\":\"lru\"}")
        .to_string();
    assert!(
        refused.contains("by the order of hits") && refused.contains("sieve"),
        "{refused}"
    );
    let changed = stage.order("{\"command\":\"policy\",\"policy\":\"clock\"}");
    assert_eq!(changed["resident_blocks"], 50, "{changed}");
    (0..400).for_each(|block| check(&file, block, 0));
    assert_eq!(audit(&stage), 50);
    // A long read is for its pages, each once, whether they are there or not.
    let resized = stage.order("{\"command\":\"resize\",\"cache\":\"200blocks\"}");
    assert_eq!(resized["capacity_blocks"], 200, "{resized}");
    fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    assert_eq!(audit(&stage), 0);
    fadvise(&file, 0, None, Advice::Random).expect("advice");
    let before = number(&engine(&stage), "requests");
    let mut bytes = vec![0; 100 * BLOCK];
    for round in 1..4 {
        file.read_exact_at(&mut bytes, 0).expect("a read");
        let counted = || number(&engine(&stage), "requests") - before;
        let all = || (counted() == round * 100).then_some(()).ok_or_else(counted);
        within(PATIENCE, all).expect("each page once");
    }
    let trace = stage.control.with_extension("csv");
    let control = text(&stage.control);
    let recorded = run(&["record", control, "--out", text(&trace), "--time", "100ms"]);
    let warned = String::from_utf8_lossy(&recorded.stderr).into_owned();
    assert!(recorded.status.success(), "{warned}");
    assert!(warned.contains("without --residency kernel"), "{warned}");
    drop(file);
    stage.stop_mount();
}

/// Pages that may be found gone before their events are heard. It was 0; a run beside other work found 3.
const UNCOUNTED_MAX: u64 = 100;

/// The programs in the kernel have room to tell of a few thousand.
#[test]
fn all_pages_that_the_kernel_gives_up_together_are_counted() {
    if !can_run() {
        return;
    }
    let (blocks, mut bytes) = (12_000, vec![0; 1000 * BLOCK]);
    let mut stage = mounted(blocks, blocks, "sieve");
    let file = File::open(stage.file()).expect("the file");
    for at in (0..blocks).step_by(1000) {
        file.read_exact_at(&mut bytes, at * BLOCK as u64)
            .expect("a read");
    }
    assert_eq!(audit(&stage), blocks);
    fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    assert_eq!(audit(&stage), 0);
    // On a busy machine, the comparison of both caches finds a page gone before its event is heard: then it is not counted.
    let reclaimed = number(&engine(&stage)["kernel"], "reclaimed");
    let counted = blocks - UNCOUNTED_MAX..=blocks;
    assert!(counted.contains(&reclaimed), "{reclaimed}");
    drop(file);
    stage.stop_mount();
}

#[test]
fn a_mount_that_was_killed_leaves_nothing() {
    if !can_run() {
        return;
    }
    let mut stage = mounted(256, 100, "clock");
    let file = File::open(stage.file()).expect("the file");
    (0..200).for_each(|block| check(&file, block, 0));
    stage.kill_mount();
    assert!(
        file.read_at(&mut [0; BLOCK], 240 * BLOCK as u64).is_err(),
        "nobody answers"
    );
    drop(file);
    let command = command(&stage, 100, "clock");
    stage.start_mount(command);
    let file = File::open(stage.file()).expect("the file");
    (0..200).for_each(|block| check(&file, block, 0));
    assert_eq!(audit(&stage), 100);
    drop(file);
    stage.stop_mount();
}

#[test]
fn by_ring_the_pages_of_volumes_are_the_same() {
    if can_run() {
        rings::again(&["is_stale", "strong_zipf"]);
    }
}

/// Where eBPF is refused (a user namespace has its own root, not the machine's) the mount is the ordinary one, and says why.
#[test]
fn without_ebpf_the_mount_is_the_ordinary_one() {
    if !can_run() {
        return;
    }
    let tried = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "true"])
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        return skip(Need::Root, "no user namespaces here");
    }
    let stage = Stage::new(64);
    let inner = command(&stage, 32, "sieve");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]);
    command.arg(inner.get_program()).args(inner.get_args());
    let mut running = Running::start("futae mount", command);
    let ready: Value = serde_json::from_str(&running.line()).expect("JSON");
    assert_eq!(ready["residency"], "futae", "{ready}");
    assert!(engine(&stage)["kernel"].is_null());
    assert_eq!(stage.status()["residency"], "futae");
    let errors = running.stop().errors;
    assert!(
        errors.contains("eBPF needs root of the machine"),
        "{errors}"
    );
    assert!(errors.contains("as with --residency futae"), "{errors}");
}

#[test]
fn what_does_not_go_with_it_is_refused() {
    let stage = Stage::new(64);
    let said = |words: &[&str]| {
        let mut all = vec!["--residency", "kernel", "--cache", "32blocks"];
        all.extend(words);
        let ended = stage
            .mount_image_command(&all)
            .output()
            .expect("futae starts");
        assert_eq!(ended.status.code(), Some(2), "{words:?}");
        String::from_utf8_lossy(&ended.stderr).into_owned()
    };
    for policy in [
        "lru",
        "arc",
        "directory",
        "cost(inner=lru)",
        "directory(lru)",
    ] {
        let said = said(&["--policy", policy]);
        assert!(
            said.contains("by the order of hits") && said.contains("s3-fifo"),
            "{said}"
        );
        assert!(said.contains("--hit-order approximate"), "{said}");
    }
    let ordinary = stage
        .mount_image_command(&["--cache", "32blocks", "--hit-order", "approximate"])
        .output()
        .expect("futae starts");
    let ordinary = String::from_utf8_lossy(&ordinary.stderr).into_owned();
    assert!(ordinary.contains("is for --residency kernel"), "{ordinary}");
    for (words, named) in [
        (&["--kernel-cache"][..], "--kernel-cache"),
        (&["--state", "/tmp/state"], "--state"),
        (&["--join-reads", "1MiB"], "--join-reads"),
        (&["--block", "8KiB"], "--block"),
    ] {
        let mut words = words.to_vec();
        words.extend(["--policy", "sieve"]);
        let said = said(&words);
        assert!(
            said.contains(named) && said.contains("--residency kernel"),
            "{said}"
        );
    }
    let large = Stage::bare();
    File::create(&large.image)
        .and_then(|image| image.set_len(64 << 30))
        .expect("an image");
    if can_run() {
        let words = [
            "--residency",
            "kernel",
            "--cache",
            "1MiB",
            "--policy",
            "sieve",
        ];
        let ended = large
            .mount_image_command(&words)
            .output()
            .expect("futae starts");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(
            said.contains("the marks of the pages") && said.contains("at least"),
            "{said}"
        );
    }
}
