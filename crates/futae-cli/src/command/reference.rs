//! `futae reference`: the generated pages of the book, from this binary's own commands and policies; manual pages and
//! completions of shells.

use clap::{Command, ValueEnum};
use futae_policy::Card;
use futae_terminal::failure::Failure;
use futae_terminal::manual::{self, GENERATED, line};
use futae_terminal::output::output;
use std::io::Write as _;

/// Print a generated page of the book as Markdown
#[derive(clap::Args)]
pub struct Args {
    /// The page
    page: Page,
    /// Where manual pages and completions go: a directory, which is made
    #[cfg(feature = "manual")]
    #[arg(required_if_eq("page", "manual"))]
    directory: Option<std::path::PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Page {
    /// Every command with its arguments and options
    Commands,
    /// Every policy with its card
    Policies,
    /// Every metric with its labels
    Metrics,
    /// Manual pages of every command, and completions of shells, as files
    #[cfg(feature = "manual")]
    Manual,
}

/// Prints a page; `cli` is the whole command line.
pub fn run(args: &Args, cli: Command) -> Result<(), Failure> {
    let page = match args.page {
        Page::Commands => commands(cli),
        Page::Policies => policies(&futae_policy::cards()),
        Page::Metrics => metrics(),
        #[cfg(feature = "manual")]
        Page::Manual => {
            let directory = args.directory.as_deref();
            let directory = directory.ok_or_else(|| Failure::usage("name a directory"))?;
            return super::manual::write(directory, cli);
        }
    };
    output().write_all(page.as_bytes())?;
    Ok(())
}

/// The page of all commands.
fn commands(cli: Command) -> String {
    format!(
        "# Commands\n\n{GENERATED}\nEach command prints this text with `--help`. Sizes are bytes, or \
         numbers with `KiB`, `MiB`, `GiB` or `TiB`.\n\n{}",
        manual::commands(cli)
    )
}

/// The page of all metrics.
fn metrics() -> String {
    format!(
        "# Metrics\n\n{GENERATED}\n`futae serve --metrics` and `futae mount --metrics` answer `GET /metrics` with the metrics below, as OpenMetrics \
         text. Counters begin at 0 when the program starts. A metric without a unit in its name counts blocks, operations, \
         connections or events. [Counters](counters.md) describes them further; [watching](../how-to/watch.md) shows \
         how to scrape.\n\n{}",
        futae_observe::reference()
    )
}

/// The page of all policies.
fn policies(cards: &[Card]) -> String {
    let mut page = format!(
        "# Policies\n\n{GENERATED}\nEvery command that takes a policy takes its name, `lru`, a name with parameters, \
         `2q(k_in=0.3)`, or a policy around another one, `directory(cost(exclusive))`. `futae policies NAME` \
         prints the section of one policy. How the policies compare with those of other simulators is in \
         [what each paper found here](../explanation/papers.md#policies-beside-other-simulators).\n\n\
         A *slot* holds one block. A *use* is a miss or a hit of a block. A *ghost entry*, or *ghost*, remembers a block that is not \
         resident. *Demotion* and *notice* are messages from the level above about a block that it evicted, with and without the \
         block's data. In a picture, `[ ]` holds resident blocks, `( )` ghosts. A parameter stands before its default.\n\n\
         | policy | rule |\n| --- | --- |\n"
    );
    for card in cards {
        line(
            &mut page,
            format_args!("| [`{0}`](#{0}) | {1} |", card.name, escaped(&card.summary)),
        );
    }
    for card in cards {
        line(
            &mut page,
            format_args!("\n## {}\n\n{}\n", card.name, card.summary),
        );
        for heading in Card::HEADINGS {
            let parts = card.parts(heading);
            match &parts[..] {
                _ if heading == "Picture" => {
                    let text = card.section(heading).unwrap_or("");
                    line(&mut page, format_args!("\n```text\n{text}\n```\n"));
                }
                [only] => line(&mut page, format_args!("- **{heading}**: {only}")),
                _ => line(
                    &mut page,
                    format_args!("- **{heading}**:\n  - {}", parts.join("\n  - ")),
                ),
            }
        }
    }
    page
}

/// Text that can stand in a cell of a table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}
