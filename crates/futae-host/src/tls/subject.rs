//! Parses the common names of a certificate's subject, defensively: a client wrote it and an
//! authority signed it.

/// `id-at-commonName`, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;

/// The common names of a subject (`Name` of X.501 in DER, with or without the outer tag).
#[must_use]
pub fn common_names(subject: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = match value(subject) {
        Some((SEQUENCE, inside, [])) => inside,
        _ => subject,
    };
    while let Some((tag, mut set, after)) = value(rest) {
        rest = after;
        while let Some((inner, attribute, next)) = value(set).filter(|_| tag == SET) {
            set = next;
            if inner == SEQUENCE {
                names.extend(common_name(attribute));
            }
        }
    }
    names
}

/// The text of an attribute, if the attribute is a common name.
fn common_name(attribute: &[u8]) -> Option<String> {
    let (OBJECT_IDENTIFIER, kind, rest) = value(attribute)? else {
        return None;
    };
    let (tag, text, []) = value(rest)? else {
        return None;
    };
    let is_text = matches!(tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING);
    if kind != COMMON_NAME || !is_text {
        return None;
    }
    String::from_utf8(text.to_vec()).ok()
}

/// The first value: its tag, its content, and the remaining bytes.
fn value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81 => {
            let (&length, rest) = rest.split_first()?;
            (usize::from(length), rest)
        }
        0x82 => {
            let (length, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        // No subject is this long.
        _ => return None,
    };
    let (inside, after) = rest.split_at_checked(length)?;
    Some((tag, inside, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A DER value.
    fn der(tag: u8, inside: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        match u8::try_from(inside.len()) {
            Ok(length @ 0..=0x7f) => bytes.push(length),
            Ok(length) => bytes.extend([0x81, length]),
            Err(_) => {
                bytes.push(0x82);
                bytes.extend((inside.len() as u16).to_be_bytes());
            }
        }
        bytes.extend_from_slice(inside);
        bytes
    }

    fn attribute(kind: &[u8], tag: u8, text: &str) -> Vec<u8> {
        let inside = [der(OBJECT_IDENTIFIER, kind), der(tag, text.as_bytes())].concat();
        der(SET, &der(SEQUENCE, &inside))
    }

    #[test]
    fn common_names_are_found_among_other_attributes() {
        let long = "x".repeat(300);
        let inside = [
            attribute(&[0x55, 0x04, 0x0a], UTF8_STRING, "an organisation"),
            attribute(&COMMON_NAME, UTF8_STRING, "vm1"),
            attribute(&COMMON_NAME, PRINTABLE_STRING, &long),
            // In UTF-16, which is obsolete.
            attribute(&COMMON_NAME, 0x1e, "\0v\0m"),
        ]
        .concat();
        let wanted = ["vm1".to_owned(), long];
        assert_eq!(common_names(&inside), wanted);
        assert_eq!(common_names(&der(SEQUENCE, &inside)), wanted);
    }

    #[test]
    fn a_subject_that_is_cut_gives_no_name_that_is_cut() {
        let whole = attribute(&COMMON_NAME, UTF8_STRING, "administrator");
        for length in 0..whole.len() {
            assert_eq!(common_names(&whole[..length]), [""; 0], "{length}");
        }
    }
}
