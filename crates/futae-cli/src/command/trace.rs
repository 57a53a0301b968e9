//! `futae trace`: looks into trace files, and makes them.

use super::source_args::{SourceName, say_curve_doubts};
use super::trace_args::TraceArgs;
use anyhow::Context;
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_terminal::progress::Progress;
use futae_terminal::table::{Table, count};
use futae_trace::{
    Format, Noted, Request, RequestKind, Summarizer, Summary, TraceError, TraceErrorKind,
    TraceOptions, TraceReader, TraceWriter, View, WorkloadReader, WorkloadSpec, WriteOptions,
};
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;

/// Read and write trace files
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Info(InfoArgs),
    Head(HeadArgs),
    Convert(ConvertArgs),
}

/// What is read.
#[derive(clap::Args)]
struct InputArgs {
    /// A trace file or its URL, compressed or not, or a workload such as zipf(1.0):1GiB
    #[arg(value_name = "TRACE|WORKLOAD")]
    trace: SourceName,
    #[command(flatten)]
    how: TraceArgs,
    /// Number of requests of a workload
    #[arg(long)]
    requests: Option<u64>,
    /// Seed of all randomness of a workload
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Summarise a trace: format, requests, volumes, footprint, time
///
/// The whole trace is read; memory depends only on its distinct blocks.
#[derive(clap::Args)]
struct InfoArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Show the first requests of a trace
#[derive(clap::Args)]
struct HeadArgs {
    #[command(flatten)]
    input: InputArgs,
    /// How many
    #[arg(short = 'n', default_value_t = 10, value_name = "REQUESTS")]
    count: u64,
    /// Print JSON, one request a line
    #[arg(long)]
    json: bool,
}

/// Write a trace in another format, or a workload as a trace
///
/// The name of the new file determines its format (.oracleGeneral .csv .parquet .ids .le32 .le64
/// .be32 .be64) and its compression (.gz .zst .xz .bz2 after it).
#[derive(clap::Args)]
struct ConvertArgs {
    #[command(flatten)]
    input: InputArgs,
    /// The new file
    out: PathBuf,
    /// Its format
    #[arg(long)]
    to: Option<String>,
    /// What becomes a record: `start`, each request (a number is the sector where it starts), or
    /// `blocks`, each block of each request [default: blocks where the old trace numbers blocks]
    #[arg(long)]
    view: Option<String>,
    /// Stop after this many requests
    #[arg(long, value_name = "REQUESTS")]
    limit: Option<u64>,
}

/// Does what is asked.
pub fn run(args: &Args) -> Result<(), Failure> {
    let outcome = match &args.command {
        Command::Info(args) => info(args),
        Command::Head(args) => head(args),
        Command::Convert(args) => convert(args),
    };
    match outcome {
        // The reader of the output has read enough.
        Err(Failure::Failed(e)) if is_broken_pipe(&e) => Ok(()),
        outcome => outcome,
    }
}

/// An error of the output. That of a pipe whose reader has closed it is told from the errors of the input.
fn of_output(error: TraceError) -> Failure {
    match error.kind {
        TraceErrorKind::Io(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Failure::Failed(error.into())
        }
        _ => error.into(),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// An open trace or workload.
struct Input {
    name: String,
    block_bytes: u64,
    source: Source,
    /// What there is to read: bytes of the file, or requests.
    whole: u64,
}

/// A request, what the trace says of it besides, and the names of the volumes so far.
type Next<'a> = (Request, Noted, &'a [String]);

enum Source {
    File(Box<TraceReader>),
    Workload(Box<WorkloadReader>),
}

impl Input {
    fn open(args: &InputArgs) -> Result<Self, Failure> {
        let block_bytes = args.how.block_bytes()?;
        let path = args.trace.path();
        let workload = args.trace.text().parse::<WorkloadSpec>();
        let (source, whole) = match workload {
            Ok(spec) if !args.trace.is_trace() => {
                args.how.refuse()?;
                let natural = spec.natural_requests(block_bytes).map_err(Failure::usage)?;
                let requests = args.requests.or(natural).ok_or_else(|| {
                    Failure::usage(format!("say how much of {spec}: --requests N"))
                })?;
                let reader = WorkloadReader::new(&spec, block_bytes, args.seed, requests);
                let reader = reader.map_err(Failure::usage)?;
                (Source::Workload(Box::new(reader)), requests)
            }
            Err(e) if !args.trace.is_trace() && args.trace.text().contains(':') => {
                let message = format!("{} is neither a file nor a workload: {e}", args.trace);
                return Err(Failure::usage(message));
            }
            _ => {
                let options = trace_options(args)?;
                let reader = TraceReader::open(path, &options)?;
                let bytes = reader.file_bytes().unwrap_or(0);
                (Source::File(Box::new(reader)), bytes)
            }
        };
        Ok(Self {
            name: args.trace.to_string(),
            block_bytes,
            source,
            whole,
        })
    }

    fn next(&mut self) -> Option<Result<Next<'_>, TraceError>> {
        match &mut self.source {
            Source::File(reader) => {
                let request = reader.next()?;
                let noted = reader.take_noted();
                Some(request.map(|request| (request, noted, reader.volumes())))
            }
            Source::Workload(reader) => {
                let request = reader.next()?;
                Some(request.map(|request| (request, Noted::default(), &[][..])))
            }
        }
    }

    /// Does something with at most `limit` requests.
    fn each(
        &mut self,
        limit: Option<u64>,
        progress: &Progress,
        mut act: impl FnMut(&Request, Noted, &[String]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let limit = limit.unwrap_or(u64::MAX);
        for number in 0..limit {
            let Some(next) = self.next() else { break };
            let (request, noted, volumes) = next?;
            act(&request, noted, volumes)?;
            if number % (1 << 14) == 0 {
                let done = match &self.source {
                    Source::File(reader) => reader.file_bytes_read(),
                    Source::Workload(reader) => self.whole - reader.left(),
                };
                let read = done as f64 / self.whole.max(1) as f64;
                progress.set(read.max(number as f64 / limit as f64));
            }
        }
        Ok(())
    }

    fn file(&self) -> Option<&TraceReader> {
        match &self.source {
            Source::File(reader) => Some(reader),
            Source::Workload(_) => None,
        }
    }

    fn skipped(&self) -> u64 {
        self.file().map_or(0, TraceReader::skipped)
    }

    fn compression(&self) -> Option<&'static str> {
        let suffix = self.file()?.compression().suffix();
        (!suffix.is_empty()).then_some(suffix)
    }
}

fn trace_options(args: &InputArgs) -> Result<TraceOptions, Failure> {
    if args.requests.is_some() {
        let message = "--requests is for workloads; a trace has as many as it has (see --limit)";
        return Err(Failure::usage(message));
    }
    let mut options = args.how.options()?;
    (options.lives, options.latencies) = (true, true);
    Ok(options)
}

fn info(args: &InfoArgs) -> Result<(), Failure> {
    let mut input = Input::open(&args.input)?;
    let mut summarizer = Summarizer::new(input.block_bytes);
    let progress = Progress::new("reading", args.json);
    let name = input.name.clone();
    input.each(None, &progress, |request, _, _| {
        let added = summarizer.add(request);
        Ok(added.with_context(|| format!("trace {name}"))?)
    })?;
    drop(progress);
    say_curve_doubts(input.file().map_or_else(Vec::new, TraceReader::doubts));
    let summary = summarizer.finish();
    let mut out = output();
    if args.json {
        let json = InfoJson {
            trace: &input.name,
            format: input.file().map(TraceReader::format),
            compression: input.compression(),
            records_skipped: input.skipped(),
            summary: &summary,
            seconds: summary.seconds(),
            volume_names: input.file().map_or(&[], TraceReader::volumes),
        };
        writeln!(out, "{}", serde_json::to_string_pretty(&json)?)?;
    } else {
        write!(out, "{}", info_table(&input, &summary))?;
    }
    Ok(())
}

#[derive(serde::Serialize)]
struct InfoJson<'a> {
    trace: &'a str,
    format: Option<Format>,
    compression: Option<&'a str>,
    records_skipped: u64,
    #[serde(flatten)]
    summary: &'a Summary,
    seconds: Option<f64>,
    volume_names: &'a [String],
}

fn info_table(input: &Input, summary: &Summary) -> String {
    let none = || "–".to_owned();
    let format = input.file().map_or("workload", |r| r.format().name());
    let block = format!("of {} bytes", summary.block_bytes);
    let mib = summary.footprint_bytes as f64 / f64::from(1 << 20);
    let sorted = |sorted| if sorted { "yes" } else { "no" }.to_owned();
    let rows = [
        ("format", format.to_owned()),
        (
            "compression",
            input.compression().unwrap_or("none").to_owned(),
        ),
        ("requests", count(summary.requests)),
        ("reads", count(summary.reads)),
        ("writes", count(summary.writes)),
        ("bytes read", count(summary.bytes_read)),
        ("bytes written", count(summary.bytes_written)),
        ("largest request, bytes", count(summary.request_bytes_max)),
        ("distinct starts", count(summary.distinct_starts)),
        (
            &format!("accesses to blocks {block}"),
            count(summary.block_accesses),
        ),
        (
            &format!("distinct blocks {block}"),
            count(summary.distinct_blocks),
        ),
        ("footprint", format!("{mib:.1} MiB")),
        ("volumes", count(summary.volumes)),
        (
            "time span",
            summary.seconds().map_or_else(none, |s| format!("{s:.1} s")),
        ),
        (
            "sorted by time",
            summary.monotonic.map_or_else(none, sorted),
        ),
        ("bad records left out", count(input.skipped())),
    ];
    let mut table = Table::new(["trace", &input.name]);
    for (name, value) in rows {
        table.row([name.to_owned(), value]);
    }
    table.render()
}

fn head(args: &HeadArgs) -> Result<(), Failure> {
    let mut input = Input::open(&args.input)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut table = Table::new(["time, s", "volume", "kind", "offset", "length"]);
    let quiet = Progress::new("reading", true);
    let outcome = input.each(Some(args.count), &quiet, |request, _, volumes| {
        let number = request.volume.0;
        let volume = volumes.get(usize::from(number)).cloned();
        let volume = volume.unwrap_or_else(|| number.to_string());
        let kind = match request.kind {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
        };
        let (offset, length) = (request.offset_bytes, request.length_bytes);
        let time = request.time_us.map(|us| us as f64 / 1e6);
        if args.json {
            let json = json!({"time": time, "volume": volume, "kind": kind,
                "offset_bytes": offset, "length_bytes": length});
            writeln!(out, "{json}")?;
        } else {
            let time = time.map_or_else(|| "–".to_owned(), |s| format!("{s:.6}"));
            let (offset, length) = (offset.to_string(), length.to_string());
            table.row([time, volume, kind.to_owned(), offset, length]);
        }
        Ok(())
    });
    // What could be read is shown also where an error follows.
    if !args.json {
        write!(out, "{}", table.render())?;
    }
    out.flush()?;
    outcome
}

fn convert(args: &ConvertArgs) -> Result<(), Failure> {
    let mut input = Input::open(&args.input)?;
    let of_blocks = View::Blocks(input.block_bytes);
    let view = match args.view.as_deref() {
        Some("start") => View::Start,
        Some("blocks") => of_blocks,
        Some(other) => {
            let message = format!("unknown view `{other}`; there are start and blocks");
            return Err(Failure::usage(message));
        }
        None if input
            .file()
            .is_none_or(|reader| reader.names_blocks() && !reader.has_sizes()) =>
        {
            of_blocks
        }
        None => View::Start,
    };
    let format = args.to.as_deref().map(str::parse::<Format>).transpose();
    let options = WriteOptions::of_name(&args.out, format.map_err(Failure::usage)?, view);
    let mut options = options.map_err(Failure::usage)?;
    options.extras.objects =
        view == View::Start && input.file().is_some_and(TraceReader::has_sizes);
    let create = |options: &WriteOptions| {
        TraceWriter::create(&args.out, options).map_err(|e| match e.kind {
            TraceErrorKind::Unwritable { .. } => Failure::usage(e),
            _ => of_output(e),
        })
    };
    // The first request shows what the trace has besides.
    let mut writer = None;
    let progress = Progress::new("converting", false);
    input.each(args.limit, &progress, |request, noted, volumes| {
        if writer.is_none() {
            options.extras.lives = noted.life_seconds.is_some();
            options.extras.latencies = noted.latency_us.is_some();
        }
        let writer = match &mut writer {
            Some(writer) => writer,
            none => none.insert(create(&options)?),
        };
        writer
            .write_noted(request, noted, volumes)
            .map_err(of_output)
    })?;
    let writer = writer.map_or_else(|| create(&options), Ok)?;
    let records = writer.records();
    writer.finish().map_err(of_output)?;
    drop(progress);
    if input.skipped() > 0 {
        let skipped = count(input.skipped());
        eprintln!("futae: {skipped} bad records of {} left out", input.name);
    }
    let (records, path) = (count(records), args.out.display());
    eprintln!("futae: {path}: {records} records, {}", options.format);
    Ok(())
}
