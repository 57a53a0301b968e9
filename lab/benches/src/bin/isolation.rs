//! `isolation`: what attackers can do to an honest client of the same server, and to its memory.

use anyhow::Context;
use clap::Parser;
use futae_bench::isolation::{self, Attack, Row, Settings};
use futae_bench::process::Nursery;
use futae_units::Size;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Attack a server in several ways and say how long an honest client waits for its hits. Ends with
/// status 1 if one is beyond the limits
#[derive(Parser)]
struct Args {
    /// The program under test
    #[arg(long, value_name = "PATH", default_value = "target/release/futae")]
    futae: PathBuf,
    /// Seconds of each attack, and of the quiet time before it
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Cache of the server, e.g. 1GiB, which is 262,144 blocks
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = bytes)]
    cache: u64,
    /// Memory for all buffers of the server, e.g. 256MiB; its own option of this name is set if it
    /// has it
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = bytes)]
    buffer_memory: u64,
    /// Only these attacks; several are separated by commas
    #[arg(long, value_enum, value_delimiter = ',')]
    attack: Vec<Attack>,
    /// Be the attackers of a server in this directory, until standard input ends
    #[arg(long, value_name = "DIRECTORY", hide = true)]
    attack_in: Option<PathBuf>,
    /// Print JSON, a line for each attack
    #[arg(long)]
    json: bool,
}

fn bytes(text: &str) -> Result<u64, String> {
    match text.parse::<Size>() {
        Ok(Size::Bytes(bytes)) => Ok(bytes),
        Ok(_) => Err("a size in bytes, e.g. 1GiB".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if let (Some(directory), Some(&attack)) = (&args.attack_in, args.attack.first()) {
        isolation::attack(attack, directory);
        return Ok(ExitCode::SUCCESS);
    }
    let settings = Settings {
        futae: args.futae,
        cache_bytes: args.cache,
        buffer_bytes: args.buffer_memory,
        duration: Duration::try_from_secs_f64(args.seconds).context("--seconds")?,
    };
    let attacks = match args.attack.is_empty() {
        true => Attack::ALL.to_vec(),
        false => args.attack,
    };
    let directory = tempfile::tempdir()?;
    let nursery = Nursery::new(directory.path().to_owned())?;
    if !args.json {
        println!(
            "attack           p99 ms  worst ms  quiet p99  rate kept  newcomers   peak MiB  at most"
        );
    }
    let mut is_beyond = false;
    for attack in attacks {
        let row = isolation::run(&settings, &nursery, directory.path(), attack)
            .with_context(|| format!("attack {}", attack.name()))?;
        show(&row, args.json)?;
        is_beyond |= !row.beyond.is_empty();
    }
    Ok(ExitCode::from(u8::from(is_beyond)))
}

fn show(row: &Row, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        println!("{}", serde_json::to_string(row)?);
        return Ok(());
    }
    println!(
        "{:<15} {:>7.2} {:>9.1} {:>10.2} {:>10.2} {:>4} of {:<3} {:>9} {:>8}  {}",
        row.attack,
        row.p99_ms,
        row.worst_ms,
        row.quiet_p99_ms,
        row.rate_kept,
        row.newcomers_served,
        row.newcomers,
        row.peak_bytes >> 20,
        row.peak_bytes_max >> 20,
        row.beyond.join("; ")
    );
    Ok(())
}
