//! `futae policy`: a running cache goes on with another replacement policy.

use super::export::control_path;
use futae_control::ask_for;
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use serde::Deserialize;
use serde_json::json;
use std::io::Write;

/// Change the replacement policy of a running cache
///
/// Every block stays in the cache, dirty or not. Most policies keep the order of the blocks, too. The server or the mount must
/// have been started with --control.
#[derive(clap::Args)]
pub struct Args {
    /// The control socket of the server or the mount: unix:PATH or PATH
    control: String,
    /// The export, or the file that the mount shows. An export with a share has its own cache; the
    /// others share one, whose policy changes if any of them is named
    export: String,
    /// The policy, as for --policy; `futae policies` lists them
    policy: String,
}

/// What the order came to.
#[derive(Deserialize)]
struct Answer {
    policy: String,
    before: String,
    changed: bool,
    resident_blocks: u64,
}

/// Gives the order, and says what it came to.
pub fn run(args: &Args) -> Result<(), Failure> {
    let Args {
        control,
        export,
        policy,
    } = args;
    let line = json!({ "command": "policy", "export": export, "policy": policy });
    let Answer {
        policy,
        before,
        changed,
        resident_blocks,
    } = ask_for(&control_path(control), &line)?;
    let mut out = output();
    if changed {
        writeln!(
            out,
            "{export}: policy {policy} in place of {before}, {resident_blocks} blocks kept"
        )?;
    } else {
        writeln!(out, "{export}: the policy is {policy} already")?;
    }
    Ok(())
}
