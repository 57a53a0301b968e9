//! Errors in workload specs.

use super::workloads;
use futae_units::SizeError;
use std::fmt;

/// Why a workload spec cannot be used, and where it is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadError {
    /// The whole spec.
    pub spec: String,
    /// The character of the spec, counted from 1, where it is wrong; none where the spec is
    /// right but does not fit the block size.
    pub character: Option<usize>,
    /// What is wrong.
    pub kind: WorkloadErrorKind,
}

/// What is wrong with a workload spec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadErrorKind {
    /// No family has this name.
    #[error("unknown workload `{name}`{}", suggest(.near.as_deref()))]
    Unknown {
        /// What was written.
        name: String,
        /// A family with a similar name.
        near: Option<String>,
    },
    /// The family has no such parameter.
    #[error("`{workload}` has no parameter `{name}`{}", suggest(.near.as_deref()))]
    UnknownParameter {
        /// The family.
        workload: String,
        /// What was written.
        name: String,
        /// A parameter with a similar name.
        near: Option<String>,
    },
    /// A parameter is written twice.
    #[error("`{name}` is given twice")]
    Twice {
        /// The parameter.
        name: String,
    },
    /// A required part is missing.
    #[error("`{workload}` needs {what}")]
    Missing {
        /// The family.
        workload: String,
        /// What is missing.
        what: &'static str,
    },
    /// Unexpected text.
    #[error("found `{found}` instead of {expected}")]
    Unexpected {
        /// What was written.
        found: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A value outside its range, or no number at all.
    #[error("`{text}` is not {expected}")]
    Value {
        /// What was written.
        text: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A bracket without its partner.
    #[error("a bracket is not closed or not opened")]
    Brackets,
    /// Workloads inside workloads inside workloads.
    #[error("workloads are nested more than {} deep", super::parse::DEPTH_MAX)]
    TooDeep,
    /// The size is wrong, or does not fit the block size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// No block at all, or more than can be numbered.
    #[error("the workload has {blocks} blocks; it must have from 1 to 2^48")]
    BlockCount {
        /// Blocks, as far as they could be counted.
        blocks: u64,
    },
}

fn suggest(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"))
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "workload `{}`: ", self.spec)?;
        let Some(character) = self.character else {
            return self.kind.fmt(f);
        };
        write!(
            f,
            "at character {character}: {}; known workloads are ",
            self.kind
        )?;
        for (i, workload) in workloads().iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, workload.example)?;
        }
        Ok(())
    }
}

impl std::error::Error for WorkloadError {}
