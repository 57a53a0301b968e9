//! Exports that come and go while a server runs.

mod common;

use common::{BLOCK, Client, MemoryStore, Rig, eventually};
use futae_engine::{Engine, EngineOptions, OnEviction, WriteBackOptions};
use futae_host::Export;
use futae_nbd::ClientWish;
use std::sync::Arc;
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
        let open = || Ok(common::export(&self.engine, "other", &self.other));
        self.rig.server.add_export("other", open)
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
    let open = || -> Result<Export, String> { Err("no such image".to_owned()) };
    let refused = place.rig.server.add_export("third", open);
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
