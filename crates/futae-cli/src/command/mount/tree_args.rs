//! The options of trees.

use futae_policy::{Argument, Kind, PolicySpec, Trait};
use futae_terminal::failure::Failure;
use std::path::PathBuf;

/// What is said of a tree only.
#[derive(clap::Args)]
#[command(next_help_heading = "Trees")]
pub struct TreeArgs {
    /// Protect the files directly in DIR, a directory of SOURCE; give it again for another
    #[arg(long, value_name = "DIR")]
    pub(super) protect: Vec<PathBuf>,
    /// Protect the files in directories below those, too
    #[arg(long)]
    pub(super) recursive: bool,
    /// Share of the cache that protected files may take, from 0 to 1 (--policy directory)
    #[arg(long, value_name = "SHARE")]
    max_protected: Option<f64>,
}

impl TreeArgs {
    /// Refuses them where the source is a single file.
    pub fn refuse(&self, source: &str) -> Result<(), Failure> {
        let asked = [
            (!self.protect.is_empty(), "--protect"),
            (self.recursive, "--recursive"),
        ];
        match asked.iter().find(|(is_asked, _)| *is_asked) {
            None => Ok(()),
            Some((_, option)) => Err(Failure::usage(format!(
                "{option}: {source} is no directory, and only a tree has files to protect"
            ))),
        }
    }

    /// The policy with the protected share that was asked for.
    pub fn policy(&self, mut policy: PolicySpec) -> Result<PolicySpec, Failure> {
        let names = Kind::names_with(Trait::Protects);
        if !self.protect.is_empty() && policy.find_mut(Trait::Protects).is_none() {
            eprintln!(
                "futae: warning: --protect: policy {} protects nothing, its hits are counted apart; --policy {names} does",
                policy.name
            );
        }
        let Some(share) = self.max_protected else {
            return Ok(policy);
        };
        let Some(protecting) = policy.find_mut(Trait::Protects) else {
            return Err(Failure::usage(format!(
                "--max-protected: policy {} protects nothing; use --policy {names}",
                policy.name
            )));
        };
        let bound = Argument::Named("max_protected".to_owned(), share.to_string());
        protecting.arguments.push(bound);
        Ok(policy)
    }
}
