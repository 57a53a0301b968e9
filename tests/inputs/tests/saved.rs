//! Every input that was saved of fuzzing runs without a finding.

use futae_inputs::trace_readers::{self, Subject};
use futae_inputs::{
    certificate_names, compressed, hostile_client, hostile_frames, hostile_guest, hostile_server,
    nbd_codec, report_frames, ring_reader,
};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Inputs at a time of targets that also wait.
const SOME: usize = 4;
/// Inputs at a time of targets that mostly wait: for a silence, or for a connection to be tried again.
const WAITING: usize = 64;

/// Runs the inputs of an archive in `fuzz/saved`, some at a time, and says which one found something.
fn run_saved(archive: &str, at_a_time: usize, run: impl Fn(&[u8]) + Sync) {
    let saved = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/saved")
        .join(archive)
        .with_extension("tar.xz");
    let directory = tempfile::tempdir().expect("a directory");
    let unpacked = Command::new("tar")
        .arg("--extract")
        .arg("--no-same-owner")
        .arg("--file")
        .arg(&saved)
        .current_dir(&directory)
        .status();
    assert!(
        unpacked.expect("tar").success(),
        "{} can be unpacked",
        saved.display()
    );
    let entries = std::fs::read_dir(&directory).expect("the directory");
    let paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert!(!paths.is_empty(), "{} holds inputs", saved.display());
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Relaxed)) {
                    let input = std::fs::read(path).expect("an input");
                    let name = path.file_name().unwrap_or_default().display();
                    let found =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&input)));
                    assert!(
                        found.is_ok(),
                        "input {name} of {} shows a defect, see above",
                        saved.display()
                    );
                    done.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(done.into_inner(), paths.len());
}

#[test]
fn nbd() {
    run_saved("nbd_codec", 1, nbd_codec::run);
}

#[test]
fn names_in_certificates() {
    run_saved("certificate_names", 1, certificate_names::run);
}

#[test]
fn frames_of_agents() {
    run_saved("report_frames", 1, report_frames::run);
}

#[test]
fn rings_of_evicted_pages() {
    run_saved("ring_reader", 1, ring_reader::run);
}

#[test]
fn compressed_traces() {
    run_saved("compressed", 1, compressed::run);
}

#[test]
fn traces() {
    for (name, subject) in Subject::all() {
        run_saved(&format!("trace_readers-{name}"), 1, |input| {
            trace_readers::run(subject, input);
        });
    }
}

#[test]
fn hostile_clients() {
    run_saved("hostile_client", SOME, hostile_client::run);
}

#[test]
fn hostile_guests() {
    run_saved("hostile_guest", 1, hostile_guest::run);
}

#[test]
fn hostile_servers() {
    run_saved("hostile_server", WAITING, hostile_server::run);
}

#[test]
fn hostile_agents() {
    run_saved("hostile_frames", SOME, hostile_frames::run);
}
