//! Replies, byte for byte.

use futae_nbd::constants::*;
use futae_nbd::reply::*;
use futae_nbd::*;
use proptest::prelude::*;

use crate::common::*;

#[test]
fn replies_as_the_specification_lays_them_out() {
    let cookie = 0x0123_4567_89ab_cdef;
    assert_eq!(
        simple(cookie, None).to_vec(),
        hex("67446698 00000000 0123456789abcdef")
    );
    let failed = simple(cookie, Some(ErrorNumber::Invalid));
    assert_eq!(failed.to_vec(), hex("67446698 00000016 0123456789abcdef"));
    let wanted = hex("668e33ef 0001 0001 0123456789abcdef 00001008 0000000000002000");
    assert_eq!(data(cookie, 8192, 4096, true).to_vec(), wanted);
    let wanted = hex("668e33ef 0000 0002 0123456789abcdef 0000000c 0000000000002000 00001000");
    assert_eq!(hole(cookie, 8192, 4096, false).to_vec(), wanted);
    assert_eq!(
        done(cookie).to_vec(),
        hex("668e33ef 0001 0000 0123456789abcdef 00000000")
    );

    let mut out = Vec::new();
    append_error(&mut out, cookie, ErrorNumber::InputOutput, "oh");
    let wanted = hex(r#"668e33ef 0001 8001 0123456789abcdef 00000008 00000005 0002 "oh""#);
    assert_eq!(out, wanted);
    out.clear();
    append_error_at(&mut out, cookie, ErrorNumber::InputOutput, "oh", 9, false);
    let wanted =
        hex(r#"668e33ef 0000 8002 0123456789abcdef 00000010 00000005 0002 "oh" 0000000000000009"#);
    assert_eq!(out, wanted);
    out.clear();
    let extents = [
        Extent {
            length_bytes: 4096,
            state: 0,
        },
        Extent {
            length_bytes: 8192,
            state: STATE_HOLE | STATE_ZERO,
        },
    ];
    append_block_status(&mut out, cookie, 1, &extents, true);
    let wanted = hex(concat!(
        "668e33ef 0001 0005 0123456789abcdef 00000014",
        "00000001 00001000 00000000 00002000 00000003",
    ));
    assert_eq!(out, wanted);
    match parse_reply(&out).expect("sound").expect("complete") {
        (Reply::BlockStatus { extents: read, .. }, _) => assert!(read.eq(extents)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn chunks_against_the_rules_are_errors() {
    for chunk in [
        "668e33ef 0000 0000 0000000000000000 00000000", // NONE that is not the last
        "668e33ef 0001 0000 0000000000000000 00000001", // NONE with payload
        "668e33ef 0001 0001 0000000000000000 00000008", // data without data
        "668e33ef 0001 0001 0000000000000000 02000009", // data of more than 32 MiB
        "668e33ef 0001 0002 0000000000000000 0000000d", // a hole of a wrong length
        "668e33ef 0001 0002 0000000000000000 0000000c 0000000000000000 00000000", // no bytes
        "668e33ef 0001 0003 0000000000000000 00000000", // unknown type
        "668e33ef 0001 0005 0000000000000000 00000004", // no extents
        "668e33ef 0001 0005 0000000000000000 0080000c", // too many extents
        "668e33ef 0001 0005 0000000000000000 0000000c 00000001 00000000 00000000", // empty extent
        "668e33ef 0001 8001 0000000000000000 00000005", // no room for an error
        "668e33ef 0001 8001 0000000000000000 00000006 00000000 0000", // error 0
        "668e33ef 0001 8001 0000000000000000 00000006 00000005 0001", // message beyond the chunk
        "668e33ef 0001 8001 0000000000000000 00100000", // a message of a megabyte
    ] {
        assert!(parse_reply(&hex(chunk)).is_err(), "{chunk}");
    }
    // An unknown error type is an error like any other.
    let unknown = hex("668e33ef 0001 8777 0000000000000001 00000008 0000001c 0000 ffff");
    let (reply, length) = parse_reply(&unknown).expect("sound").expect("complete");
    assert_eq!(length, unknown.len());
    let error = ErrorNumber::NoSpace;
    let wanted = Reply::Error {
        cookie: 1,
        error,
        message: b"",
        offset: None,
        last: true,
    };
    assert_eq!(reply, wanted);
}

#[test]
fn long_messages_are_cut_between_characters() {
    let mut out = Vec::new();
    append_error(&mut out, 1, ErrorNumber::Invalid, &"二重".repeat(1000));
    match parse_reply(&out).expect("sound").expect("complete").0 {
        Reply::Error { message, .. } => {
            assert_eq!(message.len(), 4095);
            assert!(std::str::from_utf8(message).is_ok());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn error_numbers_keep_their_meaning() {
    for code in 1..200 {
        let number = ErrorNumber::from_code(code).expect("not success");
        assert!(number.code() == code || number == ErrorNumber::Invalid);
    }
    assert_eq!(ErrorNumber::from_code(0), None);
    let full = std::io::Error::from(std::io::ErrorKind::QuotaExceeded);
    assert_eq!(ErrorNumber::from_io(&full), ErrorNumber::NoSpace);
}

proptest! {
    #[test]
    fn a_stream_of_replies_reads_back_wherever_it_is_cut(
        cookie in any::<u64>(),
        offset in any::<u64>(),
        length in 1u32..=MAX_PAYLOAD_BYTES,
        message in ".{0,40}",
        states in proptest::collection::vec((1u32.., any::<u32>()), 1..20),
        last in any::<bool>(),
    ) {
        let error = ErrorNumber::NoSpace;
        let extents: Vec<Extent> =
            states.iter().map(|&(length_bytes, state)| Extent { length_bytes, state }).collect();
        let mut stream = simple(cookie, None).to_vec();
        let mut ends = vec![stream.len()];
        let mut mark = |stream: &Vec<u8>| ends.push(stream.len());
        stream.extend(simple(cookie, Some(error)));
        mark(&stream);
        stream.extend(data(cookie, offset, length, last));
        mark(&stream);
        stream.extend(hole(cookie, offset, length, last));
        mark(&stream);
        append_error(&mut stream, cookie, error, &message);
        mark(&stream);
        append_error_at(&mut stream, cookie, error, &message, offset, last);
        mark(&stream);
        append_block_status(&mut stream, cookie, 1, &extents, last);
        mark(&stream);
        stream.extend(done(cookie));
        mark(&stream);

        let mut start = 0;
        let mut replies = Vec::new();
        for end in ends {
            for cut in start..end {
                prop_assert!(parse_reply(&stream[start..cut]).expect("sound").is_none());
            }
            let (reply, taken) = parse_reply(&stream[start..]).expect("sound").expect("complete");
            prop_assert_eq!(start + taken, end);
            replies.push(reply);
            start = end;
        }
        let message = message.as_bytes();
        prop_assert_eq!(replies[0], Reply::Simple { cookie, error: None });
        prop_assert_eq!(replies[1], Reply::Simple { cookie, error: Some(error) });
        prop_assert_eq!(replies[2], Reply::Data { cookie, offset, data_bytes: length, last });
        prop_assert_eq!(replies[3], Reply::Hole { cookie, offset, hole_bytes: length, last });
        prop_assert_eq!(replies[4], Reply::Error { cookie, error, message, offset: None, last: true });
        prop_assert_eq!(replies[5], Reply::Error { cookie, error, message, offset: Some(offset), last });
        match replies[6] {
            Reply::BlockStatus { extents: read, context_id: 1, .. } => {
                prop_assert!(read.eq(extents));
            }
            other => prop_assert!(false, "{:?}", other),
        }
        prop_assert_eq!(replies[7], Reply::Done { cookie });
    }

    #[test]
    fn garbage_never_panics(kind in any::<u16>(), rest in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_request(&rest);
        let _ = parse_reply(&rest);
        for magic in [SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, REQUEST_MAGIC] {
            let bytes = [&magic.to_be_bytes()[..], &[0, 1], &kind.to_be_bytes(), &rest].concat();
            let _ = parse_request(&bytes);
            if let Ok(Some((_, taken))) = parse_reply(&bytes) {
                prop_assert!(taken <= bytes.len());
            }
        }
    }
}
