//! Both caches on this machine: `futae load` on a `futae mount` over `futae serve`.

use super::process::{Background, futae, run_json, status};
use super::yoshida_variants::{self, Counts, Outcome, SIZES, VARIANTS, Variant};
use anyhow::Context;
use futae_papers::{Check, Options, Progress, Reproduction, Source};
use futae_terminal::failure::Failure;
use std::fs;
use std::path::Path;

/// LFU Cache FS in pages, which are what `--residency kernel` keeps: a request of the experiment is for 16 of them. As in the paper 100
/// requests are remembered; each that misses is a review, so that the cache is full within the warm-up.
const PAGES: &str = "lfu-history(history=1600,review=16,swaps_per_review=16,min_gain=10)";
/// In the memory of the mount, and in the kernel's page cache.
const IN_PAGES: [Variant; 2] = [("lfu in pages", PAGES), ("lfu in pages, kernel", PAGES)];
/// By how much the host's hit ratio may differ between these two.
const TOLERANCE: f64 = 0.02;

/// Runs all variants.
pub fn run(options: &Options, progress: &Progress<'_>) -> Result<Reproduction, Failure> {
    let place = tempfile::Builder::new().prefix("futae-paper-").tempdir()?;
    let image = place.path().join("disk.img");
    yoshida_variants::make_image(&image)?;
    let variants = [&VARIANTS[..], &IN_PAGES[..1]].concat();
    let mut all = yoshida_variants::run_all(&variants, options, progress, |variant| {
        let made = one(place.path(), &image, variant, options)?;
        Ok(made.context("the mount is another than was asked for")?)
    })?;
    let in_kernel = one(place.path(), &image, IN_PAGES[1], options)?;
    let how = match in_kernel {
        Some(_) => "with --residency kernel",
        None => "not run, since the page cache cannot be watched here; `futae mount` says why",
    };
    all.extend(in_kernel);
    let mut made = yoshida_variants::report(options, &all);
    made.parameters.push((
        "caches",
        "futae mount over NBD from futae serve, whose store is read past the page cache; normal \
         is an lru of the same memory in blocks of 4 KiB"
            .to_owned(),
    ));
    made.checks.extend(yoshida_variants::bounds(&all));
    made.checks.extend(yoshida_variants::as_simulated(&all));
    made.parameters.push((
        "lfu in pages",
        format!("{PAGES} in blocks of 4 KiB; kernel: {how}"),
    ));
    let of = |variant: Variant| all.iter().find(|it| it.variant == variant);
    if let [Some(ours), Some(kernel)] = IN_PAGES.map(of) {
        let difference = kernel.host_hit - ours.host_hit;
        let name = "lfu in pages: host hit ratio, kernel less ordinary mount";
        let within = Check::within(Source::Model, name, difference, -TOLERANCE, TOLERANCE);
        made.checks.push(within);
    }
    Ok(made)
}

/// None where the kernel was to hold the pages and cannot.
fn one(
    place: &Path,
    image: &Path,
    variant: Variant,
    options: &Options,
) -> Result<Option<Outcome>, Failure> {
    let policy = variant.1;
    let counts = Counts::new(options, policy);
    let mountpoint = place.join("mnt");
    fs::create_dir_all(&mountpoint).with_context(|| mountpoint.display().to_string())?;
    let mut serve = futae([])?;
    serve.args(yoshida_variants::serve_arguments(image, place));
    let (_serve, ready) = Background::start("futae serve", serve)?;
    let uri = ready["exports"][0]["uris"][0].as_str();
    let uri = uri.context("the server does not tell its address")?;
    let mut mount = futae(["mount", uri])?;
    let in_pages = IN_PAGES.contains(&variant);
    mount.arg(&mountpoint);
    let log = place.join("decisions");
    if in_pages {
        mount.args(page_arguments(variant == IN_PAGES[1]));
    } else {
        mount.args(yoshida_variants::mount_arguments(policy));
        mount.arg("--decision-log").arg(&log);
    }
    let (mount, ready) = Background::start("futae mount", mount)?;
    if variant == IN_PAGES[1] && ready["residency"] != "kernel" {
        return Ok(None);
    }
    let file = ready["path"].as_str();
    let file = file.context("the mount does not tell its file")?.to_owned();
    let control = place.join("control.sock");
    let records = ["warmup.csv", "counted.csv"].map(|name| place.join(name));
    let [first, second] = yoshida_variants::seeds(options);
    let load = |seed, operations, record: &Path| {
        let mut load = futae([])?;
        load.args(yoshida_variants::load_arguments(seed, operations));
        load.args(["--verify", &file, "--record"]).arg(record);
        if !in_pages {
            load.arg("--direct");
        }
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
    let simulated = (!in_pages).then(|| {
        yoshida_variants::simulate_run(policy, options.seed, counts.warmup, records, &log)
    });
    let delta = after.counters.since(&before.counters);
    Ok(Some(Outcome {
        variant,
        host_hit: delta.hit_ratio().unwrap_or(f64::NAN),
        store: (after.bytes_store_read - before.bytes_store_read) as f64 / counts.bytes(),
        mib_per_second: yoshida_variants::figure(&report, "mib_per_second")?,
        simulated: simulated.transpose()?,
    }))
}

/// What the upper cache of pages is given, after `futae mount SOURCE MOUNTPOINT`.
fn page_arguments(in_kernel: bool) -> Vec<String> {
    let cache = format!("{}MiB", (SIZES.block * u64::from(SIZES.slots)) >> 20);
    let residency = if in_kernel { "kernel" } else { "futae" };
    let mut words = vec!["--json", "--read-only", "--on-eviction", "none"];
    words.extend(["--policy", PAGES, "--cache", &cache]);
    words.extend(["--join-reads", "0", "--residency", residency]);
    words.into_iter().map(str::to_owned).collect()
}
