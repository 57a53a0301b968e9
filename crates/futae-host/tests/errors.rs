//! What fails is told, counted and forgotten; nothing else suffers.

mod common;

use common::{BLOCK, Client, MemoryStore, Rig, StoreEvent, engine, eventually, export, pattern};
use futae_host::{Export, Listen, Server, ServerOptions};
use futae_nbd::constants::MAX_PAYLOAD_BYTES;
use futae_nbd::{ClientWish, Command, CommandFlags, ErrorNumber, RequestHeader, TransmissionFlags};
use futae_policy::Class;
use futae_testkit::manual_store::ManualStore;
use std::sync::Arc;

const SIZE: usize = 1 << 20;

#[test]
fn ranges_beyond_the_end_are_refused_and_the_connection_goes_on() {
    let content = pattern(1, SIZE);
    let rig = Rig::new("lru", 64, content.clone());
    for mut client in [rig.plain(), rig.structured()] {
        let end = SIZE as u64;
        assert_eq!(client.read(end - 10, 11), Err(ErrorNumber::Invalid));
        assert_eq!(client.read(u64::MAX, 2), Err(ErrorNumber::Invalid));
        assert_eq!(client.write(end - 10, &[1; 11]), Some(ErrorNumber::NoSpace));
        let zeroes = client.simple(Command::WriteZeroes, end, 1);
        assert_eq!(zeroes.error, Some(ErrorNumber::NoSpace));
        assert_eq!(
            client.simple(Command::Trim, end, 1).error,
            Some(ErrorNumber::Invalid)
        );
        assert_eq!(
            client.simple(Command::Cache, end, 1).error,
            Some(ErrorNumber::Invalid)
        );
        assert_eq!(
            client.simple(Command::Unknown(99), 0, 0).error,
            Some(ErrorNumber::Invalid)
        );
        assert!(client.read(0, MAX_PAYLOAD_BYTES + 1).is_err());
        assert_eq!(client.read(0, 100).expect("still served"), content[..100]);
    }
    assert_eq!(rig.store.content(), content);
    eventually("counted", || {
        rig.server.status().traffic.refused_requests == 16
    });
}

#[test]
fn requests_for_nothing_succeed() {
    let rig = Rig::new("lru", 64, pattern(1, SIZE));
    for mut client in [rig.plain(), rig.structured()] {
        assert_eq!(client.read(5, 0), Ok(vec![]));
        assert_eq!(client.write(5, &[]), None);
        for command in [Command::Trim, Command::WriteZeroes, Command::Cache] {
            assert_eq!(client.simple(command, 7, 0).error, None);
        }
    }
    assert_eq!(rig.engine.status().counters.requests, 0);
}

#[test]
fn a_store_error_is_told_is_not_cached_and_the_next_read_works() {
    let content = pattern(2, SIZE);
    let rig = Rig::new("lru", 64, content.clone());
    let (mut plain, mut structured) = (rig.plain(), rig.structured());
    rig.store.fail_reads(true);
    assert_eq!(plain.read(0, 4096), Err(ErrorNumber::InputOutput));
    let answer = structured.simple(Command::Read, 4096, 100);
    assert_eq!(answer.error, Some(ErrorNumber::InputOutput));
    assert!(
        // The store's own words may name files of the host.
        answer.message == "the export's store failed",
        "{}",
        answer.message
    );
    rig.store.fail_reads(false);
    assert_eq!(plain.read(0, 4096).expect("read"), content[..4096]);
    assert_eq!(
        structured.read(4096, 100).expect("read"),
        content[4096..4196]
    );
    assert!(rig.engine.status().errors >= 2);
    // Of a long read that fails in its middle nothing is believed either.
    rig.store.fail_reads(true);
    assert!(plain.read(0, 65_536).is_err());
    rig.store.fail_reads(false);
    assert_eq!(plain.read(0, 65_536).expect("read"), content[..65_536]);
}

#[test]
fn a_failed_write_leaves_what_the_store_has() {
    let content = pattern(3, SIZE);
    let rig = Rig::new("lru", 64, content.clone());
    let mut client = rig.plain();
    client.read(0, 8192).expect("warm");
    rig.store.fail_writes(true);
    assert_eq!(
        client.write(100, &[9; 5000]),
        Some(ErrorNumber::InputOutput)
    );
    assert_eq!(
        client.simple(Command::Flush, 0, 0).error,
        Some(ErrorNumber::InputOutput)
    );
    rig.store.fail_writes(false);
    rig.store.fill_up(true);
    assert_eq!(client.write(100, &[9; 5000]), Some(ErrorNumber::NoSpace));
    rig.store.fill_up(false);
    assert_eq!(client.read(0, 8192).expect("read"), content[..8192]);
    assert_eq!(client.write(100, &[9; 5000]), None);
    assert_eq!(client.read(100, 5000).expect("read"), [9; 5000]);
}

#[test]
fn flush_and_fua_reach_the_store() {
    let rig = Rig::new("lru", 64, pattern(4, SIZE));
    let mut client = rig.plain();
    let durable = |store: &MemoryStore| {
        store.count(|event| matches!(event, StoreEvent::Flush | StoreEvent::Write(_, true)))
    };
    assert_eq!(client.write(0, &[1; 4096]), None);
    assert_eq!(durable(&rig.store), 0);
    let fua = client.ask(Command::Write, CommandFlags::FUA, 4096, 4096, &[2; 4096]);
    assert_eq!((fua.error, durable(&rig.store)), (None, 1));
    assert_eq!(client.simple(Command::Flush, 0, 0).error, None);
    assert_eq!(rig.store.events().last(), Some(&StoreEvent::Flush));
    let before = durable(&rig.store);
    let trim = client.ask(Command::Trim, CommandFlags::FUA, 8192, 4096, &[]);
    assert_eq!(trim.error, None);
    assert_eq!(
        durable(&rig.store),
        before + 1,
        "a durable trim is a trim and a flush"
    );
    assert_eq!(rig.store.events().last(), Some(&StoreEvent::Flush));
    let zeroes = CommandFlags::FUA.union(CommandFlags::NO_HOLE);
    assert_eq!(
        client.ask(Command::WriteZeroes, zeroes, 0, 4096, &[]).error,
        None
    );
    assert_eq!(client.read(0, 4096).expect("read"), [0; 4096]);
    assert!(
        rig.store
            .count(|e| matches!(e, StoreEvent::WriteZeroes(_, true, _)))
            > 0
    );
}

#[test]
fn a_read_only_export_takes_no_writes() {
    let content = pattern(5, SIZE);
    for by_store in [true, false] {
        let directory = tempfile::tempdir().expect("a directory");
        let store = if by_store {
            MemoryStore::read_only(content.clone())
        } else {
            MemoryStore::new(content.clone())
        };
        let cache = engine("lru", 64);
        let mut only = export(&cache, "disk", &store);
        only.read_only = !by_store;
        let path = directory.path().join("s");
        let listen = vec![Listen::Unix(path.clone())];
        let _server = Server::start(
            ServerOptions {
                listen,
                ..Default::default()
            },
            vec![only],
        )
        .expect("a server");
        let mut client = Client::unix(&path, "disk", &ClientWish::default());
        assert!(client.export.flags.contains(TransmissionFlags::READ_ONLY));
        assert_eq!(client.write(0, &[1; 10]), Some(ErrorNumber::NotPermitted));
        for command in [Command::Trim, Command::WriteZeroes] {
            assert_eq!(
                client.simple(command, 0, 10).error,
                Some(ErrorNumber::NotPermitted)
            );
        }
        assert_eq!(client.simple(Command::Flush, 0, 0).error, None);
        assert_eq!(client.read(0, 4096).expect("read"), content[..4096]);
        assert_eq!(store.content(), content);
    }
}

#[test]
fn notices_are_answered_at_once_and_fetch_the_block() {
    let content = pattern(6, SIZE);
    let rig = Rig::new("exclusive", 64, content.clone());
    let mut client = rig.plain();
    assert_eq!(client.simple(Command::Cache, 0, 8192).error, None);
    eventually("the blocks come", || {
        rig.engine.status().resident_blocks == 2
    });
    eventually("with one read", || rig.store.reads() == 1);
    assert_eq!(client.read(0, 8192).expect("read"), content[..8192]);
    assert_eq!(rig.store.reads(), 1, "both were there");
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody_else() {
    let content = pattern(7, 8 << 20);
    let rig = Rig::with("lru", 2048, content.clone(), |options| {
        options.requests_max = 16;
        options.request_bytes_max = 4 << 20;
    });
    let mut lazy = rig.plain();
    let cookies: Vec<u64> = (0..100)
        .map(|i| lazy.send_read((i % 8) << 20, 1 << 20))
        .collect();
    let mut busy = rig.structured();
    for i in 0..500u64 {
        let offset = (i * 37 % 2000) * BLOCK;
        let data = busy.read(offset, 4096).expect("read");
        assert!(data == content[offset as usize..][..4096]);
    }
    let status = rig.server.status();
    assert!(
        status.traffic.requests < 500 + 100,
        "the lazy one is not read from without end"
    );
    for _ in cookies {
        let answer = lazy.receive();
        let at = ((answer.cookie - 1) % 8) as usize * (1 << 20);
        assert!(
            answer.data == content[at..at + (1 << 20)],
            "the lazy one gets everything"
        );
    }
}

#[test]
fn a_client_that_vanishes_with_requests_in_flight_is_forgotten() {
    let rig = Rig::new("lru", 64, pattern(8, SIZE));
    rig.store.hold_reads(0..SIZE as u64);
    let mut client = rig.plain();
    for i in 0..50 {
        client.send_read(i * BLOCK, 4096);
    }
    eventually("requests arrive", || {
        rig.server.status().traffic.requests == 50
    });
    drop(client);
    rig.store.release();
    eventually("it is forgotten", || rig.server.status().connections == 0);
    assert!(rig.plain().read(0, 4096).is_ok());
}

#[test]
fn trim_is_offered_only_over_a_store_that_has_it() {
    for has_trim in [true, false] {
        let rig = Rig::with_exports("lru", 64, pattern(9, SIZE), |export| {
            let store = ManualStore::new(16);
            store.set(|inside| inside.has_no_trim = !has_trim);
            let volume = export.engine.add_volume("other", store, Class::NORMAL);
            let volume = volume.expect("a volume");
            vec![Export { volume, ..export }]
        });
        let mut client = rig.plain();
        let offers = client.export.flags.contains(TransmissionFlags::SEND_TRIM);
        assert_eq!(offers, has_trim);
        let trimmed = client.simple(Command::Trim, 0, 4096).error;
        assert_eq!(trimmed, (!has_trim).then_some(ErrorNumber::Invalid));
    }
}

#[test]
fn a_failed_flush_whose_client_has_left_is_told_to_the_next() {
    let store = ManualStore::new(16);
    let below = Arc::clone(&store);
    let rig = Rig::with_exports("lru", 64, pattern(9, SIZE), |export| {
        let volume = export.engine.add_volume("manual", below, Class::NORMAL);
        let volume = volume.expect("a volume");
        vec![Export { volume, ..export }]
    });
    let trim = RequestHeader {
        flags: CommandFlags::FUA,
        ..RequestHeader::new(Command::Trim, 2, 0, 4096)
    };
    for header in [RequestHeader::new(Command::Flush, 1, 0, 0), trim] {
        let mut client = rig.plain();
        assert_eq!(client.write(0, &[1; 4096]), None);
        store.hold(true);
        client.send(&header, &[]);
        eventually("it comes", || store.held() == 1);
        if header.command == Command::Trim {
            store.release(0, false);
            eventually("its flush comes", || store.held() == 1);
        }
        drop(client);
        store.hold(false);
        // A disk reports a loss once.
        store.release(0, true);
        eventually("it is gone", || rig.server.status().connections == 0);
        let mut next = rig.plain();
        let told = next.simple(Command::Flush, 0, 0).error;
        assert_eq!(told, Some(ErrorNumber::InputOutput), "{header:?}");
        assert_eq!(next.simple(Command::Flush, 0, 0).error, None, "once");
        drop(next);
        eventually("it is gone", || rig.server.status().connections == 0);
    }
}

#[test]
fn a_client_that_has_yet_to_learn_of_a_failure_is_not_kept_for_the_next_server() {
    let store = ManualStore::new(16);
    store.set(|inside| inside.identity = Some([7; 16]));
    let below = Arc::clone(&store);
    let keeps = |options: &mut ServerOptions| options.keeps_clients = true;
    let rig = Rig::made("lru", 64, pattern(9, SIZE), keeps, |export| {
        let volume = export.engine.add_volume("manual", below, Class::NORMAL);
        let volume = volume.expect("a volume");
        vec![Export { volume, ..export }]
    });
    let (mut told, _owed) = (rig.plain(), rig.plain());
    assert_eq!(told.write(0, &[1; 4096]), None);
    store.hold(true);
    told.send(&RequestHeader::new(Command::Flush, 1, 0, 0), &[]);
    eventually("it comes", || store.held() == 1);
    store.hold(false);
    // A disk reports a loss once.
    store.release(0, true);
    assert!(told.receive().error.is_some());
    let (report, kept) = rig.server.stop_and_keep();
    assert_eq!((report.flush_errors, kept.len()), (Vec::new(), 1));
}
