//! Questions for holes that a store answers late.

use crate::common::{MemoryStore, Place, engine, has_fuse, open};
use futae_guest::{Mount, ShownFile};
use futae_policy::Class;
use futae_testkit::wait::eventually;
use rustix::fs::{SeekFrom, seek};
use std::io::Read;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Enough for a read that nothing holds up.
const SOON: Duration = Duration::from_secs(10);
/// As many as the threads that serve requests.
const SLOW: usize = 3;

#[test]
fn stores_that_do_not_tell_their_holes_hold_up_nobody_else() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let store = || MemoryStore::new(vec![1; 1 << 20]);
    let (engine, volume) = engine(store(), 64);
    let slow: Vec<_> = (0..SLOW).map(|_| store()).collect();
    let name = "quick".to_owned();
    let mut files = vec![ShownFile { volume, name }];
    for (at, store) in slow.iter().enumerate() {
        let name = format!("slow{at}");
        let volume = engine.add_volume(&name, store.clone(), Class::default());
        let volume = volume.expect("a volume");
        files.push(ShownFile { volume, name });
    }
    let mut options = place.options();
    options.threads = Some(SLOW);
    let mount = Mount::start(&engine, &files, &options).expect("mounted");
    slow.iter().for_each(|store| store.hold_questions(true));
    let paths = mount.paths();
    std::thread::scope(|scope| {
        for path in &paths[1..] {
            scope.spawn(|| {
                let end = seek(open(path, false), SeekFrom::Hole(0)).expect("told");
                assert_eq!(end, 1 << 20, "it has no hole");
            });
        }
        let all_asked = || slow.iter().all(|store| store.questions() == 1);
        eventually("all are asked", all_asked);
        let (done, is_done) = channel();
        scope.spawn(move || {
            let mut bytes = [0; 4096];
            let read = open(&paths[0], false).read_exact(&mut bytes);
            done.send(read.map(|()| bytes[0])).expect("the test waits");
        });
        let read = is_done.recv_timeout(SOON);
        slow.iter().for_each(|store| store.hold_questions(false));
        assert_eq!(read.expect("in time").expect("read"), 1);
    });
}
