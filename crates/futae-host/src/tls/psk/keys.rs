//! Files of pre-shared keys, as GnuTLS has them: a line `NAME:KEY` for each client.

use std::collections::HashMap;
use std::fmt;

/// The shortest key. An observer of a handshake could try all shorter ones.
const KEY_BYTES_MIN: usize = 16;
/// The longest key and name that OpenSSL takes (`PSK_MAX_PSK_LEN` and `PSK_MAX_IDENTITY_LEN` of
/// OpenSSL 1.1.1).
const KEY_BYTES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 128;

/// The keys of clients by name.
pub(super) struct Keys(HashMap<String, Vec<u8>>);

impl fmt::Debug for Keys {
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Keys {
    /// Reads the content of a file. Empty lines count for nothing. A name that begins with `#` is in
    /// hexadecimal, since `psktool` writes names with colons so.
    ///
    /// # Errors
    ///
    /// What is wrong, with the number of the line and without the key.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut keys = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let wrong = |problem: &str| format!("line {}: {problem}", at + 1);
            let line = line.trim_end();
            if line.is_empty() {
                continue;
            }
            let (name, key) = line
                .split_once(':')
                .filter(|(name, _)| !name.is_empty())
                .ok_or_else(|| wrong("write NAME:KEY, with KEY in hexadecimal; psktool does"))?;
            let name = match name.strip_prefix('#') {
                None => Some(name.to_owned()),
                Some(digits) => bytes(digits).and_then(|name| String::from_utf8(name).ok()),
            };
            // OpenSSL ends names at a zero.
            let name = name
                .filter(|name| !name.is_empty() && !name.contains('\0'))
                .ok_or_else(|| {
                    wrong("behind # there is the name in hexadecimal, which must be text")
                })?;
            if name.len() > NAME_BYTES_MAX {
                return Err(wrong(&format!("a name has at most {NAME_BYTES_MAX} bytes")));
            }
            let key = bytes(key)
                .filter(|key| (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()))
                .ok_or_else(|| {
                    wrong(&format!(
                        "the key of {name:?} must be {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes in hexadecimal; \
                         psktool -s 32 makes a good one"
                    ))
                })?;
            if keys.contains_key(&name) {
                return Err(wrong(&format!("{name:?} has a key already")));
            }
            keys.insert(name, key);
        }
        if keys.is_empty() {
            return Err("it holds no key; psktool -u NAME -p FILE makes one".to_owned());
        }
        Ok(Self(keys))
    }

    /// The key of a client.
    pub(super) fn find(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }
}

/// The bytes that hexadecimal digits stand for.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = digits
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|digit| digit.try_into().ok()))
        .collect();
    let (pairs, []) = digits.as_deref()?.as_chunks() else {
        return None;
    };
    Some(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "000102030405060708090a0b0c0d0eFF";

    #[test]
    fn keys_are_found_by_name() {
        let long = "ab".repeat(KEY_BYTES_MAX);
        let text = format!("alice:{KEY}\r\n\nno one: at all:{long}\n#613a62:{long}");
        // A colon ends a name.
        assert!(Keys::parse(&text).is_err());
        let text = text.replace("one: at", "one at");
        let keys = Keys::parse(&text).expect("keys");
        let mut wanted: Vec<u8> = (0..15).collect();
        wanted.push(255);
        assert_eq!(keys.find("alice"), Some(&wanted[..]));
        assert_eq!(keys.find("no one at all"), Some(&[0xab; 256][..]));
        assert_eq!(keys.find("a:b"), Some(&[0xab; 256][..]));
        assert_eq!(keys.find("Alice"), None);
        assert_eq!(keys.find(""), None);
        assert!(!format!("{keys:?}").contains("171"), "a key is shown");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_without_the_key() {
        let name = "n".repeat(NAME_BYTES_MAX + 1);
        for (line, words) in [
            ("", "line 3: write NAME:KEY"),
            (&KEY[1..], "line 3: write NAME:KEY"),
            (&format!(":{KEY}"), "line 3: write NAME:KEY"),
            (&format!("{name}:{KEY}"), "line 3: a name has at most 128"),
            ("carol:", "line 3: the key of \"carol\" must be 16 to 256"),
            (
                &format!("carol:{}", &KEY[2..]),
                "line 3: the key of \"carol\"",
            ),
            (
                &format!("carol:{}", &KEY[1..]),
                "line 3: the key of \"carol\"",
            ),
            (&format!("carol:{KEY}x0"), "line 3: the key of \"carol\""),
            (
                &format!("carol:{}", "00".repeat(257)),
                "line 3: the key of \"carol\"",
            ),
            (&format!("#6:{KEY}"), "line 3: behind #"),
            (&format!("#00:{KEY}"), "line 3: behind #"),
            (&format!("#ff:{KEY}"), "line 3: behind #"),
            (&format!("alice:{KEY}"), "line 3: \"alice\" has a key"),
        ] {
            let text = format!("alice:{KEY}\n\n{line}\n");
            if line.is_empty() {
                assert!(Keys::parse("\n").is_err_and(|error| error.contains("no key")));
                continue;
            }
            let error = Keys::parse(&text).expect_err(line);
            assert!(error.contains(words), "{line}: {error}");
            assert!(!error.contains(&KEY[2..20]), "{line}: {error}");
        }
    }
}
