use super::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Size, SizeError, parse_block_bytes};
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;

fn size(text: &str) -> Size {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

fn message(text: &str) -> String {
    text.parse::<Size>().expect_err(text).to_string()
}

#[test]
fn sizes_have_binary_units_blocks_percent_or_nothing() {
    assert_eq!(size("4KiB"), Size::Bytes(4 * KIB));
    assert_eq!(size("1.5GiB"), Size::Bytes(3 * GIB / 2));
    assert_eq!(size("2TiB"), Size::Bytes(2048 * GIB));
    assert_eq!(size(" 512 "), Size::Bytes(512));
    assert_eq!(size("1000blocks"), Size::Blocks(1000));
    assert_eq!(size("10%"), Size::Percent(10.0));
    assert_eq!(size("0.5%"), Size::Percent(0.5));
    assert_eq!(size("0"), Size::Bytes(0));
}

#[test]
fn anything_else_names_the_text_and_the_units() {
    for text in [
        "", "GiB", "10GB", "4K", "-1", "1e9", "1..5GiB", ".5GiB", "5.", "4 KiB", "12 %",
    ] {
        let message = message(text);
        assert!(message.contains(&format!("`{text}`")), "{message}");
        for unit in ["KiB", "MiB", "GiB", "TiB", "blocks", "%", "plain bytes"] {
            assert!(message.contains(unit), "{message}");
        }
    }
    assert!(message("10GB").ends_with("(did you mean `10GiB`?)"));
    assert!(message("4k").ends_with("(did you mean `4KiB`?)"));
    assert!(message("7block").ends_with("(did you mean `7blocks`?)"));
    assert!(message("512B").ends_with("(did you mean `512`?)"));
}

#[test]
fn a_fraction_must_leave_whole_bytes_and_whole_blocks() {
    assert_eq!(message("0.3KiB"), "`0.3KiB` is not a whole number of bytes");
    assert_eq!(
        message("1.5blocks"),
        "`1.5blocks` is not a whole number of blocks"
    );
    assert_eq!(
        message("99999999TiB"),
        "`99999999TiB` is too large: the limit is 16 EiB"
    );
    assert!(message(&"9".repeat(100)).contains("too large"));
    assert_eq!(message("0%"), "`0%` is not a share above 0% and up to 100%");
    assert_eq!(
        message("101%"),
        "`101%` is not a share above 0% and up to 100%"
    );
}

#[test]
fn blocks_are_exact() {
    assert_eq!(size("1GiB").blocks(4 * KIB), Ok(262_144));
    assert_eq!(size("7blocks").blocks(4 * KIB), Ok(7));
    assert_eq!(size("7blocks").bytes(4 * KIB), Ok(28 * KIB));
    assert_eq!(
        size("6KiB").blocks(4 * KIB).map_err(|e| e.to_string()),
        Err("6KiB is not a multiple of the block size 4KiB".to_owned())
    );
    let plain = size("1000").blocks(4 * KIB).map_err(|e| e.to_string());
    assert!(plain.is_err_and(|e| e.ends_with("4KiB (did you mean `1000blocks`?)")));
    assert!(matches!(
        size("10%").blocks(4096),
        Err(SizeError::NoFootprint { .. })
    ));
    assert_eq!(size("10%").blocks_of(4096, 999), Ok(99));
    assert_eq!(size("10%").blocks_of(4096, 5), Ok(1));
    assert_eq!(size("8KiB").blocks_of(4096, 5), Ok(2));
}

#[test]
fn a_size_is_shown_in_its_shortest_exact_form() {
    let shown = |bytes: u64| Size::Bytes(bytes).to_string();
    assert_eq!(shown(192 << 20), "192MiB");
    assert_eq!(shown(3 * GIB / 2), "1.5GiB");
    assert_eq!(shown(1024), "1KiB");
    assert_eq!(shown(1000), "1000");
    assert_eq!(shown(0), "0");
    assert_eq!(shown(4096 * GIB), "4TiB");
    assert_eq!(shown(GIB + 1), "1073741825");
}

#[test]
fn block_sizes_are_powers_of_two_within_limits() {
    let parse = |text| parse_block_bytes(text, BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
    assert_eq!(parse("4KiB"), Ok(4096));
    assert_eq!(parse("65536"), Ok(65536));
    assert_eq!(parse("256MiB"), Ok(256 << 20));
    for text in ["2KiB", "512MiB", "12KiB", "1blocks", "0"] {
        assert_eq!(
            parse(text).map_err(|e| e.to_string()),
            Err(format!(
                "`{text}` is not a block size: it must be a power of two from 4KiB to 256MiB"
            ))
        );
    }
    assert_eq!(parse_block_bytes("512", 512, BLOCK_BYTES_MAX), Ok(512));
}

fn any_size() -> impl Strategy<Value = Size> {
    prop_oneof![
        any::<u64>().prop_map(Size::Bytes),
        (
            0u64..1 << 24,
            prop_oneof![Just(10), Just(20), Just(27), Just(40)]
        )
            .prop_map(|(n, bits)| Size::Bytes(n << bits)),
        any::<u64>().prop_map(Size::Blocks),
        (1u32..=100_000).prop_map(|n| Size::Percent(f64::from(n) / 1000.0)),
    ]
}

proptest! {
    #[test]
    fn what_is_shown_reads_back(size in any_size()) {
        prop_assert_eq!(size.to_string().parse(), Ok(size));
    }

    #[test]
    fn garbage_is_refused_without_panic(text in "\\PC{0,24}|[0-9.]{0,40}(KiB|GB|%|blocks)?") {
        let _ = text.parse::<Size>();
    }
}
