//! Replacement policies from shared libraries, for the simulator.
//!
//! After [`enable`] a policy string may name a library: `./libmine.so`, or `./libmine.so(depth=2)`. A name with a
//! slash is a path. What the library exports is in `include/futae_policy.h`. Its answers are checked; a wrong one
//! becomes the policy's [`fault`](futae_policy::Policy::fault), with which a simulation ends.

mod foreign;

use foreign::{Functions, State};
use futae_policy::{Argument, Built, Checked, External, PolicySpec, Shape, SpecError, register};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};

/// The C header for those who write a policy.
pub const HEADER: &str = include_str!("../include/futae_policy.h");

/// Has policy strings name shared libraries from now on, in the whole process.
pub fn enable() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| register(Arc::new(Libraries::default())).keep());
}

/// The libraries that are loaded, by where they are: the directory that a path begins at may change.
#[derive(Default)]
struct Libraries(Mutex<HashMap<PathBuf, Loaded>>);

/// A library, and which file it is of.
struct Loaded {
    functions: Functions,
    file: Identity,
}

/// By what a file differs from another that replaces it: device, inode, length, and when it was last written to.
type Identity = (u64, u64, u64, i64, i64);

impl Libraries {
    fn functions(&self, path: &str) -> Result<Functions, String> {
        let absent = || "there is no such file".to_owned();
        let path = Path::new(path).canonicalize().map_err(|_| absent())?;
        let found = path.metadata().ok().filter(Metadata::is_file);
        let found = found.ok_or_else(absent)?;
        let file = (
            found.dev(),
            found.ino(),
            found.len(),
            found.mtime(),
            found.mtime_nsec(),
        );
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match loaded.get(&path) {
            Some(known) if known.file == file => return Ok(known.functions),
            // The loader gives the old one by this name, and results would be of that.
            Some(_) => {
                let problem = "was replaced after this process had loaded it, and a process loads a library once: start a new \
                               process, or give the new library a name of its own";
                return Err(problem.to_owned());
            }
            None => {}
        }
        let functions = foreign::load(&path)?;
        loaded.insert(path, Loaded { functions, file });
        Ok(functions)
    }
}

impl External for Libraries {
    fn has(&self, name: &str) -> bool {
        name.contains('/')
    }

    fn build(&self, spec: &PolicySpec, shape: &Shape) -> Result<Built, SpecError> {
        let built = || {
            let functions = self.functions(&spec.name)?;
            let arguments = arguments(spec)?;
            let state = State::new(functions, shape.slots, shape.seed, &arguments)?;
            Ok(Checked::new(&spec.name, Box::new(state), shape.slots))
        };
        match built() {
            Ok(policy) => Ok(Built::Checked(policy)),
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
