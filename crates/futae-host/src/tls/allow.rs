//! Access rules: which client may open which export, by the names in its certificate, or
//! by that of its pre-shared key.

use crate::HostError;
use std::str::FromStr;

/// Matches every export, or every client that has proved who it is.
const ALL: &str = "*";

/// One rule: `EXPORT=NAME`. If any rules exist, a client does not see exports that no rule grants
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsAllow {
    /// The export; `*` matches all.
    pub export: String,
    /// A name in the client's certificate, or of its pre-shared key; `*` matches every certificate
    /// signed by a known authority, and every key.
    pub name: String,
}

impl TlsAllow {
    /// Whether this rule grants an export to a client with these names.
    #[must_use]
    pub fn gives(&self, export: &str, names: &[String]) -> bool {
        (self.export == ALL || self.export == export)
            && (self.name == ALL || names.contains(&self.name))
    }

    /// Whether the rule applies to every export.
    #[must_use]
    pub fn is_for_all_exports(&self) -> bool {
        self.export == ALL
    }
}

impl FromStr for TlsAllow {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let parts = text.split_once('=');
        let parts = parts.filter(|(export, name)| !export.is_empty() && !name.is_empty());
        let (export, name) = parts.ok_or_else(|| HostError::AllowRule {
            text: text.to_owned(),
        })?;
        Ok(Self {
            export: export.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// Warnings about rules that look like mistakes for these exports; the rules are still in force.
pub(crate) fn doubts(rules: &[TlsAllow], exports: &[&str]) -> Vec<String> {
    let named = |export: &str| rules.iter().any(|rule| rule.export == export);
    if rules.is_empty() {
        return Vec::new();
    }
    let unknown = rules
        .iter()
        .filter(|rule| !rule.is_for_all_exports() && !exports.contains(&&*rule.export))
        .map(|rule| {
            let TlsAllow { export, name } = rule;
            format!("--tls-allow {export}={name}: no export has this name")
        });
    let closed = exports
        .iter()
        .filter(|export| !named(export) && !named(ALL))
        .map(|export| format!("export {export}: no --tls-allow gives it to any client over TLS"));
    unknown.chain(closed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_gives_what_it_names() {
        let rule = |text: &str| text.parse::<TlsAllow>().expect("valid");
        let names = ["vm1".to_owned(), "vm1.example".to_owned()];
        for (text, export, given) in [
            ("disk=vm1", "disk", true),
            ("disk=vm1.example", "disk", true),
            ("disk=vm", "disk", false),
            ("disk=vm1", "other", false),
            ("*=vm1", "other", true),
            ("*=vm2", "other", false),
            ("disk=*", "disk", true),
            ("disk=*", "other", false),
        ] {
            assert_eq!(rule(text).gives(export, &names), given, "{text} {export}");
        }
        assert!(rule("disk=*").gives("disk", &[]));
        assert!(!rule("disk=vm1").gives("disk", &[]));
        let rules = [rule("disk=vm1"), rule("dsk=vm2")];
        let said = [
            "--tls-allow dsk=vm2: no export has this name",
            "export other: no --tls-allow gives it to any client over TLS",
        ];
        assert_eq!(doubts(&rules, &["disk", "other"]), said);
        assert_eq!(doubts(&[rule("*=vm1")], &["disk", "other"]), [""; 0]);
        assert_eq!(doubts(&[], &["disk", "other"]), [""; 0]);
        for text in ["", "disk", "=vm1", "disk="] {
            assert!(text.parse::<TlsAllow>().is_err(), "{text}");
        }
    }
}
