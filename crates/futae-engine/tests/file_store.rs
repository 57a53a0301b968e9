//! A real file as a store: direct and unaligned I/O, holes, zeroing, a full disk.

use futae_engine::{Extent, FileStore, IoBuf, IoError, IoErrorKind, Store, StoreOperation};
use futae_policy::Prng;
use futae_testkit::wait::obtain;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;

fn wait(store: &FileStore, operation: StoreOperation) -> Result<IoBuf, IoError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    store.submit(
        0,
        operation,
        Box::new(move |result| sender.send(result).expect("waits")),
    );
    receiver.recv().expect("answered")
}

fn image(directory: &Path, bytes: u64) -> std::path::PathBuf {
    let path = directory.join("disk.img");
    File::create(&path)
        .expect("an image")
        .set_len(bytes)
        .expect("its size");
    path
}

#[test]
fn equal_to_a_plain_array_at_any_alignment() {
    const BYTES: u64 = 1_000_003; // no whole number of pages
    let directory = tempfile::tempdir().expect("a directory");
    let path = image(directory.path(), BYTES);
    let store = FileStore::open(&path, false).expect("a store");
    let mut model = vec![0u8; BYTES as usize];
    let mut prng = Prng::new(3);
    for _ in 0..800 {
        let offset = match prng.below(2) {
            0 => prng.below(BYTES / 4096) * 4096,
            _ => prng.below(BYTES),
        };
        let length = (1 + prng.below(4)) * 4096 - prng.below(2) * prng.below(4096);
        let length = length.min(BYTES - offset);
        let range = offset as usize..(offset + length) as usize;
        match prng.below(6) {
            0 => {
                let no_hole = prng.below(2) == 0;
                let zero = StoreOperation::WriteZeroes {
                    offset,
                    length,
                    fua: true,
                    no_hole,
                };
                wait(&store, zero).expect("zeroed");
                model[range].fill(0);
            }
            1..=3 => {
                let data: Vec<u8> = (0..length).map(|_| prng.bits() as u8).collect();
                let (buffer, fua) = (IoBuf::copy_of(&data), prng.below(4) == 0);
                let written = wait(
                    &store,
                    StoreOperation::Write {
                        offset,
                        buffer,
                        fua,
                    },
                )
                .expect("written");
                assert_eq!(
                    written.as_slice(),
                    data,
                    "what was written comes back whole"
                );
                model[range].copy_from_slice(&data);
            }
            _ => {
                let buffer = IoBuf::new(length as usize);
                let read = wait(&store, StoreOperation::Read { offset, buffer }).expect("read");
                assert_eq!(read.as_slice(), &model[range], "{length} bytes at {offset}");
            }
        }
    }
    wait(&store, StoreOperation::Flush).expect("flushed");
    assert!(
        store.buffered_fallbacks() > 0,
        "unaligned ranges go through the page cache"
    );
    assert_eq!(std::fs::read(&path).expect("the image"), model);
}

/// Bytes of a file that are in the page cache; none, and it says why, where nobody can tell.
fn in_page_cache(path: &Path) -> Option<u64> {
    let words = ["--bytes", "--noheadings", "--output", "RES"];
    let told = Command::new("fincore").args(words).arg(path).output();
    let said = match told {
        Ok(told) if told.status.success() => told.stdout,
        _ => {
            futae_testkit::need::skip(futae_testkit::need::Need::Tools, "fincore is not installed");
            return None;
        }
    };
    String::from_utf8(said).ok()?.trim().parse().ok()
}

#[test]
fn what_goes_through_the_page_cache_leaves_it_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = image(directory.path(), 3_000_003);
    let store = FileStore::open(&path, false).expect("a store");
    if store.describe().contains("no O_DIRECT") {
        return futae_testkit::need::skip(
            futae_testkit::need::Need::Direct,
            &format!("no O_DIRECT in {}", directory.path().display()),
        );
    }
    // Long ones, and some whose first and last pages are half theirs.
    for (offset, length) in [
        (1, 2_000_000),
        (2_500_000, 10),
        (2_999_900, 103),
        (4096, 100),
    ] {
        let buffer = IoBuf::copy_of(&vec![3; length]);
        let fua = false;
        let write = StoreOperation::Write {
            offset,
            buffer,
            fua,
        };
        wait(&store, write).expect("written");
    }
    let zero = StoreOperation::WriteZeroes {
        offset: 2_600_000,
        length: 10_000,
        fua: false,
        no_hole: true,
    };
    wait(&store, zero).expect("zeroed");
    let Some(before) = in_page_cache(&path) else {
        return;
    };
    assert!(before > 1_000_000, "{before}: nothing went through it");
    obtain("bytes leave the page cache", || {
        match in_page_cache(&path) {
            Some(0) => Ok(()),
            left => Err(format!("{left:?} are still there")),
        }
    });
    let buffer = IoBuf::new(103);
    let offset = 2_999_900;
    let read = wait(&store, StoreOperation::Read { offset, buffer }).expect("read");
    assert_eq!(read.as_slice(), [3; 103]);
    assert_eq!(
        in_page_cache(&path),
        Some(0),
        "what was read is dropped at once"
    );
}

#[test]
fn holes_are_reported_and_made() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = image(directory.path(), 1 << 20);
    let store = FileStore::open(&path, false).expect("a store");
    let buffer = IoBuf::copy_of(&[7; 65536]);
    wait(
        &store,
        StoreOperation::Write {
            offset: 65536,
            buffer,
            fua: false,
        },
    )
    .expect("written");
    wait(&store, StoreOperation::Flush).expect("flushed");
    let extents = store.extents(0, 1 << 20).expect("extents");
    let hole = |length| Extent { length, hole: true };
    let data = |length| Extent {
        length,
        hole: false,
    };
    assert_eq!(
        extents,
        [hole(65536), data(65536), hole((1 << 20) - 131_072)]
    );
    wait(
        &store,
        StoreOperation::Trim {
            offset: 65536,
            length: 65536,
        },
    )
    .expect("trimmed");
    assert_eq!(store.extents(0, 1 << 20).expect("extents"), [hole(1 << 20)]);
}

#[test]
fn many_operations_at_once_all_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = image(directory.path(), 16 << 20);
    let store = FileStore::open(&path, false).expect("a store");
    let (sender, receiver) = mpsc::channel();
    for block in 0..4096u64 {
        let sender = sender.clone();
        let buffer = IoBuf::copy_of(&[block as u8; 4096]);
        let write = StoreOperation::Write {
            offset: block * 4096,
            buffer,
            fua: false,
        };
        store.submit(
            0,
            write,
            Box::new(move |result| sender.send(result.map(drop)).expect("waits")),
        );
    }
    for _ in 0..4096 {
        receiver.recv().expect("answered").expect("written");
    }
    drop(store);
    let bytes = std::fs::read(&path).expect("the image");
    assert!(
        bytes
            .iter()
            .zip(0usize..)
            .all(|(&byte, at)| byte == (at / 4096) as u8)
    );
}

#[test]
fn what_cannot_be_opened_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let message = |path: &Path| match FileStore::open(path, false) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error.to_string(),
    };
    assert!(message(&directory.path().join("absent.img")).contains("absent.img: no such file"));
    assert!(
        message(directory.path()).contains("directory"),
        "{}",
        message(directory.path())
    );
    assert!(message(&image(directory.path(), 0)).contains("is empty"));
    let path = image(directory.path(), 4096);
    let _held = FileStore::open(&path, false).expect("a store");
    assert!(message(&path).contains("in use"));
}

#[test]
fn a_file_that_was_cut_short_fails_and_recovers() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = image(directory.path(), 1 << 20);
    let store = FileStore::open(&path, false).expect("a store");
    let file = File::options().write(true).open(&path).expect("the image");
    file.set_len(4096).expect("cut");
    let read = |offset| {
        wait(
            &store,
            StoreOperation::Read {
                offset,
                buffer: IoBuf::new(4096),
            },
        )
    };
    assert_eq!(
        read(65536).expect_err("beyond the end").kind,
        IoErrorKind::Store
    );
    file.set_len(1 << 20).expect("restored");
    file.write_at(&[5; 4096], 65536).expect("written");
    assert_eq!(read(65536).expect("read").as_slice(), [5; 4096]);
}

/// A mounted file system of 1 MiB, unmounted in the end.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "none"])
            .arg(directory.path())
            .output();
        let mounted = mount.is_ok_and(|output| output.status.success());
        mounted.then(|| Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[test]
fn a_full_disk_is_an_error_that_says_so_and_reads_go_on() {
    let Some(disk) = SmallDisk::mount() else {
        futae_testkit::need::skip(
            futae_testkit::need::Need::Root,
            "mounting a tmpfs is not permitted here (run as root)",
        );
        return;
    };
    let path = image(disk.0.path(), 8 << 20);
    let store = FileStore::open(&path, false).expect("a store");
    let write = |offset: u64| {
        let buffer = IoBuf::copy_of(&[1; 65536]);
        wait(
            &store,
            StoreOperation::Write {
                offset,
                buffer,
                fua: false,
            },
        )
    };
    let results: Vec<_> = (0..64).map(|i| write(i * 65536).map(drop)).collect();
    assert!(results[0].is_ok(), "the first fits");
    let full = results
        .iter()
        .find_map(|result| result.as_ref().err())
        .expect("64 × 64 KiB do not fit");
    assert_eq!(
        (full.kind, full.kind.errno()),
        (IoErrorKind::NoSpace, 28),
        "{full}"
    );
    let read = wait(
        &store,
        StoreOperation::Read {
            offset: 0,
            buffer: IoBuf::new(4096),
        },
    );
    assert_eq!(read.expect("a read").as_slice(), [1; 4096]);
}

fn read(offset: u64, length: usize) -> StoreOperation {
    let buffer = IoBuf::new(length);
    StoreOperation::Read { offset, buffer }
}

fn write(offset: u64, data: &[u8]) -> StoreOperation {
    let buffer = IoBuf::copy_of(data);
    let fua = false;
    StoreOperation::Write {
        offset,
        buffer,
        fua,
    }
}

fn resize(path: &Path, bytes: u64) {
    let file = File::options().write(true).open(path).expect("the image");
    file.set_len(bytes).expect("its size");
}

#[test]
fn an_image_that_is_cut_underneath_is_not_extended_again_and_never_reads_as_zeroes() {
    const BYTES: u64 = 1 << 20;
    let directory = tempfile::tempdir().expect("a directory");
    let path = image(directory.path(), BYTES);
    let store = FileStore::open(&path, false).expect("a store");
    let page = [7; 4096];
    wait(&store, write(BYTES - 4096, &page)).expect("written");
    resize(&path, 65536);
    let refused = |operation: StoreOperation| {
        let what = format!("{operation:?}");
        let what = what.split_once('{').map_or("", |(what, _)| what);
        let error = wait(&store, operation).expect_err(what);
        assert_eq!(error.kind, IoErrorKind::Store, "{what}");
        assert!(error.message.contains("cut to 65536 bytes"), "{error}");
    };
    // The very first write after the cut.
    refused(write(BYTES - 4096, &page));
    refused(write(65536 - 1, &page));
    refused(StoreOperation::WriteZeroes {
        offset: BYTES / 2,
        length: 4096,
        fua: false,
        no_hole: true,
    });
    refused(StoreOperation::Trim {
        offset: BYTES / 2,
        length: 4096,
    });
    refused(read(BYTES / 2, 4096));
    assert!(store.extents(0, BYTES).is_err());
    assert_eq!(std::fs::metadata(&path).expect("there").len(), 65536);
    wait(&store, write(65536 - 4096, &page)).expect("before the cut all is well");
    let again = wait(&store, read(65536 - 4096, 4096)).expect("likewise");
    assert_eq!(again.as_slice(), page);
    wait(&store, StoreOperation::Flush).expect("likewise");
    resize(&path, BYTES);
    wait(&store, write(BYTES - 4096, &page)).expect("whole again");
}

#[test]
fn a_cut_that_a_read_meets_first_is_said_to_all() {
    const BYTES: u64 = 1 << 20;
    let directory = tempfile::tempdir().expect("a directory");
    let path = image(directory.path(), BYTES);
    let store = FileStore::open(&path, false).expect("a store");
    resize(&path, 8192 + 100);
    for offset in [8192, 65536, BYTES - 4096] {
        wait(&store, read(offset, 4096)).expect_err("a read behind the cut");
    }
    let error = wait(&store, read(65536, 4096)).expect_err("behind the cut");
    assert!(error.message.contains("cut to 8292 bytes"), "{error}");
    assert!(store.extents(65536, 4096).is_err());
    wait(&store, read(4096, 4096)).expect("before the cut");
}

#[test]
fn an_image_that_grows_underneath_keeps_its_size_here() {
    const BYTES: u64 = 1_000_003;
    let directory = tempfile::tempdir().expect("a directory");
    let path = image(directory.path(), BYTES);
    let store = FileStore::open(&path, false).expect("a store");
    resize(&path, 2 * BYTES);
    assert_eq!(store.size_bytes(), BYTES);
    let data = [7; 5000];
    wait(&store, write(BYTES - 5000, &data)).expect("written");
    wait(&store, StoreOperation::Flush).expect("flushed");
    assert_eq!(std::fs::metadata(&path).expect("there").len(), 2 * BYTES);
    drop(store);
    let store = FileStore::open(&path, false).expect("a store");
    assert_eq!(store.size_bytes(), 2 * BYTES);
    let read = wait(&store, read(BYTES - 5000, 6000)).expect("read");
    let zeroes = read.as_slice()[5000..].iter().all(|&byte| byte == 0);
    assert!(read.as_slice()[..5000] == data && zeroes);
}
