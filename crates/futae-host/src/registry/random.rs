//! Clients of several users and processes come, open exports, are dismissed and leave, in random order. A silent store keeps some that
//! have ended.

use super::{ConnectionLimits, Phase, Place, Registry};
use crate::peer::Peer;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// The connections of the server, and of its exports.
const OF_SERVER: usize = 6;
const OF_EXPORTS: [(&str, usize); 2] = [("a", 3), ("b", 5)];
const HANDSHAKES: usize = 4;

/// A client with the export that it has opened. Its place is held while its thread would run.
struct Client {
    place: Place,
    _theirs: UnixStream,
    opened: Option<&'static str>,
}

#[test]
fn limits_hold_whatever_order_clients_come_and_leave_in() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = move |limit: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) % limit
    };
    for _ in 0..20 {
        let registry = Arc::new(Registry::default());
        let mut clients: Vec<Client> = Vec::new();
        for _ in 0..300 {
            let at = below(clients.len().max(1) as u64) as usize;
            match below(8) {
                0..3 => {
                    let (ours, theirs) = UnixStream::pair().expect("a pair");
                    let peer = Peer {
                        user: below(3).into(),
                        process: below(4) as u32,
                    };
                    let gate = "unix:a".into();
                    clients.push(Client {
                        place: registry.admit(ours.into(), peer, &gate, HANDSHAKES),
                        _theirs: theirs,
                        opened: None,
                    });
                }
                3..6 if at < clients.len() && clients[at].opened.is_none() => {
                    let (export, of_export) = OF_EXPORTS[below(2) as usize];
                    let client = &mut clients[at];
                    let limits = ConnectionLimits {
                        of_server: OF_SERVER,
                        of_export,
                    };
                    let was_dismissed = *client.place.link.phase() == Phase::Dismissed;
                    if client.place.begin(export, false, &limits) {
                        assert!(!was_dismissed);
                        client.opened = Some(export);
                    } else {
                        // Its thread ends.
                        clients.remove(at);
                    }
                }
                // The others wait for a store for long.
                6 if at < clients.len() && at.is_multiple_of(2) => drop(clients.remove(at)),
                _ => {}
            }
            check(&registry, &clients);
        }
        drop(clients);
        assert_eq!(registry.wait_empty(Duration::ZERO), 0);
    }
}

fn check(registry: &Registry, clients: &[Client]) {
    assert_eq!(registry.count(), clients.len());
    let links: Vec<_> = clients.iter().map(|client| &client.place.link).collect();
    let greeting = links.iter().filter(|link| link.is_in_handshake()).count();
    assert!(greeting <= HANDSHAKES);
    assert!(links.iter().filter(|link| link.uses(None)).count() <= OF_SERVER);
    for (name, most) in OF_EXPORTS {
        let using = links.iter().filter(|link| link.uses(Some(name))).count();
        assert!(using <= most, "{using} use {name}");
        // Also those that were dismissed are waited for when the export is removed.
        let of_it = clients.iter().filter(|client| client.opened == Some(name));
        assert_eq!(registry.users(name), of_it.count());
    }
    for user in 0..3 {
        let of_user = links.iter().filter(|link| link.peer.user == user);
        let ending = of_user.filter(|link| link.is_ending()).count();
        assert!(ending <= 2 * OF_SERVER, "{ending} of user {user} wait");
    }
}
