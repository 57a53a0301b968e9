//! Limits a second of one export, by a clock that only the test moves.

mod common;

use common::{BLOCK, Client, MemoryStore, engine, export, pattern};
use futae_engine::Store;
use futae_host::{Clock, Export, Listen, RateLimits, RateReport, Server, ServerOptions};
use futae_nbd::{ClientWish, Command, RequestHeader};
use futae_policy::Class;
use futae_testkit::manual_store::ManualStore;
use futae_testkit::wait::eventually;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tempfile::TempDir;

const SIZE: usize = 1 << 20;

/// A server of `slow`, with limits, and `free`, without.
struct Rig {
    milliseconds: Arc<AtomicU64>,
    server: Server,
    directory: TempDir,
}

impl Rig {
    fn new(rates: RateLimits) -> Self {
        let milliseconds = Arc::new(AtomicU64::new(10_000));
        let shown = Arc::clone(&milliseconds);
        let directory = tempfile::tempdir().expect("a directory");
        let cache = engine("lru", 16);
        let stores = [1, 2].map(|seed| MemoryStore::new(pattern(seed, SIZE)));
        let options = ServerOptions {
            listen: vec![Listen::Unix(directory.path().join("sock"))],
            clock: Clock::new(move || Duration::from_millis(shown.load(Relaxed))),
            ..ServerOptions::default()
        };
        let slow = Export {
            rates,
            ..export(&cache, "slow", &stores[0])
        };
        let exports = vec![slow, export(&cache, "free", &stores[1])];
        let server = Server::start(options, exports).expect("a server");
        Self {
            milliseconds,
            server,
            directory,
        }
    }

    fn client(&self, name: &str) -> Client {
        let socket = self.directory.path().join("sock");
        Client::unix(&socket, name, &ClientWish::default())
    }

    /// Requests that were carried out, of all exports.
    fn served(&self) -> u64 {
        self.server.status().traffic.requests
    }

    fn report(&self) -> RateReport {
        self.server.status().exports[0].rates
    }

    /// A client of the other export is served this many requests, while the clock stands still.
    fn others_are_served(&self, requests: u64) {
        let mut client = self.client("free");
        for _ in 0..requests {
            client.read(0, 4096).expect("read");
        }
    }
}

/// Sends READs without waiting for their replies.
fn ask(client: &mut Client, requests: u64, bytes: u32) {
    for _ in 0..requests {
        client.send_read(0, bytes);
    }
}

fn iops(limit: u64) -> RateLimits {
    RateLimits {
        iops: Some(limit),
        ..RateLimits::default()
    }
}

#[test]
fn requests_of_a_limited_export_wait_and_those_of_others_do_not() {
    let rig = Rig::new(iops(50));
    let mut client = rig.client("slow");
    ask(&mut client, 100, 512);
    // A tenth of a second's worth, and one.
    eventually("a burst", || {
        rig.served() == 6 && rig.report().delayed_requests == 1
    });
    rig.others_are_served(200);
    assert_eq!(rig.served(), 206);
    // A second's worth in a second.
    for turn in 1..=50 {
        rig.milliseconds.fetch_add(20, Relaxed);
        eventually("its turn", || rig.served() == 206 + turn);
    }
    rig.others_are_served(100);
    assert_eq!(rig.served(), 356);
    let report = rig.report();
    assert_eq!(
        (report.iops_limit, report.bandwidth_limit_bytes),
        (Some(50), None)
    );
    // One waits now: of those before it each but the burst has waited.
    assert!(
        report.delayed_requests >= 2 && report.delayed_seconds > 0.0,
        "{report:?}"
    );
    assert_eq!(rig.server.status().exports[1].rates, RateReport::default());

    // Another connection of the export gets no more.
    let mut second = rig.client("slow");
    ask(&mut second, 1, 512);
    rig.others_are_served(10);
    assert_eq!(rig.served(), 366);
    assert!(
        rig.server
            .set_rates("slow", RateLimits::default())
            .expect("there")
    );
    for _ in 0..100 {
        assert_eq!(client.receive().error, None);
    }
    assert_eq!(second.receive().error, None);
    assert_eq!(rig.served(), 100 + 1 + 310);
    assert!(rig.server.set_rates("none", RateLimits::default()).is_err());
}

#[test]
fn bytes_are_limited_whatever_the_requests() {
    let rig = Rig::new(RateLimits {
        bandwidth_bytes: Some(640 << 10),
        ..RateLimits::default()
    });
    let mut client = rig.client("slow");
    ask(&mut client, 64, 64 << 10);
    eventually("a burst", || {
        rig.served() == 2 && rig.report().delayed_requests == 1
    });
    for turn in 1..=20 {
        rig.milliseconds.fetch_add(100, Relaxed);
        eventually("its turn", || rig.served() == 2 + turn);
    }
    rig.others_are_served(100);
    assert_eq!(rig.served(), 122);
}

#[test]
fn a_client_that_leaves_is_not_waited_for_and_a_stop_answers_what_waits() {
    let rig = Rig::new(iops(1));
    let mut leaver = rig.client("slow");
    ask(&mut leaver, 20, 512);
    eventually("it waits", || rig.report().delayed_requests == 1);
    let served = rig.served();
    drop(leaver);
    eventually("its connection ends", || {
        rig.server.status().connections == 0
    });
    assert_eq!(rig.served(), served);

    let mut client = rig.client("slow");
    ask(&mut client, 20, 512);
    eventually("it waits", || rig.report().delayed_requests == 2);
    let report = rig.server.stop();
    assert_eq!(report.abandoned_connections, 0);
    for _ in 0..20 {
        assert_eq!(client.receive().error, None);
    }
}

/// Sends READs of blocks that do not lie beside each other, without waiting for their replies.
fn ask_here_and_there(client: &mut Client, requests: u64) {
    for at in 0..requests {
        client.send_read(3 * at * BLOCK, 4096);
    }
}

#[test]
fn weights_divide_what_the_server_may_have_under_way() {
    let directory = tempfile::tempdir().expect("a directory");
    let cache = engine("lru", 16);
    let stores = [ManualStore::new(1024), ManualStore::new(1024)];
    stores.iter().for_each(|store| store.hold(true));
    let export = |name: &str, store: &Arc<ManualStore>, weight| Export {
        name: name.to_owned(),
        description: String::new(),
        volume: cache
            .add_volume(name, Arc::clone(store) as Arc<dyn Store>, Class::NORMAL)
            .expect("a volume"),
        engine: Arc::clone(&cache),
        read_only: false,
        connections_max: None,
        requests_max: None,
        rates: RateLimits {
            weight,
            ..RateLimits::default()
        },
    };
    let exports = vec![
        export("heavy", &stores[0], Some(3)),
        export("light", &stores[1], None),
    ];
    let options = ServerOptions {
        listen: vec![Listen::Unix(directory.path().join("sock"))],
        requests_together: Some(16),
        ..ServerOptions::default()
    };
    let server = Server::start(options, exports).expect("a server");
    let client = |name: &str| {
        let socket = directory.path().join("sock");
        Client::unix(&socket, name, &ClientWish::default())
    };
    let under_way = || [stores[0].held(), stores[1].held()];
    let (mut heavy, mut light) = (client("heavy"), client("light"));
    ask_here_and_there(&mut light, 64);
    eventually("alone it has all", || under_way() == [0, 16]);
    ask_here_and_there(&mut heavy, 64);
    let waits = |at: usize| server.status().exports[at].rates.held_requests;
    eventually("the other waits", || waits(0) > 0);
    assert_eq!(under_way(), [0, 16]);
    // What ends makes room for the one that has less than its part.
    for ended in 1..=12 {
        stores[1].release(0, false);
        eventually("its part", || under_way() == [ended, 16 - ended]);
    }
    for (of, wanted) in [(0, [12, 4]), (1, [12, 4]), (0, [12, 4])] {
        stores[of].release(0, false);
        eventually("it stays so", || under_way() == wanted);
    }
    // Another weight holds from the next end on.
    let even = server.set_rates("heavy", RateLimits::default());
    assert_eq!(even, Ok(true));
    for ended in 1..=4 {
        stores[0].release(0, false);
        eventually("half each", || under_way() == [12 - ended, 4 + ended]);
    }
    // An export that is gone leaves its part.
    drop(heavy);
    stores.iter().for_each(|store| store.hold(false));
    stores.iter().for_each(|store| store.release_all());
    for _ in 0..64 {
        assert_eq!(light.receive().error, None);
    }
    let _ = server.stop();
}

#[test]
fn clients_that_leave_before_the_data_of_their_writes_cost_the_export_nothing() {
    let rig = Rig::new(RateLimits {
        bandwidth_bytes: Some(64 << 10),
        ..RateLimits::default()
    });
    let mut stays = rig.client("slow");
    let header = RequestHeader::new(Command::Write, 1, 0, 1 << 20);
    let leave = |count: u64| {
        for _ in 0..count {
            let mut leaves = rig.client("slow");
            let half = [&header.encode()[..], &[5; 4096]].concat();
            leaves.send_raw(&half).expect("sent");
            drop(leaves);
            eventually("it is gone", || rig.server.status().connections == 1);
        }
    };
    leave(20);
    assert_eq!(
        rig.report().delayed_requests,
        0,
        "each was admitted at once"
    );
    // The clock stands still.
    assert!(stays.read(0, 4096).is_ok());

    // Nor does one who waits behind such a client wait for what it leaves undone.
    let mut leaves = rig.client("slow");
    let buffered = || rig.server.status().buffer_bytes;
    let before = buffered();
    leaves.send_raw(&header.encode()).expect("sent");
    eventually("its data is expected", || buffered() > before);
    ask(&mut stays, 1, 512);
    eventually("one waits behind it", || rig.report().delayed_requests == 1);
    drop(leaves);
    assert_eq!(stays.receive().error, None);
}
