//! The native half of the Python package `futae`: it takes plain arguments and hands back the JSON that the
//! command line prints. `futae/__init__.py` makes frames of it.

mod arrow;
mod ask;
mod cells;
mod columns;
mod curve;
mod error;
mod locality;
mod memory;
mod numbers;
mod patience;
mod policy;
mod reading;
mod study;
mod sweep;
mod table;
mod trace;

use error::refused;
use pyo3::prelude::*;

/// The cards of all policies, as JSON: what `futae policies --json` prints.
#[pyfunction]
fn policies() -> PyResult<String> {
    serde_json::to_string(&futae_policy::cards()).map_err(refused)
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", module.py().get_type::<error::Error>())?;
    module.add_function(wrap_pyfunction!(policies, module)?)?;
    module.add_function(wrap_pyfunction!(ask::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(curve::mrc, module)?)?;
    module.add_function(wrap_pyfunction!(locality::locality, module)?)?;
    module.add_class::<sweep::Sweep>()?;
    module.add_class::<trace::Reader>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<arrow::Rows>()?;
    module.add_class::<memory::Column>()?;
    patience::end_with_the_interpreter(module)
}
