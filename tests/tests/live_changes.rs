//! A server whose policy changes while clients are connected: `futae policy`, and SIGHUP.

use futae_nbd::{ClientWish, Command};
use futae_policy::Prng;
use futae_sim::replay::{ReplaySpec, replay_file};
use futae_testkit::nbd::Client;
use futae_testkit::wait::eventually;
use futae_tests::live::{BLOCK, BLOCKS, LivePlace, Load, SLOTS, image_of, said};
use futae_tests::stage::Stage;
use futae_tests::tools::{has_fuse, text};
use rustix::process::Signal;
use std::fs;
use std::path::Path;

#[test]
fn a_policy_changes_under_load_and_the_log_replays() {
    let place = LivePlace::new();
    let log = place.path("decisions");
    let more = format!(
        "policy = \"lru\"\ndemotion = \"on\"\nwrite-mode = \"write-back\"\ndecision-log = \"{}\"",
        text(&log)
    );
    place.write(&more);
    let server = place.serve();
    let load = Load::start(&place.path("nbd.sock"), "vm1");
    load.go_on(1000);
    let mut before = "lru".to_owned();
    for policy in [
        "arc",
        "exclusive",
        "s3-fifo",
        "random",
        "lfu-history",
        "auto",
        "directory",
        "const",
        "2q",
    ] {
        let (ok, text) = place.policy("vm1", policy);
        assert!(ok, "{text}");
        let kept = format!("vm1: policy {policy} in place of {before}, {SLOTS} blocks kept\n");
        assert_eq!(text, kept);
        let (ok, text) = place.policy("vm1", policy);
        assert!(ok && text.contains("already"), "{text}");
        assert_eq!(place.status()["engines"][0]["policy"], policy);
        load.go_on(300);
        policy.clone_into(&mut before);
    }
    for (export, policy, problem) in [
        ("vm1", "lur", "did you mean lru"),
        ("vm1", "opt", "future"),
        ("vm2", "lru", "no export is named \"vm2\""),
    ] {
        let (ok, text) = place.policy(export, policy);
        assert!(!ok && text.contains(problem), "{text}");
    }
    assert_eq!(place.status()["engines"][0]["policy"], "2q");
    let blocks = load.end();
    assert!(server.stop().status.success());
    let image = fs::read(place.path("vm1.img")).expect("the image");
    assert!(image == image_of(&blocks), "the image differs");

    let text = fs::read_to_string(&log).expect("the log");
    let changes = text
        .lines()
        .filter(|line| line.starts_with("policy "))
        .count();
    assert_eq!(changes, 9);
    let spec = ReplaySpec {
        policy: "lru".parse().expect("a policy"),
        slots: SLOTS,
        seed: 0,
    };
    let replayed = replay_file(&spec, &log).expect("a log");
    assert_eq!(replayed.difference, None);
    assert!(replayed.decisions > 3000, "{replayed:?}");
}

/// A log has all that changes which blocks are in the cache, so it can be replayed past any of it.
#[test]
fn a_log_replays_past_changes_of_the_size_and_blocks_that_were_dropped() {
    let place = LivePlace::new();
    let log = place.path("decisions");
    let more = format!("policy = \"lru\"\ndecision-log = \"{}\"", text(&log));
    place.write(&more);
    let server = place.serve();
    let control = place.path("control.sock");
    let socket = place.path("nbd.sock");
    let mut client = Client::unix(&socket, "vm1", &ClientWish::default());
    let mut prng = Prng::new(7);
    for policy in ["arc", "s3-fifo", "random", "auto", "2q", "sieve"] {
        assert!(place.policy("vm1", policy).0, "{policy}");
        for slots in [SLOTS / 4, SLOTS * 2, SLOTS] {
            for _ in 0..200 {
                let near = 1 + prng.below(BLOCKS);
                let offset = prng.below(near) * BLOCK as u64;
                client.read(offset, BLOCK as u32).expect("a read");
            }
            let offset = prng.below(BLOCKS - 8) * BLOCK as u64;
            let trimmed = client.simple(Command::Trim, offset, 8 * BLOCK as u32);
            assert_eq!(trimmed.error, None);
            let size = format!("{slots}blocks");
            let (ok, said) = said(&["export", "resize", text(&control), "vm1", &size]);
            assert!(ok, "{said}");
        }
    }
    drop(client);
    assert!(server.stop().status.success());
    let spec = ReplaySpec {
        policy: "lru".parse().expect("a policy"),
        slots: SLOTS,
        seed: 0,
    };
    let replayed = replay_file(&spec, &log).expect("a log");
    assert_eq!(replayed.difference, None);
    assert!(replayed.decisions >= 3600, "{replayed:?}");
    // The next server's log comes in the place of this one, which begins with a policy.
    let begin = fs::read_to_string(&log).expect("the log");
    assert!(begin.starts_with("policy arc\n"), "{begin}");
    assert!(place.serve().stop().status.success());
}

#[test]
fn a_policy_that_lives_on_evictions_needs_them() {
    let place = LivePlace::new();
    place.write("policy = \"lru\"");
    let mut server = place.serve();
    let (ok, said_so) = place.policy("vm1", "exclusive");
    assert!(!ok && said_so.contains("--demotion on"), "{said_so}");
    assert_eq!(place.status()["engines"][0]["policy"], "lru");

    // The file is what counts: it puts back what an order changed.
    assert!(place.policy("vm1", "arc").0);
    place.write("policy = \"sieve\"");
    server.signal(Signal::HUP);
    eventually("the policy is that of the file", || {
        place.status()["engines"][0]["policy"] == "sieve"
    });
    // A cache that comes later is like the others, not like those of the start.
    fs::write(place.path("vm2.img"), image_of(&[1])).expect("an image");
    let export = format!("vm2={},share=64KiB", text(&place.path("vm2.img")));
    let control = place.path("control.sock");
    let (ok, said_so) = said(&["export", "add", text(&control), &export]);
    assert!(ok, "{said_so}");
    let engines = place.status()["engines"].clone();
    let policies = engines.as_array().expect("a list").iter();
    assert!(
        policies.clone().count() == 2 && policies.clone().all(|it| it["policy"] == "sieve"),
        "{engines}"
    );
    assert!(server.stop().status.success());
}

#[test]
fn a_mount_changes_its_policy() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(32);
    let control = format!("unix:{}", stage.control.display());
    stage.mount_image(&["--cache", "16blocks", "--control", &control]);
    let file = stage.file();
    let before = fs::read(&file).expect("the file");
    let name = text(Path::new(file.file_name().expect("a name"))).to_owned();
    let (ok, text) = said(&["policy", &control, &name, "arc"]);
    assert!(ok && text.contains("policy arc in place of lru"), "{text}");
    assert!(fs::read(&file).expect("the file") == before);
    for (name, policy, problem) in [
        ("other", "lru", "nothing is called \"other\""),
        (name.as_str(), "exclusive", "no cache is above a mount"),
        (name.as_str(), "lfu-history", "--join-reads"),
    ] {
        let (ok, text) = said(&["policy", &control, name, policy]);
        assert!(!ok && text.contains(problem), "{text}");
    }
    stage.stop_mount();
}
