//! Memory of a [`Columns`] as Python's buffer protocol and Arrow's C data interface describe it.
//!
//! The two structs of Arrow's interface are a stable ABI of some twenty lines. The crates of Arrow would bring their own
//! arrays, schemas and builders into a wheel that needs none of them.

#![expect(
    unsafe_code,
    reason = "pointers of the buffer protocol and of Arrow's C data interface"
)]

use crate::columns::{Columns, Layout};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi::{Py_buffer, PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// `ARROW_FLAG_NULLABLE`.
const NULLABLE: i64 = 2;

/// `struct ArrowSchema` of Arrow's C data interface.
#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray` of Arrow's C data interface.
#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// What an [`ArrowSchema`] or [`ArrowArray`] owns.
struct Owned<T> {
    children: Vec<*mut T>,
    buffers: Vec<*const c_void>,
    /// Owns what `buffers` point to; none for a schema.
    _columns: Option<Arc<Columns>>,
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        for child in self.children.drain(..) {
            // SAFETY: `with` made the pointer of a box, which nobody else frees: a consumer may move a child's contents out, not the child.
            drop(unsafe { Box::from_raw(child) });
        }
    }
}

impl<T> Owned<T> {
    fn with(
        children: Vec<T>,
        buffers: Vec<*const c_void>,
        columns: Option<Arc<Columns>>,
    ) -> Box<Self> {
        let children = children.into_iter().map(|it| Box::into_raw(Box::new(it)));
        Box::new(Self {
            children: children.collect(),
            buffers,
            _columns: columns,
        })
    }
}

macro_rules! released {
    ($name:ident, $release:ident) => {
        /// What a consumer calls when it is done.
        extern "C" fn $release(one: *mut $name) {
            // SAFETY: The interface has the consumer call this once, with a struct that `of` filled in and whose `release` is set.
            let one = unsafe { &mut *one };
            one.release = None;
            // SAFETY: `private_data` is the box of `of`, and with `release` cleared nobody comes here again.
            drop(unsafe { Box::from_raw(one.private_data.cast::<Owned<$name>>()) });
        }

        impl Drop for $name {
            /// A consumer that moved the contents out has cleared `release`.
            fn drop(&mut self) {
                if let Some(release) = self.release {
                    release(self);
                }
            }
        }

        // SAFETY: All that it points to is owned, and nothing but the release changes it.
        unsafe impl Send for $name {}
    };
}

released!(ArrowSchema, release_schema);
released!(ArrowArray, release_array);

impl ArrowSchema {
    fn of(format: &'static CStr, name: &'static CStr, flags: i64, children: Vec<Self>) -> Self {
        let mut owned = Owned::with(children, Vec::new(), None);
        Self {
            format: format.as_ptr(),
            name: name.as_ptr(),
            metadata: null(),
            flags,
            n_children: owned.children.len() as i64,
            children: owned.children.as_mut_ptr(),
            dictionary: null_mut(),
            release: Some(release_schema),
            private_data: Box::into_raw(owned).cast(),
        }
    }

    fn column(layout: &Layout) -> Self {
        let flags = if layout.missing > 0 { NULLABLE } else { 0 };
        Self::of(layout.arrow, layout.name, flags, Vec::new())
    }
}

impl ArrowArray {
    fn of(
        columns: &Arc<Columns>,
        missing: usize,
        buffers: Vec<*const c_void>,
        children: Vec<Self>,
    ) -> Self {
        let mut owned = Owned::with(children, buffers, Some(Arc::clone(columns)));
        Self {
            length: columns.len() as i64,
            null_count: missing as i64,
            offset: 0,
            n_buffers: owned.buffers.len() as i64,
            n_children: owned.children.len() as i64,
            buffers: owned.buffers.as_mut_ptr(),
            children: owned.children.as_mut_ptr(),
            dictionary: null_mut(),
            release: Some(release_array),
            private_data: Box::into_raw(owned).cast(),
        }
    }

    fn column(columns: &Arc<Columns>, layout: &Layout) -> Self {
        let buffers = vec![layout.present, layout.arrow_items];
        Self::of(columns, layout.missing, buffers, Vec::new())
    }
}

/// The schema of one column, or of the struct of all.
pub fn schema<'py>(
    py: Python<'py>,
    columns: &Columns,
    at: Option<usize>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let layouts = columns.layouts();
    let schema = match at {
        Some(at) => ArrowSchema::column(&layouts[at]),
        None => {
            let children = layouts.iter().map(ArrowSchema::column).collect();
            ArrowSchema::of(c"+s", c"", 0, children)
        }
    };
    PyCapsule::new(py, schema, Some(c"arrow_schema".to_owned()))
}

/// The memory of one column, or of the struct of all.
pub fn array<'py>(
    py: Python<'py>,
    columns: &Arc<Columns>,
    at: Option<usize>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let layouts = columns.layouts();
    let column = |layout| ArrowArray::column(columns, layout);
    let array = match at {
        Some(at) => column(&layouts[at]),
        None => ArrowArray::of(
            columns,
            0,
            vec![null()],
            layouts.iter().map(column).collect(),
        ),
    };
    PyCapsule::new(py, array, Some(c"arrow_array".to_owned()))
}

/// One column of a [`Table`](crate::table::Table), which it keeps alive: an object with the buffer protocol.
#[pyclass(frozen, module = "futae")]
pub struct Column {
    columns: Arc<Columns>,
    at: usize,
    /// What the buffers of this column point to.
    shape: [isize; 1],
    strides: [isize; 1],
}

impl Column {
    /// Column `at` of `columns`.
    pub fn new(columns: &Arc<Columns>, at: usize) -> Self {
        let item_bytes = columns.layouts()[at].item_bytes;
        Self {
            columns: Arc::clone(columns),
            at,
            shape: [columns.len() as isize],
            strides: [item_bytes as isize],
        }
    }
}

#[pymethods]
impl Column {
    fn __len__(&self) -> usize {
        self.columns.len()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema(py, &self.columns, Some(self.at))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let array = array(py, &self.columns, Some(self.at))?;
        Ok((schema(py, &self.columns, Some(self.at))?, array))
    }

    // SAFETY: Python calls it with a buffer that may be written.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no buffer to describe"));
        }
        let is_asked = |flag: c_int| flags & flag == flag;
        let column = slf.get();
        let layout = column.columns.layouts()[column.at];
        let (shape, strides) = (&column.shape, &column.strides);
        // SAFETY: `view` is not null, and Python lends it for this call.
        let view = unsafe { &mut *view };
        view.obj = null_mut();
        if is_asked(PyBUF_WRITABLE) {
            return Err(PyBufferError::new_err("a column cannot be written to"));
        }
        view.buf = layout.items.cast_mut();
        view.len = shape[0] * strides[0];
        view.readonly = 1;
        view.itemsize = strides[0];
        view.ndim = 1;
        view.format = if is_asked(PyBUF_FORMAT) {
            layout.python.as_ptr().cast_mut()
        } else {
            null_mut()
        };
        view.shape = if is_asked(PyBUF_ND) {
            shape.as_ptr().cast_mut()
        } else {
            null_mut()
        };
        view.strides = if is_asked(PyBUF_STRIDES) {
            strides.as_ptr().cast_mut()
        } else {
            null_mut()
        };
        view.suboffsets = null_mut();
        view.internal = null_mut();
        // The buffer keeps the column, which keeps the memory, the shape and the strides.
        view.obj = slf.into_any().into_ptr();
        Ok(())
    }
}
