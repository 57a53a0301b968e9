//! The page for people: its numbers against the status, and what a browser makes of it.

use super::{cell, connect, get, get_unix, value};
use futae_nbd::client::ClientWish;
use futae_testkit::nbd::Client;
use futae_testkit::wait::eventually;
use futae_tests::BLOCK;
use futae_tests::binary::run;
use futae_tests::browser::{BROWSER, Browser};
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::{has, text};
use std::fs;
use std::net::TcpStream;

#[test]
fn the_page_has_the_numbers_of_the_status_and_nothing_that_runs_unasked() {
    let mut stage = Stage::new(64);
    let socket = stage.path("web.sock");
    let address = format!("unix:{}", socket.display());
    let hostile = "<script>alert(1)</script>\"&'";
    let shown = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&amp;&#39;";
    let second = stage.path("second.img");
    fs::copy(&stage.image, &second).expect("a copy");
    let export = format!("{hostile}={},class=far", second.display());
    stage.serve(&[
        "--cache", "16blocks", "--policy", "lru", "--web", &address, "--export", &export,
    ]);
    let mut client = Client::unix(&stage.socket, hostile, &ClientWish::default());
    for block in [1, 2, 1, 3, 1, 4] {
        let read = client.read(block * BLOCK as u64, BLOCK as u32);
        read.expect("a read");
    }
    connect(&stage).read(0, BLOCK as u32).expect("a read");
    let page = || get_unix(&socket, "/");
    eventually("the reads are counted", || {
        cell(&page().1, "hits", shown, "requests").as_deref() == Some("6")
    });
    let ((head, body), status) = (page(), stage.status());
    let engine = &status["engines"][0];
    for (at, name) in [EXPORT, shown].into_iter().enumerate() {
        let volume = &engine["volumes"][at];
        for (table, key) in [
            ("hits", "requests"),
            ("hits", "hits"),
            ("hits", "misses"),
            ("stores", "store_reads"),
        ] {
            let value = cell(&body, table, name, key);
            assert_eq!(value, Some(volume[key].to_string()), "{name} {key}\n{body}");
        }
        let held = volume["resident_blocks"].as_u64().expect("a number") * BLOCK as u64;
        let name = format!("\u{2514} {name}");
        let value = cell(&body, "holders", &name, "resident_bytes");
        assert_eq!(value, Some(held.to_string()), "{body}");
        let value = cell(&body, "holders", &name, "double_cached_bytes");
        assert_eq!(value, Some(volume["double_cached_bytes"].to_string()));
    }
    assert_eq!(cell(&body, "hits", shown, "hits").as_deref(), Some("2"));
    let demoted = cell(&body, "told", "common", "demotions_in");
    assert_eq!(demoted, Some(engine["demotions_in"].to_string()));

    // Of scripts there is that of the page, which has the nonce of this answer; nothing comes from elsewhere.
    let policy = head
        .lines()
        .find(|line| line.starts_with("Content-Security-Policy:"));
    let policy = policy.expect("a policy");
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    let nonce = policy
        .split("script-src 'nonce-")
        .nth(1)
        .and_then(|rest| rest.split('\'').next());
    let nonce = nonce.expect("a nonce");
    assert_eq!(nonce.len(), 32);
    assert_eq!(body.matches("<script").count(), 1, "{body}");
    assert!(
        body.contains(&format!("<script nonce=\"{nonce}\">")),
        "{body}"
    );
    assert!(!page().0.contains(nonce), "the nonce is used twice");
    assert!(
        !body.contains("http://") && !body.contains("https://"),
        "{body}"
    );
    assert!(
        body.contains("<noscript><meta http-equiv=refresh"),
        "{body}"
    );
    // The same address has the metrics, under the same names.
    let (_, text) = get_unix(&socket, "/metrics");
    assert_eq!(
        value(&text, "futae_export_requests_total", &["alert(1)"]),
        Some(6.0),
        "{text}"
    );
    drop(client);
    stage.stop_serve();
    assert!(!socket.exists(), "the socket is left");
}

/// A server whose 64 blocks are asked for 128 in turn, with its page at `address`: LRU has none of them left with 64, and all of them
/// with 128.
fn looped(address: &str, words: &[&str]) -> Stage {
    let mut stage = Stage::new(512);
    let serve = ["--cache", "64blocks", "--policy", "lru", "--web", address];
    stage.serve(&[&serve[..], words].concat());
    let mut client = connect(&stage);
    for at in 0..16 * 128 {
        let read = client.read(at % 128 * BLOCK as u64, BLOCK as u32);
        read.expect("a read");
    }
    stage
}

#[test]
fn the_page_has_the_hit_ratios_of_other_sizes() {
    let directory = tempfile::tempdir().expect("a directory");
    let (socket, forecast) = (
        directory.path().join("web"),
        directory.path().join("forecast"),
    );
    let advised = run(&[
        "advise",
        "uniform:128blocks",
        "--at",
        "host",
        "--memory",
        "256KiB",
        "--policies",
        "lru",
        "--requests",
        "20000",
        "--save",
        text(&forecast),
    ]);
    assert!(advised.status.success(), "{advised:?}");
    let address = format!("unix:{}", socket.display());
    let mut stage = looped(&address, &["--forecast", text(&forecast)]);
    let number =
        |page: &str, key: &str| -> Option<f64> { cell(page, "curves", EXPORT, key)?.parse().ok() };
    let page = || get_unix(&socket, "/").1;
    // The first round of the loop misses with any size: one in sixteen.
    eventually("the curve has the whole loop", || {
        number(&page(), "twice").is_some_and(|hits| hits > 0.8)
    });
    let body = page();
    for key in ["half", "same"] {
        let hits = number(&body, key).expect(key);
        assert!(hits < 0.02, "{key}: {hits}\n{body}");
    }
    let (twice, most) = (number(&body, "twice"), number(&body, "four_times"));
    assert!(twice.is_some() && twice <= most, "{body}");
    let cache = cell(&body, "curves", EXPORT, "cache_bytes");
    assert_eq!(cache, Some((64 * BLOCK).to_string()));
    assert_eq!(body.matches("<svg ").count(), 2, "{body}");
    // How long the reads took.
    let answered = cell(&body, "latencies", "disk read", "answered");
    assert_eq!(answered.as_deref(), Some("2048"), "{body}");
    for key in ["mean_micros", "p50_micros", "p99_micros"] {
        let micros = cell(&body, "latencies", "disk read", key);
        let micros: f64 = micros.expect(key).parse().expect("a number");
        assert!(micros > 0.0, "{key}");
    }
    // Forecast was half of an even load; a loop has nothing.
    let fact = |key: &str| cell(&body, "forecast", EXPORT, key).expect(key);
    assert_eq!(
        (&*fact("measured"), &*fact("requests")),
        ("0", "2048"),
        "{body}"
    );
    let low: f64 = fact("low").parse().expect("a number");
    assert!((0.4..0.5).contains(&low), "{low}");
    assert_eq!(fact("verdict"), "not as forecast");
    let problems = body.split_once("id=problems").map(|(_, rest)| rest);
    let problems = problems
        .and_then(|rest| rest.split_once("</ul>"))
        .expect("problems")
        .0;
    assert!(problems.contains("another load"), "{problems}");
    stage.stop_serve();
}

#[test]
fn the_page_in_a_browser() {
    if !has(BROWSER) {
        return;
    }
    let mut stage = looped("tcp:127.0.0.1:0", &[]);
    let address = stage.ready()["web"]
        .as_str()
        .expect("an address")
        .to_owned();
    let address = address.strip_prefix("tcp:").expect("of TCP");
    let page = || get(TcpStream::connect(address).expect("it answers"), "/").1;
    eventually("there is a curve", || {
        page().contains("<table id=\"curves\">")
    });
    let seen = Browser::default().visit(&format!("http://{address}/"));
    assert_eq!(seen.console, Vec::<String>::new(), "{}", seen.dom);
    for table in ["hits", "latencies", "curves", "holders", "stores", "memory"] {
        assert!(
            seen.dom.contains(&format!("<table id=\"{table}\">")),
            "{table}"
        );
    }
    // The drawing of the last 15 minutes has a line as well where the reads took longer than its step.
    let curve = seen
        .dom
        .split_once("aria-label=\"Hit ratios by the size of the cache\"")
        .and_then(|(_, rest)| rest.split_once("</svg>"))
        .expect("the drawing")
        .0;
    assert_eq!(curve.matches("<polyline").count(), 1, "{curve}");
    // The style of the page holds, and with it the colour of the curve and of its name.
    let (width, height) = seen.picture.size();
    let whole = serde_json::json!({ "left": 0, "top": 0, "width": width, "height": height });
    let blue = seen.picture.count(&whole, [0x00, 0x72, 0xb2]);
    assert!(blue > 300, "{blue} pixels");
    // On a phone it is not wider than the window, and its text is not smaller than 9 pixels.
    let phone = Browser::default().phone(&page());
    assert_eq!(phone["width"], 360, "{phone}");
    assert!(phone["text"].as_f64() >= Some(9.0), "{phone}");
    assert_eq!(phone["covered"], serde_json::json!([]), "{phone}");
    stage.stop_serve();
}
