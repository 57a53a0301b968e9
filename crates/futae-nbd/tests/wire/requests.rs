//! Requests and their judgement, byte for byte.

use futae_nbd::constants::*;
use futae_nbd::*;
use proptest::prelude::*;

use crate::common::*;

#[test]
fn a_request_as_the_specification_lays_it_out() {
    let bytes = hex("25609513 0001 0001 0123456789abcdef 0000000000100000 00001000");
    let (header, length) = parse_request(&bytes).expect("sound").expect("complete");
    assert_eq!(length, 28);
    let mut wanted = RequestHeader::new(Command::Write, 0x0123_4567_89ab_cdef, 1 << 20, 4096);
    wanted.flags = CommandFlags::FUA;
    assert_eq!(header, wanted);
    assert_eq!(header.encode().to_vec(), bytes);
    assert_eq!(header.payload_bytes(), 4096);
}

#[test]
fn commands_have_the_numbers_and_the_names_of_the_specification() {
    use Command::{BlockStatus, Cache, Disconnect, Flush, Read, Trim, Write, WriteZeroes};
    for (code, name, command) in [
        (0, "READ", Read),
        (1, "WRITE", Write),
        (2, "DISC", Disconnect),
        (3, "FLUSH", Flush),
        (4, "TRIM", Trim),
        (5, "CACHE", Cache),
        (6, "WRITE_ZEROES", WriteZeroes),
        (7, "BLOCK_STATUS", BlockStatus),
        (CMD_DEMOTE, "DEMOTE", Command::Demote),
        (9, "unknown command", Command::Unknown(9)),
    ] {
        assert_eq!(Command::from_code(code), command);
        assert_eq!((command.code(), command.name()), (code, name));
        let writes = matches!(command, Write | Trim | WriteZeroes);
        assert_eq!(command.writes(), writes, "{name}");
        let has_payload = matches!(command, Write | Command::Demote);
        assert_eq!(command.has_payload(), has_payload, "{name}");
    }
}

#[test]
fn flags_have_the_bits_of_the_specification_and_are_all_there_or_not() {
    const NONE: CommandFlags = CommandFlags::NONE;
    let all = [
        CommandFlags::FUA,
        CommandFlags::NO_HOLE,
        CommandFlags::DF,
        CommandFlags::REQ_ONE,
        CommandFlags::FAST_ZERO,
    ];
    assert_eq!(all.map(|flag| flag.0), [1, 2, 4, 8, 16]);
    let both = CommandFlags::FUA.union(CommandFlags::FAST_ZERO);
    assert_eq!(both.0, 17);
    assert_eq!(both.union(CommandFlags::FUA), both, "it is there already");
    assert!(both.contains(CommandFlags::FUA) && both.contains(both) && both.contains(NONE));
    assert!(!both.contains(CommandFlags::DF) && !NONE.contains(CommandFlags::FUA));
    assert!(!CommandFlags::FUA.contains(both), "only one of them");
}

#[test]
fn a_demotion_is_a_request_of_its_own_type() {
    let wanted = hex("25609513 0000 4655 0000000000000007 0000000000010000 00010000");
    assert_eq!(extension::demote_header(7, 65536, 65536).to_vec(), wanted);
    let (header, _) = parse_request(&wanted).expect("sound").expect("complete");
    assert_eq!(header, RequestHeader::new(Command::Demote, 7, 65536, 65536));
}

#[test]
fn a_wrong_magic_is_told_after_four_bytes() {
    assert!(matches!(parse_request(&hex("256095")), Ok(None)));
    assert!(parse_request(&hex("25609514")).is_err());
    assert!(parse_reply(&hex("25609513")).is_err());
}

fn rules(negotiate: bool) -> RequestRules {
    let mut rules = RequestRules::plain(&export("vm1"));
    if negotiate {
        rules.structured_replies = true;
        rules.base_allocation = true;
        rules.flags = export("vm1").transmission_flags(true);
        rules.demotion = DemotionTerms::new(65536);
    }
    rules
}

/// The error number that a request gets, or `None` if it is carried out.
fn verdict(
    rules: &RequestRules,
    flags: CommandFlags,
    command: Command,
    offset: u64,
    length: u32,
) -> Option<ErrorNumber> {
    let mut request = RequestHeader::new(command, 1, offset, length);
    request.flags = flags;
    match rules.check(&request) {
        Ok(()) => None,
        Err(Refusal::Reply {
            error,
            discard_bytes,
            ..
        }) => {
            assert_eq!(
                discard_bytes,
                if command == Command::Write { length } else { 0 }
            );
            Some(error)
        }
        Err(other) => panic!("{command:?}: {other:?}"),
    }
}

#[test]
fn every_fault_has_the_number_that_the_specification_names() {
    use Command::{BlockStatus, Cache, Disconnect, Flush, Read, Trim, Unknown, Write, WriteZeroes};
    use ErrorNumber::{Invalid, NoSpace, NotPermitted, Overflow};
    const NONE: CommandFlags = CommandFlags::NONE;
    const END: u64 = 64 << 20;
    let (plain, full) = (rules(false), rules(true));
    let mut read_only = export("vm1");
    read_only.read_only = true;
    let read_only = RequestRules::plain(&read_only);
    let mut weak = export("vm1");
    weak.capabilities = Capabilities::default();
    let weak = RequestRules::plain(&weak);

    for (rules, flags, command, offset, length, wanted) in [
        (&plain, NONE, Read, 0, 32 << 20, None),
        (&plain, NONE, Read, 0, (32 << 20) + 1, Some(Invalid)),
        (&full, NONE, Read, 0, (32 << 20) + 1, Some(Overflow)),
        (
            &full,
            CommandFlags::DF,
            Read,
            0,
            (32 << 20) + 1,
            Some(Overflow),
        ),
        (&full, CommandFlags::DF, Read, 0, 4096, None),
        (&plain, CommandFlags::DF, Read, 0, 4096, Some(Invalid)),
        (&plain, CommandFlags::FUA, Read, 0, 4096, None),
        (&plain, NONE, Read, END - 1, 1, None),
        (&plain, NONE, Read, END - 1, 2, Some(Invalid)),
        (&plain, NONE, Read, u64::MAX, 2, Some(Invalid)),
        (&plain, NONE, Write, END - 1, 2, Some(NoSpace)),
        (&plain, NONE, Write, u64::MAX, 2, Some(NoSpace)),
        (&plain, NONE, Write, 0, 32 << 20, None),
        (&plain, CommandFlags::NO_HOLE, Write, 0, 1, Some(Invalid)),
        (&plain, CommandFlags(1 << 15), Write, 0, 1, Some(Invalid)),
        (&read_only, NONE, Write, 0, 1, Some(NotPermitted)),
        (&read_only, NONE, Trim, 0, 1, Some(NotPermitted)),
        (&read_only, NONE, WriteZeroes, 0, 1, Some(NotPermitted)),
        (&read_only, NONE, Read, 0, 1, None),
        (&plain, NONE, Trim, 0, 64 << 20, None),
        (&plain, NONE, Trim, 1, 64 << 20, Some(Invalid)),
        (
            &plain,
            CommandFlags::NO_HOLE,
            WriteZeroes,
            0,
            64 << 20,
            None,
        ),
        (
            &plain,
            CommandFlags::FAST_ZERO,
            WriteZeroes,
            0,
            1,
            Some(Invalid),
        ),
        (&plain, NONE, WriteZeroes, 1, 64 << 20, Some(NoSpace)),
        (&plain, NONE, Flush, 0, 0, None),
        (&plain, NONE, Flush, 0, 1, Some(Invalid)),
        (&plain, NONE, Cache, 0, 64 << 20, None),
        (&plain, NONE, Cache, END, 1, Some(Invalid)),
        (&plain, NONE, BlockStatus, 0, 1, Some(Invalid)),
        (&full, CommandFlags::REQ_ONE, BlockStatus, 0, 1, None),
        (&full, NONE, BlockStatus, 0, 0, Some(Invalid)),
        (&plain, NONE, Unknown(8), 0, 0, Some(Invalid)),
        (&plain, CommandFlags(0xffff), Disconnect, 5, 5, None),
        (&weak, NONE, Trim, 0, 1, Some(Invalid)),
        (&weak, NONE, WriteZeroes, 0, 1, Some(Invalid)),
        (&weak, NONE, Flush, 0, 0, Some(Invalid)),
        (&weak, NONE, Cache, 0, 1, Some(Invalid)),
        (&weak, CommandFlags::FUA, Write, 0, 1, Some(Invalid)),
    ] {
        let found = verdict(rules, flags, command, offset, length);
        assert_eq!(found, wanted, "{command:?} {flags:?} {offset}+{length}");
    }
}

#[test]
fn what_cannot_be_skipped_drops_the_connection() {
    let huge = RequestHeader::new(Command::Write, 1, 0, (32 << 20) + 1);
    let error = rules(false).check(&huge);
    assert!(matches!(
        error,
        Err(Refusal::Drop(WireError::PayloadTooLarge { .. }))
    ));
    let demotion = RequestHeader::new(Command::Demote, 1, 0, 65536);
    let error = rules(false).check(&demotion);
    assert!(matches!(
        error,
        Err(Refusal::Drop(WireError::NotNegotiated { .. }))
    ));
}

#[test]
fn a_demotion_covers_whole_blocks_or_is_ignored() {
    let mut rules = rules(true);
    rules.size_bytes = (64 << 20) + 100; // the last block is short
    let judged = |flags, offset, length| {
        let mut request = RequestHeader::new(Command::Demote, 1, offset, length);
        request.flags = flags;
        match rules.check(&request) {
            Ok(()) => true,
            Err(Refusal::Ignore { discard_bytes, .. }) => {
                assert_eq!(discard_bytes, length);
                false
            }
            Err(other) => panic!("{other:?}"),
        }
    };
    const NONE: CommandFlags = CommandFlags::NONE;
    for (flags, offset, length, believed) in [
        (NONE, 0, 65536, true),
        (CommandFlags::FUA, 0, 65536, true),
        (NONE, 65536, 32 << 20, true),
        (NONE, 64 << 20, 100, true),
        (NONE, (64 << 20) - 65536, 65636, true),
        (CommandFlags::DF, 0, 65536, false),
        (NONE, 0, 0, false),
        (NONE, 0, 100, false),
        (NONE, 512, 65536, false),
        (NONE, 64 << 20, 99, false),
        (NONE, 64 << 20, 65536, false),
        (NONE, u64::MAX - 65535, 65536, false),
    ] {
        assert_eq!(judged(flags, offset, length), believed, "{offset}+{length}");
    }
}

#[test]
fn terms_suit_clients_with_the_same_or_larger_blocks() {
    let terms = DemotionTerms::new(65536).expect("a block");
    assert!(terms.suits(65536) && terms.suits(32 << 20));
    assert!(!terms.suits(4096) && !terms.suits(64 << 20));
    assert_eq!(DemotionTerms::new(64 << 20), None);
    assert_eq!(DemotionTerms::new(65537), None);
    assert_eq!(DemotionTerms::parse(&terms.encode()).expect("sound"), terms);
}

fn any_header() -> impl Strategy<Value = RequestHeader> {
    let code = prop_oneof![0u16..9, Just(CMD_DEMOTE), any::<u16>()];
    (any::<u16>(), code, any::<u64>(), any::<u64>(), any::<u32>()).prop_map(
        |(flags, code, cookie, offset, length_bytes)| RequestHeader {
            flags: CommandFlags(flags),
            command: Command::from_code(code),
            cookie,
            offset,
            length_bytes,
        },
    )
}

proptest! {
    #[test]
    fn requests_survive_the_wire(header in any_header(), cut in 0usize..28) {
        let bytes = header.encode();
        prop_assert_eq!(parse_request(&bytes).expect("sound"), Some((header, 28)));
        prop_assert_eq!(parse_request(&bytes[..cut]).expect("sound"), None);
    }

    #[test]
    fn what_is_carried_out_lies_inside_the_export(header in any_header(), full in any::<bool>()) {
        let rules = rules(full);
        if rules.check(&header).is_ok() && header.command != Command::Disconnect {
            let end = header.offset.checked_add(header.length_bytes.into());
            prop_assert!(end.is_some_and(|end| end <= rules.size_bytes));
            prop_assert!(header.payload_bytes() <= MAX_PAYLOAD_BYTES);
        }
    }
}
