//! The columns of a Parquet file, as a table has them.
//!
//! A file keeps each part of a nested column as a column of its own. Users count and name the columns that they wrote.

use crate::format::rows::TableColumn;
use parquet::basic::{ConvertedType, Repetition};
use parquet::schema::types::{SchemaDescriptor, Type};

/// A column of a table, and where its values are in the file.
pub struct Field {
    pub column: TableColumn,
    /// Its number among those that the file keeps; none if it is nested.
    pub leaf: Option<usize>,
}

/// The columns of a file, in their order.
pub fn fields(schema: &SchemaDescriptor) -> Vec<Field> {
    let roots = schema.root_schema().get_fields();
    let mut leaves = vec![None; roots.len()];
    for leaf in 0..schema.num_columns() {
        if let Some(of_root) = leaves.get_mut(schema.get_column_root_idx(leaf)) {
            *of_root = Some(leaf);
        }
    }
    let columns = roots.iter().zip(leaves);
    columns.map(|(root, leaf)| field(root, leaf)).collect()
}

fn field(root: &Type, leaf: Option<usize>) -> Field {
    let info = root.get_basic_info();
    let nested = |values: &str| Field {
        column: TableColumn {
            name: root.name().to_owned(),
            values: values.to_owned(),
            time_ns: None,
            is_nested: true,
        },
        leaf: None,
    };
    if root.is_group() {
        return nested(match info.converted_type() {
            ConvertedType::LIST => "LIST",
            ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE => "MAP",
            _ => "STRUCT",
        });
    }
    let values = root.get_physical_type().to_string();
    if info.has_repetition() && info.repetition() == Repetition::REPEATED {
        return nested(&format!("repeated {values}"));
    }
    let column = TableColumn {
        name: root.name().to_owned(),
        values,
        time_ns: match info.converted_type() {
            ConvertedType::TIMESTAMP_MILLIS => Some(1_000_000),
            ConvertedType::TIMESTAMP_MICROS => Some(1000),
            _ => None,
        },
        is_nested: false,
    };
    Field { column, leaf }
}
