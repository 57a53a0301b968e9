//! The kernel's description of itself (BTF) without what nobody here needs.
//!
//! It describes more than a hundred thousand types. The loader takes 72 bytes and more for each, for the sake of
//! thirty that the programs are fitted to. Here those that come after the last of these are left out, and
//! all others are replaced by the smallest type there is, so that numbers stay what they are: by its number
//! the kernel knows where to attach.

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
/// Bytes of every type, before what its kind adds.
const TYPE_BYTES: usize = 12;
/// What stands for a type that nobody needs: a declaration without a name.
const NOTHING: [u32; 3] = [0, DECLARATION << 24, 0];

const INTEGER: u32 = 1;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const DECLARATION: u32 = 7;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const PROTOTYPE: u32 = 13;
const VARIABLE: u32 = 14;
const SECTION: u32 = 15;
const DECLARATION_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const LARGE_ENUM: u32 = 19;

/// A description in parts.
struct Parts<'a> {
    types: &'a [u8],
    texts: &'a [u8],
    /// Where each type begins; the first has the number 1.
    begins: Vec<u32>,
}

/// The same description with those types that are `wanted` by their names, and all that they hold, but
/// not what they point to. None if it is not one that is understood.
pub fn thin(raw: &[u8], wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let parts = Parts::read(raw)?;
    let mut is_kept = vec![false; parts.begins.len() + 1];
    let mut open: Vec<u32> = Vec::new();
    for (number, kept) in is_kept.iter_mut().enumerate().skip(1) {
        let name = parts.word(number, 0)?;
        if name != 0 && wanted(parts.text(name)?) {
            *kept = true;
            open.push(u32::try_from(number).ok()?);
        }
    }
    while let Some(number) = open.pop() {
        parts.held(number as usize, &mut |held| {
            if let Some(kept) = is_kept.get_mut(held as usize).filter(|kept| !**kept) {
                *kept = true;
                open.push(held);
            }
        })?;
    }
    let last = is_kept.iter().rposition(|&kept| kept).unwrap_or(0);
    parts.write(&is_kept[..=last])
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*four))
}

/// Bytes that follow a type of a kind, and the words among them that are names: the first, and from
/// one to the next.
fn rest_of(kind: u32, count: usize) -> (usize, Option<usize>) {
    match kind {
        INTEGER | VARIABLE | DECLARATION_TAG => (4, None),
        ARRAY => (12, None),
        STRUCT | UNION | LARGE_ENUM => (12 * count, Some(12)),
        ENUM => (8 * count, Some(8)),
        PROTOTYPE => (8 * count, Some(8)),
        SECTION => (12 * count, None),
        _ => (0, None),
    }
}

impl<'a> Parts<'a> {
    fn read(raw: &'a [u8]) -> Option<Self> {
        if raw.first_chunk().map(|two| u16::from_ne_bytes(*two)) != Some(MAGIC) {
            return None;
        }
        let field = |at: usize| Some(word(raw, at)? as usize);
        let base = field(4)?;
        let part = |at: usize, length: usize| {
            let begin = base.checked_add(at)?;
            raw.get(begin..begin.checked_add(length)?)
        };
        let mut parts = Self {
            types: part(field(8)?, field(12)?)?,
            texts: part(field(16)?, field(20)?)?,
            begins: Vec::new(),
        };
        let mut at = 0;
        while at < parts.types.len() {
            parts.begins.push(u32::try_from(at).ok()?);
            let info = word(parts.types, at + 4)?;
            at += TYPE_BYTES + rest_of(info >> 24 & 0x1f, (info & 0xffff) as usize).0;
        }
        (at == parts.types.len()).then_some(parts)
    }

    /// The bytes of a type from its beginning on.
    fn of(&self, number: usize) -> Option<&'a [u8]> {
        let begin = *self.begins.get(number.checked_sub(1)?)?;
        self.types.get(begin as usize..)
    }

    fn word(&self, number: usize, at: usize) -> Option<u32> {
        word(self.of(number)?, at)
    }

    fn text(&self, at: u32) -> Option<&'a [u8]> {
        let rest = self.texts.get(at as usize..)?;
        rest.split(|&byte| byte == 0).next()
    }

    /// Kind and count of a type.
    fn kind(&self, number: usize) -> Option<(u32, usize)> {
        let info = self.word(number, 4)?;
        Some((info >> 24 & 0x1f, (info & 0xffff) as usize))
    }

    /// Tells the types that this one consists of.
    fn held(&self, number: usize, tell: &mut dyn FnMut(u32)) -> Option<()> {
        let (kind, count) = self.kind(number)?;
        match kind {
            TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => tell(self.word(number, 8)?),
            ARRAY => tell(self.word(number, 12)?),
            STRUCT | UNION => {
                for member in 0..count {
                    tell(self.word(number, TYPE_BYTES + 12 * member + 4)?);
                }
            }
            _ => {}
        }
        Some(())
    }

    fn write(&self, is_kept: &[bool]) -> Option<Vec<u8>> {
        let mut texts = Texts::default();
        let mut all = vec![0; HEADER_BYTES];
        all.reserve(is_kept.len() * 16);
        for (number, is_kept) in is_kept.iter().enumerate().skip(1) {
            if !is_kept {
                NOTHING
                    .iter()
                    .for_each(|word| all.extend(word.to_ne_bytes()));
                continue;
            }
            let (kind, count) = self.kind(number)?;
            let (length, names) = rest_of(kind, count);
            let bytes = self.of(number)?.get(..TYPE_BYTES + length)?;
            let begin = all.len();
            all.extend_from_slice(bytes);
            let inner = (0..count).filter_map(|at| Some(TYPE_BYTES + names? * at));
            for at in std::iter::once(0).chain(inner) {
                let name = texts.take(self.text(word(bytes, at)?)?);
                all[begin + at..begin + at + 4].copy_from_slice(&name.to_ne_bytes());
            }
        }
        let length = u32::try_from(all.len() - HEADER_BYTES).ok()?;
        let texts = texts.bytes;
        let fields = [
            HEADER_BYTES as u32,
            0,
            length,
            length,
            u32::try_from(texts.len()).ok()?,
        ];
        let header = fields.iter().flat_map(|field| field.to_ne_bytes());
        let header: Vec<u8> = MAGIC
            .to_ne_bytes()
            .into_iter()
            .chain([1, 0])
            .chain(header)
            .collect();
        all[..HEADER_BYTES].copy_from_slice(&header);
        all.extend(texts);
        Some(all)
    }
}

/// Texts, each once.
struct Texts {
    bytes: Vec<u8>,
    places: HashMap<Vec<u8>, u32>,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            // The empty text comes first.
            bytes: vec![0],
            places: HashMap::from([(Vec::new(), 0)]),
        }
    }
}

impl Texts {
    fn take(&mut self, text: &[u8]) -> u32 {
        if let Some(&place) = self.places.get(text) {
            return place;
        }
        let place = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text);
        self.bytes.push(0);
        self.places.insert(text.to_owned(), place);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A description with a structure `a` that holds an array of `b` and points to `c`.
    fn small() -> Vec<u8> {
        let texts = b"\0a\0b\0c\0field\0pointer\0int\0";
        let info = |kind: u32, count: u32| kind << 24 | count;
        let types: Vec<u32> = [
            // 1: int
            vec![21, info(INTEGER, 0), 4, 32],
            // 2: struct b { int field; }
            vec![3, info(STRUCT, 1), 4, 7, 1, 0],
            // 3: b[5]
            vec![0, info(ARRAY, 0), 0, 2, 1, 5],
            // 4: struct c { int field; }
            vec![5, info(STRUCT, 1), 4, 7, 1, 0],
            // 5: c *
            vec![0, info(2, 0), 4],
            // 6: struct a { b field[5]; c *pointer; }
            vec![1, info(STRUCT, 2), 28, 7, 3, 0, 13, 5, 160],
            // 7: a *
            vec![0, info(2, 0), 6],
        ]
        .concat();
        let length = types.len() as u32 * 4;
        let mut raw = Vec::new();
        raw.extend(MAGIC.to_ne_bytes());
        raw.extend([1, 0]);
        for field in [24, 0, length, length, texts.len() as u32]
            .into_iter()
            .chain(types)
        {
            raw.extend(field.to_ne_bytes());
        }
        raw.extend(texts);
        raw
    }

    #[test]
    fn what_is_held_stays_and_numbers_too() {
        let thinned = thin(&small(), |name| name == b"a").expect("understood");
        let parts = Parts::read(&thinned).expect("understood");
        assert_eq!(parts.begins.len(), 6);
        let kinds: Vec<_> = (1..=6)
            .map(|number| parts.kind(number).expect("there").0)
            .collect();
        assert_eq!(kinds, [INTEGER, STRUCT, ARRAY, DECLARATION, 2, STRUCT]);
        let name = |number, at| {
            parts
                .text(parts.word(number, at).expect("there"))
                .expect("there")
        };
        assert_eq!(
            (name(6, 0), name(6, 12), name(6, 24)),
            (&b"a"[..], &b"field"[..], &b"pointer"[..])
        );
        assert_eq!((name(2, 0), name(4, 0)), (&b"b"[..], &b""[..]));
        assert_eq!(parts.word(6, 16), Some(3));
        assert!(!thinned.windows(3).any(|three| three == b"\0c\0"));
    }

    #[test]
    fn what_is_broken_is_refused() {
        let raw = small();
        for length in 0..raw.len() {
            assert!(thin(&raw[..length], |_| true).is_none(), "{length}");
        }
        let whole = thin(&raw, |_| true).expect("understood");
        assert_eq!(Parts::read(&whole).expect("understood").begins.len(), 6);
        // Any byte may be anything.
        for at in 0..raw.len() {
            for value in [0, 1, 4, 0x13, 0xff] {
                let mut damaged = raw.clone();
                damaged[at] = value;
                drop(thin(&damaged, |_| true));
            }
        }
    }
}
