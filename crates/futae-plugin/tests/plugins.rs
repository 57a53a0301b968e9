//! Plug-ins as their authors build them: the examples count as the policies of the registry do, and a library that
//! is wrong is refused by name.

use futae_policy::{
    Access, BlockId, Departure, HashIndex, Level, Outcome, PolicySpec, Shape, build,
};
use futae_sim::{LevelSpec, SimulationError, SimulationSpec, WriteMode, links, simulate_all};
use kit::{CRATE, compiles, library_of_c, text};
use std::path::Path;

mod kit;

/// Misses of each level of hierarchies under the same requests.
fn misses(hierarchies: &[&[String]]) -> Result<Vec<Vec<u64>>, SimulationError> {
    let spec = |levels: &&[String]| -> SimulationSpec {
        let levels: Vec<LevelSpec> = levels
            .iter()
            .map(|level| level.parse().expect("a level"))
            .collect();
        SimulationSpec {
            links: links(&levels, None),
            levels,
            write_mode: WriteMode::default(),
            guests: 1,
            workload: "zipf(1.0,writes=0.2):16MiB".parse().expect("a workload"),
            block_bytes: 4096,
            seed: 7,
            warmup_requests: Some(0),
            requests: Some(100_000),
        }
    };
    let specs: Vec<_> = hierarchies.iter().map(spec).collect();
    let report = simulate_all(&specs, 2, &|_| {})?;
    let of_run = |run: &futae_sim::Run| {
        let levels = run.levels.iter();
        levels.map(|level| level.counters.misses).collect()
    };
    Ok(report.runs.iter().map(of_run).collect())
}

#[test]
fn the_examples_count_as_the_policies_of_the_registry_do() {
    futae_plugin::enable();
    let folder = tempfile::tempdir().expect("a directory");
    let lru = library_of_c(
        folder.path(),
        "liblru.so",
        "../../examples/plugins/lru.c",
        &[],
    );
    let fifo = folder.path().join("libfifo.so");
    let source = format!("{CRATE}/../../examples/plugins/fifo.rs");
    let rust = ["--edition", "2024", "-O", "--crate-type", "cdylib", &source];
    let is_there = compiles("rustc", &rust, &fifo);
    let plugins = [(lru, "lru"), (is_there.then(|| text(fifo)), "fifo")];
    for (plugin, name) in plugins {
        let Some(plugin) = plugin else { continue };
        for size in ["1blocks", "100blocks", "1500blocks"] {
            let level = |policy: &str| format!("{policy}:{size}");
            let outer = |policy: &str| format!("exclusive({policy}):800blocks");
            let found = misses(&[
                &[level(name)],
                &[level(&plugin)],
                &["fifo:200blocks".to_owned(), level(name)],
                &["fifo:200blocks".to_owned(), level(&plugin)],
                &[level("lru"), outer(name)],
                &[level("lru"), outer(&plugin)],
            ])
            .expect("counts");
            assert!(found[0][0] > 0 && found[4][1] > 0);
            for pair in found.chunks(2) {
                assert_eq!(pair[0], pair[1], "{plugin} at {size}");
            }
        }
    }
}

#[test]
fn a_library_that_is_wrong_is_refused_by_name() {
    futae_plugin::enable();
    let folder = tempfile::tempdir().expect("a directory");
    let refused_when_loaded = [
        ("-DNO_ENTRY", "no function futae_policy"),
        ("-DNOTHING", "returned NULL"),
        (
            "-DVERSION=9",
            "version 9 of the interface, and this futae has version 1",
        ),
        ("-DSIZE=12", "declares 12 bytes"),
        ("-DNO_HIT", "no function hit"),
        ("-DNO_STATE", "create returned NULL and gave no reason"),
    ];
    for (at, (wrong, message)) in refused_when_loaded.into_iter().enumerate() {
        let name = format!("libwrong{at}.so");
        let Some(path) = library_of_c(folder.path(), &name, "tests/wrong.c", &[wrong]) else {
            return;
        };
        let error = format!("{path}:10blocks")
            .parse::<LevelSpec>()
            .expect_err(wrong);
        let error = error.to_string();
        assert!(error.contains(&name) && error.contains(message), "{error}");
    }
    let refused_when_asked = [
        ("-DODD_MISS", "miss answered 7, which is neither 1 nor 0"),
        (
            "-DNO_FLAW",
            "victim answered slot 15, which is none of its 10 slots",
        ),
    ];
    for (at, (wrong, message)) in refused_when_asked.into_iter().enumerate() {
        let name = format!("libodd{at}.so");
        let Some(path) = library_of_c(folder.path(), &name, "tests/wrong.c", &[wrong]) else {
            return;
        };
        for levels in [
            &[format!("{path}:10blocks")][..],
            &[
                "lru:5blocks".to_owned(),
                format!("exclusive({path}):10blocks"),
            ],
        ] {
            let error = misses(&[levels]).expect_err(wrong).to_string();
            assert!(error.contains(&name) && error.contains(message), "{error}");
        }
    }
    for (path, message) in [
        ("./no-such.so".to_owned(), "there is no such file"),
        (format!("{CRATE}/Cargo.toml"), "cannot be loaded"),
    ] {
        let error = format!("{path}:10blocks")
            .parse::<LevelSpec>()
            .expect_err(message);
        let error = error.to_string();
        assert!(error.contains(&path) && error.contains(message), "{error}");
    }
}

/// Removals leave free slots, one of which the library then names.
#[test]
fn a_victim_in_a_free_slot_is_a_fault_and_no_panic() {
    futae_plugin::enable();
    let folder = tempfile::tempdir().expect("a directory");
    let wrong = ["-DFREE_SLOT"];
    let Some(path) = library_of_c(folder.path(), "libfree.so", "tests/wrong.c", &wrong) else {
        return;
    };
    let spec: PolicySpec = path.parse().expect("a path");
    let mut policy = build(&spec, &Shape { slots: 4, seed: 1 }).expect("built");
    let access = |index| Access::read(BlockId::on_first(index));
    policy.insert(futae_policy::Slot(0), &access(0));
    assert_eq!(policy.victim(&access(1)), None);
    let fault = policy.fault().expect("a fault").to_string();
    assert!(fault.contains("libfree.so"), "{fault}");
    assert!(fault.contains("victim answered slot 3, which holds no block"));
    // What is called all the same does no harm.
    let mut level = Level::new(
        build(&spec, &Shape { slots: 4, seed: 1 }).expect("built"),
        HashIndex::default(),
        4,
    );
    for index in 0..4 {
        level.access(&access(index));
    }
    assert_eq!(
        level.access(&access(3)),
        Outcome::Hit(futae_policy::Slot(3))
    );
    level.remove(BlockId::on_first(3), Departure::Invalidated);
    assert_eq!(level.resize(1).len(), 2);
    assert!(level.fault().is_some());
    level.audit();
}

/// A process that goes on, as Python does: a library that replaces another, or has its name in another directory, is not
/// taken for it.
#[test]
fn a_library_is_told_from_one_of_the_same_name_and_from_a_new_build() {
    futae_plugin::enable();
    let folder = tempfile::tempdir().expect("a directory");
    let place = |name: &str| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).expect("a directory");
        place
    };
    let (one, other) = (place("one"), place("other"));
    let lru = "../../examples/plugins/lru.c";
    let is_built = library_of_c(&one, "libx.so", lru, &[]).is_some()
        && library_of_c(&other, "libx.so", "tests/wrong.c", &["-DODD_MISS"]).is_some();
    if !is_built {
        return;
    }
    // What a path means changes with the directory that it begins at; a link is one that tests can change alone.
    let link = folder.path().join("here");
    let lead = |to: &Path| {
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(to, &link).expect("a link");
    };
    let path = text(link.join("libx.so"));
    let found = || {
        misses(&[
            &["lru:100blocks".to_owned()],
            &[format!("{path}:100blocks")],
        ])
    };
    lead(&one);
    let counts = found().expect("counts");
    assert_eq!(counts[0], counts[1]);
    lead(&other);
    let fault = found().expect_err("the other library is wrong").to_string();
    assert!(fault.contains("miss answered 7"), "{fault}");
    lead(&one);
    assert!(found().is_ok());
    let built = library_of_c(folder.path(), "new.so", lru, &["-O1"]).expect("a compiler");
    std::fs::rename(built, one.join("libx.so")).expect("it replaces the first");
    let refused = format!("{path}:100blocks").parse::<LevelSpec>();
    let refused = refused.expect_err("a new build").to_string();
    assert!(
        refused.contains("was replaced after this process had loaded it"),
        "{refused}"
    );
}
