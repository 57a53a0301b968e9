//! What goes wrong by what a caller asked for, and by what is in a trace.

use pyo3::PyErr;

pyo3::create_exception!(
    futae,
    Error,
    pyo3::exceptions::PyValueError,
    "What was asked for is wrong, or a trace cannot be read. The message is that of the command line."
);

/// The exception with this message.
pub fn refused(message: impl ToString) -> PyErr {
    Error::new_err(message.to_string())
}
