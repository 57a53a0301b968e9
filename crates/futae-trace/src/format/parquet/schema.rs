//! The columns of a Parquet file, as a table has them.
//!
//! A file keeps each part of a nested column as a column of its own. Users count and name the columns that they wrote.

use super::arrow_schema;
use crate::format::rows::TableColumn;
use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::file::metadata::FileMetaData;
use parquet::schema::types::Type;

/// A column of a table, and where its values are in the file.
pub struct Field {
    pub column: TableColumn,
    /// Its number among the columns that the file keeps; none if its values cannot be read.
    pub leaf: Option<usize>,
}

/// The columns of a file, in their order.
pub fn fields(file: &FileMetaData) -> Vec<Field> {
    let schema = file.schema_descr();
    let roots = schema.root_schema().get_fields();
    let mut leaves = vec![None; roots.len()];
    for leaf in 0..schema.num_columns() {
        if let Some(of_root) = leaves.get_mut(schema.get_column_root_idx(leaf)) {
            *of_root = Some(leaf);
        }
    }
    let columns = roots.iter().zip(leaves);
    let mut fields: Vec<Field> = columns.map(|(root, leaf)| field(root, leaf)).collect();
    for (number, name, ns) in durations(file) {
        let root = roots.get(number).filter(|root| is_plain_number(root));
        if let (Some(root), Some(field)) = (root, fields.get_mut(number))
            && root.name() == name
            && field.leaf.is_some()
        {
            field.column.values = format!("DURATION({})", unit_name(ns));
            field.column.time_ns = Some(ns);
        }
    }
    fields
}

fn field(root: &Type, leaf: Option<usize>) -> Field {
    let info = root.get_basic_info();
    let of = |values: String, time_ns, is_nested| TableColumn {
        name: root.name().to_owned(),
        values,
        time_ns,
        is_nested,
    };
    let nested = |values: &str| Field {
        column: of(values.to_owned(), None, true),
        leaf: None,
    };
    if root.is_group() {
        return nested(match info.converted_type() {
            ConvertedType::LIST => "LIST",
            ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE => "MAP",
            _ => "STRUCT",
        });
    }
    let physical = root.get_physical_type().to_string();
    if info.has_repetition() && info.repetition() == Repetition::REPEATED {
        return nested(&format!("repeated {physical}"));
    }
    let time = time(root);
    let (values, is_readable) = match time {
        Some((name, ns)) => (format!("{name}({})", unit_name(ns)), true),
        None => match unreadable(root) {
            Some(values) => (values, false),
            None => (physical, true),
        },
    };
    let time_ns = time.map(|(_, ns)| ns);
    Field {
        column: of(values, time_ns, false),
        leaf: leaf.filter(|_| is_readable),
    }
}

/// The name of a type of times, and how many nanoseconds its unit has.
fn time(root: &Type) -> Option<(&'static str, u64)> {
    let ns = |unit: &TimeUnit| match unit {
        TimeUnit::MILLIS => 1_000_000,
        TimeUnit::MICROS => 1000,
        TimeUnit::NANOS => 1,
    };
    let info = root.get_basic_info();
    match (info.logical_type_ref(), info.converted_type()) {
        (Some(LogicalType::Timestamp(of)), _) => Some(("TIMESTAMP", ns(&of.unit))),
        (Some(LogicalType::Time(of)), _) => Some(("TIME", ns(&of.unit))),
        // Files of before there were logical types, which had no nanoseconds.
        (_, ConvertedType::TIMESTAMP_MILLIS) => Some(("TIMESTAMP", 1_000_000)),
        (_, ConvertedType::TIMESTAMP_MICROS) => Some(("TIMESTAMP", 1000)),
        (_, ConvertedType::TIME_MILLIS) => Some(("TIME", 1_000_000)),
        (_, ConvertedType::TIME_MICROS) => Some(("TIME", 1000)),
        _ => None,
    }
}

/// The name of a type whose values cannot be read; none of one whose values can.
fn unreadable(root: &Type) -> Option<String> {
    let (precision, scale) = match *root {
        Type::PrimitiveType {
            precision, scale, ..
        } => (precision, scale),
        Type::GroupType { .. } => (0, 0),
    };
    let info = root.get_basic_info();
    let physical = root.get_physical_type();
    match (info.converted_type(), info.logical_type_ref()) {
        // Days, which no other number here counts in.
        (ConvertedType::DATE, _) => Some("DATE".to_owned()),
        // Their whole numbers are not their values.
        (ConvertedType::DECIMAL, _) => Some(format!("DECIMAL({precision},{scale})")),
        (ConvertedType::INTERVAL, _) => Some("INTERVAL".to_owned()),
        (_, Some(LogicalType::Float16)) => Some("FLOAT16".to_owned()),
        // A type that came after this reader.
        (_, Some(LogicalType::_Unknown { field_id })) => {
            Some(format!("{physical} with the unknown meaning {field_id}"))
        }
        _ => (physical == Physical::INT96).then(|| "INT96".to_owned()),
    }
}

fn unit_name(ns: u64) -> &'static str {
    match ns {
        1 => "NANOS",
        1000 => "MICROS",
        1_000_000 => "MILLIS",
        _ => "SECONDS",
    }
}

/// Whether a number has no meaning by Parquet's types: as one does that Arrow calls a span of time.
fn is_plain_number(root: &Type) -> bool {
    let info = root.get_basic_info();
    root.is_primitive()
        && root.get_physical_type() == Physical::INT64
        && info.logical_type_ref().is_none()
        && info.converted_type() == ConvertedType::NONE
}

fn durations(file: &FileMetaData) -> Vec<(usize, String, u64)> {
    let metadata = file.key_value_metadata().into_iter().flatten();
    let mut schemas = metadata.filter(|entry| entry.key == arrow_schema::KEY);
    let schema = schemas.next().and_then(|entry| entry.value.as_deref());
    schema.map(arrow_schema::durations).unwrap_or_default()
}
