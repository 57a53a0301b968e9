//! How trace files are read: the same options for every command that reads them.

use futae_sim::run::ViewChoice;
use futae_terminal::failure::Failure;
use futae_terminal::table::count;
use futae_trace::{Columns, Doubt, Format, TraceOptions};
use futae_units::{BLOCK_BYTES_MAX, SIMULATED_BLOCK_BYTES_MIN, parse_block_bytes};

/// How a trace file is read.
#[derive(clap::Args)]
pub(super) struct TraceArgs {
    /// Bytes of a block: a power of two from 512 to 256MiB. Also the size of a block in traces that
    /// number blocks
    #[arg(long, default_value = "4KiB")]
    block: String,
    /// The trace's format [default: detected from the data and the file's name]
    #[arg(long)]
    format: Vec<String>,
    /// Columns of a table, such as time=0:s,offset=1:512,length=2:512,kind=3:read0
    #[arg(long, value_name = "MAP")]
    columns: Vec<String>,
    /// Skip bad records of a trace, and count them
    #[arg(long)]
    skip_bad: bool,
}

/// What of a request is a block.
#[derive(clap::Args)]
pub(super) struct ViewArgs {
    /// Blocks that a request of a trace accesses: start (one, whatever its length) or blocks (all
    /// that it touches) [default: start where the trace numbers its blocks, otherwise blocks]
    #[arg(long)]
    view: Option<String>,
}

impl TraceArgs {
    /// Bytes of a block.
    pub fn block_bytes(&self) -> Result<u64, Failure> {
        let bytes = parse_block_bytes(&self.block, SIMULATED_BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        bytes.map_err(Failure::usage)
    }

    /// What a reader of one trace is told.
    pub fn options(&self) -> Result<TraceOptions, Failure> {
        let mut all = self.options_of(1)?;
        all.pop().ok_or_else(|| Failure::usage("there is no trace"))
    }

    /// What the readers of this many traces are told.
    pub fn options_of(&self, traces: usize) -> Result<Vec<TraceOptions>, Failure> {
        let formats = of_each("--format", &self.format, traces)?;
        let columns = of_each("--columns", &self.columns, traces)?;
        let all = formats.into_iter().zip(columns).map(|(format, columns)| {
            let format = format.map(str::parse::<Format>);
            let columns = columns.map(str::parse::<Columns>);
            Ok(TraceOptions {
                format: format.transpose().map_err(Failure::usage)?,
                columns: columns.transpose().map_err(Failure::usage)?,
                unit_bytes: self.block_bytes()?,
                skip_bad: self.skip_bad,
                ..TraceOptions::default()
            })
        });
        all.collect()
    }

    /// An error if an option is there that says how to read a file, where there is none.
    pub fn refuse(&self) -> Result<(), Failure> {
        let given = [
            ("--format", !self.format.is_empty()),
            ("--columns", !self.columns.is_empty()),
            ("--skip-bad", self.skip_bad),
        ];
        refuse(&given)
    }
}

/// What an option says of each trace: it may be given once for all, or once for each, where `-` says nothing.
fn of_each<'a>(
    name: &str,
    given: &'a [String],
    traces: usize,
) -> Result<Vec<Option<&'a str>>, Failure> {
    match given {
        [] => Ok(vec![None; traces]),
        [all] => Ok(vec![Some(all); traces]),
        each if each.len() == traces => {
            let said = each.iter().map(|text| Some(text.as_str()));
            Ok(said.map(|text| text.filter(|&text| text != "-")).collect())
        }
        each => Err(Failure::usage(format!(
            "{name} is there {} times, and there {}; give it once for all, or once for each in their order (- for none)",
            each.len(),
            match traces {
                1 => "is 1 trace".to_owned(),
                traces => format!("are {traces} traces"),
            }
        ))),
    }
}

impl ViewArgs {
    /// What was chosen.
    pub fn choice(&self) -> Result<ViewChoice, Failure> {
        let view = self.view.as_deref().map(str::parse);
        Ok(view
            .transpose()
            .map_err(Failure::usage)?
            .unwrap_or_default())
    }

    /// An error if the option is there, where there is no file.
    pub fn refuse(&self) -> Result<(), Failure> {
        refuse(&[("--view", self.view.is_some())])
    }
}

fn refuse(given: &[(&str, bool)]) -> Result<(), Failure> {
    match given.iter().find(|option| option.1) {
        Some((option, _)) => Err(Failure::usage(format!("{option} is for trace files"))),
        None => Ok(()),
    }
}

/// Says why a trace may not be read as it was meant.
pub(super) fn say_doubts(doubts: &[Doubt]) {
    for doubt in doubts {
        eprintln!("futae: warning: {doubt}");
    }
}

/// Says how many bad records were left out, if any were.
pub(super) fn say_skipped(skipped: u64) {
    if skipped > 0 {
        eprintln!("futae: {} bad records left out", count(skipped));
    }
}
