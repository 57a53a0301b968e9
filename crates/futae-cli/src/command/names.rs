//! Names that are made of those of exports and sources, different ones of different ones: of files, and of what systemd keeps. And the
//! directories that systemd names for files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Characters of what a file is about that are in its name, for people; a checksum of all of it follows.
const SHOWN_MAX: usize = 80;
/// Characters of a name that systemd keeps a descriptor under, at most; what is before it has room, too, within its 255.
const STORED_MAX: usize = 200;

/// The file of an export, beside the file at `path`.
pub fn with_suffix(path: &Path, name: &str) -> PathBuf {
    let mut full = OsString::from(path);
    // A name may contain what a file's name may not. Two names never come to the same.
    let mut name = name.replace('%', "%25").replace('/', "%2F");
    // Beside a state file there may be those whose names end so.
    let last = name.rfind('.').map_or(0, |dot| dot + 1);
    if ["lock", "new", "old"].contains(&&name[last..]) {
        let first = format!("%{:02X}", name.as_bytes()[last]);
        name.replace_range(last..=last, &first);
    }
    full.push(format!(".{name}"));
    full.into()
}

/// An export in the name of a descriptor that systemd keeps: ASCII without colons.
pub fn stored_as(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let escaped: String = name
        .bytes()
        .map(|byte| match is_plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect();
    if escaped.len() <= STORED_MAX {
        return escaped;
    }
    // No escaped name has such a character.
    let sum = format!("~{:016x}", checksum(name));
    format!("{}{sum}", &escaped[..STORED_MAX - sum.len()])
}

/// The name of a file about `what`, which ends so. Two names never come to the same, as far as 64 bits tell.
pub fn file_name(what: &str, suffix: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
    let plain: Vec<char> = what
        .chars()
        .map(|c| if is_plain(c) { c } else { '-' })
        .collect();
    let shown: String = plain[plain.len().saturating_sub(SHOWN_MAX)..]
        .iter()
        .collect();
    let shown = shown.trim_start_matches(['-', '.']);
    let sum = checksum(what);
    format!("{shown}-{sum:016x}{suffix}")
}

/// The first directory of a variable such as `STATE_DIRECTORY`: systemd lists several with colons between them.
pub fn first_directory(list: OsString) -> PathBuf {
    let text = list.to_string_lossy();
    match text.split_once(':') {
        Some((first, _)) => first.into(),
        None => list.into(),
    }
}

/// A checksum of a name (FNV-1a, 64 bits): the same in every version of this program.
pub fn checksum(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_exports_have_the_same_file() {
        let file = |name: &str| with_suffix(Path::new("/run/kept"), name);
        assert_eq!(file("vm1"), Path::new("/run/kept.vm1"));
        let names = [
            "a/b", "a_b", "a%2Fb", "a%252Fb", "lock", "%6Cock", "a.lock", "a.new", "old",
        ];
        let mut files: Vec<PathBuf> = names.map(file).to_vec();
        files.sort_unstable();
        files.dedup();
        assert_eq!(files.len(), names.len(), "{files:?}");
        for helper in ["lock", "new", "old"] {
            let ends_so = |file: &PathBuf| file.extension().is_some_and(|end| end == helper);
            assert!(!files.iter().any(ends_so), "{files:?}");
        }
        assert!(
            files
                .iter()
                .all(|file| file.parent() == Some(Path::new("/run")))
        );
    }

    #[test]
    fn no_two_names_are_stored_as_one() {
        assert_eq!(stored_as("vm-1.a_b"), "vm-1.a_b");
        let long = "é".repeat(2000);
        let names = [
            "a b",
            "a_b",
            "a%20b",
            "a:b",
            "vm-ä",
            "vm-ö",
            "~",
            &long,
            &long[2..],
            "\u{1}",
        ];
        let stored: BTreeSet<String> = names.iter().map(|name| stored_as(name)).collect();
        assert_eq!(stored.len(), names.len(), "{stored:?}");
        for name in stored {
            assert!(name.len() <= STORED_MAX, "{name}");
            assert!(
                name.chars().all(|c| c.is_ascii_graphic() && c != ':'),
                "{name}"
            );
        }
    }

    #[test]
    fn files_have_names_of_their_own() {
        let name = |what: &str| file_name(what, ".x");
        let one = name("nbd://host/a");
        assert!(one.starts_with("nbd---host-a-"), "{one}");
        assert_ne!(one, name("nbd://host-a"));
        assert!(name(&"/x".repeat(4_000)).len() < 200);
        assert!(!name("/dev/sda").contains('/'));
    }

    #[test]
    fn of_several_directories_the_first_is_used() {
        assert_eq!(first_directory("/a:/b".into()), Path::new("/a"));
        assert_eq!(first_directory("/a".into()), Path::new("/a"));
    }
}
