//! One agent with one connection serves both `futae serve` and `futae balance`: what it says of evictions goes to the
//! cache, and what it samples moves memory.

use futae_agent_protocol::{
    Counters, Device, DeviceId, Frame, Hello, Memory, Message, Notices, PageCache, Range, Reason,
    References, Replacement, Sample, Source,
};
use futae_testkit::wait::eventually;
use futae_tests::binary::{futae, run};
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::text;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const START_MIB: u64 = 16;
/// What the guest reads, evenly: more than it has at first.
const SET_MIB: u64 = 24;
/// Periods until memory must have moved.
const PERIODS: usize = 150;
const DISK: DeviceId = DeviceId {
    major: 254,
    minor: 0,
};

/// An agent, as far as a host can see, and the guest that it counts.
struct Agent {
    stream: UnixStream,
    sequence: u64,
    evicted: u64,
}

impl Agent {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("serve listens");
        let mut agent = Self {
            stream,
            sequence: 0,
            evicted: 0,
        };
        let disk = Device {
            id: DISK,
            name: "vda".to_owned(),
            serial: "vm".to_owned(),
            sectors: 0,
        };
        agent.say(Message::Hello(Hello {
            guest: "vm".to_owned(),
            run: 1,
            source: Source::Tracepoints,
            devices: vec![disk],
            ..Hello::default()
        }));
        agent
    }

    fn say(&mut self, message: Message) {
        let sequence = self.sequence;
        self.sequence += 1;
        let frame = Frame { sequence, message };
        let sent = self.stream.write_all(&frame.encode());
        sent.expect("serve listens");
    }

    /// The guest reads its set evenly with `has` MiB, of which one page is evicted.
    fn reads(&mut self, has: u64) {
        let accesses = 20_000;
        let misses = accesses * SET_MIB.saturating_sub(has) / SET_MIB;
        let total = Counters {
            accesses,
            misses,
            ..Counters::default()
        };
        let memory = Memory {
            cached: has * MIB,
            ..Memory::default()
        };
        self.say(Message::Sample(Sample {
            period_us: 200_000,
            total,
            memory,
            ..Sample::default()
        }));
        let start = self.evicted * PAGE / 512;
        self.evicted += 1;
        let count = PAGE / 512;
        self.say(Message::Notices(Notices {
            device: DISK,
            reason: Reason::Reclaim,
            ranges: vec![Range { start, count }],
        }));
    }

    /// Which pages those reads were of: every one in 4.
    fn samples(&mut self) {
        let pages = SET_MIB * MIB / PAGE / 4;
        let pages = (0..5000).map(|at| (at * 2_654_435_761 % pages) << 24);
        self.say(Message::References(References {
            threshold: References::ALL / 4,
            pages: pages.collect(),
        }));
    }
}

fn served() -> (Stage, PathBuf) {
    let mut stage = Stage::new(4096);
    let exports = ["vm", "idle"].map(|name| {
        let image = stage.path(name);
        fs::copy(&stage.image, &image).expect("a copy");
        format!("{name}={},share={START_MIB}MiB", image.display())
    });
    let address = |name: &str| format!("vm=unix:{}", text(&stage.path(name)));
    let (agent, samples) = (address("vm.agent"), address("vm.samples"));
    stage.serve(&[
        "--export",
        &exports[0],
        "--export",
        &exports[1],
        "--cache",
        "33MiB",
        "--feed",
        &agent,
        "--samples-to",
        &samples,
    ]);
    let path = stage.path("vm.agent");
    (stage, path)
}

/// A configuration for both guests.
fn config(stage: &Stage) -> PathBuf {
    let path = stage.path("balance.toml");
    let guest = |name: &str, agent: &str| {
        format!(
            "[[guest]]\nname = \"{name}\"\nminimum = \"4MiB\"\nmaximum = \"28MiB\"\n{agent}\
             actuator = {{ kind = \"share\", control = \"{}\", export = \"{name}\" }}\n",
            stage.control.display()
        )
    };
    let samples = stage.path("vm.samples");
    let agent = format!("agent = {{ listen = \"{}\" }}\n", samples.display());
    let guests = [guest("vm", &agent), guest("idle", "")].concat();
    let body = format!("total = \"32MiB\"\nperiod = 0.2\nreserve = \"0MiB\"\n{guests}");
    fs::write(&path, body).expect("a file");
    path
}

fn balance(stage: &Stage) -> Running {
    let path = config(stage);
    let words = ["balance", "--json", "--config", text(&path)];
    Running::start("futae balance", futae(&words))
}

/// The cache of an export in a status.
fn cache<'a>(status: &'a Value, export: &str) -> &'a Value {
    let engines = status["engines"].as_array().expect("engines");
    let its = engines.iter().find(|engine| engine["exports"][0] == export);
    its.expect("its cache")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn share_mib(status: &Value, export: &str) -> u64 {
    number(&cache(status, export)["capacity_blocks"]) * PAGE / MIB
}

/// Lets the guest read for a period; what balance made of it.
fn period(stage: &Stage, agent: &mut Agent, balance: &mut Running) -> Value {
    agent.reads(share_mib(&stage.status(), "vm"));
    agent.samples();
    let said: Value = serde_json::from_str(&balance.line()).expect("JSON");
    assert_eq!(said["problems"], serde_json::json!([]), "{said}");
    said
}

#[test]
fn one_connection_tells_the_cache_and_moves_memory() {
    let (mut stage, path) = served();
    let mut agent = Agent::connect(&path);
    let mut balancing = balance(&stage);
    let mut last = Value::Null;
    for _ in 0..PERIODS {
        last = period(&stage, &mut agent, &mut balancing);
        if share_mib(&stage.status(), "vm") >= SET_MIB {
            break;
        }
    }
    let status = stage.status();
    let shares = ["vm", "idle"].map(|name| share_mib(&status, name));
    assert!(shares[0] >= SET_MIB, "{shares:?}: {last}");
    // All the while the cache was told what the guest evicted, by the same connection.
    let told = number(&cache(&status, "vm")["notices_in"]);
    let feed = &status["feeds"][0];
    assert!(told > 3 && told <= agent.evicted, "{told}: {feed}");
    assert!(feed["connected"] == true && feed["disk"] == "vda", "{feed}");
    assert!(number(&feed["sampled_reads"]) > 5000, "{feed}");
    assert_eq!(feed["samples_to"]["connected"], true, "{feed}");
    // Balance is killed and comes back; the agent stays connected and knows nothing of it.
    drop(balancing.kill());
    let mut balancing = balance(&stage);
    let hears = |said: &Value| said["guests"][0]["activity"]["hits"].as_u64().is_some();
    let is_heard = (0..PERIODS).any(|_| hears(&period(&stage, &mut agent, &mut balancing)));
    assert!(is_heard, "{}", stage.status()["feeds"]);
    assert!(balancing.stop().status.success());
    drop(agent);
    stage.stop_serve();
}

#[test]
fn the_kernel_of_a_guest_is_the_one_that_is_simulated() {
    let (mut stage, path) = served();
    let advise = |arguments: &[&str]| {
        let words = [
            "advise",
            "zipf(0.9):4000blocks",
            "--memory",
            "8MiB",
            "--json",
        ];
        run(&[&words, arguments].concat())
    };
    let agents = ["--agents", text(&stage.control)];
    let mut agent = Agent::connect(&path);
    let unknown = advise(&agents);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert_eq!(unknown.status.code(), Some(1), "{said}");
    assert!(said.contains("say it with --guest-cache"), "{said}");

    let cache = PageCache {
        replacement: Replacement::Mglru,
        read_ahead_bytes: 128 << 10,
        large_folios: true,
    };
    agent.say(Message::PageCache(cache));
    eventually("the agent is heard", || {
        stage.status()["feeds"][0]["page_cache"]["replacement"] == "mglru"
    });
    let forecast = advise(&agents);
    assert!(forecast.status.success(), "{forecast:?}");
    let forecast: Value = serde_json::from_slice(&forecast.stdout).expect("JSON");
    let level = |forecast: &Value| {
        let level = &forecast["options"][0]["levels"][0];
        level.as_str().expect("a level").to_owned()
    };
    assert!(
        level(&forecast).starts_with("mglru(readahead=32,folios=large):"),
        "{forecast}"
    );
    let plain = advise(&[]);
    let plain: Value = serde_json::from_slice(&plain.stdout).expect("JSON");
    assert!(level(&plain).starts_with("linux:"), "{plain}");
    drop(agent);
    stage.stop_serve();
}

#[test]
fn an_agent_that_samples_nothing_is_named_with_the_line_that_mends_it() {
    let (stage, path) = served();
    let mut balancing = balance(&stage);
    let hint = |said: &Value| said["hints"][0].as_str().unwrap_or_default().to_owned();
    let said: Value = serde_json::from_str(&balancing.line()).expect("JSON");
    assert!(hint(&said).contains("no agent has reported"), "{said}");
    let mut agent = Agent::connect(&path);
    let mut said = Value::Null;
    for _ in 0..PERIODS {
        agent.reads(START_MIB);
        said = serde_json::from_str(&balancing.line()).expect("JSON");
        if hint(&said).contains("--sample 0.01") {
            return;
        }
    }
    panic!("{said}");
}

#[test]
fn what_was_recorded_is_advised_on_without_guests() {
    let (mut stage, path) = served();
    let (config, samples) = (config(&stage), stage.path("samples"));
    let words = ["balance", "--json", "--dry-run", "--config", text(&config)];
    let record = ["--record", text(&samples)];
    let mut balancing = Running::start("futae balance", futae(&[&words[..], &record].concat()));
    let mut agent = Agent::connect(&path);
    let is_known = || {
        let text = fs::read_to_string(&samples).unwrap_or_default();
        let known = |line: &&str| {
            let period: Value = serde_json::from_str(line).expect("JSON");
            period["guests"][0]["curve"]
                .as_array()
                .is_some_and(|it| !it.is_empty())
        };
        text.lines().filter(known).count()
    };
    for _ in 0..PERIODS {
        period(&stage, &mut agent, &mut balancing);
        if is_known() >= 12 {
            break;
        }
    }
    assert!(is_known() >= 12);
    assert!(balancing.stop().status.success());
    assert_eq!(
        share_mib(&stage.status(), "vm"),
        START_MIB,
        "nothing was moved"
    );
    drop(agent);
    stage.stop_serve();

    // No server and no agent is there any more.
    let advise = |words: &[&str]| {
        let advise = [
            "balance",
            "--config",
            text(&config),
            "--advise",
            text(&samples),
        ];
        let output = run(&[&advise, words].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        String::from_utf8(output.stdout).expect("text")
    };
    let said = advise(&["--json"]);
    let lines: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let (advice, moves) = lines.split_last().expect("an advice");
    assert!(!moves.is_empty(), "{said}");
    assert_eq!(number(&advice["moves"]), moves.len() as u64);
    assert_eq!(moves[0]["reason"]["kind"], "better", "{said}");
    let periods = fs::read_to_string(&samples)
        .expect("the samples")
        .lines()
        .count();
    assert_eq!(number(&advice["periods"]), periods as u64);
    // The guest reads 24 MiB evenly and has 16: a third of its reads miss, 10/3 hits a read.
    let real = |key: &str| {
        advice[key]
            .as_f64()
            .unwrap_or_else(|| panic!("{key}: {advice}"))
    };
    assert!((real("measured_time") - 10.0 / 3.0).abs() < 0.2, "{advice}");
    assert!(real("balanced_gain") > 0.1, "{advice}");
    assert!(
        real("fixed_gain") >= real("balanced_gain") - 0.05,
        "{advice}"
    );
    let vm = &advice["guests"][0];
    assert!(
        vm["balanced_bytes"].as_f64() > vm["had_bytes"].as_f64(),
        "{advice}"
    );
    assert!(number(&vm["fixed_bytes"]) > 20 * MIB, "{advice}");
    assert!(advise(&[]).contains("in the best division that never changes"));

    for (path, said) in [
        ("/nowhere", "cannot read /nowhere"),
        (text(&config), "line 1 is no period"),
    ] {
        let output = run(&["balance", "--config", text(&config), "--advise", path]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(said),
            "{errors}"
        );
    }
}
