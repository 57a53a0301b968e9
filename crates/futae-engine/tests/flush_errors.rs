//! Who learns of a flush that failed: a store reports lost writes once, and they may be those of any client.

mod common;

use common::{Answer, BLOCK, Setup, setup, take, write};
use futae_engine::{ClientId, JoinedClient, OnEviction, Operation};

/// A client's flush, which the store ends.
fn flush(setup: &Setup, client: ClientId, fail: bool) -> bool {
    let answer = begin(setup, client);
    setup.store.release(0, fail);
    is_good(&answer)
}

fn begin(setup: &Setup, client: ClientId) -> Answer {
    setup.start(client, 0, Operation::Flush)
}

fn is_good(answer: &Answer) -> bool {
    take(answer).expect("an answer").is_ok()
}

/// A cache whose store ends operations as the test says, after two clients have written.
fn written_by_two() -> (Setup, [ClientId; 2]) {
    let setup = setup("lru", 8, 8, OnEviction::None);
    let clients = [(); 2].map(|()| setup.engine.join(setup.volume));
    for (block, client) in (0..).zip(clients) {
        let data = vec![7; BLOCK as usize];
        let written = setup.start(client, 0, write(block * BLOCK, &data));
        assert!(is_good(&written));
    }
    setup.store.hold(true);
    (setup, clients)
}

#[test]
fn each_client_that_was_connected_learns_of_a_failed_flush_once() {
    let (setup, [one, other]) = written_by_two();
    assert!(!flush(&setup, one, true), "the store has failed");
    let late = setup.engine.join(setup.volume);
    assert!(!flush(&setup, other, false), "its writes may be lost");
    for client in [one, other, late] {
        assert!(flush(&setup, client, false), "it has been told");
    }
}

#[test]
fn a_failure_of_the_servers_own_flush_is_told_to_each_client_once() {
    let (setup, clients) = written_by_two();
    assert!(!flush(&setup, ClientId::NOBODY, true));
    for client in clients {
        assert!(!flush(&setup, client, false), "its writes may be lost");
        assert!(flush(&setup, client, false), "it has been told");
    }
}

#[test]
fn of_flushes_that_are_under_way_together_none_ends_well_after_one_has_failed() {
    let (setup, [one, other]) = written_by_two();
    let (first, second) = (begin(&setup, one), begin(&setup, other));
    setup.store.release(0, true);
    setup.store.release(0, false);
    assert!(!is_good(&first) && !is_good(&second));
}

#[test]
fn of_a_clients_flushes_that_are_under_way_together_none_ends_well_after_one_has_failed() {
    let (setup, [one, _]) = written_by_two();
    let answers = [begin(&setup, one), begin(&setup, one)];
    setup.store.release(0, true);
    setup.store.release(0, false);
    assert!(answers.iter().all(|answer| !is_good(answer)));
    assert!(flush(&setup, one, false), "it has been told");
}

#[test]
fn a_client_that_leaves_before_it_is_told_takes_the_failure_from_nobody() {
    let (setup, [one, other]) = written_by_two();
    let answer = begin(&setup, one);
    setup.store.release(0, true);
    let error = take(&answer)
        .expect("an answer")
        .expect_err("it has failed");
    setup.engine.pass_on_failure(setup.volume, one, &error);
    setup.engine.leave(setup.volume, one);
    assert!(!flush(&setup, other, false), "it was connected");
    assert!(flush(&setup, other, false), "it has been told");
    let again = setup.engine.join(setup.volume);
    assert!(!flush(&setup, again, false), "it connects again");
    assert!(flush(&setup, again, false), "it has been told");
}

#[test]
fn a_client_is_owed_a_failure_until_it_is_told_or_leaves() {
    let (setup, [one, _]) = written_by_two();
    let joined = JoinedClient::join(&setup.engine, setup.volume);
    let id = joined.id();
    assert!(!joined.is_owed_failure());
    assert!(!flush(&setup, one, true));
    assert!(joined.is_owed_failure());
    assert!(!flush(&setup, id, false), "it is told");
    assert!(!joined.is_owed_failure());
    assert!(!flush(&setup, one, true));
    assert!(joined.is_owed_failure());
    drop(joined);
    assert!(!setup.engine.owes_failure(setup.volume, id), "it has left");
}
