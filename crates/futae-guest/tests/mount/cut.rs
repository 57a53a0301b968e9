//! A file of a tree that another program truncates in the source directory while it is open in the mount.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Barrier};
use std::thread;

use crate::common::{BLOCK, Place, has_fuse, mount_tree};

const BLOCKS: u64 = 64;
const READERS: u64 = 4;
/// Enough that some readers meet the new end at the same time.
const ROUNDS: u64 = 150;

/// Reads behind the new end, across it and in its page, by several at the same time: each returns what remains of the file.
#[test]
fn reads_of_a_file_that_is_cut_below_return_what_remains() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let source = place.folder.path().join("source");
    fs::create_dir(&source).expect("a directory");
    let mount = mount_tree(&place, &source);
    let data: Arc<[u8]> = (0..BLOCKS * BLOCK).map(|at| (at / 8) as u8 | 1).collect();
    let cuts = [8 * BLOCK, 8 * BLOCK + 100, BLOCK, 0];
    for round in 0..ROUNDS {
        let name = round.to_string();
        fs::write(source.join(&name), &data).expect("written");
        let file = File::open(place.mountpoint().join(&name)).expect("opened");
        let cut = cuts[(round % 4) as usize];
        let lower = File::options().write(true).open(source.join(&name));
        lower.and_then(|it| it.set_len(cut)).expect("cut");
        let together = Barrier::new(READERS as usize);
        thread::scope(|scope| {
            for reader in 0..READERS {
                let (together, file, data) = (&together, &file, &data);
                scope.spawn(move || {
                    let behind = (20 + reader) * BLOCK;
                    let page = cut / BLOCK * BLOCK;
                    together.wait();
                    for offset in [behind, cut.saturating_sub(10), page, cut] {
                        let mut bytes = vec![0; 2 * BLOCK as usize];
                        let read = file.read_at(&mut bytes, offset);
                        let read = read.unwrap_or_else(|error| {
                            panic!("cut at {cut}, read at {offset}: {error}")
                        });
                        let remains = &data[..cut as usize];
                        let remains = remains.get(offset as usize..).unwrap_or_default();
                        let remains = &remains[..remains.len().min(bytes.len())];
                        assert!(bytes[..read] == *remains, "{cut} {offset}: {read}");
                    }
                });
            }
        });
    }
    mount.unmount().expect("unmounted");
}
