//! A cache that is told to go on with another policy.

use futae_engine::Engine;
use futae_policy::{Argument, Kind, PolicySpec, Trait};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The key of the parameter that names classes of stores.
const CLASSES: &str = "classes";

/// The order `policy`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyOrder {
    /// The new policy.
    pub policy: String,
    /// The export whose cache is meant; none: the only cache.
    pub export: Option<String>,
}

/// What the program around a cache has to say about its policies.
#[derive(Clone, Copy, Debug)]
pub struct PolicyTerms<'a> {
    /// Why the cache does not hear of what is evicted above it, and the way out; none if it does.
    pub no_evictions: Option<&'a str>,
    /// Why requests do not come as the application makes them, and the way out; none if they do.
    pub no_requests: Option<&'a str>,
    /// Have a policy that can keep what it serves do so, unless its string decides on that.
    pub keeps_served: bool,
}

/// Has a cache go on with another policy; the answer to the order. Contents stay.
///
/// # Errors
///
/// A sentence that says what to do: there is no such policy, or this cache cannot run it.
pub fn change_policy(
    engine: &Arc<Engine>,
    policy: &str,
    terms: &PolicyTerms<'_>,
) -> Result<Value, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("policy {policy}: {error}");
    let mut spec: PolicySpec = policy
        .parse()
        .map_err(|error: futae_policy::SpecError| wrong(&error))?;
    if terms.keeps_served {
        spec.keep_served();
    }
    name_classes(&mut spec, &engine.class_names()).map_err(|error| wrong(&error))?;
    fits(&spec, engine, terms).map_err(|error| wrong(&error))?;
    let before = engine.policy();
    let changed = engine.change_policy(&spec).map_err(|error| wrong(&error))?;
    Ok(json!({
        "policy": spec.to_string(),
        "before": before.to_string(),
        "changed": changed,
        "resident_blocks": engine.status().resident_blocks,
    }))
}

/// Classes of stores got their numbers when the cache was made.
fn name_classes(spec: &mut PolicySpec, names: &[String]) -> Result<(), String> {
    let Some(policy) = spec.find_mut(Trait::WeighsClasses) else {
        return Ok(());
    };
    let given = policy.arguments.iter().find_map(|argument| match argument {
        Argument::Named(key, value) if key == CLASSES => Some(value.as_str()),
        _ => None,
    });
    let known = names.join("+");
    match given {
        Some(given) if given == known => {}
        Some(_) if names.is_empty() => {
            return Err("the stores of this cache were given no classes of their own".to_owned());
        }
        Some(_) => {
            return Err(format!(
                "the classes of the stores of this cache are {CLASSES}={known}; write them so, or leave them out"
            ));
        }
        None if names.is_empty() => {}
        None => {
            let argument = Argument::Named(CLASSES.to_owned(), known);
            policy.arguments.push(argument);
        }
    }
    Ok(())
}

/// Refuses a policy that keeps what caches above evict, for a cache that hears of none.
///
/// # Errors
///
/// A sentence that ends with `why`.
pub fn lives_without_evictions(spec: &PolicySpec, why: &str) -> Result<(), String> {
    match spec.lives_on_demotions() {
        true => Err(format!("it keeps what caches above evict, and {why}")),
        false => Ok(()),
    }
}

fn fits(spec: &PolicySpec, engine: &Engine, terms: &PolicyTerms<'_>) -> Result<(), String> {
    if let Some(why) = terms.no_evictions {
        lives_without_evictions(spec, why)?;
    }
    if let (true, Some(why)) = (spec.counts_requests(), terms.no_requests) {
        return Err(format!("it counts requests of applications, and {why}"));
    }
    if !engine.can_hear_for(spec) {
        return Err(format!(
            "it decides by the order of hits, and the kernel, which holds the blocks here, tells only which pages were hit; \
             choose {}, or mount with --hit-order approximate",
            Kind::names_with_any(&[Trait::TakesMarks, Trait::TakesCounts])
        ));
    }
    let volumes = engine.volume_count();
    if spec.has(Trait::ChoosesByNumber) && volumes != 1 {
        return Err(format!(
            "it keeps blocks of a single volume by their numbers, and this cache has {volumes}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::name_classes;
    use futae_policy::PolicySpec;

    #[test]
    fn classes_are_those_that_the_stores_have() {
        let named = |policy: &str, names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            let mut spec: PolicySpec = policy.parse().expect("valid");
            name_classes(&mut spec, &names).map(|()| spec.to_string())
        };
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(named("lru", &["a"]), ok("lru"));
        assert_eq!(named("cost", &[]), ok("cost"));
        assert_eq!(named("cost", &["a", "b"]), ok("cost(classes=a+b)"));
        let inner = named("directory(cost)", &["a"]);
        assert_eq!(inner, ok("directory(cost(classes=a))"));
        let same = named("cost(classes=a+b)", &["a", "b"]);
        assert_eq!(same, ok("cost(classes=a+b)"));
        let other = named("cost(classes=b+a)", &["a", "b"]).expect_err("other numbers");
        assert!(other.contains("classes=a+b"), "{other}");
        assert!(named("cost(classes=a)", &[]).is_err());
    }
}
