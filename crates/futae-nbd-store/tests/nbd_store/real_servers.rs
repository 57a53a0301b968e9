//! nbdkit and qemu-nbd, where they are installed.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use futae_engine::{IoBuf, IoErrorKind, Store, StoreOperation};
use futae_nbd_store::NbdStore;
use futae_testkit::wait::eventually;

use crate::common::{Checked, begin, connect, finish, recovers, start, uri};

const SIZE: usize = 64 << 20;

fn nbdkit(socket: &str, more: &[&str]) -> Option<crate::common::Server> {
    let mut arguments = vec!["--foreground", "--unix", socket];
    arguments.extend(more);
    start("nbdkit", &arguments)
}

/// The lines of nbdkit's log that contain `what`; 0 before there is a log.
fn logged(log: &Path, what: &str) -> usize {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().filter(|line| line.contains(what)).count()
}

/// The most reads that were in progress at once, by nbdkit's log.
fn most_reads_at_once(log: &Path) -> usize {
    let text = std::fs::read_to_string(log).expect("nbdkit's log");
    let (mut now, mut most) = (0usize, 0);
    for line in text.lines() {
        if line.contains("...Read id=") {
            now -= 1;
        } else if line.contains(" Read id=") {
            now += 1;
            most = most.max(now);
        }
    }
    most
}

#[test]
fn nbdkit_holds_what_was_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    let Some(_server) = nbdkit(&socket.to_string_lossy(), &["memory", "64M"]) else {
        return;
    };
    let mut checked = Checked::new(connect(&socket));
    assert_eq!(checked.store.size_bytes(), SIZE as u64);
    assert!(!checked.store.is_read_only() && !checked.store.takes_demotions());
    checked.roam(300, 200_000);
    // Longer than the longest payload of 32 MiB.
    let data: Vec<u8> = (0..40usize << 20).map(|at| (at >> 9) as u8).collect();
    checked.write(12_345, &data, false);
    checked.read(0, SIZE);
    checked.zero(1 << 20, 50 << 20, true);
    checked.read(0, SIZE);
    let trim = StoreOperation::Trim {
        offset: 4096,
        length: 1 << 20,
    };
    checked.run(trim).expect("nbdkit's memory can be trimmed");
    // Hints are harmless.
    checked.store.notice(checked.sequence + 1, 0, 4096);
    checked
        .store
        .demote(checked.sequence + 2, 1, 0, IoBuf::zeroed(4096));
    checked.sequence += 2;
    checked.read(0, 4096);
}

#[test]
fn many_commands_are_in_flight() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, log) = (folder.path().join("s"), folder.path().join("log"));
    let logfile = format!("logfile={}", log.display());
    let slow = [
        "--filter=log",
        "--filter=delay",
        "--threads=64",
        "memory",
        "64M",
        "rdelay=100ms",
        &logfile,
    ];
    let Some(_server) = nbdkit(&socket.to_string_lossy(), &slow) else {
        return;
    };
    let mut checked = Checked::new(connect(&socket));
    checked.write(0, &vec![7; 1 << 20], false);
    let reads: Vec<_> = (0..64)
        .map(|at| {
            let buffer = IoBuf::new(16384);
            checked.begin(StoreOperation::Read {
                offset: at * 16384,
                buffer,
            })
        })
        .collect();
    for read in &reads {
        assert!(
            finish(read)
                .expect("read")
                .as_slice()
                .iter()
                .all(|&byte| byte == 7)
        );
    }
    let most = most_reads_at_once(&log);
    assert!(most > 8, "{most} reads at once of {}", reads.len());
}

#[test]
fn extents_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    let Some(_server) = nbdkit(&socket.to_string_lossy(), &["memory", "64M"]) else {
        return;
    };
    let mut checked = Checked::new(connect(&socket));
    checked.write(1 << 20, &[1; 4096], false);
    let extents = checked.store.extents(0, SIZE as u64).expect("extents");
    assert_eq!(
        extents.iter().map(|extent| extent.length).sum::<u64>(),
        SIZE as u64
    );
    assert!(extents.iter().any(|extent| extent.hole) && extents.iter().any(|extent| !extent.hole));
    assert!(extents[0].hole);
}

/// A server that takes whole blocks of 4 KiB.
const LARGE_BLOCKS: [&str; 7] = [
    "--filter=blocksize-policy",
    "memory",
    "4M",
    "blocksize-minimum=4096",
    "blocksize-preferred=4096",
    "blocksize-maximum=65536",
    "blocksize-error-policy=error",
];

#[test]
fn writes_to_one_block_of_a_server_that_is_gone_fail_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    let Some(server) = nbdkit(&socket.to_string_lossy(), &LARGE_BLOCKS) else {
        return;
    };
    drop(connect(&socket));
    let store = NbdStore::connect_with_timeout(&uri(&socket), None, Duration::from_secs(1));
    let store = store.expect("connected");
    drop(server);
    // One after the other they would take longer than anybody waits.
    let writes: Vec<_> = (0..200)
        .map(|at| {
            let write = StoreOperation::Write {
                offset: at * 10,
                buffer: IoBuf::copy_of(&[7; 10]),
                fua: false,
            };
            begin(&store, at + 1, write)
        })
        .collect();
    assert!(finish(&writes[199]).is_err());
}

#[test]
fn small_ranges_work_on_a_server_with_large_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    let Some(_server) = nbdkit(&socket.to_string_lossy(), &LARGE_BLOCKS) else {
        return;
    };
    let mut checked = Checked::new(connect(&socket));
    checked.roam(400, 150_000);
    // Neighbours in one block of the server, all at once.
    let writes: Vec<_> = (0..64u64)
        .map(|at| {
            let buffer = IoBuf::copy_of(&[at as u8; 100]);
            checked.begin(StoreOperation::Write {
                offset: at * 100,
                buffer,
                fua: false,
            })
        })
        .collect();
    for (at, write) in writes.iter().enumerate() {
        finish(write).expect("written");
        checked.model[at * 100..at * 100 + 100].fill(at as u8);
    }
    checked.read(0, 8192);
}

#[test]
fn what_a_server_cannot_do_is_said_or_done_otherwise() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    let plain = ["--filter=nozero", "memory", "8M"];
    let Some(_server) = nbdkit(&socket.to_string_lossy(), &plain) else {
        return;
    };
    let mut checked = Checked::new(connect(&socket));
    checked.roam(100, 100_000);
    drop(checked);
    let socket = folder.path().join("w");
    let Some(_server) = nbdkit(&socket.to_string_lossy(), &["memory", "8M"]) else {
        return;
    };
    let mut checked = Checked::new(connect(&socket).read_only());
    refuses_writes(&mut checked);
    let socket = folder.path().join("r");
    let Some(_server) = nbdkit(&socket.to_string_lossy(), &["-r", "memory", "8M"]) else {
        return;
    };
    let mut checked = Checked::new(connect(&socket));
    refuses_writes(&mut checked);
}

fn refuses_writes(checked: &mut Checked) {
    assert!(checked.store.is_read_only());
    let buffer = IoBuf::zeroed(512);
    let refused = checked.run(StoreOperation::Write {
        offset: 0,
        buffer,
        fua: false,
    });
    assert_eq!(refused.expect_err("read-only").kind, IoErrorKind::ReadOnly);
    checked.read(0, 8192);
}

#[test]
fn qemu_nbd_holds_what_was_written() {
    let folder = tempfile::tempdir().expect("a folder");
    for cache in ["writeback", "none"] {
        let socket = folder.path().join(cache);
        let image = folder.path().join("image");
        let file = File::create(&image).expect("a file");
        file.set_len(16 << 20).expect("its size");
        let (socket_text, image) = (socket.to_string_lossy(), image.to_string_lossy());
        let cache = format!("--cache={cache}");
        let arguments = [
            "-f",
            "raw",
            "-t",
            "-e",
            "4",
            "-k",
            &socket_text,
            "--discard=unmap",
            &cache,
            &image,
        ];
        let Some(_server) = start("qemu-nbd", &arguments) else {
            return;
        };
        let mut checked = Checked::new(connect(&socket));
        println!("{cache}: {}", checked.store.describe());
        checked.roam(200, 200_000);
        checked
            .run(StoreOperation::Trim {
                offset: 1,
                length: 100_000,
            })
            .expect("trimmed");
    }
}

#[test]
fn a_killed_server_fails_what_is_in_flight_and_its_successor_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, log) = (folder.path().join("s"), folder.path().join("log"));
    let logfile = format!("logfile={}", log.display());
    let slow = [
        "--filter=log",
        "--filter=delay",
        "--threads=64",
        "memory",
        "64M",
        "rdelay=60",
        &logfile,
    ];
    let Some(server) = nbdkit(&socket.to_string_lossy(), &slow) else {
        return;
    };
    let mut checked = Checked::new(connect(&socket));
    checked.write(0, &[1; 4096], false);
    let reads: Vec<_> = (0..32)
        .map(|at| {
            let buffer = IoBuf::new(4096);
            checked.begin(StoreOperation::Read {
                offset: at * 4096,
                buffer,
            })
        })
        .collect();
    eventually("the reads are in progress", || {
        logged(&log, " Read id=") == reads.len()
    });
    drop(server);
    for read in &reads {
        let error = finish(read).expect_err("the server is dead");
        assert_eq!(error.kind, IoErrorKind::Store);
        assert!(
            error.to_string().contains(&*socket.to_string_lossy()),
            "{error}"
        );
    }
    let error = checked.run(StoreOperation::Read {
        offset: 0,
        buffer: IoBuf::new(512),
    });
    let error = error.expect_err("still dead").to_string();
    // How it was lost, or how the last attempt to connect again failed.
    assert!(error.contains(&*socket.to_string_lossy()), "{error}");

    std::fs::remove_file(&socket).expect("the dead server's socket");
    let Some(_server) = nbdkit(&socket.to_string_lossy(), &["memory", "64M"]) else {
        return;
    };
    let sequence = recovers(&checked.store, checked.sequence);
    // The write was answered and never flushed.
    let lost = finish(&begin(&checked.store, sequence + 1, StoreOperation::Flush));
    assert!(
        lost.expect_err("writes may be lost")
            .to_string()
            .contains("flushed")
    );
    finish(&begin(&checked.store, sequence + 2, StoreOperation::Flush)).expect("told once");
}

/// nbdkit that is told to end answers everything with ESHUTDOWN, and waits until its clients have left.
#[test]
fn a_server_that_shuts_down_is_left_and_its_successor_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, log) = (folder.path().join("s"), folder.path().join("log"));
    let logfile = format!("logfile={}", log.display());
    let first = ["--filter=log", "memory", "64M", &logfile];
    let Some(server) = nbdkit(&socket.to_string_lossy(), &first) else {
        return;
    };
    let mut checked = Checked::new(connect(&socket));
    checked.read(0, 4096);
    let id = rustix::process::Pid::from_child(&server.0);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it runs");
    // Requests are answered until the signal is handled; the first one after it hears of it.
    let mut error = None;
    eventually("a request hears that the server ends", || {
        let read = checked.run(StoreOperation::Read {
            offset: 0,
            buffer: IoBuf::new(4096),
        });
        error = read.err();
        error.is_some()
    });
    assert_eq!(error.expect("it ends").kind, IoErrorKind::Store);
    let mut server = server;
    eventually("it has ended, since its client left", || {
        server.0.try_wait().expect("a child").is_some()
    });
    let _ = std::fs::remove_file(&socket);
    let Some(_server) = nbdkit(&socket.to_string_lossy(), &["memory", "64M"]) else {
        return;
    };
    recovers(&checked.store, checked.sequence);
}

#[test]
fn another_volume_at_the_same_address_is_not_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, log) = (folder.path().join("s"), folder.path().join("log"));
    let Some(server) = nbdkit(&socket.to_string_lossy(), &["memory", "64M"]) else {
        return;
    };
    let mut checked = Checked::new(connect(&socket));
    checked.read(0, 4096);
    drop(server);
    std::fs::remove_file(&socket).expect("the dead server's socket");
    let logfile = format!("logfile={}", log.display());
    let smaller = ["--filter=log", "memory", "32M", &logfile];
    let Some(_server) = nbdkit(&socket.to_string_lossy(), &smaller) else {
        return;
    };
    // The second attempt shows that the first has ended without taking the volume.
    eventually("the store attempts to connect again and again", || {
        logged(&log, " Connect ") > 1
    });
    let read = StoreOperation::Read {
        offset: 0,
        buffer: IoBuf::new(512),
    };
    assert_eq!(
        checked.run(read).expect_err("other size").kind,
        IoErrorKind::Store
    );
}

#[test]
fn a_missing_server_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = NbdStore::connect(&uri(&folder.path().join("nobody")), None).err();
    let error = error.expect("nobody listens").to_string();
    assert!(
        error.contains("nobody") && error.contains("running"),
        "{error}"
    );
}
