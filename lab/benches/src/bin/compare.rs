//! `compare`: futae beside other block servers, in turns and in one run, and its simulator.

use anyhow::{Context, bail, ensure};
use clap::Parser;
use futae_bench::client::REQUEST_BYTES_MAX;
use futae_bench::report::{Report, SimulatorReport, Spread};
use futae_bench::rounds::{self, Plan};
use futae_bench::servers::{Ground, Server};
use futae_bench::{floor, speeds};
use futae_units::{Size, parse_block_bytes};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Compare `futae serve` with nbdkit and qemu-nbd on a hot image, and measure the simulator
#[derive(Parser)]
struct Args {
    /// Bytes of the image, which every server has in memory
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    size: Size,
    /// How often each server is measured
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds for each server, load and round
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Queue depths of random reads
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    depth: Vec<usize>,
    /// Bytes of a random read
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = request_bytes)]
    block: u32,
    /// Bytes of a sequential read
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = request_bytes)]
    sequential: u32,
    /// Queue depth of sequential reads; 0 leaves them out
    #[arg(long, default_value_t = 16)]
    sequential_depth: usize,
    /// A futae program, or NAME=PATH; several may be compared. Without it, futae is built
    #[arg(long, value_name = "PATH")]
    futae: Vec<String>,
    /// Only servers whose names contain this, and futae
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    only: Vec<String>,
    /// Requests of a simulation; 0 leaves simulations out
    #[arg(long, default_value_t = 20_000_000)]
    simulate: u64,
    /// Leave the servers out
    #[arg(long)]
    no_servers: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print markdown, for lab/results/
    #[arg(long)]
    markdown: bool,
    /// Be the server that shows what a socket allows
    #[arg(long, hide = true, value_name = "SOCKET")]
    serve_floor: Option<PathBuf>,
}

fn request_bytes(text: &str) -> anyhow::Result<u32> {
    Ok(parse_block_bytes(text, 512, u64::from(REQUEST_BYTES_MAX))? as u32)
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let size_bytes = args.size.bytes(4096).context("--size")?;
    if let Some(socket) = &args.serve_floor {
        return floor::serve(socket, size_bytes);
    }
    ensure!(args.rounds > 0, "--rounds: at least one");
    ensure!(
        size_bytes > 0 && size_bytes.is_multiple_of(1 << 20),
        "--size: a whole number of MiB"
    );
    let mut report = Report {
        setting: setting(&args),
        ..Report::default()
    };
    if !args.no_servers {
        compare_servers(&args, size_bytes, &mut report)?;
    }
    if args.simulate > 0 {
        report.simulator = simulate(&args)?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else if args.markdown {
        print!("{}", report.markdown());
    } else {
        print!("{}", report.text());
    }
    Ok(())
}

fn setting(args: &Args) -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let system = rustix::system::uname();
    let kernel = system.release().to_string_lossy();
    let kernel = kernel.split('-').next().unwrap_or_default();
    format!(
        "{processors} processors, Linux {kernel}; an image of {}, hot in every server; {} rounds of \
         {} s for each server and load, in turns; one connection over a unix socket.",
        args.size, args.rounds, args.seconds
    )
}

fn compare_servers(args: &Args, size_bytes: u64, report: &mut Report) -> anyhow::Result<()> {
    let duration = Duration::try_from_secs_f64(args.seconds).context("--seconds")?;
    let sequential =
        (args.sequential_depth > 0).then_some((args.sequential, args.sequential_depth));
    let plan = Plan::new(&args.depth, args.block, sequential, duration, args.rounds);
    let wanted = |server: &Server| {
        args.only.is_empty()
            || args
                .only
                .iter()
                .any(|text| server.name.contains(text.as_str()))
    };
    let mut servers = futaes(args)?;
    servers.extend(Server::peers().into_iter().filter(wanted));
    // The servers end, and then the directory goes, however this ends.
    let directory = tempfile::Builder::new().prefix("futae-bench-").tempdir()?;
    eprintln!("writing an image of {}", args.size);
    let ground = Ground::new(directory.path(), size_bytes)?;
    let mut hot = Vec::new();
    for server in &servers {
        if let Some(why) = server.missing() {
            eprintln!("{why}");
            report.missing.push(format!("{}: {why}", server.name));
            continue;
        }
        eprintln!("starting {}", server.name);
        hot.push(ground.start(server).with_context(|| server.name.clone())?);
    }
    let samples = rounds::run(&plan, &hot, &mut |round| {
        eprintln!("round {} of {}", round + 1, args.rounds);
    })?;
    report.add_servers(&plan, &hot, &samples);
    Ok(())
}

/// The futaes to measure: those that were named, or the one of this workspace, built now.
fn futaes(args: &Args) -> anyhow::Result<Vec<Server>> {
    if !args.futae.is_empty() {
        return Ok(args.futae.iter().map(|text| Server::futae(text)).collect());
    }
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.args(["build", "--release", "-p", "futae-cli", "--bin", "futae"]);
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        if !build.status().context("building futae")?.success() {
            bail!("futae could not be built");
        }
    }
    let beside = std::env::current_exe()?.with_file_name("futae");
    Ok(vec![Server::futae(&beside.to_string_lossy())])
}

fn simulate(args: &Args) -> anyhow::Result<Vec<SimulatorReport>> {
    let mut rates = vec![Vec::new(); speeds::CASES.len()];
    for round in 0..args.rounds {
        eprintln!("simulating, round {} of {}", round + 1, args.rounds);
        for (case, rates) in speeds::CASES.iter().zip(&mut rates) {
            rates.push(speeds::measure(case, args.simulate)?);
        }
    }
    let cases = speeds::CASES.iter().zip(rates);
    Ok(cases
        .map(|(case, rates)| SimulatorReport {
            case: case.name(),
            million_per_second: Spread::of(rates.iter().map(|speed| speed.per_second / 1e6)),
            million_per_cpu_second: Spread::of(
                rates.iter().map(|speed| speed.per_cpu_second / 1e6),
            ),
        })
        .collect())
}
