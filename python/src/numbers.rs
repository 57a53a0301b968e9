//! Arrays of block numbers as traces, read where they are by Python's buffer protocol.

use crate::refused;
use futae_trace::{Request, RequestReader, TraceError};
use pyo3::buffer::{PyBuffer, ReadOnlyCell};
use pyo3::prelude::*;
use std::path::Path;

macro_rules! numbers {
    ($($variant:ident = $number:ty),*) => {
        /// An array of whole numbers.
        pub enum Numbers { $(
            #[doc = stringify!($number)]
            $variant(PyBuffer<$number>)
        ),* }

        impl Numbers {
            fn of(array: &Bound<'_, PyAny>) -> Option<Self> {
                $(if let Ok(buffer) = PyBuffer::<$number>::get(array) {
                    return Some(Self::$variant(buffer));
                })*
                None
            }

            fn is_flat(&self, py: Python<'_>) -> bool {
                match self {
                    $(Self::$variant(buffer) => buffer.dimensions() == 1 && buffer.as_slice(py).is_some()),*
                }
            }

            /// Appends the numbers from `begin` on to `out`, `limit` at most; how many were good.
            fn append(&self, py: Python<'_>, begin: usize, limit: usize, out: &mut Vec<u64>) {
                match self {
                    $(Self::$variant(buffer) => append(buffer.as_slice(py).unwrap_or(&[]), begin, limit, out)),*
                }
            }
        }
    };
}

numbers!(
    U64 = u64,
    I64 = i64,
    U32 = u32,
    I32 = i32,
    U16 = u16,
    I16 = i16,
    U8 = u8,
    I8 = i8
);

/// Up to the first number below zero.
fn append<T: pyo3::buffer::Element + TryInto<u64>>(
    cells: &[ReadOnlyCell<T>],
    begin: usize,
    limit: usize,
    out: &mut Vec<u64>,
) {
    let cells = cells.iter().skip(begin).take(limit);
    out.extend(cells.map_while(|cell| cell.get().try_into().ok()));
}

/// An array that is gone through.
pub struct NumberReader<'py> {
    py: Python<'py>,
    numbers: Numbers,
    next: usize,
    block_bytes: u64,
    /// What a signal raised meanwhile.
    raised: Option<PyErr>,
}

impl<'py> NumberReader<'py> {
    /// Opens an array. An error if it is none of whole numbers in one piece.
    pub fn open(array: &Bound<'py, PyAny>, block_bytes: u64) -> PyResult<Self> {
        let numbers = Numbers::of(array).ok_or_else(|| {
            refused("an array of block numbers has whole numbers of 8 to 64 bits in the machine's order of bytes")
        })?;
        if !numbers.is_flat(array.py()) {
            return Err(refused(
                "an array of block numbers has one dimension and lies in one piece: give numpy.ascontiguousarray(array.ravel())",
            ));
        }
        Ok(Self {
            py: array.py(),
            numbers,
            next: 0,
            block_bytes,
            raised: None,
        })
    }

    /// An error if the array was not gone through to its end, which has so many numbers.
    pub fn end(mut self, length: usize) -> PyResult<()> {
        match self.raised.take() {
            Some(error) => Err(error),
            None if self.next < length => Err(refused(format!(
                "number {} of the array is below 0, which is no block",
                self.next
            ))),
            None => Ok(()),
        }
    }
}

impl Iterator for NumberReader<'_> {
    type Item = Result<Request, TraceError>;

    /// All comes by `read_starts`.
    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}

impl RequestReader for NumberReader<'_> {
    fn path(&self) -> &Path {
        Path::new("array")
    }

    fn read_starts(&mut self, starts: &mut Vec<u64>, limit: usize) -> Option<u64> {
        let before = starts.len();
        self.numbers.append(self.py, self.next, limit, starts);
        let got = starts.len() - before;
        self.next += got;
        if let Err(error) = self.py.check_signals() {
            self.raised = Some(error);
            return None;
        }
        (got > 0).then_some(self.block_bytes)
    }
}
