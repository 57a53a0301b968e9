//! Guests by their names, of libvirt's own test driver, which reads its domains from a file.

use futae_balance::{Config, Controller};
use futae_testkit::need::{Need, skip};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Has these domains run, each with 1 GiB.
fn run(node: &Path, names: &[&str]) {
    let domain = |name: &&str| {
        format!(
            "<domain type='test'><name>{name}</name><memory>1048576</memory><os><type>hvm</type></os></domain>"
        )
    };
    let domains: String = names.iter().map(domain).collect();
    fs::write(node, format!("<node>{domains}</node>")).expect("a file");
}

#[test]
fn domains_that_start_and_stop_are_followed() {
    if Command::new("virsh").arg("--version").output().is_err() {
        skip(Need::Tools, "there is no virsh (libvirt-clients)");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let node = folder.path().join("node.xml");
    let agents = folder.path().display();
    let config = format!(
        "total = \"3GiB\"\nreserve = \"0MiB\"\nevaluator = \"static\"\n[libvirt]\nuri = \"test://{}\"\nminimum = \"512MiB\"\n\
         agent = {{ listen = \"{agents}/%n.agent\" }}\n",
        node.display()
    );
    let config = Config::parse(&config).expect("good");
    run(&node, &[]);
    // Nothing runs yet, and nobody is told anything: each virsh has domains of its own.
    let mut controller = Controller::new(&config, true).expect("it begins");
    let mut period = || {
        let report = controller.period();
        let guests = report.decision.guests.iter();
        let names: Vec<_> = guests.map(|guest| guest.name.clone()).collect();
        let guests = report.decision.guests.iter();
        let targets: Vec<u64> = guests.map(|guest| guest.target).collect();
        (names.join(" "), report.changes, report.problems, targets)
    };
    assert_eq!(period().0, "");
    run(&node, &["web", "db"]);
    let (names, changes, problems, targets) = period();
    assert_eq!(
        (names.as_str(), changes.len()),
        ("db web", 2),
        "{changes:?} {problems:?}"
    );
    assert_eq!(targets, [1 << 30; 2]);
    assert!(
        folder.path().join("db.agent").exists(),
        "its agent is heard"
    );
    // Those that were there keep their places.
    run(&node, &["web", "db", "a", "b"]);
    let (names, changes, problems, targets) = period();
    assert_eq!(
        (names.as_str(), changes.len()),
        ("db web a b", 2),
        "{changes:?} {problems:?}"
    );
    let sum: u64 = targets.iter().sum();
    assert!(sum <= 3 << 30 && sum > (3 << 30) - 4, "{targets:?}");
    // Seven have minimums of 3.5 GiB.
    run(&node, &["web", "db", "a", "b", "c", "d", "e"]);
    let (names, changes, problems, _) = period();
    assert_eq!((names.as_str(), changes.len()), ("db web a b", 0));
    assert!(
        problems
            .iter()
            .any(|why| why.contains("c, d, e cannot be taken up")),
        "{problems:?}"
    );
    // A guest that is stopped or has migrated away makes room.
    run(&node, &["web", "a"]);
    let (names, changes, _, _) = period();
    assert_eq!((names.as_str(), changes.len()), ("web a", 2), "{changes:?}");
    assert!(
        !folder.path().join("db.agent").exists(),
        "nobody listens for it any more"
    );
    // libvirt does not answer: nobody is forgotten.
    fs::remove_file(&node).expect("there");
    let (names, changes, problems, _) = period();
    assert_eq!((names.as_str(), changes.len()), ("web a", 0));
    assert!(
        problems.iter().any(|why| why.starts_with("libvirt: ")),
        "{problems:?}"
    );
}
