//! Policies from outside the registry: plug-ins, and policies written in another language.
//!
//! A program that supports them registers their sources. They are for simulations: a program
//! without registered sources refuses their names, so no live cache runs foreign code.

use crate::{Checked, PolicySpec, RegisteredPolicy, Shape, SpecError};
use std::sync::{Arc, PoisonError, RwLock};

/// A source of policies outside the registry.
pub trait External: Send + Sync {
    /// Whether this source has a policy of this name.
    fn has(&self, name: &str) -> bool;
    /// Builds a policy. Called only for names that the source [`has`](Self::has).
    fn build(&self, spec: &PolicySpec, shape: &Shape) -> Result<Built, SpecError>;
}

/// A policy from a source.
pub enum Built {
    /// A policy of any type, which is called for every request.
    Any(Box<dyn RegisteredPolicy>),
    /// A policy that only orders slots, of a type that the simulator's inner loop knows.
    Checked(Checked),
}

/// The sources with their numbers; the latest one is asked first.
static SOURCES: RwLock<Vec<(u64, Arc<dyn External>)>> = RwLock::new(Vec::new());

/// Registers a source while this value lives.
#[derive(Debug)]
pub struct Registration(u64);

/// Adds a source of policies, for the whole process.
#[must_use]
pub fn register(source: Arc<dyn External>) -> Registration {
    let mut sources = SOURCES.write().unwrap_or_else(PoisonError::into_inner);
    let number = sources.last().map_or(0, |last| last.0 + 1);
    sources.push((number, source));
    Registration(number)
}

impl Registration {
    /// Keeps the source until the process ends.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut sources = SOURCES.write().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|source| source.0 != self.0);
    }
}

/// Builds a policy from any source; `None` if no source has it.
pub(crate) fn build(spec: &PolicySpec, shape: &Shape) -> Option<Result<Built, SpecError>> {
    let source = {
        let sources = SOURCES.read().unwrap_or_else(PoisonError::into_inner);
        let all = sources.iter().rev().map(|source| &source.1);
        all.into_iter()
            .find(|source| source.has(&spec.name))
            .cloned()
    };
    source.map(|source| source.build(spec, shape))
}

/// The error for a name that looks like a plug-in's if plug-ins are not supported.
pub(crate) fn refused(name: &str) -> SpecError {
    SpecError::External {
        policy: name.chars().take(200).collect(),
        problem: "plug-ins are for simulations (futae sim, sweep and mrc), and are not loaded here"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    /// Provides an existing policy under another name.
    struct Alias(&'static str);

    impl External for Alias {
        fn has(&self, name: &str) -> bool {
            name == self.0
        }
        fn build(&self, _: &PolicySpec, shape: &Shape) -> Result<Built, SpecError> {
            build(&PolicySpec::of(crate::Kind::lru), shape).map(Built::Any)
        }
    }

    #[test]
    fn a_source_is_asked_while_it_is_registered_and_inside_other_policies() {
        let shape = Shape { slots: 4, seed: 1 };
        let spec: PolicySpec = "exclusive(./Libtest_alias.so)".parse().expect("valid");
        assert_eq!(spec.to_string(), "exclusive(./Libtest_alias.so)");
        let refused = |spec: &PolicySpec| {
            let error = build(spec, &shape).map(drop).expect_err("no source");
            assert!(error.to_string().contains("./Libtest_alias.so"), "{error}");
        };
        refused(&spec);
        let registration = register(Arc::new(Alias("./Libtest_alias.so")));
        build(&spec, &shape).map(drop).expect("a source has it");
        drop(registration);
        refused(&spec);
    }
}
