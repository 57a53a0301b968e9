//! Guests boot, do what they are told, and end in every case.

use futae_machine::{Guest, GuestError, HostCache, Kernel, Plan};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Packages are kept between runs.
fn plan(kernel: Kernel) -> Plan {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    Plan::new(kernel).cache(cache)
}

/// The guest; none, and it says why, where there can be no guests.
fn boot(plan: Plan) -> Option<Guest> {
    match plan.boot() {
        Ok(guest) => Some(guest),
        Err(error) if error.is_missing() => {
            // Past the capturing of tests' output; nobody misses what nobody can read.
            futae_testkit::need::skip(futae_testkit::need::Need::Qemu, &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn is_running(id: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/stat"));
    status.is_ok_and(|status| !status.contains(") Z "))
}

fn image(directory: &Path) -> PathBuf {
    let path = directory.join("disk, with a comma.img");
    let bytes: Vec<u8> = (0..3u32 << 20)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    fs::write(&path, bytes).expect("an image");
    path
}

fn digest(path: &Path) -> String {
    let output = Command::new("sha256sum")
        .arg(path)
        .output()
        .expect("sha256sum");
    let text = String::from_utf8(output.stdout).expect("text");
    text.split(' ').next().expect("a digest").to_owned()
}

#[test]
fn memory_that_does_not_hold_the_files_is_refused() {
    let large = tempfile::NamedTempFile::new().expect("a file");
    large.as_file().set_len(90 << 20).expect("its length");
    let plan = plan(Kernel::Debian612).memory_mib(256);
    let error = match plan.file("large", large.path()).boot() {
        Err(error) if error.is_missing() => {
            return futae_testkit::need::skip(futae_testkit::need::Need::Qemu, &error.to_string());
        }
        Err(error) => error.to_string(),
        Ok(_) => panic!("it booted"),
    };
    assert!(error.contains("256 MiB of memory do not hold"), "{error}");
}

#[test]
fn commands_run_and_their_answers_come_back() {
    for (kernel, expected) in [(Kernel::Debian61, "6.1."), (Kernel::Debian612, "6.12.")] {
        let Some(mut guest) = boot(plan(kernel)) else {
            continue;
        };
        let told = guest.run("uname -r").expect("it runs");
        assert_eq!((told.status, told.stderr.as_str()), (0, ""));
        assert!(told.stdout.starts_with(expected), "{}", told.stdout);
        assert_eq!(told.stdout.trim(), guest.release());
        let told = guest
            .run("echo 'some $words'\necho others >&2\nexit 3")
            .expect("it runs");
        let texts = (told.stdout.as_str(), told.stderr.as_str());
        assert_eq!((told.status, texts), (3, ("some $words\n", "others\n")));
        let long = guest.run("seq 1 100000").expect("it runs");
        assert_eq!(long.stdout.lines().count(), 100_000);
        assert!(long.stdout.ends_with("\n100000\n"));
        let id = guest.id();
        assert!(is_running(id));
        drop(guest);
        assert!(!is_running(id), "QEMU outlives its guest");
    }
}

#[test]
fn a_disk_is_the_image_and_programs_bring_their_libraries() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = image(directory.path());
    let disk = futae_machine::Disk::Image {
        path: image.clone(),
        cache: HostCache::Writeback,
    };
    let plan = plan(Kernel::Debian61)
        .disk(disk)
        .module("fuse")
        .file("/opt/sums", "/usr/bin/sha256sum");
    let Some(mut guest) = boot(plan) else {
        return;
    };
    let read = guest.run("/opt/sums /dev/vda").expect("it runs");
    assert_eq!(read.stderr, "");
    assert_eq!(read.stdout.split(' ').next(), Some(digest(&image).as_str()));
    let written = guest.run("printf changed | dd of=/dev/vda conv=notrunc bs=512 seek=4; sync");
    assert_eq!(written.expect("it runs").status, 0);
    let fuse = guest.run("test -c /dev/fuse").expect("it runs");
    assert_eq!(fuse.status, 0, "the module is not loaded");
    drop(guest);
    let bytes = fs::read(&image).expect("the image");
    assert_eq!(&bytes[2048..2055], b"changed");
}

#[test]
fn a_guest_that_hangs_is_killed_and_says_where_it_was() {
    let limit = Duration::from_secs(60);
    let Some(mut guest) = boot(plan(Kernel::Debian61).limit(limit)) else {
        return;
    };
    let id = guest.id();
    let hang = "echo 'the last words' >/dev/console; while :; do sleep 1; done";
    let error = guest.run(hang).expect_err("it never ends");
    assert!(matches!(error, GuestError::TimedOut { .. }), "{error}");
    let said = error.to_string();
    for part in ["60s", "the last words", "while :"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert!(!is_running(id), "QEMU outlives its guest");
}

#[test]
fn a_guest_that_breaks_down_is_told_from_one_that_hangs() {
    let Some(mut guest) = boot(plan(Kernel::Debian61)) else {
        return;
    };
    let error = guest.run("echo c >/proc/sysrq-trigger; sleep 60");
    let error = error.expect_err("it is gone");
    assert!(matches!(error, GuestError::Ended { .. }), "{error}");
    let said = error.to_string();
    assert!(
        said.contains("Kernel panic"),
        "the console is not shown: {said}"
    );
}

#[test]
fn a_panic_of_the_test_ends_the_guest() {
    let Some(guest) = boot(plan(Kernel::Debian61)) else {
        return;
    };
    let id = guest.id();
    let failed = catch_unwind(AssertUnwindSafe(move || {
        let _guest = guest;
        panic!("as a failing test does");
    }));
    assert!(failed.is_err());
    assert!(!is_running(id), "QEMU outlives a failed test");
}

#[test]
fn what_is_not_there_is_named() {
    let cases = [
        plan(Kernel::Debian61).disk("no such image"),
        plan(Kernel::Debian61).file("/bin/it", "no such program"),
        plan(Kernel::Debian61).module("no_such_module"),
    ];
    for (plan, part) in cases
        .into_iter()
        .zip(["image", "program", "no_such_module"])
    {
        let error = plan.boot().err().expect("it cannot boot").to_string();
        // Where there can be no guests at all, that is what is said.
        assert!(
            error.contains(part) || error.contains("no guests"),
            "{error}"
        );
    }
}
