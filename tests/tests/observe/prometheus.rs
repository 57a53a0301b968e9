//! The dashboard's queries and the alert rules, answered by a real Prometheus that scrapes a real server.

use super::queries::{expressions, rules};
use futae_nbd::Command as Nbd;
use futae_testkit::wait::eventually;
use futae_tests::BLOCK;
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::{has, text};
use serde_json::Value;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

const RULES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../packaging/prometheus/futae.rules.yml"
);

fn promtool(words: &[&str]) -> Output {
    let output = Command::new("promtool").args(words).output();
    output.expect("promtool is beside prometheus")
}

/// What a query comes to, by series.
fn ask(address: &str, query: &str) -> Result<Vec<Value>, String> {
    let output = promtool(&["query", "instant", "-o", "json", address, query]);
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

/// A Prometheus that scrapes a server every second.
fn scraping(folder: &Path, target: &str) -> (Running, String) {
    let file = folder.join("prometheus.yml");
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [\"{RULES}\"]\n\
         scrape_configs: [{{job_name: futae, static_configs: [{{targets: [\"{target}\"]}}]}}]\n"
    );
    fs::write(&file, config).expect("a configuration");
    // It names no port that it chose itself; one that was free a moment ago is.
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = port.local_addr().expect("its number").to_string();
    drop(port);
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", text(&file)))
        .arg(format!(
            "--storage.tsdb.path={}",
            text(&folder.join("data"))
        ))
        .arg(format!("--web.listen-address={address}"))
        .stderr(File::create(folder.join("prometheus.log")).expect("a log"));
    (
        Running::start("prometheus", command),
        format!("http://{address}"),
    )
}

#[test]
fn a_prometheus_answers_every_query_of_the_dashboard_and_takes_every_rule() {
    if !has("prometheus") {
        return;
    }
    let checked = promtool(&["check", "rules", RULES]);
    assert!(checked.status.success(), "{checked:?}");
    let mut stage = Stage::new(64);
    let feed = format!("unix:{}", stage.path("feed.sock").display());
    stage.serve(&[
        "--cache",
        "16blocks",
        "--policy",
        "lru",
        "--write-mode",
        "write-back",
        "--metrics",
        "tcp:127.0.0.1:0",
        "--feed",
        &feed,
    ]);
    let target = stage.ready()["metrics"]
        .as_str()
        .expect("an address")
        .to_owned();
    let target = target.strip_prefix("tcp:").expect("of TCP");
    let folder = tempfile::tempdir().expect("a folder");
    let (prometheus, address) = scraping(folder.path(), target);
    let mut client = super::connect(&stage);
    let log = || fs::read_to_string(folder.path().join("prometheus.log")).unwrap_or_default();
    eventually("it has looked a few times", || {
        // There is something to see at each look.
        for block in 0..32 {
            client
                .read(block * BLOCK as u64, BLOCK as u32)
                .expect("a read");
        }
        assert_eq!(client.write(0, &[7; BLOCK]), None);
        assert_eq!(client.simple(Nbd::Flush, 0, 0).error, None);
        let looks = ask(&address, "count_over_time(futae_uptime_seconds[1m]) >= 4");
        looks.is_ok_and(|looks| !looks.is_empty())
    });
    for query in expressions() {
        let query = query
            .replace("$__rate_interval", "1m")
            .replace("$instance", ".*")
            .replace("$export", ".*");
        let answer = ask(&address, &query);
        let series = answer.unwrap_or_else(|error| panic!("{query}: {error}\n{}", log()));
        assert!(!series.is_empty(), "{query}: no answer");
        let value = series[0]["value"][1].as_str().unwrap_or_default();
        let is_of_reads = query.contains("_duration_seconds") && query.contains("request");
        assert!(!is_of_reads || value != "NaN", "{query}: {series:?}");
    }
    for (query, _) in rules() {
        let answer = ask(&address, query);
        answer.unwrap_or_else(|error| panic!("{query}: {error}"));
    }
    // Nothing is wrong with this server but that its agent is not there, for less than ten minutes.
    let alerts = ask(&address, "ALERTS{alertstate=\"firing\"}").expect("an answer");
    assert_eq!(alerts, Vec::<Value>::new());
    drop(client);
    prometheus.kill();
    stage.stop_serve();
}
