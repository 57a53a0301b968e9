//! What is read is what was written, whichever way.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use futae_engine::IoBuf;
use futae_guest::Mount;
use futae_testkit::need::{Need, skip};
use rustix::fs::FallocateFlags;

use crate::common::{
    MemoryStore, Place, Random, engine, has_fuse, mount_image, open, path, shown, tool,
};

const SIZE: u64 = 8 << 20;

/// Reads and writes at random places through the mount, beside a model; a file opened with
/// `O_DIRECT` takes every third turn.
fn roam(path: &std::path::Path, model: &mut [u8], first: u64, steps: u64, seed: u64) {
    let mut random = Random(seed);
    let (plain, direct) = (open(path, false), open(path, true));
    for step in 0..steps {
        let is_direct = step % 3 == 0;
        let unit = if is_direct { 512 } else { 1 };
        let at = random.below(model.len() as u64) / unit * unit;
        let most = (model.len() as u64 - at).min(1 + random.below(300_000));
        let length = most.div_ceil(unit).max(1) * unit;
        let length = length.min(model.len() as u64 - at) as usize;
        let file = if is_direct { &direct } else { &plain };
        let mut bytes = IoBuf::new(length);
        let range = at as usize..at as usize + length;
        if random.below(2) == 0 {
            bytes
                .as_mut_slice()
                .iter_mut()
                .enumerate()
                .for_each(|(i, b)| *b = (i as u64 * 3 + step) as u8);
            file.write_all_at(bytes.as_slice(), first + at)
                .expect("written");
            model[range].copy_from_slice(bytes.as_slice());
        } else {
            file.read_exact_at(bytes.as_mut_slice(), first + at)
                .expect("read");
            assert!(
                bytes.as_slice() == &model[range],
                "step {step}: {length} bytes at {at}"
            );
        }
    }
}

#[test]
fn random_reads_and_writes_equal_a_model() {
    if !has_fuse() {
        return;
    }
    for kernel_cache in [false, true] {
        let place = Place::new();
        let image = place.image(SIZE);
        let mut options = place.options();
        options.kernel_cache = kernel_cache;
        let (_engine, mount) = mount_image(&place, &image, 300, &options);
        let mut model = vec![0; SIZE as usize];
        roam(path(&mount), &mut model, 0, 400, 77);
        let ended = mount.unmount().expect("unmounted");
        assert!(!ended.was_busy && !ended.is_in_use);
        assert!(
            std::fs::read(&image).expect("the image") == model,
            "the image itself"
        );
    }
}

#[test]
fn four_threads_share_the_file() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let image = place.image(4 * SIZE);
    let mut options = place.options();
    options.threads = Some(4);
    let (_engine, mount) = mount_image(&place, &image, 500, &options);
    let path = path(&mount).to_owned();
    std::thread::scope(|scope| {
        for part in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let mut model = vec![0; SIZE as usize];
                roam(path, &mut model, part * SIZE, 150, part + 1);
            });
        }
    });
    mount.unmount().expect("unmounted");
}

#[test]
fn requests_are_as_long_as_the_kernel_allows() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let image = place.image(SIZE);
    let (_engine, mount) = mount_image(&place, &image, 300, &place.options());
    let mut bytes = vec![1; 4 << 20];
    let mut file = open(path(&mount), false);
    file.write_all(&bytes).expect("written");
    file.rewind().expect("rewound");
    file.read_exact(&mut bytes).expect("read");
    drop(file);
    println!(
        "{:?}, longest {}",
        mount.negotiated(),
        mount.longest_request_bytes()
    );
    assert!(mount.longest_request_bytes() >= 128 << 10);
    mount.unmount().expect("unmounted");
}

/// Python maps the file, for mapping it here would need unsafe code.
const MAPS: &str = r#"
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
size = os.fstat(fd).st_size
shared = mmap.mmap(fd, size, mmap.MAP_SHARED)
private = mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
assert shared[5000:5004] == b"abcd", shared[5000:5004]
assert private[5000:5004] == b"abcd"
private[0:4] = b"mine"
shared[100000:100004] = b"ours"
shared.flush()
assert os.pread(fd, 4, 100000) == b"ours"
assert os.pread(fd, 4, 0) == b"\0\0\0\0"
os.pwrite(fd, b"news", 200000)
assert shared[200000:200004] == b"news"
shared[300000:300004] = b"late"
"#;

#[test]
fn it_can_be_mapped() {
    if !has_fuse() {
        return;
    }
    for kernel_cache in [false, true] {
        let place = Place::new();
        let image = place.image(SIZE);
        let mut options = place.options();
        options.kernel_cache = kernel_cache;
        let (_engine, mount) = mount_image(&place, &image, 300, &options);
        if !kernel_cache && !mount.negotiated().shared_mmap {
            skip(
                Need::DirectMaps,
                "this kernel maps no file that is opened past the page cache",
            );
            continue;
        }
        open(path(&mount), false)
            .write_all_at(b"abcd", 5000)
            .expect("written");
        let path = path(&mount).to_string_lossy().into_owned();
        let Some(output) = tool("python3", &["-c", MAPS, &path]) else {
            return;
        };
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        mount.unmount().expect("unmounted");
        let bytes = std::fs::read(&image).expect("the image");
        assert_eq!(&bytes[100_000..100_004], b"ours");
        assert_eq!(&bytes[300_000..300_004], b"late");
        assert_eq!(&bytes[0..4], &[0; 4]);
    }
}

#[test]
fn holes_can_be_punched_and_found() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let image = place.image(SIZE);
    let (_engine, mount) = mount_image(&place, &image, 3000, &place.options());
    let file = open(path(&mount), false);
    file.write_all_at(&vec![7; 1 << 20], 1 << 20)
        .expect("written");
    let zeroed = |start: u64, length: u64| {
        let mut bytes = vec![1; length as usize];
        file.read_exact_at(&mut bytes, start).expect("read");
        assert!(bytes.iter().all(|&byte| byte == 0), "zeroes at {start}");
    };
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, (1 << 20) + 4096, 65536).expect("punched");
    zeroed((1 << 20) + 4096, 65536);
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, (1 << 20) + 300_001, 99)
        .expect("zeroed");
    zeroed((1 << 20) + 300_001, 99);
    let mut edge = [0; 2];
    file.read_exact_at(&mut edge, (1 << 20) + 300_000)
        .expect("read");
    assert_eq!(edge, [7, 0], "not a byte more");
    // Beyond the end there is nothing to punch, and nothing can be allocated.
    rustix::fs::fallocate(&file, punch, SIZE - 4096, 1 << 20).expect("punched");
    assert!(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 4096).is_err());
    assert!(rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096).is_err());
    assert_eq!(file.metadata().expect("attributes").len(), SIZE);

    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).expect("data");
    assert_eq!(data, 1 << 20);
    let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(2 << 20)).expect("a hole");
    assert_eq!(hole, 2 << 20);
    assert!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(SIZE)).is_err());
    drop(file);
    mount.unmount().expect("unmounted");
}

#[test]
fn a_failing_store_is_an_io_error_and_nothing_more() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let store = MemoryStore::new(vec![0; 1 << 20]);
    let (engine, volume) = engine(Arc::clone(&store) as Arc<_>, 100);
    let mount = Mount::start(&engine, &shown(volume), &place.options()).expect("mounted");
    let file = open(path(&mount), false);
    file.write_all_at(&[5; 8192], 0).expect("written");
    store.fail(true);
    let mut bytes = [0; 4096];
    let eio = |result: std::io::Result<()>| {
        assert_eq!(result.expect_err("the store fails").raw_os_error(), Some(5));
    };
    eio(file.read_exact_at(&mut bytes, 65536));
    eio(file.write_all_at(&bytes, 65536));
    eio(file.sync_all());
    store.fail(false);
    file.read_exact_at(&mut bytes, 65536).expect("read again");
    file.read_exact_at(&mut bytes, 4096).expect("read again");
    assert!(bytes == [5; 4096]);
    file.sync_all().expect("synced again");
    drop(file);
    mount.unmount().expect("unmounted");
}

#[test]
fn synchronous_writes_are_forced() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let store = MemoryStore::new(vec![0; 1 << 20]);
    let (engine, volume) = engine(Arc::clone(&store) as Arc<_>, 100);
    let mount = Mount::start(&engine, &shown(volume), &place.options()).expect("mounted");
    const O_DSYNC: i32 = 0o10000;
    let mut how = File::options();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut how, O_DSYNC);
    let mut file = how.write(true).open(path(&mount)).expect("opened");
    file.seek(SeekFrom::Start(512)).expect("sought");
    file.write_all(&[1; 512]).expect("written");
    assert_eq!(store.unflushed(), 0);
    assert!(store.stable() >= 1);
    drop(file);
    mount.unmount().expect("unmounted");
}
