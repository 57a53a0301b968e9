//! Evictions in a guest are told: every range that arrives names blocks of the file that was evicted, none
//! names another, and nearly all arrive. On ext4 and XFS, by what the host finds there in the images.

use futae_agent_protocol::{Frame, Health, Message, Notices, SECTOR_BYTES, Sample, Stream};
use futae_machine::{Kernel, Plan};
use futae_testkit::need::{Need, skip};
use std::fs::File;
use std::io::{ErrorKind, Read, Write, stderr};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// More than the guest's memory, together.
const FILE_MIB: u64 = 160;
const STAMP: &[u8; 8] = b"evict me";

fn run(command: &mut Command) {
    let said = command.output().expect("it starts");
    let errors = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{command:?}: {errors}");
}

/// An image with an empty file system.
fn image(directory: &Path, kind: &str) -> PathBuf {
    let path = directory.join(format!("{kind}.img"));
    File::create(&path)
        .expect("an image")
        .set_len(400 * MIB)
        .expect("room");
    run(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&path));
    path
}

/// A file of which each page says which it is.
fn stamped(directory: &Path) -> PathBuf {
    let path = directory.join("stamped");
    let mut bytes = Vec::new();
    for page in 0..MIB / PAGE {
        bytes.extend_from_slice(STAMP);
        bytes.extend_from_slice(&page.to_le_bytes());
        bytes.resize((page as usize + 1) * PAGE as usize, 0);
    }
    std::fs::write(&path, bytes).expect("a file");
    path
}

/// Every frame that arrives, from a thread of its own.
fn listen(path: &Path) -> mpsc::Receiver<(Frame, Health)> {
    let listener = UnixListener::bind(path).expect("a socket");
    let (sender, frames) = mpsc::channel();
    std::thread::spawn(move || {
        let Ok((mut connection, _)) = listener.accept() else {
            return;
        };
        let (mut stream, mut buffer) = (Stream::default(), vec![0; 65_536]);
        loop {
            match connection.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => stream.feed(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
            while let Some(frame) = stream.next_frame() {
                if sender.send((frame, stream.health())).is_err() {
                    return;
                }
            }
        }
    });
    frames
}

/// What was heard: samples added up, and the notices.
fn hear(frames: &mpsc::Receiver<(Frame, Health)>, time: Duration) -> (Sample, Vec<Notices>) {
    let (mut all, mut notices) = (Sample::default(), Vec::new());
    let end = Instant::now() + time;
    while let Ok((frame, health)) =
        frames.recv_timeout(end.saturating_duration_since(Instant::now()))
    {
        assert_eq!(
            health.broken_frames + health.unknown_frames,
            0,
            "{health:?}"
        );
        match frame.message {
            Message::Sample(sample) => {
                all.total.add(&sample.total);
                all.notices_lost += sample.notices_lost;
                all.notices_homeless += sample.notices_homeless;
            }
            Message::Notices(some) => notices.push(some),
            Message::Hello(hello) => assert_eq!(hello.guest, "told"),
            Message::PageCache(_) => {}
            Message::References(_) | Message::Ring(_) | Message::RingAnswer(_) => {
                panic!("nobody asked for them")
            }
        }
    }
    (all, notices)
}

/// The agent for the guest: this build's, or that which the environment names, such as a static one.
fn agent() -> PathBuf {
    let named = std::env::var_os("FUTAE_AGENT").map(PathBuf::from);
    named.unwrap_or_else(|| env!("CARGO_BIN_EXE_futae-agent").into())
}

#[test]
fn evictions_are_told_and_name_the_right_blocks() {
    let directory = tempfile::tempdir().expect("a directory");
    let images = ["ext4", "xfs"].map(|kind| image(directory.path(), kind));
    let socket = directory.path().join("agent.sock");
    let frames = listen(&socket);
    let mut plan = Plan::new(Kernel::Debian612)
        .cache(Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest"))
        .memory_mib(256)
        .limit(Duration::from_secs(240))
        .module("xfs")
        .port("futae.0", &socket)
        .file("bin/futae-agent", agent())
        .file("stamped", stamped(directory.path()));
    for image in &images {
        plan = plan.disk(image.clone());
    }
    let mut guest = match plan.boot() {
        Ok(guest) => guest,
        Err(error) if error.is_missing() => {
            skip(Need::Qemu, &error.to_string());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let script = format!(
        "mkdir /mnt/ext4 /mnt/xfs; mount -t ext4 /dev/vda /mnt/ext4 && mount -t xfs /dev/vdb /mnt/xfs || exit 1
         for kind in ext4 xfs; do
             for at in $(seq {FILE_MIB}); do cat /stamped; done >/mnt/$kind/file; sync
         done
         echo 3 >/proc/sys/vm/drop_caches
         for port in /sys/class/virtio-ports/*; do
             [ $(cat $port/name) = futae.0 ] && port=/dev/${{port##*/}} && break
         done
         futae-agent --name told --report $port --notices --period 500ms >/tmp/agent.log 2>&1 &
         sleep 3
         for round in 1 2; do cat /mnt/ext4/file /mnt/xfs/file >/dev/null; done
         sleep 2; cat /tmp/agent.log"
    );
    let told = guest.run(&script).expect("it runs");
    assert_eq!(
        (told.status, told.stdout.as_str()),
        (0, ""),
        "{}",
        told.stderr
    );
    let (heard, notices) = hear(&frames, Duration::from_secs(2));
    drop(guest);
    let images = images.map(|path| File::open(path).expect("an image"));
    let (mut right, mut wrong, mut ranges) = (0u64, 0u64, 0u64);
    for some in notices {
        let image = &images[usize::from(some.device.minor >= 16)];
        for range in some.ranges {
            ranges += 1;
            for page in 0..range.count * SECTOR_BYTES / PAGE {
                let mut begin = [0; 8];
                let at = range.start * SECTOR_BYTES + page * PAGE;
                image
                    .read_exact_at(&mut begin, at)
                    .expect("within the disk");
                *if begin == *STAMP {
                    &mut right
                } else {
                    &mut wrong
                } += 1;
            }
        }
    }
    let reclaimed = heard.total.reclaimed;
    let line = format!(
        "{reclaimed} pages reclaimed, {right} told in {ranges} ranges, {wrong} wrong, {} lost, {} without a place",
        heard.notices_lost, heard.notices_homeless
    );
    let _ = writeln!(stderr(), "{line}");
    assert!(reclaimed > 20_000, "{line}");
    assert!(right * 100 >= reclaimed * 95, "{line}");
    // Pages of the file systems' own records are evicted and told, too, and hold no stamp: a handful.
    assert!(wrong <= 32, "{line}");
}
