//! Lines, read by a column map.

use super::columns::Columns;
use super::context::{Context, Raw, VOLUME_PARTS};
use super::decoder::{Keys, LineDecoder};
use super::error::TraceErrorKind;
use super::fields;
use super::line::{Comments, FIELDS_FEW, Fields};
use super::names;
use crate::{Request, RequestKind};
use futae_policy::VolumeId;

/// Reads lines by a column map.
pub struct ColumnDecoder {
    columns: Columns,
    /// How many fields of a line are looked at.
    fields: usize,
    /// The next line may name the columns.
    first: bool,
    /// It does.
    names: bool,
    name: String,
}

impl ColumnDecoder {
    pub fn new(columns: Columns) -> Self {
        let last = columns.all().max().unwrap_or(0);
        Self {
            columns,
            fields: FIELDS_FEW.max(last + 1),
            first: true,
            names: false,
            name: String::new(),
        }
    }

    /// For a table whose first line gave the map, so that it is no request.
    pub fn after_names(columns: Columns) -> Self {
        Self {
            names: true,
            ..Self::new(columns)
        }
    }

    fn volume(
        &mut self,
        fields: &Fields<'_>,
        context: &mut Context,
    ) -> Result<VolumeId, TraceErrorKind> {
        match self.columns.volume[..] {
            [] => Ok(VolumeId(0)),
            [column] => context.volume(fields.get(column, "volume")?),
            _ => {
                self.name.clear();
                for (at, &column) in self.columns.volume.iter().enumerate() {
                    if at > 0 {
                        self.name.push_str(VOLUME_PARTS);
                    }
                    self.name.push_str(fields.get(column, "volume")?);
                }
                context.volume(&self.name)
            }
        }
    }

    /// Whether a line of objects names the columns. Keys may begin with a letter, so such a line is known by names in place of numbers;
    /// where no number tells, by names of columns.
    fn names_columns(&self, fields: &Fields<'_>) -> bool {
        let begins = |column: usize, is_it: fn(char) -> bool| {
            let field = fields.all().get(column);
            field.is_some_and(|text| text.starts_with(is_it))
        };
        let time = self.columns.time.map(|(column, _)| column);
        let lengths = self.columns.length.iter().map(|it| it.0);
        let mut numbers = time.into_iter().chain(lengths);
        if numbers
            .clone()
            .any(|column| begins(column, char::is_alphabetic))
        {
            return true;
        }
        let has_number = numbers.any(|column| begins(column, char::is_numeric));
        !has_number && names::map(fields.all()).is_some()
    }

    fn time_us(&self, fields: &Fields<'_>) -> Result<Option<u64>, TraceErrorKind> {
        let Some((column, unit)) = self.columns.time else {
            return Ok(None);
        };
        // An empty field is a time that is not known.
        match fields.get(column, "time")? {
            "" => Ok(None),
            time => fields::time_us(time, unit).map(Some),
        }
    }

    fn length_bytes(&self, fields: &Fields<'_>) -> Result<u64, TraceErrorKind> {
        let lengths = self.columns.length.iter();
        let of = |&(column, unit)| fields::bytes(fields.get(column, "length")?, unit);
        lengths.map(of).try_fold(0u64, |sum, length| {
            sum.checked_add(length?).ok_or(TraceErrorKind::OutOfRange)
        })
    }

    fn keyed(
        &mut self,
        fields: &Fields<'_>,
        kind: RequestKind,
        context: &mut Context,
    ) -> Result<Request, TraceErrorKind> {
        self.name.clear();
        for &column in &self.columns.key {
            if !self.name.is_empty() {
                self.name.push('\t');
            }
            self.name.push_str(fields.get(column, "key")?);
        }
        if self.name.is_empty() {
            return Err(fields::no_key());
        }
        let length = match self.columns.length[..] {
            [] => None,
            _ => Some(self.length_bytes(fields)?),
        };
        let request = context.named(&self.name, length, kind, self.time_us(fields)?)?;
        self.note_life(fields, context)?;
        self.note_latency(fields, context)?;
        Ok(request)
    }

    #[inline]
    fn note_latency(
        &self,
        fields: &Fields<'_>,
        context: &mut Context,
    ) -> Result<(), TraceErrorKind> {
        let Some((column, unit)) = self.columns.latency.filter(|_| context.keeps_latencies())
        else {
            return Ok(());
        };
        // An empty field, or none at the end of a line, is a latency that is not known.
        let us = match fields.all().get(column) {
            None | Some(&"") => 0,
            Some(latency) => fields::time_us(latency, unit)?,
        };
        context.note_latency(us);
        Ok(())
    }

    #[inline]
    fn note_life(&self, fields: &Fields<'_>, context: &mut Context) -> Result<(), TraceErrorKind> {
        match self.columns.ttl {
            Some(column) => context.note_life(fields.get(column, "ttl")?),
            None => Ok(()),
        }
    }
}

impl LineDecoder for ColumnDecoder {
    fn keys(&self) -> Option<Keys> {
        let has_sizes = !self.columns.length.is_empty();
        (!self.columns.key.is_empty()).then_some(Keys { has_sizes })
    }

    fn comments(&self) -> Comments {
        match self.columns.begin_with_text() {
            true => Comments::AtTop,
            false => Comments::Anywhere,
        }
    }

    fn decode(
        &mut self,
        line: &str,
        context: &mut Context,
    ) -> Result<Option<Request>, TraceErrorKind> {
        let is_first = std::mem::take(&mut self.first);
        if is_first && self.names {
            return Ok(None);
        }
        let fields = Fields::up_to(self.fields, line, self.columns.separator);
        let is_name = |text: &str| text.starts_with(|c: char| c.is_alphabetic());
        let Some((column, unit)) = self.columns.offset else {
            if is_first && self.names_columns(&fields) {
                return Ok(None);
            }
            let kind = match self.columns.kind {
                Some((column, code)) => fields::operation(fields.get(column, "kind")?, code)?,
                None => Some(RequestKind::Read),
            };
            return match kind {
                Some(kind) => self.keyed(&fields, kind, context).map(Some),
                None => Ok(None),
            };
        };
        let offset = fields.get(column, "offset")?;
        if is_first && is_name(offset) {
            return Ok(None);
        }
        let raw = Raw {
            offset_bytes: fields::bytes(offset, unit)?,
            length_bytes: self.length_bytes(&fields)?,
            kind: match self.columns.kind {
                Some((column, code)) => fields::kind(fields.get(column, "kind")?, code)?,
                None => RequestKind::Read,
            },
            time_us: self.time_us(&fields)?,
            volume: self.volume(&fields, context)?,
        };
        let request = context.request(raw)?;
        self.note_life(&fields, context)?;
        self.note_latency(&fields, context)?;
        Ok(Some(request))
    }
}
