//! Replacement policies from shared libraries, for the simulator.
//!
//! After [`enable`] a policy string may name a library: `./libmine.so`, or `./libmine.so(depth=2)`. A name with a
//! slash is a path. What the library exports is in `include/futae_policy.h`. Its answers are checked; a wrong one
//! becomes the policy's [`fault`](futae_policy::Policy::fault), with which a simulation ends.

mod foreign;
mod policy;

use foreign::{Functions, State};
use futae_policy::{Argument, External, PolicySpec, RegisteredPolicy, Shape, SpecError, register};
use policy::Plugin;
use std::collections::HashMap;
use std::ffi::CString;
use std::path::Path;
use std::sync::{Arc, Mutex, Once, PoisonError};

/// The C header for those who write a policy.
pub const HEADER: &str = include_str!("../include/futae_policy.h");

/// Has policy strings name shared libraries from now on, in the whole process.
pub fn enable() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| register(Arc::new(Libraries::default())).keep());
}

/// The libraries that are loaded, by their paths.
#[derive(Default)]
struct Libraries(Mutex<HashMap<String, Functions>>);

impl Libraries {
    fn functions(&self, path: &str) -> Result<Functions, String> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(functions) = loaded.get(path) {
            return Ok(*functions);
        }
        if !Path::new(path).is_file() {
            return Err("there is no such file".to_owned());
        }
        let functions = foreign::load(Path::new(path))?;
        loaded.insert(path.to_owned(), functions);
        Ok(functions)
    }
}

impl External for Libraries {
    fn has(&self, name: &str) -> bool {
        name.contains('/')
    }

    fn build(
        &self,
        spec: &PolicySpec,
        shape: &Shape,
    ) -> Result<Box<dyn RegisteredPolicy>, SpecError> {
        let built = || {
            let functions = self.functions(&spec.name)?;
            let arguments = arguments(spec)?;
            let state = State::new(functions, shape.slots, shape.seed, &arguments)?;
            Ok(Plugin::new(&spec.name, state, shape.slots))
        };
        match built() {
            Ok(policy) => Ok(Box::new(policy)),
            Err(problem) => Err(SpecError::External {
                policy: spec.name.clone(),
                problem,
            }),
        }
    }
}

/// What stands in the parentheses, as C has texts.
fn arguments(spec: &PolicySpec) -> Result<Vec<(CString, CString)>, String> {
    let one = |argument: &Argument| match argument {
        Argument::Named(key, value) => {
            let text = |text: &str| {
                CString::new(text).map_err(|_| format!("{key}={value:?} has a zero byte"))
            };
            Ok((text(key)?, text(value)?))
        }
        Argument::Inner(inner) => Err(format!(
            "takes arguments of the form key=value, and {inner} is none"
        )),
    };
    spec.arguments.iter().map(one).collect()
}

/// The example of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
