//! Addresses.

use std::path::PathBuf;

use futae_nbd::{ClientTls, NbdUri, Transport};
use proptest::prelude::*;

fn tcp(host: &str, port: u16, export: &str) -> NbdUri {
    let transport = Transport::Tcp {
        host: host.into(),
        port,
    };
    NbdUri {
        transport,
        tls: None,
        export: export.into(),
    }
}

#[test]
fn the_examples_of_the_uri_specification() {
    for (text, wanted) in [
        ("nbd://example.com/disk", tcp("example.com", 10809, "disk")),
        ("nbd://example.com/", tcp("example.com", 10809, "")),
        ("nbd://example.com", tcp("example.com", 10809, "")),
        (
            "nbd://example.com//disk",
            tcp("example.com", 10809, "/disk"),
        ),
        (
            "nbd://example.com/hello%20world",
            tcp("example.com", 10809, "hello world"),
        ),
        (
            "nbd://example.com:10810/export",
            tcp("example.com", 10810, "export"),
        ),
        ("NBD+TCP://[::1]:1/a/b", tcp("::1", 1, "a/b")),
        ("nbd://[fe80::1]", tcp("fe80::1", 10809, "")),
    ] {
        assert_eq!(text.parse::<NbdUri>().expect(text), wanted);
    }
    let unix: NbdUri = "nbd+unix:///disk?socket=/run/a%20b.sock"
        .parse()
        .expect("sound");
    let socket = PathBuf::from("/run/a b.sock");
    assert_eq!(
        unix,
        NbdUri {
            transport: Transport::Unix { socket },
            tls: None,
            export: "disk".into()
        }
    );
    assert_eq!(unix.to_string(), "nbd+unix:///disk?socket=/run/a%20b.sock");
}

#[test]
fn what_is_wrong_is_told() {
    for (text, words) in [
        ("disk.img", "nbd://HOST"),
        ("http://x/", "unknown scheme"),
        ("nbdss://x/", "unknown scheme"),
        ("nbds+tls://x/", "unknown scheme"),
        ("x+tcp://x/", "unknown scheme"),
        ("nbd:///x", "host is missing"),
        ("nbd://u@x/", "user name"),
        ("nbd://::1/", "brackets"),
        ("nbd://[::1/", "closing ]"),
        ("nbd://[x]/", "not an IPv6"),
        ("nbd://[::1]x/", "only :PORT"),
        ("nbd://x:65536/", "port"),
        ("nbd://x:+1/", "port"),
        ("nbd://a b/", "not a host name"),
        ("nbd://x/%4", "hexadecimal"),
        ("nbd://x/%ff", "UTF-8"),
        ("nbd://x/%00", "NUL"),
        ("nbd://x/#a", "%23"),
        ("nbd://x/?socket=a", "nbd+unix"),
        ("nbd+unix:///", "add ?socket="),
        ("nbd+unix:///?socket=", "must name a path"),
        ("nbd+unix:///?socket=a&socket=b", "twice"),
        ("nbd+unix:///?socket=a&tls-type=psk", "tls-type"),
        ("nbd+unix://host/?socket=a", "three slashes"),
        ("nbds://x/?tls-certificates=", "must name a directory"),
        ("nbds://x/?tls-hostname=a&tls-hostname=b", "twice"),
        ("nbd://x/?tls-hostname=a", "belong to nbds"),
    ] {
        let error = text.parse::<NbdUri>().expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn every_address_survives_being_written(
        export in "[^\0]{0,30}",
        socket in "[^\0]{1,30}",
        host in "[a-z0-9.%-]{1,20}",
        port in any::<u16>(),
        tls in any::<bool>(),
        directory in "[^\0]{1,30}",
        hostname in "[^\0]{1,30}",
        is_said in any::<(bool, bool)>(),
    ) {
        let unix = Transport::Unix { socket: socket.into() };
        for transport in [unix, Transport::Tcp { host, port }] {
            let said = ClientTls {
                certificates: is_said.0.then(|| directory.clone().into()),
                hostname: is_said.1.then(|| hostname.clone()),
            };
            let uri = NbdUri { transport, tls: tls.then_some(said), export: export.clone() };
            prop_assert_eq!(uri.to_string().parse::<NbdUri>().expect("sound"), uri);
        }
    }

    #[test]
    fn garbage_never_panics(scheme in "(nbd|nbd\\+unix|.*)", rest in ".{0,60}") {
        let _ = format!("{scheme}://{rest}").parse::<NbdUri>();
        let _ = rest.parse::<NbdUri>();
    }
}
