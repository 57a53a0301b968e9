//! Exports that come and go while a server runs.

mod common;

use common::{BLOCK, Client, MemoryStore, Rig, eventually};
use futae_engine::{Engine, EngineOptions, FileStore, OnEviction, WriteBackOptions};
use futae_host::{Export, Listen, OpenExport, PendingExport, RateLimits};
use futae_nbd::ClientWish;
use futae_nbd::client::negotiate;
use futae_nbd::constants::OPT_GO;
use futae_policy::Class;
use futae_testkit::manual_store::ManualStore;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

const SIZE: usize = 16 * BLOCK as usize;

fn writing_back() -> Arc<Engine> {
    let how = WriteBackOptions {
        dirty_max: 1.0,
        dirty_age_max: Duration::from_secs(3600),
    };
    Engine::new(&EngineOptions {
        block_bytes: BLOCK,
        capacity_blocks: 32,
        policy: "lru".parse().expect("a policy"),
        seed: 1,
        on_eviction: OnEviction::None,
        decision_log: None,
        write_back: Some(how),
    })
    .expect("a cache")
}

/// A server with `disk`; `other` comes and goes.
struct Place {
    rig: Rig,
    other: Arc<MemoryStore>,
    engine: Arc<Engine>,
}

impl Place {
    fn new() -> Self {
        let rig = Rig::with("lru", 32, vec![7; SIZE], |options| {
            options.stop_timeout = Duration::from_millis(300);
        });
        let other = MemoryStore::new(vec![1; SIZE]);
        let engine = writing_back();
        let place = Self { rig, other, engine };
        place.add().expect("added");
        place
    }

    fn add(&self) -> Result<(), String> {
        self.rig.server.add_export("other", || Ok(self.pending()))
    }

    fn pending(&self) -> PendingExport {
        let (engine, store) = (Arc::clone(&self.engine), Arc::clone(&self.other));
        PendingExport::new(move || Ok(common::export(&engine, "other", &store)))
    }

    fn client(&self) -> Client {
        Client::unix(&self.rig.socket, "other", &ClientWish::default())
    }

    fn remove(&self) -> Result<(), String> {
        self.rig.server.remove_export("other", false).map(drop)
    }
}

#[test]
fn what_was_written_is_flushed_before_an_export_goes() {
    let place = Place::new();
    let mut client = place.client();
    assert_eq!(client.write(0, &[9; BLOCK as usize]), None);
    assert_eq!(
        place.other.content()[0],
        1,
        "written back too early for this test"
    );
    let refused = place.remove().expect_err("in use");
    assert!(refused.contains("1 connections"), "{refused}");
    drop(client);
    eventually("it can be removed", || place.remove().is_ok());
    assert_eq!(place.other.content()[..BLOCK as usize], [9; BLOCK as usize]);
    assert_eq!(place.other.unflushed(), 0);
    assert_eq!(place.rig.server.export_names(), ["disk"]);
    let unknown = place.remove().expect_err("gone");
    assert!(
        unknown.contains("no export is named \"other\""),
        "{unknown}"
    );
    let sole = place
        .rig
        .server
        .remove_export("disk", true)
        .expect_err("the last");
    assert!(sole.contains("the only one"), "{sole}");
}

#[test]
fn a_failed_flush_keeps_the_export_and_what_was_written() {
    let place = Place::new();
    let mut client = place.client();
    assert_eq!(client.write(0, &[9; BLOCK as usize]), None);
    drop(client);
    place.other.fail_writes(true);
    eventually("the flush is tried", || {
        let refused = place.remove().expect_err("it cannot be flushed");
        refused.contains("other stays: its writes cannot be brought")
    });
    assert_eq!(place.rig.server.export_names(), ["disk", "other"]);
    let mut client = place.client();
    let data = client.read(0, BLOCK as u32).expect("a read");
    assert_eq!(data, [9; BLOCK as usize]);
    drop(client);
    place.other.fail_writes(false);
    eventually("it can be removed", || place.remove().is_ok());
    assert_eq!(place.other.content()[..BLOCK as usize], [9; BLOCK as usize]);
}

#[test]
fn a_name_comes_back_with_another_image() {
    let place = Place::new();
    let mut client = place.client();
    assert_eq!(client.read(0, 4096).expect("a read")[0], 1);
    drop(client);
    eventually("it can be removed", || place.remove().is_ok());
    place.other.overwrite(0, &[5; 4096]);
    place.add().expect("added again");
    let twice = place.add().expect_err("a name is given once");
    assert!(twice.contains("already"), "{twice}");
    let mut client = place.client();
    assert_eq!(
        client.read(0, 4096).expect("a read")[0],
        5,
        "of the image before"
    );
    let status = place.engine.status();
    assert_eq!((status.volumes.len(), status.resident_blocks), (1, 1));
    place.engine.audit();
}

#[test]
fn an_export_that_cannot_be_opened_is_none() {
    let place = Place::new();
    let refused = place
        .rig
        .server
        .add_export("third", || Err("no such image".to_owned()));
    assert_eq!(refused, Err("no such image".to_owned()));
    assert_eq!(place.rig.server.export_names(), ["disk", "other"]);
}

#[test]
fn an_export_whose_connections_do_not_end_stays() {
    let place = Place::new();
    place.other.hold_reads(0..SIZE as u64);
    let mut client = place.client();
    client.send_read(0, 4096);
    eventually("the read is held", || place.other.held() == 1);
    let refused = place.rig.server.remove_export("other", true);
    let problem = refused.expect_err("a read is under way");
    assert!(
        problem.contains("1 of its connections do not end"),
        "{problem}"
    );
    assert_eq!(place.rig.server.export_names(), ["disk", "other"]);
    place.other.release();
    eventually("it can be removed", || place.remove().is_ok());
    assert_eq!(place.rig.server.export_names(), ["disk"]);
}

#[test]
fn a_source_that_is_silent_holds_up_neither_orders_nor_the_stop() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = directory.path().join("control");
    let (silent, opens) = mpsc::sync_channel(0);
    let (answers, answer) = mpsc::channel();
    let answer = Mutex::new(answer);
    let open = move |_: &str| {
        silent.send(()).expect("awaited");
        let answer = answer.lock().expect("one at a time");
        answer.recv().expect("an answer");
        Ok(PendingExport::new(|| panic!("the caches are left alone")))
    };
    let rig = Rig::with("lru", 32, vec![7; SIZE], |options| {
        options.control = Some(Listen::Unix(control.clone()));
        options.open_export = Some(OpenExport::new(open));
    });
    let ask = |order: Value| {
        let answer = futae_control::ask(&control, &order);
        answer.map_err(|error| error.to_string())
    };
    thread::scope(|scope| {
        let add = json!({ "command": "export-add", "export": "other=x" });
        let adding = scope.spawn(|| ask(add));
        opens.recv().expect("it opens the source");
        let limited = ask(json!({ "command": "export-limit", "export": "disk", "iops": 5 }));
        assert_eq!(limited, Ok(json!({ "changed": true })));
        let _ = rig.server.stop();
        answers.send(()).expect("awaited");
        let added = adding.join().expect("no panic");
        assert_eq!(added, Err("the server stops".to_owned()));
    });
}

#[test]
fn a_weight_is_refused_where_it_would_have_no_effect() {
    let place = Place::new();
    let weighed = RateLimits::default()
        .with_weight(Some(5))
        .expect("a weight");
    let refused = place.rig.server.set_rates("other", weighed);
    let problem = refused.expect_err("there is no limit to divide");
    assert!(
        problem.contains("export other: a weight is a part of --requests-max"),
        "{problem}"
    );
    place.remove().expect("nobody uses it");
    let (engine, store) = (Arc::clone(&place.engine), Arc::clone(&place.other));
    let pending = PendingExport::new(move || {
        Ok(Export {
            rates: weighed,
            ..common::export(&engine, "other", &store)
        })
    });
    let refused = place.rig.server.add_export("other", || Ok(pending));
    let problem = refused.expect_err("there is no limit to divide");
    assert!(problem.contains("leave the weight out"), "{problem}");
    assert_eq!(place.rig.server.export_names(), ["disk"]);
    place.add().expect("it is free");
}

/// A stream that does something before its client asks for an export.
struct BeforeGo<'a> {
    stream: UnixStream,
    act: Option<Box<dyn FnOnce() + 'a>>,
}

impl Read for BeforeGo<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.read(bytes)
    }
}

impl Write for BeforeGo<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let go = [&b"IHAVEOPT"[..], &OPT_GO.to_be_bytes()].concat();
        if bytes.windows(go.len()).any(|part| part == go)
            && let Some(act) = self.act.take()
        {
            act();
        }
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[test]
fn a_client_opens_the_very_export_of_which_it_was_told() {
    let place = Place::new();
    place.remove().expect("nobody uses it");
    let directory = tempfile::tempdir().expect("a directory");
    let add = |number: u8| {
        let image = directory.path().join(number.to_string());
        std::fs::write(&image, vec![number; SIZE]).expect("an image");
        let engine = Arc::clone(&place.engine);
        let pending = PendingExport::new(move || {
            let store = Arc::new(FileStore::open(&image, false).expect("a store"));
            let volume = engine.add_volume("other", store, Class::NORMAL);
            let like = common::export(&engine, "unused", &MemoryStore::new(vec![0; SIZE]));
            Ok(Export {
                name: "other".to_owned(),
                volume: volume.expect("a volume"),
                ..like
            })
        });
        let added = place.rig.server.add_export("other", || Ok(pending));
        added.expect("added");
    };
    add(1);
    let wish = ClientWish {
        identity: true,
        ..ClientWish::default()
    };
    let mut stream = BeforeGo {
        stream: UnixStream::connect(&place.rig.socket).expect("connected"),
        act: Some(Box::new(|| {
            place.remove().expect("nobody has opened it");
            add(2);
        })),
    };
    // The client knows the identity of the first image, and would take the second one for it.
    negotiate(&mut stream, "other", &wish).expect_err("another export");
    let mut client = Client::unix(&place.rig.socket, "other", &wish);
    assert!(client.export.identity.is_some());
    assert_eq!(client.read(0, 1).expect("a read"), [2]);
}

#[test]
fn an_export_whose_removal_fails_while_the_server_stops_is_flushed() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = directory.path().join("control");
    let rig = Rig::with("lru", 32, vec![7; SIZE], |options| {
        options.control = Some(Listen::Unix(control.clone()));
        options.stop_timeout = Duration::from_secs(2);
    });
    let (engine, store) = (writing_back(), ManualStore::new(16));
    let below = Arc::clone(&store);
    let pending = PendingExport::new(move || {
        let volume = engine.add_volume("other", below, Class::NORMAL);
        let like = common::export(&engine, "unused", &MemoryStore::new(vec![0; SIZE]));
        Ok(Export {
            name: "other".to_owned(),
            volume: volume.expect("a volume"),
            ..like
        })
    });
    let added = rig.server.add_export("other", || Ok(pending));
    added.expect("added");
    let mut client = Client::unix(&rig.socket, "other", &ClientWish::default());
    store.hold(true);
    thread::scope(|scope| {
        let remove = json!({ "command": "export-remove", "export": "other", "force": true });
        let control = &control;
        let removing = scope.spawn(move || futae_control::ask(control, &remove));
        eventually("it is flushed", || store.held() == 1);
        // Written after that flush, and a read that does not end.
        assert_eq!(client.write(BLOCK, &[9; BLOCK as usize]), None);
        client.send_read(5 * BLOCK, 4096);
        eventually("the read comes", || store.held() == 2);
        store.release(0, false);
        eventually("it is taken out", || rig.server.export_names() == ["disk"]);
        let stopping = scope.spawn(|| rig.server.stop());
        let refused = removing.join().expect("no panic").expect_err("the read");
        assert!(refused.to_string().contains("do not end"), "{refused}");
        store.hold(false);
        store.release_all();
        let report = stopping.join().expect("no panic");
        assert!(report.flush_errors.is_empty(), "{report:?}");
    });
    let written = &store.bytes()[BLOCK as usize..2 * BLOCK as usize];
    assert_eq!(written, [9; BLOCK as usize]);
}
