//! Detects a format from the first bytes of the data and the name of the file.

use super::columns::Columns;
use super::line::{Fields, Separator, plain_lines};
use super::{
    Format, TraceErrorKind, blkparse, blktrace, cachelib, fio, fiu, names, octf, oracle, prefix,
    srt, tencent_photo, twitter, vscsi, wikipedia,
};
use std::path::Path;

/// The format of a trace: determined by marks in the data, otherwise by the file's name, otherwise
/// by patterns in the data.
pub fn format(path: &Path, head: &[u8]) -> Result<Format, TraceErrorKind> {
    if blktrace::looks_like(head) {
        return Ok(Format::Blktrace);
    }
    if fio::looks_like(head) {
        return Ok(Format::FioIolog);
    }
    if is_parquet(head) {
        return Ok(Format::Parquet);
    }
    if srt::looks_like(head) {
        return Ok(Format::Srt);
    }
    if octf::looks_like(head) {
        return Ok(Format::Octf);
    }
    if let Some(format) = by_name(path) {
        return Ok(format);
    }
    let found = if is_text(head) {
        by_text(head)
    } else {
        by_records(head)
    };
    found.ok_or(TraceErrorKind::UnknownFormat)
}

/// Whether data begins with Parquet's mark.
pub fn is_parquet(head: &[u8]) -> bool {
    head.starts_with(b"PAR1")
}

/// Names that leave no doubt. What is between the last two dots counts where the last part is
/// the compression's.
fn by_name(path: &Path) -> Option<Format> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let mut parts = name.rsplit('.');
    let mut last = parts.next()?;
    if matches!(last, "gz" | "zst" | "xz" | "bz2") {
        last = parts.next()?;
    }
    if last == "bin" && parts.next() == Some("oraclegeneral") {
        return Some(Format::OracleGeneral);
    }
    match last {
        "oraclegeneral" => Some(Format::OracleGeneral),
        "lis" => Some(Format::Arc),
        "spc" => Some(Format::Spc),
        "le32" => Some(Format::Le32),
        "le64" => Some(Format::Le64),
        "be32" => Some(Format::Be32),
        "be64" => Some(Format::Be64),
        _ => None,
    }
}

/// Whether this is UTF-8 without control characters; the last character may be cut off.
/// Bytes of the mark of byte order with which spreadsheets begin a text. Records in binary may begin with the same bytes.
pub fn byte_order_mark(head: &[u8], format: Option<Format>) -> usize {
    const MARK: &[u8] = b"\xEF\xBB\xBF";
    let may_have_one = match format {
        Some(
            Format::OracleGeneral
            | Format::Vscsi1
            | Format::Vscsi2
            | Format::Le32
            | Format::Le64
            | Format::Be32
            | Format::Be64
            | Format::Blktrace
            | Format::Parquet
            | Format::Octf
            | Format::Srt,
        ) => false,
        Some(_) => true,
        None => is_text(head),
    };
    if may_have_one && head.starts_with(MARK) {
        MARK.len()
    } else {
        0
    }
}

fn is_text(head: &[u8]) -> bool {
    let is_plain = |&b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 128..);
    let is_utf8 = str::from_utf8(head).map_or_else(|e| e.error_len().is_none(), |_| true);
    !head.is_empty() && head.iter().all(is_plain) && is_utf8
}

fn by_records(head: &[u8]) -> Option<Format> {
    match vscsi::version(head) {
        Some(1) => Some(Format::Vscsi1),
        Some(_) => Some(Format::Vscsi2),
        None => oracle::looks_like(head).then_some(Format::OracleGeneral),
    }
}

/// The column map that the first line of a CSV names.
pub fn header(head: &[u8]) -> Option<Columns> {
    let text = String::from_utf8_lossy(head);
    let first = plain_lines(&text).next()?;
    let separator = Separator::of_header(first);
    let columns = names::map(Fields::up_to(usize::MAX, first, separator).all())?;
    Some(Columns {
        separator,
        ..columns
    })
}

/// Pairs of columns that a table's first line names and that mean the same.
pub fn rivals(head: &[u8]) -> Vec<[String; 2]> {
    let text = String::from_utf8_lossy(head);
    let first = plain_lines(&text).next().unwrap_or_default();
    let separator = Separator::of_header(first);
    names::rivals(Fields::up_to(usize::MAX, first, separator).all())
}

/// Whether the end of the first line is in data that is cut off.
pub fn has_first_line(head: &[u8]) -> bool {
    let end = head.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
    let whole = String::from_utf8_lossy(&head[..end]);
    plain_lines(&whole).next().is_some()
}

fn by_text(head: &[u8]) -> Option<Format> {
    let text = String::from_utf8_lossy(head);
    let mut first = plain_lines(&text);
    let line = first.next()?;
    if prefix::is_record(line) {
        return Some(Format::Prefix);
    }
    if wikipedia::is_header(line) {
        return Some(Format::Wikipedia);
    }
    if cachelib::CacheLib::new(head).is_some() {
        return Some(Format::CacheLib);
    }
    let commas = Fields::up_to(usize::MAX, line, Separator::of_header(line));
    let names = commas.all();
    if names
        .iter()
        .take(6)
        .eq(["Timestamp", "Response", "IOType", "LUN", "Offset", "Size"].iter())
    {
        return Some(Format::Systor);
    }
    if names::map(names).is_some() {
        return Some(Format::Csv);
    }
    // The formats have no header, but copies of them may: then the second line tells.
    let starts_with_letter = |text: &&str| text.starts_with(|c: char| c.is_alphabetic());
    let headed = names.len() > 1 && names.iter().all(starts_with_letter);
    let line = if headed { first.next()? } else { line };
    by_blanks(line).or_else(|| by_commas(&Fields::split(line, Separator::Comma)))
}

fn is_whole(text: &str) -> bool {
    text.parse::<u64>().is_ok()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

fn is_kind(text: &str) -> bool {
    ["r", "w", "read", "write"]
        .iter()
        .any(|kind| text.eq_ignore_ascii_case(kind))
}

fn by_blanks(line: &str) -> Option<Format> {
    let fields = Fields::split(line, Separator::Blank);
    let all = fields.all();
    if blkparse::is_event(all) {
        return Some(Format::Blkparse);
    }
    if fiu::is_record(all) {
        return Some(Format::Fiu);
    }
    if tencent_photo::is_record(all) {
        return Some(Format::TencentPhoto);
    }
    match all {
        ["*"] => Some(Format::Ids),
        [id] if is_whole(id) => Some(Format::Ids),
        [a, b, c, d] if [a, b, c, d].iter().all(|f| is_whole(f)) => Some(Format::Arc),
        [time, rest @ ..]
            if rest.len() == 4 && is_number(time) && rest.iter().all(|f| is_whole(f)) =>
        {
            Some(Format::DiskSim)
        }
        _ => None,
    }
}

fn by_commas(fields: &Fields<'_>) -> Option<Format> {
    if twitter::is_record(fields) {
        return Some(Format::Twitter);
    }
    match *fields.all() {
        [time, _, _, kind, offset, size, _]
            if is_whole(time) && is_kind(kind) && is_whole(offset) && is_whole(size) =>
        {
            Some(Format::Msr)
        }
        [time, _, "0" | "1", size, offset, _, _]
            if is_number(time) && is_whole(size) && is_whole(offset) =>
        {
            Some(Format::FlashNet)
        }
        [time, offset, size, "0" | "1", _]
            if is_number(time) && is_whole(offset) && is_whole(size) =>
        {
            Some(Format::Tencent)
        }
        [_, kind, offset, size, time]
            if is_kind(kind) && is_whole(offset) && is_whole(size) && is_whole(time) =>
        {
            Some(Format::Alibaba)
        }
        [unit, address, size, kind, time, ..]
            if is_whole(unit)
                && is_whole(address)
                && is_whole(size)
                && is_kind(kind)
                && is_number(time) =>
        {
            Some(Format::Spc)
        }
        [time, _, kind, _, offset, size]
            if is_number(time) && is_kind(kind) && is_whole(offset) && is_whole(size) =>
        {
            Some(Format::Systor)
        }
        _ => None,
    }
}
