//! A format by its name, or by what others call it.

use super::error::TraceErrorKind;
use super::formats::Format;
use std::str::FromStr;

impl FromStr for Format {
    type Err = TraceErrorKind;

    fn from_str(name: &str) -> Result<Self, TraceErrorKind> {
        let name = name.trim().to_ascii_lowercase();
        let alias = match name.as_str() {
            "oraclegeneral" => Some(Self::OracleGeneral),
            "vscsi" => Some(Self::Vscsi1),
            "lirs" | "txt" => Some(Self::Ids),
            "lis" => Some(Self::Arc),
            "fio" | "iolog" => Some(Self::FioIolog),
            "mooncake" => Some(Self::Prefix),
            "hpl" | "hpl2" => Some(Self::Srt),
            _ => Self::ALL.into_iter().find(|format| format.name() == name),
        };
        alias.ok_or_else(|| {
            let distance = |format: &Self| strsim::damerau_levenshtein(format.name(), &name);
            let near = Self::ALL.into_iter().min_by_key(distance);
            let near = near.filter(|format| distance(format) <= format.name().len() / 3);
            TraceErrorKind::NoSuchFormat {
                name,
                near: near.map(|f| f.name().to_owned()),
            }
        })
    }
}

impl TryFrom<String> for Format {
    type Error = TraceErrorKind;

    fn try_from(name: String) -> Result<Self, TraceErrorKind> {
        name.parse()
    }
}
