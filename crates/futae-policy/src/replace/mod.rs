//! One replacement policy a file. Each opens with its card: source, picture, transitions,
//! parameters, deviations, cost; and closes with a plain reference model of the published
//! procedure, to which it is held access by access. The registry lists the files.

macro_rules! modules {
    ($($module:ident = $name:literal $([$($trait:ident),*])?),* $(,)?) => {
        $(pub mod $module;)*
    };
}

crate::registry::registered!(modules);
