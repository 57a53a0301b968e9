//! A store that fails: the error arrives as what it is, is counted, is not cached, and the next
//! read works.

use futae_nbd::ErrorNumber;
use futae_testkit::nbd::Plain as Client;
use futae_testkit::stamp::Stamp;
use futae_testkit::wait::obtain;
use futae_tests::BLOCK;
use futae_tests::direct::{Buffer, Direct};
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::{has, has_fuse, has_root, run, text};
use serde_json::Value;
use std::fs::{self, File};

const BLOCKS: u64 = 4096;
const ENOSPC: i32 = 28;
const EIO: i32 = 5;

/// A stage whose image is sparse, on a file system of its own that cannot hold all of it, and a
/// file beside it whose removal makes room.
struct Small {
    stage: Stage,
}

impl Small {
    /// On a `tmpfs`.
    fn tmpfs() -> Option<Self> {
        Self::on(|stage| {
            let mounted = stage.path("small");
            run(
                "mount",
                &["-t", "tmpfs", "-o", "size=8m", "none", text(&mounted)],
            );
        })
    }

    /// On an `ext4` in a file.
    fn ext4() -> Option<Self> {
        if !has("mkfs.ext4") || !has("losetup") {
            return None;
        }
        Self::on(|stage| {
            let (mounted, device) = (stage.path("small"), stage.path("small.ext4"));
            let file = File::create(&device).expect("a file");
            file.set_len(8 << 20).expect("a sparse file");
            let no_journal = ["-q", "-F", "-O", "^has_journal", text(&device)];
            run("mkfs.ext4", &no_journal);
            run("mount", &["-o", "loop", text(&device), text(&mounted)]);
        })
    }

    fn on(mount: impl FnOnce(&Stage)) -> Option<Self> {
        if !has_root() {
            return None;
        }
        let mut stage = Stage::bare();
        fs::create_dir(stage.path("small")).expect("a directory");
        mount(&stage);
        fs::write(stage.path("small/ballast"), vec![1; 4 << 20]).expect("a file");
        stage.image = stage.path("small/disk.img");
        let image = File::create(&stage.image).expect("an image");
        image
            .set_len(BLOCKS * BLOCK as u64)
            .expect("a sparse image");
        Some(Self { stage })
    }

    fn make_room(&self) {
        fs::remove_file(self.stage.path("small/ballast")).expect("the ballast goes");
    }
}

fn stamped(block: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    Stamp { block, version }.fill(&mut bytes);
    bytes
}

fn at(block: u64) -> u64 {
    block * BLOCK as u64
}

fn cache(status: &Value) -> &Value {
    &status["engines"][0]
}

/// Writes blocks until the store is full; the block that did not fit.
fn fill_up(mut write: impl FnMut(u64) -> bool) -> u64 {
    let full = (0..BLOCKS).find(|&block| !write(block));
    let full = full.expect("more fits than the file system has room for");
    assert!(full > 100, "it is full after {full} blocks");
    full
}

fn a_full_file_system_under_serve(mut small: Small, arguments: &[&str]) {
    small.stage.serve(arguments);
    let mut client = Client::connect(&small.stage.socket, EXPORT).expect("a connection");
    assert_eq!(client.export().size_bytes, at(BLOCKS));
    let mut last = None;
    let full = fill_up(|block| {
        last = client
            .write(at(block), &stamped(block, 1))
            .expect("an answer")
            .err();
        last.is_none()
    });
    assert_eq!(last, Some(ErrorNumber::NoSpace));
    assert!(
        cache(&small.stage.status())["errors"].as_u64() > Some(0),
        "it was not counted"
    );
    // What failed is not cached, what fitted is there.
    let zeroes = vec![0; BLOCK];
    let mut read = |block| client.read(at(block), BLOCK).expect("an answer");
    for block in [full, full + 7] {
        assert_eq!(
            read(block).as_ref(),
            Ok(&zeroes),
            "block {block} was never stored"
        );
    }
    for block in 0..full {
        assert_eq!(
            read(block),
            Ok(stamped(block, 1)),
            "block {block} was stored"
        );
    }
    small.make_room();
    let again = client.write(at(full), &stamped(full, 2));
    assert_eq!(again.expect("an answer"), Ok(()), "there is room now");
    let again = client.read(at(full), BLOCK).expect("an answer");
    assert_eq!(again, Ok(stamped(full, 2)));
    assert_eq!(client.flush().expect("an answer"), Ok(()));
    small.stage.stop_serve_that_said("its store failed");
}

#[test]
fn a_full_tmpfs_under_serve() {
    if let Some(small) = Small::tmpfs() {
        a_full_file_system_under_serve(small, &["--cache", "1MiB", "--policy", "lru"]);
    }
}

#[test]
fn a_full_ext4_under_serve() {
    if let Some(small) = Small::ext4() {
        a_full_file_system_under_serve(small, &["--cache", "32MiB", "--policy", "exclusive"]);
    }
}

#[test]
fn a_full_file_system_under_serve_and_mount() {
    if !has_fuse() {
        return;
    }
    let Some(mut small) = Small::tmpfs() else {
        return;
    };
    small.stage.serve(&["--cache", "32MiB"]);
    small.stage.mount(&["--cache", "32MiB"]);
    let file = Direct::open(&small.stage.file()).expect("the mounted file");
    let mut buffer = Buffer::new(BLOCK);
    let mut write = |block, version| {
        Stamp { block, version }.fill(buffer.get_mut());
        file.write(at(block), &buffer)
    };
    let mut last = None;
    let full = fill_up(|block| {
        last = write(block, 1).err();
        last.is_none()
    });
    let errno = last.and_then(|error| error.raw_os_error());
    assert_eq!(errno, Some(ENOSPC));
    let mut buffer = Buffer::new(BLOCK);
    file.read(at(full), &mut buffer).expect("a read");
    assert!(
        buffer.get().iter().all(|&byte| byte == 0),
        "it was never stored"
    );
    small.make_room();
    Stamp {
        block: full,
        version: 2,
    }
    .fill(buffer.get_mut());
    file.write(at(full), &buffer).expect("there is room now");
    for block in 0..=full {
        let version = if block == full { 2 } else { 1 };
        file.read(at(block), &mut buffer).expect("a read");
        assert_eq!(Stamp::read(buffer.get()), Some(Stamp { block, version }));
    }
    file.sync().expect("a flush");
    drop(file);
    let upper = small.stage.stop_mount_that_said("no space left on device");
    let lower = small.stage.stop_serve_that_said("No space left on device");
    assert!(
        upper["status"]["errors"].as_u64() > Some(0),
        "not counted above"
    );
    assert!(
        cache(&lower["status"])["errors"].as_u64() > Some(0),
        "not counted below"
    );
}

/// An image that is cut short, and whole again.
#[test]
fn a_truncated_image_under_serve() {
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", "1MiB", "--policy", "lru"]);
    let mut client = Client::connect(&stage.socket, EXPORT).expect("a connection");
    let image = File::options()
        .write(true)
        .open(&stage.image)
        .expect("the image");
    let block = BLOCKS - 10;
    image.set_len(at(BLOCKS / 2)).expect("truncated");
    for _ in 0..2 {
        let read = client.read(at(block), BLOCK).expect("an answer");
        assert_eq!(read, Err(ErrorNumber::InputOutput));
    }
    assert!(
        cache(&stage.status())["errors"].as_u64() >= Some(2),
        "not counted"
    );
    let read = client.read(at(7), BLOCK).expect("an answer");
    assert_eq!(read, Ok(stamped(7, 0)), "other blocks are served");
    image.set_len(at(BLOCKS)).expect("whole again");
    let read = client.read(at(block), BLOCK).expect("an answer");
    assert_eq!(read, Ok(vec![0; BLOCK]), "what the image holds now");
    assert_eq!(
        client
            .write(at(block), &stamped(block, 1))
            .expect("an answer"),
        Ok(())
    );
    let read = client.read(at(block), BLOCK).expect("an answer");
    assert_eq!(read, Ok(stamped(block, 1)));
    stage.stop_serve_that_said("another program has cut it");
}

#[test]
fn a_truncated_image_under_serve_and_mount() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", "1MiB"]);
    stage.mount(&["--cache", "1MiB"]);
    let image = File::options()
        .write(true)
        .open(&stage.image)
        .expect("the image");
    let file = Direct::open(&stage.file()).expect("the mounted file");
    let mut buffer = Buffer::new(BLOCK);
    let block = BLOCKS - 10;
    image.set_len(at(BLOCKS / 2)).expect("truncated");
    let error = file
        .read(at(block), &mut buffer)
        .expect_err("nothing is there");
    assert_eq!(error.raw_os_error(), Some(EIO), "{error}");
    file.read(at(7), &mut buffer)
        .expect("other blocks are served");
    assert_eq!(
        Stamp::read(buffer.get()),
        Some(Stamp {
            block: 7,
            version: 0
        })
    );
    image.set_len(at(BLOCKS)).expect("whole again");
    file.read(at(block), &mut buffer)
        .expect("it is there again");
    assert!(
        buffer.get().iter().all(|&byte| byte == 0),
        "what the image holds now"
    );
    drop(file);
    let upper = stage.stop_mount_that_said("input/output error");
    let lower = stage.stop_serve_that_said("another program has cut it");
    assert!(
        upper["status"]["errors"].as_u64() > Some(0),
        "not counted above"
    );
    assert!(
        cache(&lower["status"])["errors"].as_u64() > Some(0),
        "not counted below"
    );
}

/// A server that goes away gives errors, and one that comes back serves again.
#[test]
fn a_server_that_goes_and_comes_back() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(BLOCKS);
    stage.serve(&["--cache", "1MiB"]);
    stage.mount(&["--cache", "1MiB"]);
    let file = Direct::open(&stage.file()).expect("the mounted file");
    let mut buffer = Buffer::new(BLOCK);
    file.read(0, &mut buffer).expect("a read");
    stage.kill_serve();
    let error = file.read(at(9), &mut buffer).expect_err("nobody is there");
    assert_eq!(error.raw_os_error(), Some(EIO), "{error}");
    file.read(0, &mut buffer).expect("it is in the upper cache");
    stage.serve(&["--cache", "1MiB"]);
    obtain("it works again", || file.read(at(9), &mut buffer));
    assert_eq!(
        Stamp::read(buffer.get()),
        Some(Stamp {
            block: 9,
            version: 0
        })
    );
    Stamp {
        block: 9,
        version: 1,
    }
    .fill(buffer.get_mut());
    file.write(at(9), &buffer).expect("a write");
    file.sync().expect("a flush");
    drop(file);
    stage.stop_mount_that_said("the connection was lost");
    stage.stop_serve();
}
