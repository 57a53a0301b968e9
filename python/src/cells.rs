//! From the values of Arrow's arrays to the cells of a table.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrowPrimitiveType, PrimitiveArray};
use arrow_schema::{DataType, TimeUnit};
use futae_trace::Cell;
use std::ops::Range;

/// Nanoseconds of the unit of a type of times.
pub fn unit_ns(values: &DataType) -> Option<u64> {
    match values {
        DataType::Timestamp(unit, _)
        | DataType::Duration(unit)
        | DataType::Time32(unit)
        | DataType::Time64(unit) => Some(match unit {
            TimeUnit::Second => 1_000_000_000,
            TimeUnit::Millisecond => 1_000_000,
            TimeUnit::Microsecond => 1000,
            TimeUnit::Nanosecond => 1,
        }),
        DataType::Dictionary(_, values) => unit_ns(values),
        _ => None,
    }
}

/// Whether [`append`] reads values of this type.
pub fn is_readable(values: &DataType) -> bool {
    match values {
        DataType::Dictionary(_, values) => {
            is_readable(values) && !matches!(**values, DataType::Dictionary(..))
        }
        DataType::Boolean | DataType::Float32 | DataType::Float64 => true,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => true,
        DataType::FixedSizeBinary(_) => true,
        DataType::Timestamp(..) | DataType::Duration(_) => true,
        DataType::Time32(_) | DataType::Time64(_) => true,
        values => values.is_integer(),
    }
}

/// Appends the cells of some rows. Values of other types than [readable](is_readable) ones have none.
pub fn append(array: &dyn Array, rows: Range<usize>, cells: &mut Vec<Cell>) {
    let mut each = |value: &dyn Fn(usize) -> Cell| {
        cells.extend(rows.clone().map(|row| match array.is_null(row) {
            true => Cell::None,
            false => value(row),
        }));
    };
    macro_rules! numbers {
        ($($values:pat => $primitive:ty, $cell:expr);* $(;)?) => {
            match array.data_type() {
                $($values => {
                    let numbers: &PrimitiveArray<$primitive> = array.as_primitive();
                    each(&|row| {
                        let number: <$primitive as ArrowPrimitiveType>::Native = numbers.value(row);
                        $cell(number)
                    });
                })*
                DataType::Boolean => each(&|row| Cell::Whole(i64::from(array.as_boolean().value(row)))),
                DataType::Utf8 => each(&|row| Cell::Text(array.as_string::<i32>().value(row).to_owned())),
                DataType::LargeUtf8 => each(&|row| Cell::Text(array.as_string::<i64>().value(row).to_owned())),
                DataType::Utf8View => each(&|row| Cell::Text(array.as_string_view().value(row).to_owned())),
                DataType::Binary => each(&|row| Cell::of_bytes(array.as_binary::<i32>().value(row))),
                DataType::LargeBinary => each(&|row| Cell::of_bytes(array.as_binary::<i64>().value(row))),
                DataType::BinaryView => each(&|row| Cell::of_bytes(array.as_binary_view().value(row))),
                DataType::FixedSizeBinary(_) => each(&|row| Cell::of_bytes(array.as_fixed_size_binary().value(row))),
                DataType::Dictionary(..) => of_dictionary(array, rows, cells),
                _ => each(&|_| Cell::None),
            }
        };
    }
    numbers! {
        DataType::Int8 => Int8Type, |n| Cell::Whole(i64::from(n));
        DataType::Int16 => Int16Type, |n| Cell::Whole(i64::from(n));
        DataType::Int32 => Int32Type, |n| Cell::Whole(i64::from(n));
        DataType::Int64 => Int64Type, Cell::Whole;
        DataType::UInt8 => UInt8Type, |n| Cell::Natural(u64::from(n));
        DataType::UInt16 => UInt16Type, |n| Cell::Natural(u64::from(n));
        DataType::UInt32 => UInt32Type, |n| Cell::Natural(u64::from(n));
        DataType::UInt64 => UInt64Type, Cell::Natural;
        DataType::Float32 => Float32Type, |n| Cell::Real(f64::from(n));
        DataType::Float64 => Float64Type, Cell::Real;
        DataType::Timestamp(TimeUnit::Second, _) => TimestampSecondType, Cell::Whole;
        DataType::Timestamp(TimeUnit::Millisecond, _) => TimestampMillisecondType, Cell::Whole;
        DataType::Timestamp(TimeUnit::Microsecond, _) => TimestampMicrosecondType, Cell::Whole;
        DataType::Timestamp(TimeUnit::Nanosecond, _) => TimestampNanosecondType, Cell::Whole;
        DataType::Time32(TimeUnit::Second) => Time32SecondType, |n| Cell::Whole(i64::from(n));
        DataType::Time32(TimeUnit::Millisecond) => Time32MillisecondType, |n| Cell::Whole(i64::from(n));
        DataType::Time64(TimeUnit::Microsecond) => Time64MicrosecondType, Cell::Whole;
        DataType::Time64(TimeUnit::Nanosecond) => Time64NanosecondType, Cell::Whole;
        DataType::Duration(TimeUnit::Second) => DurationSecondType, Cell::Whole;
        DataType::Duration(TimeUnit::Millisecond) => DurationMillisecondType, Cell::Whole;
        DataType::Duration(TimeUnit::Microsecond) => DurationMicrosecondType, Cell::Whole;
        DataType::Duration(TimeUnit::Nanosecond) => DurationNanosecondType, Cell::Whole;
    }
}

/// The values that the keys of some rows name.
fn of_dictionary(array: &dyn Array, rows: Range<usize>, cells: &mut Vec<Cell>) {
    let dictionary = array.as_any_dictionary();
    let mut keys = Vec::new();
    append(dictionary.keys(), rows, &mut keys);
    for key in keys {
        let key = match key {
            Cell::Whole(key) => usize::try_from(key).ok(),
            Cell::Natural(key) => usize::try_from(key).ok(),
            _ => None,
        };
        match key.filter(|&key| key < dictionary.values().len()) {
            Some(key) => append(dictionary.values(), key..key + 1, cells),
            None => cells.push(Cell::None),
        }
    }
}
