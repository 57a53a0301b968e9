//! Without descriptors, callers are told by the end of their connections and do not wait. A test program of its
//! own, since it lowers the limit of the process.

mod common;

use common::{Rig, eventually, pattern};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketType, connect, recv, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn callers_are_turned_away_while_there_are_no_descriptors() {
    let rig = Rig::new("lru", 16, pattern(1, 1 << 20));
    let address = SocketAddrUnix::new(&rig.socket).expect("an address");
    let callers: Vec<_> = (0..40)
        .map(|_| socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket"))
        .collect();
    let limit = getrlimit(Resource::Nofile);
    let open = std::fs::read_dir("/proc/self/fd").expect("procfs").count();
    let lower = Rlimit {
        current: Some(open as u64 + 6),
        ..limit
    };
    setrlimit(Resource::Nofile, lower).expect("lowered");
    for caller in &callers {
        connect(caller, &address).expect("the queue is long enough");
    }
    eventually("those for whom there is none are turned away", || {
        rig.server.status().turned_away >= 20
    });
    // The last one came when there was none left.
    let last = callers.last().expect("a caller");
    let mut word = [0; 64];
    assert_eq!(
        recv(last, &mut word, RecvFlags::empty()).map(|got| got.1),
        Ok(0)
    );
    setrlimit(Resource::Nofile, limit).expect("restored");
    drop(callers);
    assert!(rig.plain().read(0, 4096).is_ok());
}
