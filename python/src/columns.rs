//! The requests of a trace in columns.

use futae_trace::{Request, RequestKind};
use std::ffi::{CStr, c_void};

/// The requests of a trace, one `Vec` a field.
#[derive(Default)]
pub struct Columns {
    /// -1 for a request without a time.
    time_us: Vec<i64>,
    /// A bit for each request, set if it has a time, as Arrow wants it.
    timed: Vec<u8>,
    untimed: usize,
    /// Whether requests are for objects with sizes, whose numbers stand in place of offsets.
    of_objects: bool,
    offset_bytes: Vec<u64>,
    length_bytes: Vec<u64>,
    volume: Vec<u16>,
    guest: Vec<u16>,
    /// A byte for each request, as NumPy wants it.
    is_write: Vec<u8>,
    /// The same in bits, as Arrow wants it: no memory can be both.
    written: Vec<u8>,
    /// Lifetimes in seconds, 0 for a request without one; empty if the trace has none.
    ttl_s: Vec<u32>,
    /// Recorded latencies in microseconds, 0 for one that is not known; empty if the trace has none.
    latency_us: Vec<u32>,
}

/// What a column is called, and where its numbers are. Valid while the `Columns` live, which nothing changes any more.
#[derive(Clone, Copy)]
pub struct Layout {
    pub name: &'static CStr,
    /// The type in the format strings of Arrow's C data interface.
    pub arrow: &'static CStr,
    /// The type in the format strings of Python's module `struct`.
    pub python: &'static CStr,
    pub item_bytes: usize,
    pub items: *const c_void,
    /// What Arrow reads: the same, except for bits.
    pub arrow_items: *const c_void,
    /// Bits that are clear where an item is missing, and how many are.
    pub present: *const c_void,
    pub missing: usize,
}

/// Sets bit `at` of `bits`, which grow as needed.
fn put_bit(bits: &mut Vec<u8>, at: usize, is_set: bool) {
    if at.is_multiple_of(8) {
        bits.push(0);
    }
    if let Some(last) = bits.last_mut() {
        *last |= u8::from(is_set) << (at % 8);
    }
}

impl Columns {
    /// No requests yet.
    pub fn new(of_objects: bool) -> Self {
        Self {
            of_objects,
            ..Self::default()
        }
    }

    /// Appends a request.
    pub fn push(&mut self, request: &Request) {
        let at = self.len();
        let time = request.time_us.and_then(|time| i64::try_from(time).ok());
        let is_write = request.kind == RequestKind::Write;
        self.time_us.push(time.unwrap_or(-1));
        put_bit(&mut self.timed, at, time.is_some());
        self.untimed += usize::from(time.is_none());
        self.offset_bytes.push(if self.of_objects {
            request.object()
        } else {
            request.offset_bytes
        });
        self.length_bytes.push(request.length_bytes);
        self.volume.push(request.volume.0);
        self.guest.push(request.guest);
        self.is_write.push(u8::from(is_write));
        put_bit(&mut self.written, at, is_write);
    }

    /// Appends the lifetimes and latencies of the requests that were pushed last.
    pub fn note(&mut self, lives: &[u32], latencies: &[u32]) {
        let count = self.len();
        for (column, more) in [(&mut self.ttl_s, lives), (&mut self.latency_us, latencies)] {
            if !more.is_empty() || !column.is_empty() {
                column.resize(count - more.len(), 0);
                column.extend(more);
            }
        }
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.offset_bytes.len()
    }

    /// All columns: in the order of `_FIELDS` in `_traces.py`, then those that only some traces have.
    pub fn layouts(&self) -> Vec<Layout> {
        fn plain<T>(
            name: &'static CStr,
            arrow: &'static CStr,
            python: &'static CStr,
            items: &[T],
        ) -> Layout {
            Layout {
                name,
                arrow,
                python,
                item_bytes: size_of::<T>(),
                items: items.as_ptr().cast(),
                arrow_items: items.as_ptr().cast(),
                present: std::ptr::null(),
                missing: 0,
            }
        }
        let mut time = plain(c"time_us", c"l", c"q", &self.time_us);
        if self.untimed > 0 {
            time.present = self.timed.as_ptr().cast();
            time.missing = self.untimed;
        }
        let mut is_write = plain(c"is_write", c"b", c"?", &self.is_write);
        is_write.arrow_items = self.written.as_ptr().cast();
        let place = if self.of_objects {
            c"key"
        } else {
            c"offset_bytes"
        };
        let mut all = vec![
            time,
            plain(place, c"L", c"Q", &self.offset_bytes),
            plain(c"length_bytes", c"L", c"Q", &self.length_bytes),
            plain(c"volume", c"S", c"H", &self.volume),
            plain(c"guest", c"S", c"H", &self.guest),
            is_write,
        ];
        let some = [(c"ttl_s", &self.ttl_s), (c"latency_us", &self.latency_us)];
        for (name, numbers) in some {
            if !numbers.is_empty() {
                all.push(plain(name, c"I", c"I", numbers));
            }
        }
        all
    }
}
