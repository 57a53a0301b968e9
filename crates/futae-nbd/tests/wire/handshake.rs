//! The server's side of the handshake, byte for byte.

use futae_nbd::constants::*;
use futae_nbd::*;
use proptest::prelude::*;

use crate::common::*;

/// Client flags, then this many options; what the server answers and where it leads.
fn run(shelf: &Shelf, options: &[Vec<u8>]) -> (Vec<u8>, Result<Outcome, String>) {
    let mut input = 3u32.to_be_bytes().to_vec();
    input.extend(options.concat());
    let mut out = Vec::new();
    let result = Handshake::new(shelf).feed(&input, &mut out);
    (out, result.map(|p| p.outcome).map_err(|e| e.to_string()))
}

/// The kinds of the replies to one option on a fresh connection.
fn kinds(option: Vec<u8>) -> Vec<u32> {
    let (out, outcome) = run(&Shelf::new(), &[option]);
    outcome.expect("the connection lives on");
    answers(&out).into_iter().map(|(_, kind, _)| kind).collect()
}

fn agreed(outcome: Result<Outcome, String>) -> Negotiated {
    match outcome {
        Ok(Outcome::Done(negotiated)) => *negotiated,
        other => panic!("not agreed: {other:?}"),
    }
}

#[test]
fn the_greeting_is_fixed_newstyle_without_zeroes() {
    assert_eq!(greeting().to_vec(), hex(r#""NBDMAGIC" "IHAVEOPT" 0003"#));
}

#[test]
fn go_answers_size_flags_and_sizes() {
    let shelf = Shelf::new();
    let go = hex(r#""IHAVEOPT" 00000007 0000000d 00000003 "vm1" 0002 0003 0001"#);
    let (out, outcome) = run(&shelf, &[go]);
    let wanted = hex(concat!(
        "0003e889045565a9 00000007 00000003 0000000c  0000 0000000004000000 056d",
        "0003e889045565a9 00000007 00000003 00000005  0001 \"vm1\"",
        "0003e889045565a9 00000007 00000003 0000000e  0003 00000001 00010000 02000000",
        "0003e889045565a9 00000007 00000001 00000000",
    ));
    assert_eq!(out, wanted);
    let negotiated = agreed(outcome);
    assert_eq!(negotiated.export.name, "vm1");
    assert!(!negotiated.structured_replies && negotiated.no_zeroes);
    assert_eq!(negotiated.demotion, None);
}

#[test]
fn export_name_is_answered_bare_with_zeroes_only_if_wanted() {
    let shelf = Shelf::new();
    let choose = option(OPT_EXPORT_NAME, b"vm2");
    let (out, outcome) = run(&shelf, std::slice::from_ref(&choose));
    assert_eq!(out, hex("0000000004000000 056d"));
    assert_eq!(agreed(outcome).export.name, "vm2");

    let input = [1u32.to_be_bytes().to_vec(), choose].concat();
    let mut out = Vec::new();
    Handshake::new(&shelf).feed(&input, &mut out).expect("fine");
    assert_eq!(out.len(), 10 + EXPORT_NAME_ZEROES);
    assert!(out[10..].iter().all(|&b| b == 0));
}

#[test]
fn structured_replies_add_the_df_flag() {
    let shelf = Shelf::new();
    let options = [
        option(OPT_STRUCTURED_REPLY, b""),
        option(OPT_GO, &go_data("vm1", &[])),
    ];
    let (out, outcome) = run(&shelf, &options);
    let info = &answers(&out)[1];
    assert_eq!(info.2, hex("0000 0000000004000000 05ed"));
    assert!(agreed(outcome).structured_replies);
}

#[test]
fn a_read_only_export_advertises_no_writing() {
    let mut export = export("vm1");
    export.read_only = true;
    let flags = export.transmission_flags(false);
    assert_eq!(flags.0, 0x050f);
}

#[test]
fn list_names_every_export() {
    let mut shelf = Shelf::new();
    shelf.exports[1].description = "the other".into();
    let (out, outcome) = run(&shelf, &[option(OPT_LIST, b"")]);
    assert_eq!(outcome, Ok(Outcome::NeedMore));
    let wanted = [
        answer(OPT_LIST, REP_SERVER, &hex(r#"00000003 "vm1""#)),
        answer(OPT_LIST, REP_SERVER, &hex(r#"00000003 "vm2the other""#)),
        answer(OPT_LIST, REP_ACK, b""),
    ];
    assert_eq!(out, wanted.concat());
}

#[test]
fn errors_are_told_and_the_session_goes_on() {
    let long = "x".repeat(MAX_STRING_BYTES + 1);
    let mut trailing = go_data("vm1", &[]);
    trailing.push(0);
    for (asked, wanted) in [
        (option(99, b"whatever"), REP_ERR_UNSUP),
        (option(OPT_STARTTLS, b""), REP_ERR_UNSUP),
        (option(OPT_LIST, b"x"), REP_ERR_INVALID),
        (option(OPT_STRUCTURED_REPLY, b"x"), REP_ERR_INVALID),
        (option(OPT_GO, b""), REP_ERR_INVALID),
        (option(OPT_GO, &hex("ffffffff 0000")), REP_ERR_INVALID),
        (option(OPT_GO, &trailing), REP_ERR_INVALID),
        (option(OPT_GO, &go_data("no such", &[])), REP_ERR_UNKNOWN),
        (option(OPT_INFO, &go_data("", &[])), REP_ERR_UNKNOWN),
        (option(OPT_INFO, &go_data(&long, &[])), REP_ERR_TOO_BIG),
        (option(OPT_INFO, &go_data(&long[1..], &[])), REP_ERR_UNKNOWN),
        (option(OPT_INFO, &go_data("a\0b", &[])), REP_ERR_INVALID),
        (
            option(OPT_SET_META_CONTEXT, &meta_data("vm1", &[])),
            REP_ERR_INVALID,
        ),
        (
            option(OPT_LIST_META_CONTEXT, &meta_data("no", &[])),
            REP_ERR_UNKNOWN,
        ),
        (
            option(OPT_LIST_META_CONTEXT, &meta_data("vm1", &["x"; 257])),
            REP_ERR_TOO_BIG,
        ),
        (
            option(OPT_LIST_META_CONTEXT, &hex("00000000 00000001")),
            REP_ERR_INVALID,
        ),
        (option(OPT_FUTAE_DEMOTION, b"short"), REP_ERR_INVALID),
        (
            option(OPT_FUTAE_DEMOTION, &hex("0000 0000 00010000")),
            REP_ERR_INVALID,
        ),
        (
            option(OPT_FUTAE_DEMOTION, &hex("0001 0001 00010000")),
            REP_ERR_INVALID,
        ),
        (
            option(OPT_FUTAE_DEMOTION, &hex("0001 0000 00010001")),
            REP_ERR_INVALID,
        ),
    ] {
        assert_eq!(kinds(asked.clone()), [wanted], "{asked:02x?}");
    }
}

#[test]
fn a_lone_export_is_the_default() {
    let mut shelf = Shelf::new();
    shelf.exports.pop();
    let (_, outcome) = run(&shelf, &[option(OPT_GO, &go_data("", &[]))]);
    assert_eq!(agreed(outcome).export.name, "vm1");
}

#[test]
fn abort_is_acknowledged() {
    let (out, outcome) = run(&Shelf::new(), &[option(OPT_ABORT, b"ignored")]);
    assert_eq!(out, answer(OPT_ABORT, REP_ACK, b""));
    assert_eq!(outcome, Ok(Outcome::Aborted));
}

#[test]
fn block_status_is_bound_to_the_export_it_was_selected_for() {
    let select = |name| {
        option(
            OPT_SET_META_CONTEXT,
            &meta_data(name, &["base:", BASE_ALLOCATION]),
        )
    };
    let structured = option(OPT_STRUCTURED_REPLY, b"");
    let go = option(OPT_GO, &go_data("vm1", &[]));
    let (out, outcome) = run(
        &Shelf::new(),
        &[structured.clone(), select("vm1"), go.clone()],
    );
    let context = answer(
        OPT_SET_META_CONTEXT,
        REP_META_CONTEXT,
        &hex(r#"00000001 "base:allocation""#),
    );
    assert!(out.windows(context.len()).any(|window| window == context));
    assert!(agreed(outcome).base_allocation);

    let (_, outcome) = run(
        &Shelf::new(),
        &[structured.clone(), select("vm2"), go.clone()],
    );
    assert!(!agreed(outcome).base_allocation);
    // A failed selection forgets the earlier one.
    let (_, outcome) = run(
        &Shelf::new(),
        &[structured, select("vm1"), select("no"), go],
    );
    assert!(!agreed(outcome).base_allocation);

    assert_eq!(
        kinds(option(OPT_LIST_META_CONTEXT, &meta_data("vm1", &["base:"]))),
        [REP_META_CONTEXT, REP_ACK]
    );
    assert_eq!(
        kinds(option(
            OPT_LIST_META_CONTEXT,
            &meta_data("vm1", &["qemu:", "base:x"])
        )),
        [REP_ACK]
    );
}

#[test]
fn demotion_is_agreed_refused_or_unknown() {
    let wish = hex(r#""IHAVEOPT" 46555401 00000008 0001 0000 00020000"#);
    let go = option(OPT_GO, &go_data("vm1", &[]));
    let mut shelf = Shelf::new();
    let (out, outcome) = run(&shelf, &[wish.clone(), go.clone()]);
    let terms = hex("0003e889045565a9 46555401 46555401 0000000c  0001 0000 00010000 02000000");
    let ack = hex("0003e889045565a9 46555401 00000001 00000000");
    assert!(out.starts_with(&[terms, ack].concat()));
    let negotiated = agreed(outcome);
    assert_eq!(negotiated.client_block_bytes, Some(128 * 1024));
    assert_eq!(negotiated.demotion, DemotionTerms::new(64 * 1024));

    // A later version is met with version 1, whatever it appends.
    let later = option(OPT_FUTAE_DEMOTION, &hex("0007 8000 00020000 1234"));
    let (_, outcome) = run(&shelf, &[later, go.clone()]);
    assert_eq!(agreed(outcome).demotion.map(|terms| terms.version), Some(1));

    for (offer, reply) in [
        (DemotionOffer::Forbidden, REP_ERR_POLICY),
        (DemotionOffer::Unknown, REP_ERR_UNSUP),
    ] {
        shelf.offer = offer;
        let (out, outcome) = run(&shelf, &[wish.clone(), go.clone()]);
        assert_eq!(answers(&out)[0].1, reply);
        assert_eq!(agreed(outcome).demotion, None);
    }
}

#[test]
fn what_has_no_error_reply_ends_the_connection() {
    let shelf = Shelf::new();
    for (options, words) in [
        (vec![option(OPT_EXPORT_NAME, b"no such")], "no such"),
        (vec![hex(r#""IHAVENOT""#)], "option magic"),
        (vec![hex(r#""IHAVEOPT" 00000003 00010001"#)], "65537"),
        (vec![option(OPT_LIST, b""); 257], "256"),
    ] {
        let (_, outcome) = run(&shelf, &options);
        let error = outcome.expect_err("must end");
        assert!(error.contains(words), "{error}");
    }
    let mut handshake = Handshake::new(&shelf);
    let mut out = Vec::new();
    assert!(handshake.feed(&4u32.to_be_bytes(), &mut out).is_err());
    assert!(matches!(
        handshake.feed(&[], &mut out),
        Err(WireError::HandshakeOver)
    ));
}

/// Feeds input in pieces of these lengths, the caller keeping what was not consumed.
fn in_pieces(input: &[u8], pieces: &[usize]) -> (Vec<u8>, Result<Outcome, String>, usize) {
    let shelf = Shelf::new();
    let mut handshake = Handshake::new(&shelf);
    let (mut out, mut start, mut end, mut turn) = (Vec::new(), 0, 0, 0);
    loop {
        match handshake.feed(&input[start..end], &mut out) {
            Err(error) => return (out, Err(error.to_string()), 0),
            Ok(progress) => {
                start += progress.consumed;
                if progress.outcome != Outcome::NeedMore || end == input.len() {
                    return (out, Ok(progress.outcome), start);
                }
            }
        }
        end = (end + pieces[turn % pieces.len()]).min(input.len());
        turn += 1;
    }
}

fn any_option() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![Just("vm1"), Just("vm2"), Just(""), Just("other")];
    let numbers = prop_oneof![3u32..13, Just(OPT_FUTAE_DEMOTION), any::<u32>()];
    prop_oneof![
        Just(option(OPT_STRUCTURED_REPLY, b"")),
        Just(option(OPT_LIST, b"")),
        Just(option(OPT_FUTAE_DEMOTION, &hex("0001 0000 00020000"))),
        (name.clone(), proptest::collection::vec(0u16..5, 0..5))
            .prop_map(|(name, infos)| option(OPT_INFO, &go_data(name, &infos))),
        name.clone().prop_map(|name| {
            option(OPT_SET_META_CONTEXT, &meta_data(name, &[BASE_ALLOCATION]))
        }),
        name.prop_map(|name| option(OPT_GO, &go_data(name, &[3]))),
        (numbers, proptest::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(number, data)| option(number, &data)),
    ]
}

proptest! {
    #[test]
    fn splitting_the_input_anywhere_changes_nothing(
        options in proptest::collection::vec(any_option(), 0..8),
        tail in proptest::collection::vec(any::<u8>(), 0..30),
        pieces in proptest::collection::vec(1usize..50, 1..20),
    ) {
        let input = [3u32.to_be_bytes().to_vec(), options.concat(), tail].concat();
        let whole = in_pieces(&input, &[input.len()]);
        // Whether an error comes early or late, it is the same error after the same answers.
        prop_assert_eq!(&in_pieces(&input, &pieces), &whole);
        prop_assert_eq!(&in_pieces(&input, &[1]), &whole);
    }

    #[test]
    fn garbage_neither_panics_nor_grows_the_output(
        input in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        let (out, _, consumed) = in_pieces(&input, &[7]);
        prop_assert!(consumed <= input.len());
        prop_assert!(out.len() <= input.len() * 20);
    }
}
