//! The client's side of the handshake, against our own server and against scripted ones.

use std::io::{Cursor, Read, Result as IoResult, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use futae_nbd::client::negotiate;
use futae_nbd::constants::*;
use futae_nbd::*;
use proptest::prelude::*;

use crate::common::*;

/// Runs our server's handshake on a stream until it ends.
pub fn serve(mut stream: UnixStream, shelf: &Shelf) -> Option<Outcome> {
    let mut handshake = Handshake::new(shelf);
    stream.write_all(&greeting()).ok()?;
    let (mut held, mut out, mut piece) = (Vec::new(), Vec::new(), [0; 100]);
    loop {
        let count = stream.read(&mut piece).ok().filter(|&count| count > 0)?;
        held.extend_from_slice(&piece[..count]);
        let progress = handshake.feed(&held, &mut out).ok()?;
        held.drain(..progress.consumed);
        stream.write_all(&out).ok()?;
        out.clear();
        if progress.outcome != Outcome::NeedMore {
            return Some(progress.outcome);
        }
    }
}

fn meet(
    shelf: &Shelf,
    name: &str,
    wish: &ClientWish,
) -> (Result<ClientExport, WireError>, Option<Outcome>) {
    let (mut ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(theirs, shelf));
        let granted = negotiate(&mut ours, name, wish);
        drop(ours);
        (granted, server.join().expect("no panic"))
    })
}

const EVERYTHING: ClientWish = ClientWish {
    structured: true,
    base_allocation: true,
    demotion_block_bytes: Some(131_072),
    identity: false,
};

#[test]
fn both_sides_agree_on_everything() {
    let (granted, outcome) = meet(&Shelf::new(), "vm2", &EVERYTHING);
    let granted = granted.expect("agreed");
    let Some(Outcome::Done(negotiated)) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(granted.size_bytes, 64 << 20);
    assert_eq!(granted.flags, negotiated.transmission_flags());
    assert!(granted.structured && negotiated.structured_replies);
    assert_eq!(granted.base_allocation_id, Some(BASE_ALLOCATION_ID));
    assert!(negotiated.base_allocation);
    assert_eq!(granted.demotion, DemotionTerms::new(65536));
    assert_eq!(granted.demotion, negotiated.demotion);
    assert_eq!(negotiated.client_block_bytes, Some(131_072));
    let sizes = (
        granted.minimum_block_bytes,
        granted.preferred_block_bytes,
        granted.payload_bytes_max,
    );
    assert_eq!(sizes, (1, 65536, 32 << 20));
}

#[test]
fn a_server_without_demotion_leaves_a_plain_client() {
    for offer in [DemotionOffer::Unknown, DemotionOffer::Forbidden] {
        let shelf = Shelf {
            offer,
            ..Shelf::new()
        };
        let (granted, _) = meet(&shelf, "vm1", &EVERYTHING);
        let granted = granted.expect("agreed");
        assert!(granted.structured);
        assert_eq!(granted.demotion, None);
    }
}

#[test]
fn an_unknown_export_is_refused_politely() {
    let (granted, outcome) = meet(&Shelf::new(), "no such", &ClientWish::default());
    let error = granted.expect_err("no such export");
    assert!(
        matches!(
            error,
            WireError::Refused {
                reply: REP_ERR_UNKNOWN,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("no export of this name"));
    assert_eq!(outcome, Some(Outcome::Aborted));
}

/// A server that says what it was told to say, whatever the client sends.
struct Scripted {
    says: Cursor<Vec<u8>>,
    heard: Vec<u8>,
}

impl Scripted {
    fn new(parts: &[Vec<u8>]) -> Self {
        Self {
            says: Cursor::new(parts.concat()),
            heard: Vec::new(),
        }
    }
}

impl Read for Scripted {
    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        self.says.read(buffer)
    }
}

impl Write for Scripted {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        self.heard.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> IoResult<()> {
        Ok(())
    }
}

#[test]
fn a_server_without_go_is_entered_by_name() {
    let mut server = Scripted::new(&[
        hex(r#""NBDMAGIC" "IHAVEOPT" 0001"#),
        answer(OPT_STRUCTURED_REPLY, REP_ERR_UNSUP, b""),
        answer(OPT_FUTAE_DEMOTION, REP_ERR_UNSUP, b"what?"),
        answer(OPT_GO, REP_ERR_UNSUP, b""),
        hex("0000000000100000 0003"),
        vec![0; EXPORT_NAME_ZEROES],
    ]);
    let granted = negotiate(&mut server, "vm1", &EVERYTHING).expect("agreed");
    assert_eq!((granted.size_bytes, granted.flags.0), (1 << 20, 3));
    assert!(!granted.structured && granted.demotion.is_none());
    let heard = [
        hex("00000001"),
        option(OPT_STRUCTURED_REPLY, b""),
        hex(r#""IHAVEOPT" 46555401 00000008 0001 0000 00020000"#),
        option(OPT_GO, &go_data("vm1", &[INFO_BLOCK_SIZE])),
        option(OPT_EXPORT_NAME, b"vm1"),
    ];
    assert_eq!(server.heard, heard.concat());
    assert_eq!(server.says.position(), server.says.get_ref().len() as u64);
}

#[test]
fn a_server_before_fixed_newstyle_is_asked_for_nothing() {
    let zeroes = vec![0; EXPORT_NAME_ZEROES];
    let mut server = Scripted::new(&[
        hex(r#""NBDMAGIC" "IHAVEOPT" 0000"#),
        hex("0000000000100000 0001"),
        zeroes,
    ]);
    negotiate(&mut server, "x", &EVERYTHING).expect("agreed");
    assert_eq!(
        server.heard,
        [hex("00000000"), option(OPT_EXPORT_NAME, b"x")].concat()
    );
}

#[test]
fn servers_that_break_the_protocol_are_named_for_it() {
    let greeted = hex(r#""NBDMAGIC" "IHAVEOPT" 0003"#);
    let after = |part: Vec<u8>| vec![greeted.clone(), part];
    let plain = ClientWish::default();
    let demoting = ClientWish {
        demotion_block_bytes: Some(4096),
        ..plain
    };
    let huge = hex("0003e889045565a9 00000007 00000003 00010001");
    let terms = |data| after(answer(OPT_FUTAE_DEMOTION, REP_FUTAE_DEMOTION, &hex(data)));
    for (script, wish, words) in [
        (vec![b"SSH-2.0-OpenSSH_9.2p1".to_vec()], plain, "greeting"),
        (
            vec![hex(r#""NBDMAGIC" 0000420281861253 0000"#)],
            plain,
            "oldstyle",
        ),
        (
            after(b"HTTP/1.1 400 Bad Request".to_vec()),
            plain,
            "option reply magic",
        ),
        (
            after(answer(OPT_LIST, REP_ACK, b"")),
            plain,
            "not the option that was sent",
        ),
        (after(answer(OPT_GO, REP_ACK, b"")), plain, "INFO_EXPORT"),
        (after(answer(OPT_GO, REP_INFO, b"\0\0")), plain, "too short"),
        (after(huge), plain, "65537 bytes of data"),
        (
            after(answer(OPT_GO, REP_INFO, &hex("0009")).repeat(300)),
            plain,
            "more than 256",
        ),
        (
            after(answer(OPT_GO, REP_ERR_TLS_REQD, b"go away")),
            plain,
            "an address that begins with nbds",
        ),
        (after(Vec::new()), plain, "while negotiating"),
        (terms("0002 0000 00010000 02000000"), demoting, "version"),
        (terms("0001 0000 00010000"), demoting, "12 bytes"),
        (
            terms("0001 0000 00010001 02000000"),
            demoting,
            "block_bytes",
        ),
        (
            terms("0001 0000 00010000 00008000"),
            demoting,
            "longest_bytes",
        ),
    ] {
        let error = negotiate(&mut Scripted::new(&script), "vm1", &wish).expect_err(words);
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
}

#[test]
fn the_words_of_a_server_cannot_pass_for_other_lines() {
    let hostile = [b"no\x1b[31m\r\nfutae: yes ".to_vec(), vec![b'x'; 60_000]].concat();
    let script = [
        hex(r#""NBDMAGIC" "IHAVEOPT" 0003"#),
        answer(OPT_GO, REP_ERR_POLICY, &hostile),
    ];
    let error = negotiate(&mut Scripted::new(&script), "vm1", &ClientWish::default());
    let said = error.expect_err("refused").to_string();
    assert!(said.contains("no[31mfutae: yes xxx"), "{said}");
    assert!(!said.contains(char::is_control) && said.len() < 5000);
}

#[test]
fn block_sizes_that_make_no_sense_are_refused() {
    for sizes in [
        "00000003 00001000 02000000",
        "00000000 00001000 02000000",
        "00000200 00000100 02000000",
    ] {
        let info = [hex("0003"), hex(sizes)].concat();
        let script = [
            hex(r#""NBDMAGIC" "IHAVEOPT" 0003"#),
            answer(OPT_GO, REP_INFO, &info),
        ];
        let wish = ClientWish::default();
        assert!(
            negotiate(&mut Scripted::new(&script), "vm1", &wish).is_err(),
            "{sizes}"
        );
    }
}

proptest! {
    #[test]
    fn a_server_of_garbage_never_panics_a_client(
        replies in proptest::collection::vec(
            (prop_oneof![Just(OPT_GO), Just(OPT_STRUCTURED_REPLY), Just(OPT_SET_META_CONTEXT), Just(OPT_FUTAE_DEMOTION)],
             prop_oneof![1u32..6, Just(REP_FUTAE_DEMOTION), (1u32..10).prop_map(|n| n | REP_FLAG_ERROR)],
             proptest::collection::vec(any::<u8>(), 0..20)),
            0..12,
        ),
        tail in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut script = vec![hex(r#""NBDMAGIC" "IHAVEOPT" 0003"#)];
        script.extend(replies.iter().map(|(option, reply, data)| answer(*option, *reply, data)));
        script.push(tail);
        let _ = negotiate(&mut Scripted::new(&script), "vm1", &EVERYTHING);
    }
}
