//! The command line.

use crate::sink::Destination;
use futae_agent_protocol::References;
use futae_log::LogArgs;
use futae_units::parse_duration;
use std::path::PathBuf;
use std::time::Duration;

/// Count the reads and evictions of this machine's page cache, and report them to a host
///
/// Counting by eBPF needs Linux 6.1 or later with BTF, and root. Without them the agent logs that,
/// and reports the counters of /proc/vmstat.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Destination of reports: the path of a virtio-serial port, vsock:CID:PORT, unix:PATH,
    /// tcp:HOST:PORT, or - for lines of JSON on standard output
    #[arg(long, value_name = "ADDRESS", default_value = "-")]
    report: String,
    /// Interval between reports, e.g. 500ms; at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s")]
    period: String,
    /// Count for this time, print a table and exit
    #[arg(long, value_name = "TIME", conflicts_with_all = ["report", "notices", "sample"])]
    once: Option<String>,
    /// Report the places on disk of the pages that memory reclaim evicted
    #[arg(long)]
    notices: bool,
    /// Demote evicted pages with their data; implies --notices. If the disk is a vhost-user device
    /// of `futae serve`, the host reads the pages in this machine's memory. Otherwise the agent
    /// writes them to a channel disk, which `futae serve --evictions-disk` offers beside the
    /// export. Without either, it sends notices alone
    #[arg(long, conflicts_with_all = ["once", "no_bpf"])]
    evictions: bool,
    /// The channel disk: a path, or auto to look for it among all disks
    #[arg(
        long,
        value_name = "PATH|auto",
        default_value = "auto",
        requires = "evictions"
    )]
    evictions_channel: String,
    /// Processor time that evicted pages with data may take, in percent of the guest's processors; beyond
    /// it, notices are sent alone
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "3",
        requires = "evictions"
    )]
    evictions_cpu: String,
    /// What to count. reads: reads, and all other activity of the page cache. evictions: evictions
    /// alone; then no eBPF program runs on reads, and samples have the counters of /proc/vmstat.
    /// auto: evictions with --evictions, unless --sample, --groups or --top needs more; otherwise
    /// reads
    #[arg(long, value_name = "auto|reads|evictions", default_value = "auto")]
    count: String,
    /// Report each memory cgroup
    #[arg(long)]
    groups: bool,
    /// Report this many of the busiest files, at most 256
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    top: usize,
    /// Share of the pages whose reads are reported one by one, for miss-ratio curves, e.g. 0.01
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    sample: f64,
    /// The name of this guest [default: its host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Do not use eBPF; report only the counters of /proc/vmstat
    #[arg(long)]
    no_bpf: bool,
    /// Count reads where functions begin and end, even if the kernel has tracepoints for them
    #[arg(long, conflicts_with = "no_bpf", hide = true)]
    functions: bool,
    /// The log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// What the arguments come to.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Where reports go.
    pub destination: Destination,
    /// How often.
    pub period: Duration,
    /// Count for so long and print a table.
    pub once: Option<Duration>,
    /// Whether to tell what was evicted.
    pub notices: bool,
    /// Whether evicted pages are demoted with their data.
    pub evictions: bool,
    /// The channel disk, if it is named.
    pub channel: Option<PathBuf>,
    /// Share of the guest's processors that evicted pages may take.
    pub evictions_share: f64,
    /// Whether reads are counted, and pages that are added and dirtied.
    pub counts_reads: bool,
    /// Whether to tell memory cgroups apart.
    pub groups: bool,
    /// How many files to report.
    pub top: usize,
    /// [`References::threshold`]; 0 for no sample.
    pub threshold: u32,
    /// The guest's name, if given.
    pub name: Option<String>,
    /// Whether to do without eBPF.
    pub no_bpf: bool,
    /// Whether not to use tracepoints for reads.
    pub functions: bool,
}

impl Args {
    /// Checks what was written.
    ///
    /// # Errors
    /// A sentence on what is wrong.
    pub fn check(&self) -> Result<Checked, String> {
        let period = duration("--period", &self.period)?;
        if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&period) {
            return Err(format!(
                "--period {}: between 100ms and an hour",
                self.period
            ));
        }
        if self.top > futae_agent_protocol::Sample::MAX_FILES {
            return Err(format!("--top {}: at most 256 files", self.top));
        }
        if !(0.0..=1.0).contains(&self.sample) {
            return Err(format!("--sample {}: a share from 0 to 1", self.sample));
        }
        Ok(Checked {
            destination: self.report.parse()?,
            period,
            once: self
                .once
                .as_deref()
                .map(|text| duration("--once", text))
                .transpose()?,
            notices: self.notices || self.evictions,
            evictions: self.evictions,
            channel: (self.evictions_channel != "auto")
                .then(|| self.evictions_channel.clone().into()),
            evictions_share: share("--evictions-cpu", &self.evictions_cpu)?,
            counts_reads: self.counts_reads()?,
            groups: self.groups,
            top: self.top,
            threshold: (self.sample * f64::from(References::ALL)) as u32,
            name: self.name.clone(),
            no_bpf: self.no_bpf,
            functions: self.functions,
        })
    }
}

impl Args {
    /// Whether reads are counted.
    fn counts_reads(&self) -> Result<bool, String> {
        let asks = [
            ("--sample", self.sample > 0.0),
            ("--groups", self.groups),
            ("--top", self.top > 0),
            ("--once", self.once.is_some()),
        ];
        let asks = asks
            .into_iter()
            .find_map(|(option, is_given)| is_given.then_some(option));
        match (self.count.as_str(), asks) {
            ("auto", asks) => Ok(!self.evictions || asks.is_some()),
            ("reads", _) => Ok(true),
            ("evictions", Some(option)) => Err(format!(
                "--count evictions counts no reads, which {option} needs; leave out one of them"
            )),
            ("evictions", None) if self.notices || self.evictions => Ok(false),
            ("evictions", None) => {
                Err("--count evictions: give --evictions or --notices as well".to_owned())
            }
            (other, _) => Err(format!("--count {other}: auto, reads or evictions")),
        }
    }
}

/// Reads `3%` or `3`, a percentage.
fn share(what: &str, text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse();
    let percent: f64 = number.unwrap_or(f64::NAN);
    if percent > 0.0 && percent <= 100.0 {
        Ok(percent / 100.0)
    } else {
        Err(format!(
            "{what} {text}: write a percentage above 0, at most 100"
        ))
    }
}

/// The duration that option `what` gives.
fn duration(what: &str, text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|problem| format!("{what} {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn check(words: &[&str]) -> Result<Checked, String> {
        let words = std::iter::once(&"futae-agent").chain(words);
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        cli.args.check()
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(check(&[]).expect("defaults").period, Duration::from_secs(1));
        assert_eq!(
            check(&["--sample", "1"]).expect("all").threshold,
            References::ALL
        );
        let wrong: [&[&str]; 12] = [
            &["--count", "writes"],
            &["--count", "evictions"],
            &["--count", "evictions", "--notices", "--top", "3"],
            &["--evictions", "--evictions-cpu", "0"],
            &["--evictions", "--evictions-cpu", "101%"],
            &["--evictions-cpu", "3"],
            &["--period", "1ms"],
            &["--sample", "2"],
            &["--sample", "nan"],
            &["--top", "257"],
            &["--report", "vsock:x"],
            &["--once", "1s", "--notices"],
        ];
        for words in wrong {
            assert!(check(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn reads_are_counted_unless_evictions_are_all_that_is_asked_for() {
        let counts = |words: &[&str]| check(words).expect("arguments").counts_reads;
        assert!(counts(&[]) && counts(&["--notices"]));
        assert!(!counts(&["--evictions"]));
        assert!(!counts(&["--notices", "--count", "evictions"]));
        for more in [
            ["--sample", "0.1"],
            ["--top", "1"],
            ["--count", "reads"],
            ["--groups", "--notices"],
        ] {
            assert!(counts(&["--evictions", more[0], more[1]]), "{more:?}");
        }
    }
}
