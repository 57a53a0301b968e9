//! Arbitrary bytes as the subject of a certificate: every name that is found stands in it.

/// One input.
pub fn run(input: &[u8]) {
    let names = futae_host::common_names(input);
    assert!(names.iter().map(String::len).sum::<usize>() <= input.len());
    for name in names.iter().filter(|name| !name.is_empty()) {
        assert!(
            input
                .windows(name.len())
                .any(|bytes| bytes == name.as_bytes())
        );
    }
}
