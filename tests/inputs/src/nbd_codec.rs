//! Arbitrary bytes into every parser of futae-nbd. The first byte chooses the parser.

use std::io::{Cursor, Read, Result, Write};

use futae_nbd::client::negotiate;
use futae_nbd::constants::{MAX_OPTIONS, MAX_PAYLOAD_BYTES};
use futae_nbd::*;

/// One input.
pub fn run(input: &[u8]) {
    let Some((&choice, input)) = input.split_first() else {
        return;
    };
    match choice % 6 {
        0 => handshake(input),
        1 => requests(input),
        2 => replies(input),
        3 => client(input),
        4 => over_tls(input),
        _ => uri(input),
    }
}

struct Shelf(DemotionOffer);

impl ExportDirectory for Shelf {
    fn list(&self) -> Vec<ExportInfo> {
        let export = |name: &str| ExportInfo {
            name: name.into(),
            description: "a disk".into(),
            size_bytes: (64 << 20) + 100,
            read_only: name == "b",
            preferred_block_bytes: 65536,
            capabilities: Capabilities::all(),
        };
        vec![export("a"), export("b")]
    }
    fn demotion(&self) -> DemotionOffer {
        self.0
    }
}

/// A handshake that asks for TLS: nothing of an export is said before, and nothing said before is kept.
fn over_tls(input: &[u8]) {
    let mut handshake = Handshake::with_tls(Shelf(DemotionOffer::Forbidden));
    let mut out = Vec::new();
    let Ok(progress) = handshake.feed(input, &mut out) else {
        return;
    };
    assert!(
        !out.windows(6).any(|bytes| bytes == b"a disk"),
        "an export is described in the clear"
    );
    match progress.outcome {
        Outcome::NeedMore | Outcome::Aborted => {}
        Outcome::Done(_) => panic!("an export is opened in the clear"),
        Outcome::StartTls => {
            let mut inside = handshake.over_tls(Shelf(DemotionOffer::Forbidden));
            let inside = inside.feed(&input[progress.consumed..], &mut out);
            assert!(
                inside.is_err() || inside.is_ok_and(|inside| inside.outcome != Outcome::StartTls)
            );
        }
    }
}

/// The answers of a handshake fed in pieces of `step` bytes, how it ended, and after how much.
fn shake_hands(input: &[u8], step: usize) -> (Vec<u8>, String, Option<usize>) {
    let terms = DemotionTerms::new(65536).expect("a block");
    let mut handshake = Handshake::new(Shelf(DemotionOffer::Terms(terms)));
    let (mut out, mut start, mut end) = (Vec::new(), 0, 0);
    loop {
        let progress = match handshake.feed(&input[start..end], &mut out) {
            Ok(progress) => progress,
            Err(error) => return (out, error.to_string(), None),
        };
        start += progress.consumed;
        assert!(start <= end);
        if let Outcome::Done(negotiated) = &progress.outcome {
            judge(&RequestRules::new(negotiated), &input[start..]);
        }
        if progress.outcome != Outcome::NeedMore || end == input.len() {
            return (out, format!("{:?}", progress.outcome), Some(start));
        }
        end = (end + step).min(input.len());
    }
}

fn handshake(input: &[u8]) {
    let whole = shake_hands(input, input.len().max(1));
    assert!(whole.0.len() <= (MAX_OPTIONS as usize + 1) * 300);
    assert_eq!(whole, shake_hands(input, 1));
}

/// Reads requests until the input ends, and holds the rules to their promise.
fn judge(rules: &RequestRules, mut input: &[u8]) {
    while let Ok(Some((request, length))) = parse_request(input) {
        assert_eq!(request.encode()[..], input[..length]);
        let verdict = rules.check(&request);
        if verdict.is_ok() && request.command != Command::Disconnect {
            let end = request.offset.checked_add(request.length_bytes.into());
            assert!(end.is_some_and(|end| end <= rules.size_bytes));
            assert!(request.payload_bytes() <= MAX_PAYLOAD_BYTES);
        }
        if matches!(verdict, Err(Refusal::Drop(_))) {
            return;
        }
        input = input[length..]
            .get(request.payload_bytes() as usize..)
            .unwrap_or_default();
    }
}

fn requests(input: &[u8]) {
    let shelf = Shelf(DemotionOffer::Forbidden);
    for export in shelf.list() {
        let mut rules = RequestRules::plain(&export);
        judge(&rules, input);
        rules.demotion = DemotionTerms::new(65536);
        rules.structured_replies = true;
        rules.base_allocation = true;
        rules.flags = export.transmission_flags(true);
        judge(&rules, input);
    }
}

fn replies(mut input: &[u8]) {
    while let Ok(Some((reply, length))) = parse_reply(input) {
        // No prefix of a message is a whole message.
        assert!(matches!(parse_reply(&input[..length - 1]), Ok(None)));
        if let Reply::BlockStatus { extents, .. } = reply {
            assert!(extents.count() > 0);
        }
        input = &input[length..];
    }
}

/// A server that says the input and hears nothing.
struct Script<'a>(Cursor<&'a [u8]>);

impl Read for Script<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Script<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        Ok(bytes.len())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

fn client(input: &[u8]) {
    let wish = ClientWish {
        structured: true,
        base_allocation: true,
        demotion_block_bytes: Some(65536),
        identity: input.len().is_multiple_of(2),
    };
    if let Ok(granted) = negotiate(&mut Script(Cursor::new(input)), "a", &wish) {
        assert!(granted.minimum_block_bytes.is_power_of_two());
        assert!(granted.payload_bytes_max <= MAX_PAYLOAD_BYTES);
    }
}

fn uri(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Ok(uri) = text.parse::<NbdUri>() {
        let again = uri.to_string().parse::<NbdUri>();
        assert_eq!(again.expect("what was written parses"), uri);
    }
}
