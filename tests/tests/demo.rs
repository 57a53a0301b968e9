//! `futae demo` on a small scale: what it prints, that it comes out as predicted, and that it
//! leaves nothing behind.

use futae_testkit::wait::eventually;
use futae_tests::binary::{binary, futae};
use futae_tests::process::{Ended, Running};
use futae_tests::stage::{Stage, is_mountpoint};
use futae_tests::tools::{has_fuse, without_fuse};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

const SIZES: [&str; 6] = ["--image", "40MiB", "--upper", "12MiB", "--lower", "16MiB"];

/// A place for the demonstration's files, which must be empty afterwards.
struct Place {
    stage: Stage,
    directory: PathBuf,
}

impl Place {
    fn new() -> Self {
        let stage = Stage::bare();
        let directory = stage.path("tmp");
        fs::create_dir(&directory).expect("a directory");
        Self { stage, directory }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = futae(&[&["demo"], &SIZES[..], arguments].concat());
        command.env("TMPDIR", &self.directory);
        command
    }

    /// Where it has mounted its file, if it has.
    fn mounted(&self) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("the list of mounts");
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        let mut points = points.map(PathBuf::from);
        points.find(|point| point.starts_with(&self.directory))
    }

    fn assert_clean(&self) {
        let left: Vec<_> = fs::read_dir(&self.directory)
            .expect("the place is there")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        assert!(!is_mountpoint(&self.stage.mountpoint));
        assert_eq!(self.mounted(), None, "left mounted");
    }
}

/// A mount that nobody answers any more, taken away with the requests that wait for an answer.
struct Forced(PathBuf);

impl Drop for Forced {
    fn drop(&mut self) {
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
        // It may be gone.
        let _ = unmount(&self.0, flags);
    }
}

fn report(ended: &Ended) -> Value {
    assert!(ended.status.success(), "{}", ended.errors);
    serde_json::from_str(&ended.lines.join("\n")).expect("the report is JSON")
}

fn number(value: &Value, key: &str) -> f64 {
    let number = value[key].as_f64();
    number.unwrap_or_else(|| panic!("{key} is no number in {value}"))
}

/// Both runs have every key, and every ratio is at most `tolerance` from the predicted one.
fn assert_as_predicted(report: &Value, tolerance: f64) {
    let runs = report["runs"].as_array().expect("runs");
    let names: Vec<_> = runs
        .iter()
        .map(|run| (&run["policy"], &run["link"]))
        .collect();
    assert_eq!(names.len(), 2, "{report}");
    assert!(
        names[0].0 == "lru" && names[0].1 == "inclusive",
        "{names:?}"
    );
    assert!(
        names[1].0 == "exclusive" && names[1].1 == "demote",
        "{names:?}"
    );
    for run in runs {
        for key in ["upper_hit", "lower_hit", "combined_hit"] {
            let (live, predicted) = (number(run, key), number(&run["predicted"], key));
            let distance = (live - predicted).abs();
            assert!(
                distance <= tolerance,
                "{key}: live {live}, predicted {predicted}: {run}"
            );
        }
        assert!(number(run, "store_reads") > 0.0);
        assert!(number(run, "reads_per_second") > 0.0);
        assert!(number(run, "processor_seconds_per_read") > 0.0);
        // Requests are finite, so this is near and not equal.
        let distance = (number(run, "closed_form") - number(run, "lower_hit")).abs();
        assert!(distance < 0.03, "far from the closed form: {run}");
    }
}

#[test]
fn one_reader_comes_out_exactly_as_predicted() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let command = place.command(&["--threads", "1", "--json"]);
    let ended = Running::start("futae demo", command).wait();
    assert_as_predicted(&report(&ended), 1e-9);
    place.assert_clean();
}

#[test]
fn several_readers_come_out_within_half_a_point() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let ended = Running::start("futae demo", place.command(&["--json"])).wait();
    let report = report(&ended);
    assert_as_predicted(&report, 0.005);
    let carrier = report["carrier"].as_str().expect("it says how it read");
    assert!(carrier.contains("FUSE"), "{carrier}");
    assert_eq!(ended.errors, "", "nothing is shown where nobody looks");
    place.assert_clean();
}

#[test]
fn people_get_a_table() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let ended = Running::start("futae demo", place.command(&[])).wait();
    assert!(ended.status.success(), "{}", ended.errors);
    let table = ended.lines.join("\n");
    for word in [
        "upper",
        "lower",
        "combined",
        "store reads",
        "lru",
        "exclusive",
        "predicted",
    ] {
        assert!(table.contains(word), "{word} is missing in\n{table}");
    }
    place.assert_clean();
}

#[test]
fn an_interrupted_one_cleans_up() {
    if !has_fuse() {
        return;
    }
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        let place = Place::new();
        let mut running = Running::start("futae demo", place.command(&["--reads", "100000000"]));
        eventually("it mounts", || place.mounted().is_some());
        thread::sleep(Duration::from_millis(300));
        running.signal(signal);
        let ended = running.wait();
        assert_eq!(ended.status.code(), Some(1), "{}", ended.errors);
        assert!(ended.errors.contains("interrupted"), "{}", ended.errors);
        place.assert_clean();
    }
}

/// Its readers wait for answers of the same process, which then come no more.
#[test]
fn a_killed_one_ends() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let mut running = Running::start("futae demo", place.command(&["--reads", "100000000"]));
    eventually("it mounts", || place.mounted().is_some());
    let point = place.mounted().expect("it has just been there");
    let _forced = Forced(point.clone());
    let file = point.join("demo.img");
    // Of the readers, a descriptor each that the main thread does not have.
    eventually("its readers have opened the file", || {
        let tasks = format!("/proc/{}/task", running.id());
        let tasks = fs::read_dir(tasks).expect("it runs");
        tasks.filter_map(Result::ok).any(|task| {
            let descriptors = fs::read_dir(task.path().join("fd"));
            let targets = descriptors.into_iter().flatten().filter_map(Result::ok);
            targets
                .filter_map(|it| fs::read_link(it.path()).ok())
                .any(|target| target == file)
        })
    });
    running.signal(Signal::KILL);
    assert_eq!(running.wait().status.signal(), Some(Signal::KILL.as_raw()));
}

/// Without FUSE it says so and reads through clients of its own.
#[test]
fn a_machine_without_fuse() {
    let Some(mut command) = without_fuse() else {
        return;
    };
    let place = Place::new();
    command.arg(binary()).arg("demo").args(SIZES).arg("--json");
    command.env("TMPDIR", &place.directory);
    let ended = Running::start("futae demo", command).wait();
    let report = report(&ended);
    assert_as_predicted(&report, 0.005);
    let carrier = report["carrier"].as_str().expect("it says how it read");
    assert!(carrier.contains("/dev/fuse"), "{carrier}");
    assert!(ended.errors.contains("in-process"), "{}", ended.errors);
    place.assert_clean();
}

/// With guests, what belongs to the other demonstration is refused, and nothing is started.
#[test]
fn guests_have_options_of_their_own() {
    let place = Place::new();
    let wrong: [(&[&str], &str); 10] = [
        (&["--writes", "2"], "--writes 2"),
        (&["--store-latency", "0,soon"], "--store-latency"),
        (&["--store-latency", "2s"], "at most a second"),
        (&["--store-latency", "0.5us"], "whole microseconds"),
        (&["--kernel", "6.1,5.10"], "5.10"),
        (&["--upper", "1MiB"], "--upper"),
        (&["--block", "8KiB"], "--block"),
        (&["--threads", "2"], "--threads"),
        (&["--reads", "0"], "--reads 0"),
        (&["--lower", "1KiB"], "1KiB is not a multiple"),
    ];
    for (arguments, word) in wrong {
        let mut command = futae(&[&["demo", "--guests"], arguments].concat());
        command.env("TMPDIR", &place.directory);
        let ended = Running::start("futae demo", command).wait();
        assert_eq!(ended.status.code(), Some(2), "{}", ended.errors);
        assert!(ended.errors.contains(word), "{}", ended.errors);
    }
    place.assert_clean();
}

/// Without QEMU it says how to get it.
#[test]
fn guests_need_qemu() {
    let place = Place::new();
    let mut command = futae(&["demo", "--guests"]);
    command
        .env("TMPDIR", &place.directory)
        .env("PATH", &place.directory);
    let ended = Running::start("futae demo", command).wait();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.errors);
    for word in ["qemu-system-x86_64", "apt-get install"] {
        assert!(ended.errors.contains(word), "{}", ended.errors);
    }
    place.assert_clean();
}
