//! `futae policies`: what can stand wherever a policy is asked for.

use crate::failure::Failure;
use crate::save::print;
use std::fmt::Write;

/// List every policy: name, source, parameters and defaults
#[derive(clap::Args)]
pub struct Args {
    /// Only this policy, with its whole card
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the C header for policies that are plug-ins of the simulator (./libmine.so)
    #[arg(long, conflicts_with_all = ["name", "json"])]
    c_header: bool,
}

/// Prints the cards.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.c_header {
        return print(futae_plugin::HEADER);
    }
    let mut cards = futae_policy::cards();
    if let Some(name) = &args.name {
        let shape = futae_policy::Shape { slots: 16, seed: 0 };
        let spec = name
            .parse::<futae_policy::PolicySpec>()
            .map_err(Failure::usage)?;
        futae_policy::build(&spec, &shape).map_err(Failure::usage)?;
        cards.retain(|card| card.name == spec.name);
    }
    if args.json {
        let json = serde_json::to_string_pretty(&serde_json::json!({ "policies": cards }))?;
        return print(&format!("{json}\n"));
    }
    let mut out = String::new();
    for card in &cards {
        writeln!(out, "{:<14} {}", card.name, card.summary)?;
        let sections: &[&str] = if args.name.is_some() {
            &futae_policy::Card::HEADINGS
        } else {
            &["Source", "Parameters"]
        };
        for heading in sections {
            let text = card.section(heading).unwrap_or("");
            let indented = text.replace('\n', "\n                 ");
            writeln!(out, "               {heading}: {indented}")?;
        }
        writeln!(out)?;
    }
    print(&out)
}
