//! Policy strings: `lru`, `2q(k_in=0.25)`, `exclusive(lfu)`.

use std::fmt;
use std::str::FromStr;

/// A policy by name with its parameters, as written on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySpec {
    /// The policy's name in the registry.
    pub name: String,
    /// The arguments in the parentheses.
    pub arguments: Vec<Argument>,
}

/// One argument in a policy string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// `key=value`
    Named(String, String),
    /// A policy inside a policy: `exclusive(lfu)`, or `exclusive(inner=lfu)`.
    Inner(PolicySpec),
}

/// Why a policy string is refused.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpecError {
    /// The string is not of the form `name` or `name(argument, ...)`.
    #[error(
        "policy {text:?}: {problem} (write e.g. \"lru\", \"2q(k_in=0.25)\" or \"exclusive(lfu)\")"
    )]
    Syntax {
        /// What was written.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No policy has this name.
    #[error("unknown policy {name:?}{}; `futae policies` lists all", near(.candidates))]
    UnknownPolicy {
        /// What was written.
        name: String,
        /// Names that look alike.
        candidates: Vec<&'static str>,
    },
    /// The policy has no such parameter.
    #[error("policy {policy:?} has no parameter {key:?}; it has: {known}")]
    UnknownParameter {
        /// The policy.
        policy: String,
        /// What was written.
        key: String,
        /// Its parameters.
        known: String,
    },
    /// The value cannot be used.
    #[error("policy {policy:?}: {key}={value:?} is not {expected}")]
    BadValue {
        /// The policy.
        policy: String,
        /// The parameter.
        key: String,
        /// What was written.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// More slots than the policy can order.
    #[error(
        "policy {policy:?} can order {most} blocks at most, and there are {slots}; take larger blocks or a smaller cache"
    )]
    TooManySlots {
        /// The policy.
        policy: String,
        /// The slots of the level.
        slots: u32,
        /// How many there can be.
        most: u32,
    },
    /// A policy from outside the registry cannot be had, or gave an answer that cannot be followed.
    #[error("policy {policy}: {problem}")]
    External {
        /// The policy.
        policy: String,
        /// What is wrong.
        problem: String,
    },
}

fn near(candidates: &[&str]) -> String {
    if candidates.is_empty() {
        String::new()
    } else {
        format!(" (did you mean {}?)", candidates.join(" or "))
    }
}

impl PolicySpec {
    /// A policy without arguments.
    #[must_use]
    pub fn plain(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            arguments: Vec::new(),
        }
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(key, value) => write!(f, "{key}={value}"),
            Self::Inner(spec) => write!(f, "{spec}"),
        }
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (i, argument) in self.arguments.iter().enumerate() {
            f.write_str(if i == 0 { "(" } else { "," })?;
            write!(f, "{argument}")?;
        }
        if self.arguments.is_empty() {
            Ok(())
        } else {
            f.write_str(")")
        }
    }
}

impl FromStr for PolicySpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        parse(text.trim(), 0).map_err(|problem| SpecError::Syntax {
            text: text.chars().take(200).collect(),
            problem,
        })
    }
}

/// Whether a name is a file path: names in the registry contain no slash.
pub(crate) fn is_path(name: &str) -> bool {
    name.contains('/')
}

const NESTING_LIMIT: usize = 8;

fn parse(text: &str, depth: usize) -> Result<PolicySpec, &'static str> {
    if depth > NESTING_LIMIT {
        return Err("nested too deep");
    }
    let (name, inside) = match text.find('(') {
        None => (text, None),
        Some(at) => {
            let inside = text[at + 1..]
                .strip_suffix(')')
                .ok_or("a parenthesis is not closed")?;
            (text[..at].trim(), Some(inside))
        }
    };
    if is_path(name) {
        if name.contains(['(', ')', ',', '=']) {
            return Err("the path of a plug-in has no parenthesis, comma or '='");
        }
        return with_arguments(PolicySpec::plain(name), inside, depth);
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name.is_empty() || !name.chars().all(legal) {
        return Err("a name has letters, digits and '-' only");
    }
    with_arguments(PolicySpec::plain(&name.to_ascii_lowercase()), inside, depth)
}

fn with_arguments(
    mut spec: PolicySpec,
    inside: Option<&str>,
    depth: usize,
) -> Result<PolicySpec, &'static str> {
    for part in split_arguments(inside.unwrap_or(""))? {
        let part = part.trim();
        if let Some(Argument::Named(_, value)) = spec.arguments.last_mut()
            && goes_on(value, part)
        {
            value.push(',');
            value.push_str(part);
            continue;
        }
        spec.arguments.push(parse_argument(part, depth)?);
    }
    Ok(spec)
}

/// Whether a part continues the list before it: `weights=near:2,far:1`.
fn goes_on(list: &str, part: &str) -> bool {
    list.contains(':') && part.contains(':') && !part.contains(['=', '('])
}

fn parse_argument(part: &str, depth: usize) -> Result<Argument, &'static str> {
    let equals = part.find('=');
    match (equals, part.find('(')) {
        (Some(at), paren) if paren.is_none_or(|paren| at < paren) => {
            let (key, value) = (part[..at].trim(), part[at + 1..].trim());
            if key.is_empty() || value.is_empty() {
                return Err("an argument is key=value");
            }
            if key == "inner" {
                return parse(value, depth + 1).map(Argument::Inner);
            }
            Ok(Argument::Named(key.to_owned(), value.to_owned()))
        }
        _ => parse(part, depth + 1).map(Argument::Inner),
    }
}

/// Splits a comma-separated list of policies: `lru,2q(k_in=0.3,k_out=1)` has two.
#[must_use]
pub fn split_policies(text: &str) -> Vec<&str> {
    let mut depth = 0i64;
    let outside = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    };
    text.split(outside).collect()
}

/// Splits at commas outside of parentheses.
fn split_arguments(text: &str) -> Result<Vec<&str>, &'static str> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let (mut parts, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1).ok_or("a parenthesis too many")?,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err("a parenthesis is not closed");
    }
    parts.push(&text[start..]);
    Ok(parts)
}

/// The arguments of one policy while it is built. Each parameter is taken once, by name, with its
/// default; remaining ones are refused at the end.
#[derive(Debug)]
pub struct Arguments {
    policy: String,
    left: Vec<Argument>,
    asked: Vec<&'static str>,
}

impl Arguments {
    /// The arguments of `spec`.
    #[must_use]
    pub fn new(spec: &PolicySpec) -> Self {
        Self {
            policy: spec.name.clone(),
            left: spec.arguments.clone(),
            asked: Vec::new(),
        }
    }

    /// The parsed parameter `key`, if given; an error says what it must be, as in `expected`.
    pub fn take<T: FromStr>(
        &mut self,
        key: &'static str,
        expected: &str,
        valid: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, SpecError> {
        self.asked.push(key);
        let at = self
            .left
            .iter()
            .position(|a| matches!(a, Argument::Named(k, _) if k == key));
        let Some(Argument::Named(_, value)) = at.map(|at| self.left.remove(at)) else {
            return Ok(None);
        };
        match value.parse::<T>() {
            Ok(parsed) if valid(&parsed) => Ok(Some(parsed)),
            _ => Err(SpecError::BadValue {
                policy: self.policy.clone(),
                key: key.to_owned(),
                value,
                expected: expected.to_owned(),
            }),
        }
    }

    /// A fraction from 0 to 1, inclusive.
    pub fn share(&mut self, key: &'static str, default: f64) -> Result<f64, SpecError> {
        let value = self.take(key, "a share between 0 and 1", |v: &f64| {
            (0.0..=1.0).contains(v)
        })?;
        Ok(value.unwrap_or(default))
    }

    /// A whole number of at least `least`.
    pub fn count(&mut self, key: &'static str, default: u64, least: u64) -> Result<u64, SpecError> {
        let expected = format!("a whole number of at least {least}");
        Ok(self
            .take(key, &expected, |v: &u64| *v >= least)?
            .unwrap_or(default))
    }

    /// The inner policy, if given.
    pub fn inner(&mut self) -> Option<PolicySpec> {
        let at = self
            .left
            .iter()
            .position(|a| matches!(a, Argument::Inner(_)))?;
        match self.left.remove(at) {
            Argument::Inner(spec) => Some(spec),
            Argument::Named(..) => None,
        }
    }

    /// Refuses parameters that no `take` has asked for.
    pub fn finish(self) -> Result<(), SpecError> {
        let Some(argument) = self.left.first() else {
            return Ok(());
        };
        let key = match argument {
            Argument::Named(key, _) => key.clone(),
            Argument::Inner(spec) => spec.to_string(),
        };
        let known = if self.asked.is_empty() {
            "none".to_owned()
        } else {
            self.asked.join(", ")
        };
        Err(SpecError::UnknownParameter {
            policy: self.policy,
            key,
            known,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn strings_are_read_as_written() {
        for text in [
            "lru",
            "2q(k_in=0.25,k_out=0.5)",
            "exclusive(2q(k_in=0.3))",
            "a(b,c=d)",
        ] {
            assert_eq!(text.parse::<PolicySpec>().expect("valid").to_string(), text);
        }
        let inner = "directory(inner=2q(k_in=0.3), max_protected=0.5)".parse::<PolicySpec>();
        let inner = inner.expect("valid").to_string();
        assert_eq!(inner, "directory(2q(k_in=0.3),max_protected=0.5)");
        assert_eq!(" LRU ".parse::<PolicySpec>(), Ok(PolicySpec::plain("lru")));
    }

    #[test]
    fn commas_inside_parentheses_do_not_separate_policies() {
        let several = split_policies("lru,2q(a=1,b=2),fifo");
        assert_eq!(several, ["lru", "2q(a=1,b=2)", "fifo"]);
    }

    #[test]
    fn malformed_strings_are_refused() {
        for text in [
            "", "(", "lru(", "lru)", "lru(a=)", "lru(=1)", "l ru", "a(b(c)", "a(b))", "a(,)",
        ] {
            assert!(text.parse::<PolicySpec>().is_err(), "{text:?}");
        }
        assert!("a(".repeat(1000).parse::<PolicySpec>().is_err());
    }

    #[test]
    fn leftover_and_bad_arguments_name_the_parameter() {
        let spec: PolicySpec = "2q(k_in=2,depth=1)".parse().expect("valid");
        let mut arguments = Arguments::new(&spec);
        let error = arguments.share("k_in", 0.25).expect_err("2 is no share");
        assert!(error.to_string().contains("k_in=\"2\""), "{error}");
        let error = arguments.finish().expect_err("depth is unknown");
        assert!(
            error.to_string().contains("depth") && error.to_string().contains("k_in"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn no_string_panics(text in ".{0,80}") {
            let _ = text.parse::<PolicySpec>();
        }
    }
}
