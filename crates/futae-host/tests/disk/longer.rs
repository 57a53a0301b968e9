//! A disk whose image becomes longer while guests use it.

use crate::common;
use crate::rig::{BAD, DONE, IN, OUT};
use crate::ring::{RingClient, Wish};
use futae_engine::{FileStore, Store};
use futae_host::{Export, Gate, Listen, RateLimits, Server, ServerOptions};
use futae_policy::Class;
use futae_testkit::wait::eventually;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Not whole blocks: the last one is short at first.
const BEFORE: u64 = (256 << 10) + 512;
const AFTER: u64 = 1 << 20;

fn order(control: &Path, line: &str) -> Result<serde_json::Value, String> {
    let line = serde_json::from_str(line).expect("JSON");
    futae_control::ask(control, &line).map_err(|error| error.to_string())
}

#[test]
fn guests_hear_of_a_longer_disk_at_once_and_can_use_all_of_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let image = File::create(at("image")).expect("an image");
    image.set_len(BEFORE).expect("room");
    let engine = common::engine("lru", 64);
    let store = FileStore::open(&at("image"), false).expect("a store");
    let store: Arc<dyn Store> = Arc::new(store);
    let volume = engine.add_volume("disk", store, Class::NORMAL);
    let export = Export {
        name: "disk".into(),
        description: String::new(),
        engine: Arc::clone(&engine),
        volume: volume.expect("a volume"),
        read_only: false,
        connections_max: None,
        requests_max: None,
        rates: RateLimits::default(),
    };
    let gate = Gate {
        export: Some("disk".to_owned()),
        ..Listen::VhostUser(at("socket")).into()
    };
    let options = ServerOptions {
        gates: vec![gate],
        control: Some(Listen::Unix(at("control"))),
        ..ServerOptions::default()
    };
    let server = Server::start(options, vec![export]).expect("a server");
    let mut clients =
        [(); 2].map(|()| RingClient::connect(&at("socket"), Wish::default()).expect("a disk"));
    // The short last block is resident, with what the guest wrote there.
    let last = BEFORE / 512 - 1;
    let queue = &mut clients[0].queues[0];
    assert_eq!(queue.request(OUT, last, &[7; 512], 0).status, DONE);
    assert_eq!(queue.request(IN, last, &[], 512).data, [7; 512]);
    assert_eq!(queue.request(IN, last + 1, &[], 512).status, BAD);
    let lengthen = r#"{"command":"export-lengthen","export":"disk"}"#;
    let same = order(&at("control"), lengthen).expect("nothing to do");
    assert_eq!(
        (&same["before_bytes"], &same["size_bytes"]),
        (&BEFORE.into(), &BEFORE.into())
    );
    // What lies behind the old end is not only zeroes: somebody wrote it before the server looked.
    image.set_len(AFTER).expect("room");
    std::os::unix::fs::FileExt::write_all_at(&image, &[9; 512], BEFORE).expect("room");
    let longer = order(&at("control"), lengthen).expect("a longer disk");
    assert_eq!(longer["size_bytes"], AFTER, "{longer}");
    assert_eq!(longer["told"], 2, "{longer}");
    for client in &mut clients {
        eventually("a notice", || client.config_changes() > 0);
        assert_eq!(client.size_bytes().expect("a size"), AFTER);
        let queue = &mut client.queues[0];
        let both = queue.request(IN, last, &[], 1024);
        assert_eq!(both.data, [[7; 512], [9; 512]].concat());
        assert_eq!(
            queue.request(OUT, AFTER / 512 - 8, &[3; 4096], 0).status,
            DONE
        );
        assert_eq!(
            queue.request(IN, AFTER / 512 - 8, &[], 4096).data,
            [3; 4096]
        );
    }
    // Shorter is refused, and nothing changes.
    image.set_len(BEFORE).expect("room");
    let refused = order(&at("control"), lengthen).expect_err("it is shorter");
    assert!(refused.contains("fewer than the 1048576"), "{refused}");
    assert_eq!(engine.volume_bytes(futae_policy::VolumeId(0)), AFTER);
    image.set_len(AFTER).expect("room");
    let unknown = order(
        &at("control"),
        r#"{"command":"export-lengthen","export":"none"}"#,
    );
    assert!(
        unknown
            .expect_err("there is none")
            .contains("no export is named")
    );
    drop(clients);
    engine.audit();
    assert_eq!(server.stop().flush_errors, []);
}
