//! `futae sim`: what a hierarchy of caches would do with a workload or a trace.

mod args;
mod ask;
mod objects;
mod render;

pub use args::Args;
pub(super) use ask::failure;
pub(super) use futae_policy::split_policies;

use super::source_args::SourceName;
use crate::report::{Subject, page};
use crate::save::{Output, TableFile, print};
use futae_sim::run::Column;
use futae_terminal::failure::Failure;
use futae_terminal::progress::Progress;
use std::path::PathBuf;

/// Simulates, prints and writes.
pub fn run(args: &Args) -> Result<(), Failure> {
    futae_plugin::enable();
    if args.objects {
        return objects::run(args);
    }
    // clap would not require --objects beside --level, since the two exclude each other.
    let of_objects = [
        ("--ttl", args.ttl.is_some()),
        ("--admit-size-max", args.admit_size_max.is_some()),
    ];
    if let Some((option, _)) = of_objects.iter().find(|option| option.1) {
        return Err(Failure::usage(format!(
            "{option} is for --objects, with --policy and --sizes"
        )));
    }
    let output = |path: &PathBuf| Output::new(path);
    let page_file = args.report.as_ref().map(output).transpose()?;
    let table_file = args.parquet.as_deref().map(TableFile::new).transpose()?;
    if args.windows.is_some() && !args.json {
        return Err(Failure::usage(
            "--windows is for --json, which alone has the hit ratio over time; add --json, and draw it with `futae plot time`",
        ));
    }
    if args.by_guest && !args.csv && args.parquet.is_none() {
        return Err(Failure::usage(
            "--by-guest is for --csv and --parquet; what is printed otherwise has the results by guest anyhow",
        ));
    }
    let (report, source) = ask::simulate(args)?;
    let name = names(&args.sources);
    if let (Some(file), Some(source)) = (page_file, source) {
        let progress = Progress::new("reporting", args.json);
        let subject = Subject {
            report: &report,
            requests: source.requests(),
            source: &name,
            command: &command_line(
                std::env::args_os()
                    .skip(1)
                    .map(|it| it.to_string_lossy().into_owned()),
            ),
        };
        let page = page(&subject, &|fraction| progress.set(fraction))?;
        file.write(page.as_bytes())?;
    }
    if args.by_guest && report.runs.iter().any(|run| run.by_guest.is_empty()) {
        return Err(Failure::usage(
            "--by-guest is for several guests; name a trace for each, or --guests",
        ));
    }
    let columns = || match args.by_guest {
        true => report.guest_columns(),
        false => report.columns(),
    };
    if let Some(file) = table_file {
        file.write(&columns())?;
    }
    print(&if args.json {
        format!("{}\n", serde_json::to_string_pretty(&report)?)
    } else if args.csv {
        Column::csv(&columns())
    } else {
        render::render(&report, &name)
    })
}

/// The traces or workloads, as a user is shown them.
fn names(sources: &[SourceName]) -> String {
    let names: Vec<&str> = sources.iter().map(SourceName::text).collect();
    names.join(", ")
}

/// The command as a shell takes it.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.,:=/%+@".contains(c);
    let quoted = arguments.map(|argument| {
        if !argument.is_empty() && argument.chars().all(is_plain) {
            return argument;
        }
        format!("'{}'", argument.replace('\'', "'\\''"))
    });
    std::iter::once("futae".to_owned())
        .chain(quoted)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::command_line;

    #[test]
    fn a_command_can_be_given_to_a_shell() {
        let arguments = ["sim", "zipf(1.0):1GiB", "it's", "--sizes", "1%,2%", ""];
        assert_eq!(
            command_line(arguments.map(str::to_owned).into_iter()),
            r"futae sim 'zipf(1.0):1GiB' 'it'\''s' --sizes 1%,2% ''"
        );
    }
}
