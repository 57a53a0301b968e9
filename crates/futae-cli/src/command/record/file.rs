//! A recording on disk: the trace, and beside it what was recorded.

use super::traffic::Traffic;
use anyhow::{Context, anyhow};
use futae_control::RecordingPart;
use futae_engine::EngineStatus;
use futae_policy::VolumeId;
use futae_terminal::failure::Failure;
use futae_trace::{CsvLines, Request, RequestKind};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the facts are written while a recording is under way.
const FACTS_PERIOD: Duration = Duration::from_secs(1);

/// What was recorded: the file beside the trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// The version of the futae that was recorded.
    pub futae_recording: String,
    /// The policy of its cache.
    pub policy: String,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of the cache.
    pub capacity_blocks: u64,
    /// The part of all blocks whose requests were recorded; 1 for all.
    pub sample: f64,
    /// Requests in the trace, or of a sample, accesses to blocks.
    pub requests: u64,
    /// Those that came while there was no room for them.
    pub lost: u64,
    /// How long was recorded, in seconds.
    pub seconds: f64,
    /// Demand accesses of the cache meanwhile, in blocks; 0 where they are not known of all parts of the recording.
    pub cache_requests: u64,
    /// Those that hit.
    pub cache_hits: u64,
    /// What a read from the store took, in microseconds a block, where that is known.
    pub store_read_micros: Option<f64>,
}

impl Facts {
    /// A cache that has counted so much.
    pub fn of(version: &str, cache: &EngineStatus, sample: f64) -> Self {
        let micros: Vec<f64> = cache.volumes.iter().filter_map(|v| v.read_micros).collect();
        let mean = micros.iter().sum::<f64>() / micros.len() as f64;
        let traffic = Traffic::of(cache);
        Self {
            futae_recording: version.to_owned(),
            policy: traffic.policy,
            block_bytes: cache.block_bytes,
            capacity_blocks: cache.capacity_blocks,
            sample,
            requests: 0,
            lost: 0,
            seconds: 0.0,
            cache_requests: traffic.requests,
            cache_hits: traffic.hits,
            store_read_micros: (!micros.is_empty()).then_some(mean),
        }
    }

    /// The facts beside a trace; none if there are none.
    pub fn beside(trace: &Path) -> Result<Option<Self>, Failure> {
        let path = facts_path(trace);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(anyhow!("{}: {error}", path.display()).into()),
        };
        let facts = serde_json::from_slice(&text);
        Ok(Some(facts.with_context(|| {
            format!("{} is not what futae record wrote", path.display())
        })?))
    }
}

/// Where the facts of a trace are.
pub fn facts_path(trace: &Path) -> PathBuf {
    let mut name = trace.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

/// A recording that is being written.
pub struct RecordingFile {
    path: PathBuf,
    file: BufWriter<File>,
    bytes: u64,
    /// What the cache had counted when this part began.
    before: Facts,
    facts: Facts,
    /// What it had counted in the parts before: accesses and hits. None if a part was killed, or if its cache had gone at its end.
    counted: Option<(u64, u64)>,
    /// Microseconds of the parts before this one.
    micros_before: u64,
    facts_written: Instant,
}

impl RecordingFile {
    /// Begins a trace, or goes on with one. `cache` is what the cache is now.
    pub fn open(path: &Path, cache: Facts, append: bool) -> Result<Self, Failure> {
        let (mut facts, mut micros_before) = (cache.clone(), 0);
        (facts.cache_requests, facts.cache_hits) = (0, 0);
        let mut counted = Some((0, 0));
        let file = if append && path.exists() {
            let old = Facts::beside(path)?.ok_or_else(|| {
                anyhow!(
                    "{} has no {} beside it: record again, without --append",
                    path.display(),
                    facts_path(path).display()
                )
            })?;
            if (old.block_bytes, old.sample) != (cache.block_bytes, cache.sample) {
                let message = format!(
                    "{} has blocks of {} bytes and a sample of {}%; the cache has {} bytes, and {}% are asked for",
                    path.display(),
                    old.block_bytes,
                    old.sample * 100.0,
                    cache.block_bytes,
                    cache.sample * 100.0
                );
                return Err(Failure::usage(message));
            }
            facts = old;
            micros_before = (facts.seconds * 1e6) as u64;
            let there = continued(path);
            let (file, requests) =
                there.with_context(|| format!("cannot go on with {}", path.display()))?;
            facts.requests = requests;
            let old = (facts.cache_requests, facts.cache_hits);
            counted = (requests == 0 || old.0 > 0).then_some(old);
            // Until this part ends.
            (facts.cache_requests, facts.cache_hits) = (0, 0);
            file
        } else {
            let mut options = File::options();
            options.write(true).create_new(true);
            let file = options.open(path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => anyhow!(
                    "{} exists; choose another name, or go on with it by --append",
                    path.display()
                ),
                _ => anyhow!("cannot write {}: {error}", path.display()),
            })?;
            (&file).write_all(CsvLines::header().as_bytes())?;
            file
        };
        let bytes = file.metadata()?.len();
        let recording = Self {
            path: path.to_owned(),
            file: BufWriter::new(file),
            bytes,
            before: cache,
            facts,
            counted,
            micros_before,
            facts_written: Instant::now(),
        };
        recording.write_facts()?;
        Ok(recording)
    }

    /// Bytes of the trace.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was recorded.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Adds what was recorded until `elapsed` after this part began.
    pub fn add(&mut self, part: &RecordingPart, elapsed: Duration) -> Result<(), Failure> {
        self.write(part)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        self.facts.requests += part.requests.len() as u64;
        self.facts.lost += part.lost;
        self.facts.seconds = self.micros_before as f64 / 1e6 + elapsed.as_secs_f64();
        if self.facts_written.elapsed() < FACTS_PERIOD {
            return Ok(());
        }
        self.facts_written = Instant::now();
        self.write_facts()
    }

    fn write(&mut self, part: &RecordingPart) -> io::Result<()> {
        let names = part.volumes.iter();
        let mut lines = CsvLines::of(names.map(|(&volume, name)| (VolumeId(volume), &**name)));
        for &(micros, volume, offset_bytes, length_bytes, is_write) in &part.requests {
            let request = Request {
                guest: 0,
                volume: VolumeId(volume),
                offset_bytes,
                length_bytes,
                kind: match is_write {
                    0 => RequestKind::Read,
                    _ => RequestKind::Write,
                },
                time_us: Some(self.micros_before + micros),
            };
            let line = lines.line(&request, None);
            self.bytes += line.len() as u64;
            self.file.write_all(line.as_bytes())?;
        }
        self.file.flush()
    }

    /// Ends the recording of a cache that has now counted `after`.
    pub fn finish(&mut self, after: &Facts) -> Result<(), Failure> {
        if let Some((requests, hits)) = self.counted {
            let since = |after: u64, before: u64| after.saturating_sub(before);
            let more = since(after.cache_requests, self.before.cache_requests);
            self.facts.cache_requests = requests + more;
            self.facts.cache_hits = hits + since(after.cache_hits, self.before.cache_hits);
        }
        self.facts.capacity_blocks = after.capacity_blocks;
        self.facts.policy.clone_from(&after.policy);
        self.facts.store_read_micros = after.store_read_micros.or(self.facts.store_read_micros);
        self.finish_alone()
    }

    /// Ends the recording of a cache that is gone.
    pub fn finish_alone(&mut self) -> Result<(), Failure> {
        self.file
            .get_ref()
            .sync_all()
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        self.write_facts()
    }

    /// Writes the facts beside the trace, in place of those that are there.
    fn write_facts(&self) -> Result<(), Failure> {
        let path = facts_path(&self.path);
        let text = format!("{}\n", serde_json::to_string_pretty(&self.facts)?);
        crate::save::Output::new(&path)?.write(text.as_bytes())
    }
}

/// Opens a trace to go on with it, without a last line that was not written to its end. Also the requests in it.
fn continued(path: &Path) -> io::Result<(File, u64)> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let (mut lines, mut end) = (0, 0);
    let mut reader = BufReader::new(&file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let got = reader.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            break;
        }
        lines += 1;
        end += got as u64;
    }
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    if end == 0 {
        file.write_all(CsvLines::header().as_bytes())?;
    }
    Ok((file, u64::saturating_sub(lines, 1)))
}
