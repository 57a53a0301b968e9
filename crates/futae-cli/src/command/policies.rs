//! `futae policies`: what can stand wherever a policy is asked for.

use crate::save::print;
use futae_terminal::failure::Failure;

/// Width of the output.
const COLUMNS: usize = 96;

/// List every policy: name, source, parameters and defaults
#[derive(clap::Args)]
pub struct Args {
    /// Only this policy, with its complete card
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
        out += &format!("{}\n", card.name);
        fill(&mut out, "  ", &card.summary);
        let sections: &[&str] = if args.name.is_some() {
            &futae_policy::Card::HEADINGS
        } else {
            &["Source", "Parameters"]
        };
        for heading in sections {
            if *heading == "Picture" {
                let lines = card.section(heading).unwrap_or("");
                out += &format!("  {heading}:\n    {}\n", lines.replace('\n', "\n    "));
                continue;
            }
            let parts = card.parts(heading);
            let [only] = &parts[..] else {
                out += &format!("  {heading}:\n");
                for part in &parts {
                    fill(&mut out, "    - ", part);
                }
                continue;
            };
            fill(&mut out, "  ", &format!("{heading}: {only}"));
        }
        out.push('\n');
    }
    print(&out)
}

/// Appends text in lines of at most [`COLUMNS`], the first one behind `start` and the others indented as far.
fn fill(out: &mut String, start: &str, text: &str) {
    let mut column = start.chars().count();
    out.push_str(start);
    let indent = " ".repeat(column);
    let mut is_first = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if !is_first && column + 1 + length > COLUMNS {
            out.push('\n');
            out.push_str(&indent);
            column = indent.len();
        } else if !is_first {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
        is_first = false;
    }
    out.push('\n');
}
