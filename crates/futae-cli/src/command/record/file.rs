//! A recording on disk: the trace, and beside it what was recorded.

use super::traffic::Traffic;
use crate::command::file_lock::{NotLocked, lock_itself, shown};
use anyhow::{Context, anyhow};
use futae_control::RecordingPart;
use futae_engine::EngineStatus;
use futae_policy::VolumeId;
use futae_terminal::failure::Failure;
use futae_trace::{CsvLines, Request, RequestKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
    /// Demand accesses of the cache meanwhile, in blocks.
    pub cache_requests: u64,
    /// Those that hit.
    pub cache_hits: u64,
    /// Blocks that were written in part while the cache did not have them; not among `cache_requests`.
    #[serde(default)]
    pub write_around_blocks: u64,
    /// Blocks that TRIM, WRITE_ZEROES and failed requests dropped, none of which are in the trace.
    #[serde(default)]
    pub dropped_blocks: u64,
    /// What a read from the store took, in microseconds a block, where that is known.
    pub store_read_micros: Option<f64>,
}

impl Facts {
    /// A cache that has counted so much.
    pub fn of(version: &str, cache: &EngineStatus, sample: f64) -> Self {
        // A store that is asked more often counts for more.
        let (mut micros, mut reads) = (0.0, 0.0);
        for volume in &cache.volumes {
            if let Some(one) = volume.read_micros {
                micros += one * volume.store_reads as f64;
                reads += volume.store_reads as f64;
            }
        }
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
            write_around_blocks: traffic.write_around_blocks,
            dropped_blocks: traffic.dropped_blocks,
            store_read_micros: (reads > 0.0).then(|| micros / reads),
        }
    }

    /// What a cache counts on and on, for sums and differences.
    fn counts(&mut self) -> [&mut u64; 4] {
        [
            &mut self.cache_requests,
            &mut self.cache_hits,
            &mut self.write_around_blocks,
            &mut self.dropped_blocks,
        ]
    }

    /// The same for recordings of several caches together.
    pub fn add(&mut self, other: &mut Self) {
        for (sum, more) in self.counts().into_iter().zip(other.counts()) {
            *sum += *more;
        }
        self.requests += other.requests;
        self.lost += other.lost;
    }

    /// Requests of a sample for each one that its share of the blocks would have, if all blocks were requested equally often; 1 if this is
    /// not known, or there is no sample.
    pub fn excess(&self) -> f64 {
        let expected = self.sample * (self.cache_requests + self.write_around_blocks) as f64;
        let excess = (self.requests + self.lost) as f64 / expected;
        // A sample has no more requests than there are.
        let is_known = self.sample < 1.0 && excess > 0.0 && excess * self.sample <= 1.0;
        if is_known { excess } else { 1.0 }
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
    /// It was not there before.
    is_new: bool,
    bytes: u64,
    /// What the cache had counted when this part began.
    before: Facts,
    facts: Facts,
    /// Microseconds of the parts before this one.
    micros_before: u64,
    facts_written: Instant,
}

impl RecordingFile {
    /// Begins a trace, or goes on with one. `cache` is what the cache is now.
    pub fn open(path: &Path, cache: Facts, append: bool) -> Result<Self, Failure> {
        let (mut facts, mut micros_before) = (cache.clone(), 0);
        facts.counts().into_iter().for_each(|count| *count = 0);
        let is_new = !(append && path.exists());
        let file = if !is_new {
            let other = || format!("cannot go on with {}", path.display());
            let options = File::options().read(true).write(true).open(path);
            let file = options.with_context(other)?;
            // Before the facts are read: another recording that ends now writes them once more.
            lock(&file, path)?;
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
            let there = continued(file).with_context(other)?;
            facts.requests = there.requests;
            // What was recorded after the facts were written is in the trace, but not in them.
            micros_before = there.last_micros.max((facts.seconds * 1e6) as u64);
            there.file
        } else {
            let facts = facts_path(path);
            if facts.symlink_metadata().is_ok() && path.symlink_metadata().is_err() {
                let (path, facts) = (path.display(), facts.display());
                return Err(anyhow!(
                    "{facts} exists, which says what an earlier {path} has; choose another name, or remove it"
                )
                .into());
            }
            let mut options = File::options();
            options.write(true).create_new(true);
            let file = options.open(path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => anyhow!(
                    "{} exists; choose another name, or go on with it by --append",
                    path.display()
                ),
                _ => anyhow!("cannot write {}: {error}", path.display()),
            })?;
            lock(&file, path)?;
            (&file).write_all(CsvLines::header().as_bytes())?;
            file
        };
        let bytes = file.metadata()?.len();
        let recording = Self {
            path: path.to_owned(),
            is_new,
            file: BufWriter::new(file),
            bytes,
            before: cache,
            facts,
            micros_before,
            facts_written: Instant::now(),
        };
        recording.write_facts()?;
        Ok(recording)
    }

    /// Removes a trace that was begun for a recording that does not begin: under its name there would be none of anything.
    pub fn give_up(&self) {
        if self.is_new {
            for path in [self.path.clone(), facts_path(&self.path)] {
                // What stays is told when the same is asked for again.
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Counts what the cache does from now on, when it is so.
    pub fn count_from(&mut self, now: Facts) {
        self.before = now;
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
        Ok(())
    }

    /// Whether it is time to [`count`](Self::count).
    pub fn is_due(&self) -> bool {
        self.facts_written.elapsed() >= FACTS_PERIOD
    }

    /// Writes the facts, of a cache that is now this one and has counted so much: a recording that is killed has them, too.
    pub fn count(&mut self, now: &Facts) -> Result<(), Failure> {
        self.facts_written = Instant::now();
        let mut now = now.clone();
        let came = now.counts().into_iter().zip(self.before.counts());
        for (sum, (now, before)) in self.facts.counts().into_iter().zip(came) {
            *sum += now.saturating_sub(*before);
        }
        self.facts.capacity_blocks = now.capacity_blocks;
        self.facts.policy.clone_from(&now.policy);
        self.facts.store_read_micros = now.store_read_micros.or(self.facts.store_read_micros);
        self.before = now;
        self.write_facts()
    }

    fn write(&mut self, part: &RecordingPart) -> io::Result<()> {
        // An export that was removed and added again has two numbers, and is one volume.
        let mut names = BTreeMap::new();
        let name_first = |(&number, name)| (number, *names.entry(name).or_insert(number));
        let numbers: BTreeMap<_, _> = part.volumes.iter().map(name_first).collect();
        let names: Vec<_> = names
            .into_iter()
            .map(|(name, number)| (VolumeId(number), escaped(name)))
            .collect();
        let mut lines = CsvLines::of(names.iter().map(|(volume, name)| (*volume, &**name)));
        for &(micros, volume, offset_bytes, length_bytes, is_write) in &part.requests {
            let request = Request {
                guest: 0,
                volume: VolumeId(numbers.get(&volume).copied().unwrap_or(volume)),
                offset_bytes,
                length_bytes,
                kind: match is_write {
                    0 => RequestKind::Read,
                    _ => RequestKind::Write,
                },
                time_us: Some(self.micros_before.saturating_add(micros)),
            };
            let line = lines.line(&request, None);
            self.bytes += line.len() as u64;
            self.file.write_all(line.as_bytes())?;
        }
        self.file.flush()
    }

    /// Ends the recording.
    pub fn finish(&mut self) -> Result<(), Failure> {
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

/// A name of a volume without what a field of the trace cannot have. No two names come to the same, in whichever parts of a recording they
/// are.
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if !matches!(c, ',' | '"' | '%') && !c.is_whitespace() && !c.is_control() {
            text.push(c);
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            text.push_str(&format!("%{byte:02x}"));
        }
    }
    text
}

/// Keeps other recordings out of a trace until it is closed: each would write over the requests of the other.
fn lock(file: &File, path: &Path) -> Result<(), Failure> {
    match lock_itself(file) {
        Err(NotLocked::Held(holder)) => Err(anyhow!(
            "{}: another futae record{} writes it; end it first, or choose another name",
            path.display(),
            shown(holder)
        )
        .into()),
        // On a file system without locks there is nothing better.
        Ok(()) | Err(NotLocked::Impossible(_)) => Ok(()),
    }
}

/// A trace that goes on at its end.
struct Continued {
    file: File,
    /// Requests in it.
    requests: u64,
    /// The latest of their times.
    last_micros: u64,
}

/// Goes on with a trace, without a last line that was not written to its end.
fn continued(mut file: File) -> io::Result<Continued> {
    let (mut lines, mut end, mut last_micros) = (0, 0, 0);
    let mut reader = BufReader::new(&file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let got = reader.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            break;
        }
        let time = line.split(|&byte| byte == b',').next();
        let time = time.and_then(|time| str::from_utf8(time).ok()?.parse().ok());
        last_micros = last_micros.max(time.unwrap_or(0));
        lines += 1;
        end += got as u64;
    }
    file.set_len(end)?;
    file.seek(SeekFrom::Start(end))?;
    if end == 0 {
        file.write_all(CsvLines::header().as_bytes())?;
    }
    Ok(Continued {
        file,
        requests: u64::saturating_sub(lines, 1),
        last_micros,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_engine::VolumeStatus;

    /// The volumes of the requests of these parts, of one request for each volume, in a trace.
    fn volumes_of(parts: &[&[(u16, &str)]]) -> Vec<String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.csv");
        let cache = Facts::of("", &EngineStatus::default(), 1.0);
        let file = RecordingFile::open(&path, cache, false).map_err(|e| e.to_string());
        let mut file = file.expect("a recording");
        for part in parts {
            let names = part.iter();
            let part = RecordingPart {
                volumes: names
                    .map(|&(number, name)| (number, name.to_owned()))
                    .collect(),
                requests: part
                    .iter()
                    .map(|&(number, _)| (1, number, 0, 4096, 0))
                    .collect(),
                lost: 0,
            };
            let added = file.add(&part, Duration::ZERO).map_err(|e| e.to_string());
            added.expect("written");
        }
        let written = fs::read_to_string(&path).expect("there");
        let volumes = written.lines().skip(1);
        let volumes = volumes.filter_map(|line| Some(line.split(',').nth(1)?.to_owned()));
        volumes.collect()
    }

    #[test]
    fn volumes_with_names_alike_are_apart_in_every_part() {
        let names = ["a b", "a_b", "a,b", "a:b", "a%20b", "a\u{a0}b", "~"];
        let named: Vec<_> = (0..).zip(names).map(|volume| [volume]).collect();
        let parts: Vec<_> = named.iter().map(|part| &part[..]).collect();
        let expected = ["a%20b", "a_b", "a%2cb", "a:b", "a%2520b", "a%c2%a0b", "~"];
        assert_eq!(volumes_of(&parts), expected);
    }

    /// The requests for both may come in one part, or in two.
    #[test]
    fn an_export_that_is_added_again_is_the_same_volume() {
        let parts: [&[(u16, &str)]; 3] = [
            &[(1, "a"), (3, "b")],
            &[(0, "b"), (1, "a"), (3, "b")],
            &[(0, "b")],
        ];
        assert_eq!(volumes_of(&parts), ["a", "b", "b", "a", "b", "b"]);
    }

    #[test]
    fn one_recording_at_a_time_writes_a_trace() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.csv");
        let open = || {
            let cache = Facts::of("", &EngineStatus::default(), 1.0);
            RecordingFile::open(&path, cache, path.exists()).map_err(|e| e.to_string())
        };
        let first = open().expect("a recording");
        // What it will have written beside the trace is not known yet.
        fs::write(facts_path(&path), "old").expect("room");
        let refused = open().map(drop).expect_err("the first writes");
        let process = format!("another futae record (process {})", std::process::id());
        assert!(refused.contains(&process), "{refused}");
        first
            .write_facts()
            .map_err(|e| e.to_string())
            .expect("room");
        drop(first);
        open().map(drop).expect("the first has ended");
    }

    /// The trace is written ten times a second, and the facts once: one that is killed in between goes on behind its last request.
    #[test]
    fn times_ascend_over_a_kill() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.csv");
        for _ in 0..3 {
            let cache = Facts::of("", &EngineStatus::default(), 1.0);
            let file = RecordingFile::open(&path, cache, path.exists());
            let mut file = file.map_err(|e| e.to_string()).expect("a recording");
            let part = RecordingPart {
                volumes: BTreeMap::from([(0, "a".to_owned())]),
                requests: vec![(100, 0, 0, 4096, 0), (900_000, 0, 0, 4096, 1)],
                lost: 0,
            };
            let added = file.add(&part, Duration::from_secs(1));
            added.map_err(|e| e.to_string()).expect("written");
        }
        let written = fs::read_to_string(&path).expect("there");
        let times = written.lines().skip(1).map(|line| line.split(',').next());
        let times: Vec<u64> = times
            .map(|time| time.and_then(|time| time.parse().ok()).expect("a time"))
            .collect();
        assert_eq!(times.len(), 6);
        assert!(times.is_sorted(), "{times:?}");
    }

    #[test]
    fn what_an_earlier_recording_has_said_is_not_written_over() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.csv");
        // Its trace was compressed, or moved.
        fs::write(facts_path(&path), "earlier").expect("room");
        for append in [false, true] {
            let cache = Facts::of("", &EngineStatus::default(), 1.0);
            let refused = RecordingFile::open(&path, cache, append).map(drop);
            let said = refused.map_err(|e| e.to_string()).expect_err("refused");
            assert!(said.contains("a.csv.json exists"), "{said}");
        }
        assert!(!path.exists());
        assert_eq!(fs::read(facts_path(&path)).expect("there"), b"earlier");
    }

    #[test]
    fn a_store_that_is_hardly_read_says_little_of_the_latency() {
        let volume = |read_micros, store_reads| VolumeStatus {
            read_micros,
            store_reads,
            ..VolumeStatus::default()
        };
        let micros = |volumes| {
            let status = EngineStatus {
                volumes,
                ..EngineStatus::default()
            };
            Facts::of("", &status, 1.0).store_read_micros
        };
        let busy = volume(Some(100.0), 99);
        let both = vec![busy.clone(), volume(Some(10_100.0), 1)];
        assert_eq!(micros(both), Some(200.0));
        assert_eq!(micros(vec![busy, volume(None, 0)]), Some(100.0));
        assert_eq!(micros(vec![volume(None, 0)]), None);
    }

    #[test]
    fn a_sample_says_how_much_more_than_its_share_it_has() {
        let facts = |sample, requests, lost, cache_requests, write_around_blocks| Facts {
            requests,
            lost,
            cache_requests,
            write_around_blocks,
            ..Facts::of("", &EngineStatus::default(), sample)
        };
        assert_eq!(facts(0.25, 300, 100, 700, 100).excess(), 2.0);
        assert_eq!(facts(0.25, 100, 0, 800, 0).excess(), 0.5);
        // Of all blocks, of a recording that was killed at once, and of one whose counts cannot be right.
        for unknown in [
            facts(1.0, 3, 0, 9, 0),
            facts(0.5, 3, 0, 0, 0),
            facts(0.5, 9, 0, 8, 0),
        ] {
            assert_eq!(unknown.excess(), 1.0);
        }
    }
}
