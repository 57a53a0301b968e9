//! One replacement policy per file. Each file opens with its card: source, picture, transitions,
//! parameters, deviations, cost. It closes with a plain reference model of the published procedure,
//! with which the policy is compared access by access. The registry lists the files.

macro_rules! modules {
    ($($module:ident = $name:literal $([$($trait:ident),*])?),* $(,)?) => {
        $(pub mod $module;)*
    };
}

crate::registry::registered!(modules);
