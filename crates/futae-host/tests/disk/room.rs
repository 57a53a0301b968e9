//! A disk whose queue waits for memory.

use crate::common::{self, Client, MemoryStore};
use crate::rig::IN;
use crate::ring::{DATA_BYTES, Descriptor, NEXT, Queue, RingClient, SLOTS, WRITE, Wish};
use futae_host::{BUFFER_MEMORY_MIN, Gate, Listen, Server, ServerOptions};
use futae_nbd::ClientWish;
use futae_testkit::wait::eventually;
use std::time::Duration;

const LONGEST: u32 = 32 << 20;

/// Asks for a read of 16 MiB, all of it to the same memory.
fn ask_for_much(queue: &mut Queue) {
    const HEAD: u16 = 10;
    let area = queue.area();
    let (header_at, status_at) = (area.headers + 16 * 5, area.statuses + 5);
    queue.put(&u128::from(IN).to_le_bytes(), header_at);
    let data = (
        area.data,
        u32::from(SLOTS) * DATA_BYTES as u32,
        NEXT | WRITE,
    );
    let mut parts = vec![(header_at, 16, NEXT)];
    parts.extend([data; 16]);
    parts.push((status_at, 1, WRITE));
    for (at, (address, length, flags)) in (HEAD..).zip(parts) {
        let descriptor = Descriptor {
            address,
            length,
            flags,
            next: at + 1,
        };
        queue.describe(at, descriptor);
    }
    queue.offer(HEAD);
    queue.publish();
}

#[test]
fn a_disk_that_is_gone_is_not_waited_for_while_its_store_is_silent() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = common::engine("lru", 64);
    let store = || MemoryStore::new(vec![0; LONGEST as usize]);
    let (silent, other) = (store(), store());
    silent.hold_reads(0..u64::from(LONGEST));
    let (disk, socket) = (directory.path().join("disk"), directory.path().join("nbd"));
    let options = ServerOptions {
        listen: vec![Listen::Unix(socket.clone())],
        gates: vec![Gate {
            export: Some("silent".to_owned()),
            ..Listen::VhostUser(disk.clone()).into()
        }],
        buffer_memory_bytes: BUFFER_MEMORY_MIN,
        stall_timeout: Duration::from_secs(3600),
        ..ServerOptions::default()
    };
    let exports = vec![
        common::export(&engine, "silent", &silent),
        common::export(&engine, "other", &other),
    ];
    let server = Server::start(options, exports).expect("a server");
    let client = || Client::unix(&socket, "other", &ClientWish::default());
    let waiters = |wanted| {
        eventually("they wait", || server.status().buffer_waiters == wanted);
    };
    let (mut holder, mut next) = (client(), client());
    holder.send_read(0, LONGEST);
    eventually("it has the memory", || {
        server.status().buffer_bytes > u64::from(LONGEST)
    });
    let mut guest = RingClient::connect(&disk, Wish::default()).expect("a disk");
    guest.queues[0].ask(0, IN, 0, &[], 4096);
    guest.queues[0].publish();
    eventually("it is with the store", || silent.held() == 1);
    ask_for_much(&mut guest.queues[0]);
    waiters(1);
    next.send_read(0, LONGEST);
    waiters(2);
    drop(guest);
    assert!(holder.receive().error.is_none());
    assert!(next.receive().error.is_none());
    silent.release();
}
