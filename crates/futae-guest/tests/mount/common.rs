//! A volume, an engine over it, and a mount that is detached whatever happens.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use futae_engine::{Engine, EngineOptions, FileStore, OnEviction, Store};
use futae_guest::{Mount, MountOptions, ShownFile, TransportChoice, TreeMount, TreeOptions};
use futae_policy::{Class, VolumeId};
pub(crate) use futae_testkit::store::MemoryStore;
use rustix::mount::UnmountFlags;
use tempfile::TempDir;

pub(crate) const BLOCK: u64 = 4096;
const O_DIRECT: i32 = 0o40000;

/// Whether FUSE can be used here; says why not.
pub(crate) fn has_fuse() -> bool {
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => true,
        Err(error) => {
            futae_testkit::need::skip(
                futae_testkit::need::Need::Fuse,
                &format!("/dev/fuse: {error}; run where FUSE is permitted"),
            );
            false
        }
    }
}

/// Runs a program; `None`, with the reason printed, if it is not installed.
pub(crate) fn tool(program: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) => {
            futae_testkit::need::skip(
                futae_testkit::need::Need::Tools,
                &format!("cannot run {program} ({error}); install it to run this test"),
            );
            None
        }
    }
}

/// How the mounts of these tests get their requests: `ring` or `device`.
pub(crate) const TRANSPORT: &str = "FUTAE_TEST_TRANSPORT";

/// What that says; where it says nothing, as the kernel has it.
pub(crate) fn transport() -> TransportChoice {
    match std::env::var(TRANSPORT).as_deref() {
        Ok("ring") => TransportChoice::Ring,
        Ok("device") => TransportChoice::Device,
        Ok(other) => panic!("{TRANSPORT}={other}: it is ring or device"),
        Err(_) => TransportChoice::Auto,
    }
}

/// A mountpoint in a folder of its own, detached at the end.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("mnt")).expect("a mountpoint");
        Self { folder }
    }

    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    /// A sparse image of this many bytes.
    pub(crate) fn image(&self, bytes: u64) -> PathBuf {
        let path = self.folder.path().join("image");
        File::create(&path)
            .and_then(|file| file.set_len(bytes))
            .expect("an image");
        path
    }

    pub(crate) fn options(&self) -> MountOptions {
        MountOptions {
            mountpoint: self.mountpoint(),
            source: "test".into(),
            join_reads_bytes: 0,
            kernel_cache: false,
            threads: None,
            transport: transport(),
            access: None,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Nothing is mounted if the test went well.
        while rustix::mount::unmount(self.mountpoint(), UnmountFlags::DETACH).is_ok() {}
    }
}

/// An engine of `capacity_blocks` blocks of 4 KiB over one store.
pub(crate) fn engine(store: Arc<dyn Store>, capacity_blocks: u32) -> (Arc<Engine>, VolumeId) {
    let options = EngineOptions {
        block_bytes: BLOCK,
        capacity_blocks,
        policy: "lru".parse().expect("a policy"),
        seed: 1,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back: None,
    };
    let engine = Engine::new(&options).expect("an engine");
    let volume = engine
        .add_volume("test", store, Class::default())
        .expect("a volume");
    (engine, volume)
}

/// Mounts an image file.
pub(crate) fn mount_image(
    place: &Place,
    image: &Path,
    capacity_blocks: u32,
    options: &MountOptions,
) -> (Arc<Engine>, Mount) {
    let _ = place;
    let store = FileStore::open(image, false).expect("a store");
    let (engine, volume) = engine(Arc::new(store), capacity_blocks);
    let mount = Mount::start(&engine, &shown(volume), options).expect("mounted");
    (engine, mount)
}

/// Mounts a directory tree with a small cache.
pub(crate) fn mount_tree(place: &Place, source: &Path) -> TreeMount {
    let engine = Engine::new(&EngineOptions {
        block_bytes: BLOCK,
        capacity_blocks: 64,
        policy: "sieve".parse().expect("a policy"),
        seed: 1,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back: None,
    });
    let options = TreeOptions {
        source: source.to_owned(),
        mountpoint: place.mountpoint(),
        protect: Vec::new(),
        recursive: false,
        read_only: false,
        threads: None,
        transport: transport(),
    };
    TreeMount::start(engine.expect("an engine"), &options).expect("mounted")
}

/// A volume as the one file.
pub(crate) fn shown(volume: VolumeId) -> [ShownFile; 1] {
    let name = "volume".to_owned();
    [ShownFile { volume, name }]
}

/// Where the one file is.
pub(crate) fn path(mount: &Mount) -> &Path {
    &mount.paths()[0]
}

pub(crate) fn open(path: &Path, direct: bool) -> File {
    let flags = if direct { O_DIRECT } else { 0 };
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
        .expect("opened")
}

/// Numbers that look random.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
