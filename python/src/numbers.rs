//! Arrays of block numbers as traces, read where they are by Python's buffer protocol.

use crate::error::refused;
use futae_trace::{Request, RequestReader, TraceError, TraceErrorKind};
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

/// An array that is gone through. Python's lock is taken for a batch of numbers at a time.
pub struct NumberReader {
    numbers: Numbers,
    length: usize,
    next: usize,
    block_bytes: u64,
}

impl NumberReader {
    /// Opens an array. An error if it is none of whole numbers in one piece, or empty.
    pub fn open(array: &Bound<'_, PyAny>, block_bytes: u64) -> PyResult<Self> {
        let numbers = Numbers::of(array).ok_or_else(|| {
            refused("an array of block numbers has whole numbers of 8 to 64 bits in the machine's order of bytes")
        })?;
        if !numbers.is_flat(array.py()) {
            return Err(refused(
                "an array of block numbers has one dimension and lies in one piece: give numpy.ascontiguousarray(array.ravel())",
            ));
        }
        let length = array.len()?;
        if length == 0 {
            return Err(refused(
                "an array of block numbers is empty: there is nothing to simulate",
            ));
        }
        Ok(Self {
            numbers,
            length,
            next: 0,
            block_bytes,
        })
    }

    /// Goes back to the first number.
    pub fn rewind(&mut self) {
        self.next = 0;
    }

    /// How many numbers there are.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Appends the next numbers to `out`, at most `limit`. An error at one below 0, if it is the next.
    pub fn read(&mut self, out: &mut Vec<u64>, limit: usize) -> Result<(), TraceError> {
        let before = out.len();
        let limit = limit.min(self.length - self.next);
        Python::attach(|py| self.numbers.append(py, self.next, limit, out));
        let got = out.len() - before;
        self.next += got;
        match got == 0 && limit > 0 {
            true => Err(self.below_zero()),
            false => Ok(()),
        }
    }

    /// A reader that tells the fraction done, from 0 to 1.
    pub fn telling<'a>(self, tell: impl Fn(f64) + 'a) -> Telling<'a> {
        Telling {
            reader: self,
            tell: Box::new(tell),
        }
    }

    fn below_zero(&self) -> TraceError {
        let text = format!(
            "number {} of the array is below 0, which is no block",
            self.next
        );
        TraceError {
            path: NAME.into(),
            at: None,
            kind: TraceErrorKind::Table(text),
        }
    }
}

/// What results and errors call an array.
pub const NAME: &str = "array";

/// A reader of an array that tells how far it is.
pub struct Telling<'a> {
    reader: NumberReader,
    tell: Box<dyn Fn(f64) + 'a>,
}

impl Iterator for Telling<'_> {
    type Item = Result<Request, TraceError>;

    /// All comes by `read_starts`, but an error.
    fn next(&mut self) -> Option<Self::Item> {
        let reader = &self.reader;
        (reader.next < reader.length).then(|| Err(reader.below_zero()))
    }
}

impl RequestReader for Telling<'_> {
    fn path(&self) -> &Path {
        Path::new(NAME)
    }

    fn read_starts(&mut self, starts: &mut Vec<u64>, limit: usize) -> Option<u64> {
        let before = starts.len();
        // `next` has the error.
        self.reader.read(starts, limit).ok()?;
        (self.tell)(self.reader.next as f64 / self.reader.length as f64);
        (starts.len() > before).then_some(self.reader.block_bytes)
    }
}
