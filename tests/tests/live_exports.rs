//! Exports that come and go while clients use others: `futae export add` and `remove`, and SIGHUP.

use futae_testkit::nbd::Plain;
use futae_testkit::wait::{eventually, obtain};
use futae_tests::live::{BLOCK, LivePlace, Load, image_of, said};
use futae_tests::mounted::Mounted;
use futae_tests::tools::{self, has, text};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const CYCLES: u64 = 200;
/// Cycles after which a server has all the memory, threads and descriptors that it comes to have.
const WARM_UP: u64 = 40;
/// Blocks that are used in each cycle.
const USED: u64 = 64;

/// `futae export add`, and whether it succeeded.
fn add(place: &LivePlace, export: &str) -> (bool, String) {
    said(&["export", "add", text(&place.path("control.sock")), export])
}

fn remove(place: &LivePlace, name: &str, more: &[&str]) -> (bool, String) {
    let control = place.path("control.sock");
    let words = [&["export", "remove", text(&control), name], more].concat();
    said(&words)
}

/// An order, and its answer.
fn order(socket: &Path, order: &Value) -> Value {
    let mut stream = UnixStream::connect(socket).expect("the control socket");
    stream
        .write_all(format!("{order}\n").as_bytes())
        .expect("sent");
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .expect("an answer");
    serde_json::from_str(&line).expect("JSON")
}

/// Names that the server shows to clients.
fn listed(place: &LivePlace) -> Vec<String> {
    let status = place.status();
    let exports = status["exports"].as_array().expect("a list").iter();
    let name = |export: &Value| export["name"].as_str().expect("a name").to_owned();
    exports.map(name).collect()
}

/// Descriptors and threads of a process, and its memory in KiB.
fn held(process: u32) -> (usize, usize, u64) {
    let count = |what: &str| {
        let entries = fs::read_dir(format!("/proc/{process}/{what}")).expect("a process");
        entries.count()
    };
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|text| text.trim().strip_suffix(" kB")?.parse().ok());
    (count("fd"), count("task"), resident.expect("memory"))
}

#[test]
fn exports_come_and_go_beside_a_load_and_leave_nothing_behind() {
    let place = LivePlace::new();
    place.write("write-mode = \"write-back\"");
    let image = place.path("two.img");
    fs::write(&image, vec![0; 1 << 20]).expect("an image");
    let server = place.serve();
    let (nbd, control) = (place.path("nbd.sock"), place.path("control.sock"));
    let load = Load::start(&nbd, "vm1");
    load.go_on(100);
    let mut warm = None;
    for cycle in 1..=CYCLES {
        // In turn in the cache that is there, and in one of its own.
        let share = if cycle % 2 == 0 { ",share=1MiB" } else { "" };
        let export = format!("vm2={}{share}", text(&image));
        let added = order(
            &control,
            &json!({ "command": "export-add", "export": export }),
        );
        assert_eq!(added["size_bytes"], 1 << 20, "{added}");
        let mut client = Plain::connect(&nbd, "vm2").expect("a connection");
        for block in 0..USED {
            let offset = block * BLOCK as u64;
            let data = client
                .read(offset, BLOCK)
                .expect("connected")
                .expect("a read");
            let last = (cycle - 1) as u8;
            assert!(
                data.iter().all(|&byte| byte == last),
                "cycle {cycle}, block {block}"
            );
            let written = client.write(offset, &[cycle as u8; BLOCK]);
            written.expect("connected").expect("a write");
        }
        drop(client);
        // The server may not have seen yet that the client is gone.
        obtain("the export is removed", || {
            let answer = order(
                &control,
                &json!({ "command": "export-remove", "export": "vm2" }),
            );
            match answer["error"].as_str() {
                None => Ok(()),
                Some(problem) => Err(problem.to_owned()),
            }
        });
        if cycle == WARM_UP {
            warm = Some(held(server.id()));
        }
    }
    load.go_on(100);
    let blocks = load.end();
    let (descriptors, threads, memory) = warm.expect("more cycles");
    eventually("descriptors and threads are as before", || {
        let now = held(server.id());
        // Those of the client that did the load are gone.
        now.0 <= descriptors && now.1 <= threads
    });
    let now = held(server.id()).2;
    // The blocks that were used since are ten times as much.
    assert!(now < memory + 4096, "{memory} KiB, then {now} KiB");
    assert!(server.stop().status.success());
    let first = fs::read(place.path("vm1.img")).expect("the image");
    assert!(first == image_of(&blocks), "vm1 differs");
    let second = fs::read(&image).expect("the image");
    assert!(
        second[..USED as usize * BLOCK]
            .iter()
            .all(|&byte| byte == CYCLES as u8)
    );
}

#[test]
fn an_export_in_use_stays_unless_it_is_forced() {
    let place = LivePlace::new();
    place.write("write-mode = \"write-back\"\ndirty-age-max = \"1h\"");
    let image = place.path("two.img");
    fs::write(&image, vec![0; 1 << 20]).expect("an image");
    let server = place.serve();
    let nbd = place.path("nbd.sock");
    let load = Load::start(&nbd, "vm1");
    let export = format!("vm2={}", text(&image));
    let (ok, text) = add(&place, &export);
    assert!(ok && text == "vm2: added (1MiB)\n", "{text}");
    assert_eq!(listed(&place), ["vm1", "vm2"]);
    let (ok, text) = add(&place, &export);
    assert!(!ok && text.contains("already"), "{text}");

    let mut client = Plain::connect(&nbd, "vm2").expect("a connection");
    client
        .write(0, &[8; BLOCK])
        .expect("connected")
        .expect("a write");
    let (ok, text) = remove(&place, "vm2", &[]);
    assert!(
        !ok && text.contains("in use by 1 connections") && text.contains("--force"),
        "{text}"
    );
    client
        .write(BLOCK as u64, &[9; BLOCK])
        .expect("still connected")
        .expect("a write");
    let (ok, text) = remove(&place, "vm2", &["--force"]);
    assert!(
        ok && text == "vm2: removed, 1 connections ended\n",
        "{text}"
    );
    assert!(client.read(0, BLOCK).is_err(), "the connection is left");
    assert!(Plain::connect(&nbd, "vm2").is_err(), "the export is left");
    let now = fs::read(&image).expect("the image");
    assert!(now[..BLOCK] == [8; BLOCK] && now[BLOCK..2 * BLOCK] == [9; BLOCK]);

    for (name, problem) in [
        ("vm2", "no export is named \"vm2\""),
        ("vm1", "the only one"),
    ] {
        let (ok, text) = remove(&place, name, &["--force"]);
        assert!(!ok && text.contains(problem), "{text}");
    }
    for (export, problem) in [
        ("vm3=/no/such.img", "/no/such.img"),
        ("vm3", "NAME=SOURCE"),
        ("vm3=two.img,class=tape", "tape"),
        ("vm3=two.img,shared", "shared"),
    ] {
        let (ok, text) = add(&place, export);
        assert!(!ok && text.contains(problem), "{export}: {text}");
    }
    load.go_on(100);
    load.end();
    assert!(server.stop().status.success());
}

#[test]
fn nbdinfo_lists_what_is_there_now() {
    if !has("nbdinfo") {
        return;
    }
    let place = LivePlace::new();
    place.write("");
    let image = place.path("two.img");
    fs::write(&image, vec![0; 1 << 20]).expect("an image");
    let server = place.serve();
    let uri = format!("nbd+unix://?socket={}", text(&place.path("nbd.sock")));
    let list = || {
        let output = tools::run("nbdinfo", &["--list", "--json", &uri]);
        let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let exports = list["exports"].as_array().expect("a list").iter();
        let names = exports.map(|export| export["export-name"].as_str().map(str::to_owned));
        names.map(Option::unwrap_or_default).collect::<Vec<_>>()
    };
    assert_eq!(list(), ["vm1"]);
    let export = format!("vm2={},share=64KiB,read-only", text(&image));
    assert!(add(&place, &export).0);
    assert_eq!(list(), ["vm1", "vm2"]);
    let (ok, text) = remove(&place, "vm1", &[]);
    assert!(ok, "{text}");
    assert_eq!(list(), ["vm2"]);
    assert!(server.stop().status.success());
}

#[test]
fn the_file_adds_and_removes_exports() {
    let place = LivePlace::new();
    place.write("");
    let image = place.path("two.img");
    fs::write(&image, vec![0; 1 << 20]).expect("an image");
    let mut server = place.serve();
    let before = fs::read_to_string(place.path("serve.toml")).expect("the file");
    let more = format!(
        "{before}\n[[export]]\nname = \"vm2\"\nsource = \"{}\"\nshare = \"16blocks\"\n",
        text(&image)
    );
    fs::write(
        place.path("serve.toml"),
        more.replace("128blocks", "144blocks"),
    )
    .expect("a file");
    server.signal(Signal::HUP);
    eventually("vm2 is there", || listed(&place) == ["vm1", "vm2"]);
    let mut client = Plain::connect(&place.path("nbd.sock"), "vm2").expect("a connection");
    assert_eq!(
        client.read(0, BLOCK).expect("connected").expect("a read"),
        [0; BLOCK]
    );
    let status = place.status();
    let capacities = [0, 1].map(|at: usize| status["engines"][at]["capacity_blocks"].clone());
    assert_eq!(capacities, [128, 16]);

    // In use, it stays until the next time.
    fs::write(place.path("serve.toml"), before).expect("a file");
    server.signal(Signal::HUP);
    client.read(0, BLOCK).expect("connected").expect("a read");
    drop(client);
    eventually("vm2 is gone", || {
        server.signal(Signal::HUP);
        listed(&place) == ["vm1"]
    });
    assert!(server.stop().status.success());
}

#[test]
fn the_only_export_leaves_for_another() {
    let place = LivePlace::new();
    place.write("");
    fs::write(place.path("two.img"), vec![0; 1 << 20]).expect("an image");
    let mut server = place.serve();
    let file = fs::read_to_string(place.path("serve.toml")).expect("the file");
    let other = file.replace("name = \"vm1\"", "name = \"vm2\"");
    let other = other.replace("vm1.img", "two.img");
    fs::write(place.path("serve.toml"), other).expect("a file");
    server.signal(Signal::HUP);
    eventually("vm2 is there instead", || listed(&place) == ["vm2"]);
    assert!(server.stop().status.success());
}

#[test]
fn the_whole_cache_of_the_only_export_goes_to_another_once_it_has_left() {
    let place = LivePlace::new();
    place.write("");
    let path = place.path("serve.toml");
    let common = fs::read_to_string(&path).expect("the file");
    fs::write(&path, format!("{common}share = \"128blocks\"\n")).expect("a file");
    fs::write(place.path("two.img"), vec![0; 1 << 20]).expect("an image");
    fs::write(place.path("three.img"), vec![0; 1 << 20]).expect("an image");
    let renamed = |name: &str, image: &str| {
        let other = common.replace("name = \"vm1\"", &format!("name = \"{name}\""));
        fs::write(&path, other.replace("vm1.img", image)).expect("a file");
    };
    let capacities = || {
        let status = place.status();
        let engines = status["engines"].as_array().expect("a list");
        let capacities = engines.iter().map(|engine| &engine["capacity_blocks"]);
        capacities.filter_map(Value::as_u64).collect::<Vec<_>>()
    };
    let mut server = place.serve();
    renamed("vm2", "two.img");
    server.signal(Signal::HUP);
    eventually("vm2 is there instead", || listed(&place) == ["vm2"]);
    assert_eq!(capacities(), [128]);
    assert!(server.stop().status.success());

    // While a client keeps the old export, it keeps its blocks.
    fs::write(&path, format!("{common}share = \"128blocks\"\n")).expect("a file");
    let mut server = place.serve();
    let mut client = Plain::connect(&place.path("nbd.sock"), "vm1").expect("a connection");
    client.read(0, BLOCK).expect("connected").expect("a read");
    renamed("vm3", "three.img");
    server.signal(Signal::HUP);
    eventually("vm3 has what is left", || capacities() == [128, 1]);
    drop(client);
    eventually("vm1 is gone", || {
        server.signal(Signal::HUP);
        listed(&place) == ["vm3"]
    });
    eventually("vm3 has all", || capacities() == [128]);
    assert!(server.stop().status.success());
}

#[test]
fn what_began_with_the_server_ends_with_it() {
    let place = LivePlace::new();
    fs::write(place.path("two.img"), vec![0; 1 << 20]).expect("an image");
    let path = |name: &str| text(&place.path(name)).to_owned();
    let (one, two) = (path("vm1.img"), path("two.img"));
    let (first, second) = (path("one.sock"), path("two.sock"));
    let of_all = format!(
        "listen = \"unix:{first}\"\ndecision-log = \"{}\"",
        path("log")
    );
    let of_each = format!("listen = [\"vm1=unix:{first}\", \"vm2=unix:{second}\"]");
    for (options, stays, comes) in [
        (of_all, "--decision-log", None),
        (of_each, "a socket of its own", Some("--listen for all")),
    ] {
        let file = format!(
            "cache = \"64blocks\"\njson = true\ncontrol = \"unix:{}\"\nexport = [\"vm1={one}\", \"vm2={two}\"]\n{options}\n",
            path("control.sock")
        );
        fs::write(place.path("serve.toml"), file).expect("a file");
        let server = place.serve();
        let (ok, text) = remove(&place, "vm2", &[]);
        assert!(!ok && text.contains(stays), "{text}");
        let (ok, text) = said(&["export", "lengthen", &path("control.sock"), "vm2"]);
        assert_eq!(ok, !text.contains("without --decision-log"), "{text}");
        assert_eq!(ok, stays != "--decision-log", "{text}");
        if let Some(problem) = comes {
            let (ok, text) = add(&place, &format!("vm3={two}"));
            assert!(!ok && text.contains(problem), "{text}");
        }
        assert_eq!(listed(&place), ["vm1", "vm2"]);
        assert!(server.stop().status.success());
    }
}

#[test]
fn a_client_that_connects_anew_sees_that_an_image_is_longer() {
    let place = LivePlace::new();
    place.write("");
    let server = place.serve();
    let (nbd, image) = (place.path("nbd.sock"), place.path("vm1.img"));
    let before = fs::metadata(&image).expect("an image").len();
    let read = |offset| {
        let mut client = Plain::connect(&nbd, "vm1").expect("a connection");
        client.read(offset, BLOCK).expect("connected")
    };
    assert!(read(before).is_err(), "beyond its end");
    let file = fs::OpenOptions::new().write(true).open(&image);
    let longer = before + 16 * BLOCK as u64;
    file.expect("the image").set_len(longer).expect("longer");
    let control = text(&place.path("control.sock")).to_owned();
    let (ok, text) = said(&["export", "lengthen", &control, "vm1"]);
    assert!(ok, "{text}");
    assert_eq!(read(before), Ok(vec![0; BLOCK]));
    assert!(read(longer).is_err(), "beyond its new end");
    // Another file in its place is none of what is served.
    let other = place.path("other.img");
    fs::copy(&image, &other).expect("a copy");
    fs::rename(&other, &image).expect("in the place of the image");
    let (ok, text) = said(&["export", "lengthen", &control, "vm1"]);
    assert!(!ok && text.contains("is another file now"), "{text}");
    assert!(server.stop().status.success());
}

/// Memory is dear: an addition that fails leaves none of it taken, and one that succeeds keeps its own.
#[test]
fn an_addition_that_fails_leaves_no_memory_file() {
    let Some(memory) = Mounted::new("tmpfs", "size=16M") else {
        return;
    };
    let place = LivePlace::new();
    let file = memory.path().join("cache");
    place.write(&format!("memory-file = \"{}\"", text(&file)));
    let image = place.path("two.img");
    fs::write(&image, vec![0; 1 << 20]).expect("an image");
    let server = place.serve();
    let files = || {
        let entries = fs::read_dir(memory.path()).expect("a list");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> = entries.map(name).collect();
        names.sort();
        names
    };
    let (source, before) = (text(&image), files());
    for (name, more, words) in [
        ("large", "share=64MiB", "there is no room"),
        ("weighed", "share=1MiB,weight=3", "leave the weight out"),
    ] {
        let (succeeded, said) = add(&place, &format!("{name}={source},{more}"));
        assert!(!succeeded && said.contains(words), "{said}");
        eventually("its memory is given up", || files() == before);
    }
    let (succeeded, said) = add(&place, &format!("vm2={source},share=1MiB"));
    assert!(succeeded, "{said}");
    let (succeeded, said) = remove(&place, "vm2", &[]);
    assert!(succeeded, "{said}");
    drop(server.stop());
    assert_eq!(files(), ["cache", "cache.vm2"], "the export may come again");
}
