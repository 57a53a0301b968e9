//! Closing files. A handle stays open after its program has closed it while the dirty data of its
//! file cannot be written to the lower file: the cache retries, and needs the file for that.

use super::access::Access;
use super::contents::{Contents, GONE};
use super::kept_handle::KeptHandle;
use super::state::Passthrough;
use fuser::FileHandle;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Contents {
    /// Whether it is used by more than a handle that is kept open.
    pub(crate) fn is_used(&self) -> bool {
        let users = || self.users.load(Ordering::SeqCst) & !GONE;
        self.lower.kept_open.leaves_any(users)
    }

    /// Whether only its dirty data keeps it open.
    pub(super) fn is_kept_open(&self) -> bool {
        self.lower.kept_open.is_some()
    }

    /// Closes the handle that is kept open, if any, since the dirty data is not needed any more.
    pub(super) fn end_kept_open(self: &Arc<Self>) {
        if let Some(kept) = self.lower.kept_open.take_if(|| true) {
            (kept.end)();
        }
    }
}

impl Passthrough {
    pub(crate) fn close_file(self: &Arc<Self>, id: u64, handle: FileHandle) {
        let known = self.nodes.get(id).ok().and_then(|node| node.contents());
        let (access, user) = Access::of_handle(handle);
        let Some(contents) = known.or_else(|| self.files.closing(id)) else {
            return self.descriptors.give_back(user, access.descriptors());
        };
        // The closing caller got the error; mapped writes came later.
        if access.writes()
            && let Err(errno) = contents.settle()
        {
            self.log.note("writing back", &contents.lower.path(), errno);
            let kept = self.kept(id, &contents, handle);
            if contents.is_dirty() && contents.lower.kept_open.keep(kept) {
                if contents.is_forgotten() {
                    self.files.closed(id, &contents);
                }
                return self.finish_kept_open(&contents);
            }
        }
        self.end_close(id, &contents, handle);
        self.look_at_kept_open(&contents);
    }

    /// A handle that is to be kept open.
    fn kept(self: &Arc<Self>, id: u64, contents: &Arc<Contents>, handle: FileHandle) -> KeptHandle {
        let (tree, of) = (Arc::downgrade(self), Arc::downgrade(contents));
        let both = move || Some((tree.upgrade()?, of.upgrade()?));
        let also = both.clone();
        KeptHandle {
            end: Box::new(move || {
                if let Some((tree, contents)) = both() {
                    tree.end_close(id, &contents, handle);
                }
            }),
            written: Box::new(move || {
                if let Some((tree, contents)) = also() {
                    let of = Arc::clone(&tree);
                    tree.aside.queue(move || {
                        contents.lower.kept_open.looks();
                        of.look_at_kept_open(&contents);
                    });
                }
            }),
        }
    }

    /// Closes a handle.
    fn end_close(&self, id: u64, contents: &Arc<Contents>, handle: FileHandle) {
        let (access, user) = Access::of_handle(handle);
        if contents.close(access) {
            self.files.closed(id, contents);
        }
        self.descriptors.give_back(user, access.descriptors());
    }

    /// Closes the handle that is kept open, if the cache has been able to write its data since.
    fn look_at_kept_open(&self, contents: &Arc<Contents>) {
        if !contents.is_kept_open() {
            return;
        }
        if !contents.is_used() {
            // No program is left to learn of an error.
            let _ = contents.settle();
        }
        self.finish_kept_open(contents);
    }

    /// Closes the handle that is kept open if no data is dirty any more.
    pub(super) fn finish_kept_open(&self, contents: &Arc<Contents>) {
        let kept = &contents.lower.kept_open;
        if let Some(kept) = kept.take_if(|| !contents.is_dirty()) {
            (kept.end)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passthrough::attributes::Wanted;
    use crate::passthrough::names::tests::tree_with;
    use futae_engine::{IoBuf, Operation, WriteBackOptions};
    use rustix::fs::{AtFlags, OFlags};
    use std::ffi::OsStr;
    use std::path::Path;

    const USER: u32 = 7;
    const NAME: &str = "file";

    /// A tree with a file that is closed, dirty, and cannot be written: it does not even have a place.
    fn kept_open(source: &Path) -> (Arc<Passthrough>, u64, Arc<Contents>) {
        std::fs::write(source.join(NAME), [1; 8192]).expect("a file");
        let options = WriteBackOptions {
            dirty_max: 1.0,
            ..WriteBackOptions::default()
        };
        let tree = Arc::new(tree_with(source, Some(options)));
        let (node, _) = tree.lookup_node(1, OsStr::new(NAME)).expect("found");
        let both = Access::of(OFlags::RDWR.bits() as i32);
        tree.charge_file(USER, both).expect("few").keep();
        // Only to be read, so that a write has to open it.
        tree.open_file(&node, Access::of(OFlags::RDONLY.bits() as i32))
            .expect("opened");
        let (done, is_done) = std::sync::mpsc::channel();
        let operation = Operation::Write {
            offset: 0,
            data: IoBuf::copy_of(&[2; 4096]),
            fua: false,
        };
        let writer = crate::mapped::Writer::of(fuser::WriteFlags::empty());
        tree.write(node.id, (writer, 0), operation, move |result| {
            done.send(result).expect("the test waits");
        });
        is_done.recv().expect("answered").expect("kept");
        let contents = node.contents().expect("it is open");
        contents
            .lower
            .lost(&contents.lower.place().expect("a place"));
        tree.close_file(node.id, both.handle(USER));
        assert!(contents.is_kept_open() && contents.is_dirty());
        (tree, node.id, contents)
    }

    fn is_ended(tree: &Passthrough, id: u64, contents: &Contents) -> bool {
        let all = tree.descriptors.charge(USER, 32);
        all.is_some()
            && !contents.is_kept_open()
            && !contents.is_open()
            && tree.files.closing(id).is_none()
    }

    #[test]
    fn a_file_that_is_kept_open_is_given_up_once_it_is_removed() {
        for is_found_again in [false, true] {
            let directory = tempfile::tempdir().expect("a directory");
            let (tree, id, contents) = kept_open(directory.path());
            if is_found_again {
                tree.forget_node(id, 1);
                assert!(contents.is_kept_open(), "it has a name");
                tree.lookup_node(1, OsStr::new(NAME)).expect("found");
            }
            let name = OsStr::new(NAME);
            tree.remove(1, name, AtFlags::empty()).expect("removed");
            assert!(!is_ended(&tree, id, &contents), "it may be open elsewhere");
            tree.forget_node(id, 1);
            assert!(
                is_ended(&tree, id, &contents),
                "found again: {is_found_again}"
            );
            assert_eq!(tree.files.count(), 0);
        }
    }

    #[test]
    fn a_file_that_is_kept_open_and_then_cut_has_none_of_its_dirty_data() {
        for is_forgotten in [false, true] {
            let directory = tempfile::tempdir().expect("a directory");
            let (tree, id, contents) = kept_open(directory.path());
            if is_forgotten {
                tree.forget_node(id, 1);
                tree.lookup_node(1, OsStr::new(NAME)).expect("found");
            }
            let cut = Wanted {
                size: Some(0),
                ..Wanted::default()
            };
            tree.set_attributes(id, &cut).expect("cut");
            // As the cache does by itself, if there is any.
            contents.submit(Operation::Settle, Box::new(drop));
            assert!(is_ended(&tree, id, &contents), "forgotten: {is_forgotten}");
            let below = std::fs::read(directory.path().join(NAME)).expect("below");
            assert_eq!(below, []);
        }
    }

    #[test]
    fn a_file_that_is_kept_open_is_closed_once_it_can_be_written() {
        for is_forgotten in [false, true] {
            let directory = tempfile::tempdir().expect("a directory");
            let (tree, id, contents) = kept_open(directory.path());
            let (node, _) = tree.lookup_node(1, OsStr::new(NAME)).expect("found");
            let place = tree.nodes.place(&node).expect("a place");
            if is_forgotten {
                tree.forget_node(id, 2);
            }
            contents.lower.found_again(&place);
            // As the cache does by itself: another write, and nobody waits for it.
            contents.submit(Operation::Settle, Box::new(drop));
            crate::until::until("it is closed", || is_ended(&tree, id, &contents));
            let below = std::fs::read(directory.path().join(NAME)).expect("below");
            assert_eq!(below, [[2; 4096], [1; 4096]].concat());
        }
    }
}
