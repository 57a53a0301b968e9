//! Traces behind URLs: what is read of an object is what is read of the file.

use futae_tests::binary::{futae, run, run_json};
use futae_tests::tools::{self, has, text};
use futae_tests::web::{Manner, Web};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The longest range that is asked for.
const RANGE_BYTES: u64 = 2 << 20;

/// A directory with a trace of 200,000 requests, 5 MB of CSV, and copies in other formats.
fn traces(names: &[&str]) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let workload = "zipf(0.9,writes=0.3):64MiB";
    done(&[
        "trace",
        "convert",
        workload,
        text(&at("a.csv")),
        "--requests",
        "200000",
    ]);
    for name in names {
        done(&["trace", "convert", text(&at("a.csv")), text(&at(name))]);
    }
    directory
}

fn done(arguments: &[&str]) -> String {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

/// What a command that must fail says.
fn error(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let mut command = futae(arguments);
    without_credentials(&mut command).envs(environment.iter().copied());
    let output = command.output().expect("futae starts");
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Credentials of the one who runs the test are no part of it.
fn without_credentials(command: &mut std::process::Command) -> &mut std::process::Command {
    for (name, _) in std::env::vars_os() {
        let of_a_store = |name: &str| {
            ["AWS_", "GOOGLE_", "AZURE_"]
                .iter()
                .any(|of| name.starts_with(of))
        };
        if name.to_str().is_some_and(of_a_store) {
            command.env_remove(name);
        }
    }
    command
}

/// Without what a clock measured, and without the name of the trace.
fn nameless(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            const NAMES: [&str; 6] = [
                "seconds",
                "read_seconds",
                "source",
                "sources",
                "trace",
                "files",
            ];
            let is_it = |key: &str| !NAMES.contains(&key);
            let kept = map
                .into_iter()
                .filter(|(key, _)| is_it(key) || key == "trace");
            let kept = kept.filter(|(key, value)| key != "trace" || value.is_object());
            kept.map(|(key, value)| (key, nameless(value))).collect()
        }
        Value::Array(list) => list.into_iter().map(nameless).collect(),
        other => other,
    }
}

#[test]
fn a_trace_behind_a_url_is_that_of_its_file() {
    let names = [
        "b.csv.gz",
        "c.csv.zst",
        "d.oracleGeneral",
        "e.parquet",
        "f.csv.bz2",
        "g.csv.xz",
    ];
    let directory = traces(&names);
    let web = Web::new(directory.path(), Manner::default());
    for name in names.iter().chain(&["a.csv"]) {
        let (file, url) = (directory.path().join(name), web.url(name));
        let both = |rest: &[&str]| {
            let of = |trace: &str| {
                let arguments = [&[rest[0]], &[trace], &rest[1..], &["--json"]].concat();
                nameless(run_json(&arguments))
            };
            let (of_file, of_url) = (of(text(&file)), of(&url));
            assert_eq!(of_url, of_file, "{name}: {rest:?}");
        };
        both(&["sim", "--policy", "lru,arc", "--sizes", "1%,10%"]);
        // In one pass, and by a sample.
        both(&["sim", "--level", "lru:1000blocks"]);
        both(&["mrc", "--shards", "0.1"]);
    }
    let ranges = web.ranges();
    assert!(
        ranges.iter().any(|range| range.0 > 0),
        "several ranges each"
    );
    assert!(
        ranges
            .iter()
            .all(|(first, last)| last - first < RANGE_BYTES)
    );
}

#[test]
fn an_object_is_converted_to_the_same_bytes_and_only_read_as_far_as_needed() {
    let directory = traces(&["e.parquet"]);
    let web = Web::new(directory.path(), Manner::default());
    let at = |name: &str| directory.path().join(name);
    for name in ["a.csv", "e.parquet"] {
        done(&[
            "trace",
            "convert",
            text(&at(name)),
            text(&at("of_file.csv")),
        ]);
        done(&["trace", "convert", &web.url(name), text(&at("of_url.csv"))]);
        let read = |name| fs::read(at(name)).expect("it is there");
        assert!(read("of_url.csv") == read("of_file.csv"), "{name}");
    }
    // One that is longer than what is read ahead.
    let long: String = (0..1_300_000)
        .map(|at| format!("{},4096,4096,R\n", at / 100_000))
        .collect();
    fs::write(at("long.csv"), format!("time,offset,length,op\n{long}")).expect("room");
    let before = web.ranges().len();
    done(&["trace", "head", &web.url("long.csv"), "-n", "1"]);
    let bytes = fs::metadata(at("long.csv")).expect("it is there").len();
    assert!(bytes > 7 * RANGE_BYTES, "{bytes}");
    let ranges = web.ranges().len() - before;
    assert!(
        (1..=5).contains(&ranges),
        "{ranges} ranges of 2 MiB are on the way"
    );
}

#[test]
fn a_server_that_is_busy_for_a_moment_is_asked_again() {
    let directory = traces(&[]);
    let manner = Manner {
        busy_every: Some(3),
        ..Manner::default()
    };
    let web = Web::new(directory.path(), manner);
    let info = run_json(&["trace", "info", &web.url("a.csv"), "--json"]);
    let file = directory.path().join("a.csv");
    let of_file = run_json(&["trace", "info", text(&file), "--json"]);
    assert_eq!(nameless(info), nameless(of_file));
    assert!(web.asked().len() >= 3, "it was busy");
}

/// Reads an object in a bucket of a store that takes only requests whose header `Authorization` begins so, then one that is not there,
/// and then the first one without credentials. `variables` are those for a server's URL: the way to the server, and then the credentials.
fn read_from_a_store(
    scheme: &str,
    authorization: &'static str,
    variables: impl Fn(&str) -> [Vec<(&'static str, String)>; 2],
    refusal: &str,
) {
    let directory = traces(&[]);
    let bucket = directory.path().join("bucket/some");
    fs::create_dir_all(&bucket).expect("a directory");
    fs::copy(directory.path().join("a.csv"), bucket.join("a key.csv")).expect("room");
    let manner = Manner {
        authorization: Some(authorization),
        ..Manner::default()
    };
    let web = Web::new(directory.path(), manner);
    let [way, credentials] = variables(web.url("").trim_end_matches('/'));
    let both: Vec<_> = way.iter().chain(&credentials).cloned().collect();
    let url = format!("{scheme}://bucket/some/a key.csv");
    let mut command = futae(&["trace", "info", &url, "--json"]);
    without_credentials(&mut command).envs(both.iter().cloned());
    let output = command.output().expect("futae starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let info: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(info["requests"], 200_000);

    let none = format!("{scheme}://bucket/none.csv");
    let said = error(&["sim", &none, "--level", "lru:1%"], &borrowed(&both));
    let wanted = format!("trace {none}: there is no such object; check the bucket and the key");
    assert!(said.contains(&wanted), "{said}");

    let skip = format!(
        "{}_SKIP_SIGNATURE",
        way[0].0.split('_').next().unwrap_or("")
    );
    let unsigned = [&borrowed(&way)[..], &[(&*skip, "true")]].concat();
    let said = error(&["trace", "info", &url], &unsigned);
    let wanted = format!("the store refuses access; {refusal}");
    assert!(said.contains(&wanted), "{said}");
}

fn borrowed<'a>(variables: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    let those = variables.iter();
    those.map(|(name, value)| (*name, &**value)).collect()
}

#[test]
fn s3_is_asked_with_a_signature() {
    let variables = |server: &str| {
        [
            vec![
                ("AWS_ENDPOINT", server.to_owned()),
                ("AWS_ALLOW_HTTP", "true".to_owned()),
                ("AWS_REGION", "nowhere".to_owned()),
            ],
            vec![
                ("AWS_ACCESS_KEY_ID", "a".to_owned()),
                ("AWS_SECRET_ACCESS_KEY", "b".to_owned()),
            ],
        ]
    };
    let refusal = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    read_from_a_store("s3", "AWS4-HMAC-SHA256 ", variables, refusal);
}

#[test]
fn google_is_asked_with_a_token() {
    if !has("openssl") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let [rsa, account] = ["rsa.pem", "account.json"].map(|name| directory.path().join(name));
    let bits = "rsa_keygen_bits:2048";
    let words = [
        "genpkey",
        "-algorithm",
        "RSA",
        "-pkeyopt",
        bits,
        "-quiet",
        "-out",
    ];
    tools::run("openssl", &[&words[..], &[text(&rsa)]].concat());
    let key = serde_json::json!({
        "private_key": fs::read_to_string(&rsa).expect("a key"),
        "private_key_id": "1",
        "client_email": "reader@example.org",
    });
    fs::write(&account, key.to_string()).expect("room");
    let variables = |server: &str| {
        [
            vec![
                ("GOOGLE_BASE_URL", server.to_owned()),
                ("GOOGLE_ALLOW_HTTP", "true".to_owned()),
            ],
            vec![("GOOGLE_SERVICE_ACCOUNT", text(&account).to_owned())],
        ]
    };
    // A JSON Web Token begins with `{"` in base 64.
    let refusal = "set GOOGLE_SERVICE_ACCOUNT to the path of a key";
    read_from_a_store("gs", "Bearer eyJ", variables, refusal);
}

#[test]
fn azure_is_asked_with_a_signature() {
    let account = || ("AZURE_STORAGE_ACCOUNT_NAME", "reader".to_owned());
    let variables = |server: &str| {
        [
            vec![
                ("AZURE_STORAGE_ENDPOINT", server.to_owned()),
                ("AZURE_ALLOW_HTTP", "true".to_owned()),
                account(),
            ],
            vec![("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0".to_owned())],
        ]
    };
    let refusal = "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY";
    read_from_a_store("az", "SharedKey reader:", variables, refusal);
}

#[test]
fn errors_name_the_url_and_the_way_out() {
    let directory = traces(&[]);
    let whole = Manner {
        without_ranges: true,
        ..Manner::default()
    };
    let (web, whole) = (
        Web::new(directory.path(), Manner::default()),
        Web::new(directory.path(), whole),
    );
    let query = format!("{}?signature=1", web.url("a.csv"));
    for (url, way_out) in [
        (
            &*web.url("none.csv"),
            "the server has no such file; check the path",
        ),
        (
            &*whole.url("a.csv"),
            "does not send ranges of a file; download it first",
        ),
        (&*query, "a URL with a query (`?`) is not read"),
        (
            "ftp://host/a.csv",
            "read are URLs of s3, gs, az, http, https and file",
        ),
        ("file:///no/such/trace.csv", "No such file or directory"),
    ] {
        let said = error(&["sim", url, "--level", "lru:1%"], &[]);
        assert!(
            said.contains(&format!("trace {url}")) && said.contains(way_out),
            "{said}"
        );
    }
    for head_without_tag in [false, true] {
        let manner = Manner {
            replaced_after: Some(2),
            head_without_tag,
            ..Manner::default()
        };
        let replaced = Web::new(directory.path(), manner);
        let said = error(&["trace", "info", &replaced.url("a.csv")], &[]);
        assert!(
            said.contains("the object was replaced while it was read"),
            "{said}"
        );
    }
}

#[test]
fn a_server_may_tell_the_version_of_a_file_with_its_data_only() {
    let directory = traces(&[]);
    let manner = Manner {
        head_without_tag: true,
        ..Manner::default()
    };
    let web = Web::new(directory.path(), manner);
    let of = |trace: &str| nameless(run_json(&["trace", "info", trace, "--json"]));
    let file = directory.path().join("a.csv");
    assert_eq!(of(&web.url("a.csv")), of(text(&file)));
}

#[test]
fn a_file_url_and_plans_of_sweeps_and_advice_take_urls() {
    let directory = traces(&[]);
    let web = Web::new(directory.path(), Manner::default());
    let file = directory.path().join("a.csv");
    let info = |trace: &str| nameless(run_json(&["trace", "info", trace, "--json"]));
    let url = format!("file://{}", file.display());
    assert_eq!(info(&url), info(text(&file)));
    let rows = |trace: &str, out: &Path| {
        let plan = directory.path().join("plan.toml");
        let toml = format!("traces = ['{trace}']\npolicies = ['lru']\nsizes = ['1%']\n");
        fs::write(&plan, toml).expect("room");
        done(&["sweep", text(&plan), "--out", text(out)]);
        let results = fs::read_to_string(out.join("results.csv")).expect("results");
        results.lines().count()
    };
    assert_eq!(rows(&web.url("a.csv"), &directory.path().join("out")), 2);
    let advice = run_json(&["advise", &web.url("a.csv"), "--memory", "8MiB", "--json"]);
    assert!(advice.is_object());
}
