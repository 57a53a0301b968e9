//! Both caches on this machine: `futae load` on a `futae mount` over `futae serve`.

use super::Options;
use super::process::{Background, futae, run_json, status};
use super::yoshida::{self, Counts, Outcome, VARIANTS, Variant};
use anyhow::Context;
use futae_papers::{Progress, Reproduction};
use futae_terminal::failure::Failure;
use std::fs;
use std::path::Path;

/// Runs all variants.
pub fn run(options: &Options, progress: &Progress<'_>) -> Result<Reproduction, Failure> {
    let place = tempfile::Builder::new().prefix("futae-paper-").tempdir()?;
    let image = place.path().join("disk.img");
    yoshida::make_image(&image)?;
    let all = yoshida::run_all(&VARIANTS, options, progress, |variant| {
        one(place.path(), &image, variant, options)
    })?;
    let mut made = yoshida::report(options, &all);
    made.parameters.push((
        "caches",
        "futae mount over NBD from futae serve, whose store is read past the page cache; normal \
         is an lru of the same memory in blocks of 4 KiB"
            .to_owned(),
    ));
    made.checks.extend(yoshida::bounds(&all));
    made.checks.extend(yoshida::as_simulated(&all));
    Ok(made)
}

fn one(
    place: &Path,
    image: &Path,
    variant: Variant,
    options: &Options,
) -> Result<Outcome, Failure> {
    let policy = variant.1;
    let counts = Counts::new(options, policy);
    let mountpoint = place.join("mnt");
    fs::create_dir_all(&mountpoint).with_context(|| mountpoint.display().to_string())?;
    let mut serve = futae([])?;
    serve.args(yoshida::serve_arguments(image, place));
    let (_serve, ready) = Background::start("futae serve", serve)?;
    let uri = ready["exports"][0]["uris"][0].as_str();
    let uri = uri.context("the server does not tell its address")?;
    let mut mount = futae(["mount", uri])?;
    mount
        .arg(&mountpoint)
        .args(yoshida::mount_arguments(policy));
    let log = place.join("decisions");
    mount.arg("--decision-log").arg(&log);
    let (mount, ready) = Background::start("futae mount", mount)?;
    let file = ready["path"].as_str();
    let file = file.context("the mount does not tell its file")?.to_owned();
    let control = place.join("control.sock");
    let records = ["warmup.csv", "counted.csv"].map(|name| place.join(name));
    let [first, second] = yoshida::seeds(options);
    let load = |seed, operations, record: &Path| {
        let mut load = futae([])?;
        load.args(yoshida::load_arguments(seed, operations));
        load.args(["--verify", "--direct", &file, "--record"])
            .arg(record);
        run_json("futae load", load)
    };
    load(first, counts.warmup, &records[0])?;
    let before = status(&control)?;
    let report = load(second, counts.counted, &records[1])?;
    let after = status(&control)?;
    // It completes its log at its end.
    drop(mount);
    let [warmup, counted] = &records;
    let records = [warmup.as_path(), counted.as_path()];
    let simulated = yoshida::simulate_run(policy, options.seed, counts.warmup, records, &log)?;
    let delta = after.counters.since(&before.counters);
    Ok(Outcome {
        variant,
        host_hit: delta.hit_ratio().unwrap_or(f64::NAN),
        store: (after.bytes_store_read - before.bytes_store_read) as f64 / counts.bytes(),
        mib_per_second: yoshida::figure(&report, "mib_per_second")?,
        simulated: Some(simulated),
    })
}
