//! The handshake of a server that serves over TLS only.

use crate::common::*;
use futae_nbd::constants::*;
use futae_nbd::*;

/// The kinds of the replies to options in the clear, and where they lead.
fn in_the_clear(options: &[Vec<u8>]) -> (Vec<u32>, Result<Outcome, WireError>) {
    let mut input = 3u32.to_be_bytes().to_vec();
    input.extend(options.concat());
    let mut out = Vec::new();
    let outcome = Handshake::with_tls(Shelf::new()).feed(&input, &mut out);
    let kinds = answers(&out).into_iter().map(|(_, kind, _)| kind).collect();
    (kinds, outcome.map(|progress| progress.outcome))
}

#[test]
fn nothing_is_said_of_exports_before_tls() {
    for asked in [
        option(OPT_LIST, b""),
        option(OPT_GO, &go_data("vm1", &[])),
        option(OPT_INFO, &go_data("no such", &[])),
        option(OPT_STRUCTURED_REPLY, b""),
        option(OPT_FUTAE_DEMOTION, b""),
        option(99, b"whatever"),
    ] {
        let (kinds, outcome) = in_the_clear(&[asked]);
        assert_eq!(kinds, [REP_ERR_TLS_REQD]);
        assert!(matches!(outcome, Ok(Outcome::NeedMore)), "{outcome:?}");
    }
    let (kinds, outcome) = in_the_clear(&[option(OPT_EXPORT_NAME, b"vm1")]);
    assert!(kinds.is_empty(), "{kinds:?}");
    assert!(
        matches!(outcome, Err(WireError::TlsRequired)),
        "{outcome:?}"
    );
    let (kinds, outcome) = in_the_clear(&[option(OPT_ABORT, b"")]);
    assert_eq!(kinds, [REP_ACK]);
    assert!(matches!(outcome, Ok(Outcome::Aborted)), "{outcome:?}");
}

#[test]
fn tls_begins_once_and_keeps_nothing_that_was_said_before() {
    let start = option(OPT_STARTTLS, b"");
    let (kinds, _) = in_the_clear(&[option(OPT_STARTTLS, b"x")]);
    assert_eq!(kinds, [REP_ERR_INVALID]);
    let mut input = 3u32.to_be_bytes().to_vec();
    input.extend_from_slice(&start);
    let ahead = option(OPT_LIST, b"");
    input.extend_from_slice(&ahead);
    let (mut handshake, mut out) = (Handshake::with_tls(Shelf::new()), Vec::new());
    let progress = handshake.feed(&input, &mut out).expect("it is understood");
    assert_eq!(progress.outcome, Outcome::StartTls);
    assert_eq!(progress.consumed, input.len() - ahead.len());
    assert_eq!(answers(&out)[0].1, REP_ACK);

    // Inside, there may be other exports.
    let mut inside = handshake.over_tls(vec![export("vm3")]);
    out.clear();
    let go = option(OPT_GO, &go_data("vm3", &[]));
    let asked = [start, option(OPT_GO, &go_data("vm1", &[])), go].concat();
    let progress = inside.feed(&asked, &mut out).expect("it is understood");
    let kinds: Vec<_> = answers(&out).into_iter().map(|(_, kind, _)| kind).collect();
    assert_eq!(kinds[..2], [REP_ERR_INVALID, REP_ERR_UNKNOWN]);
    let Outcome::Done(negotiated) = progress.outcome else {
        panic!("not agreed: {progress:?}");
    };
    assert_eq!(negotiated.export.name, "vm3");
    assert!(negotiated.no_zeroes, "the client's flags hold");
}
