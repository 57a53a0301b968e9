//! Where a trace is: a file, or an object behind a URL.

use std::path::Path;

/// The schemes of URLs that are read.
#[cfg(feature = "object-store")]
pub const SCHEMES: &str = "s3, gs, az, http, https and file";

/// Whether a source is a trace, and no workload: a file that exists, or a URL, which is not looked up.
#[must_use]
pub fn is_trace(source: impl AsRef<Path>) -> bool {
    let source = source.as_ref();
    is_url(source) || source.exists()
}

/// Whether a name is a URL: a scheme, and `://` after it.
#[must_use]
pub fn is_url(name: impl AsRef<Path>) -> bool {
    let scheme = name
        .as_ref()
        .to_str()
        .and_then(|name| name.split_once("://"));
    scheme.is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    })
}

#[cfg(test)]
mod tests {
    use super::{is_trace, is_url};

    #[test]
    fn urls_are_told_from_files_and_workloads() {
        for url in ["s3://bucket/key", "https://host/a.zst", "file:///a"] {
            assert!(is_url(url) && is_trace(url), "{url}");
        }
        for other in ["zipf(1.0):1GiB", "a/b.csv", "a:/b", "://a", "1x://a", ""] {
            assert!(!is_url(other) && !is_trace(other), "{other}");
        }
        assert!(is_trace("Cargo.toml"));
    }
}
