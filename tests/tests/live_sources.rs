//! Sources of exports that come while a server runs, or with it: one that another export uses, and one that says nothing.

use futae_testkit::nbd::Plain;
use futae_testkit::wait::eventually;
use futae_tests::binary::{futae, run_json};
use futae_tests::live::{BLOCK, LivePlace, said};
use futae_tests::process::Running;
use futae_tests::tools::text;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread;

/// A server with a control socket, and a file that is written anew.
struct Place(LivePlace);

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    /// Writes the file: the size of the cache, and the exports.
    fn write(&self, cache: &str, exports: &[&str], more: &str) {
        let exports: Vec<String> = exports.iter().map(|one| format!("\"{one}\"")).collect();
        let (nbd, control) = (self.path("nbd.sock"), self.path("control.sock"));
        let file = format!(
            "cache = \"{cache}\"\npolicy = \"lru\"\njson = true\nlisten = \"unix:{}\"\ncontrol = \"unix:{}\"\n\
             export = [{}]\n{more}\n",
            text(&nbd),
            text(&control),
            exports.join(", "),
        );
        fs::write(self.path("serve.toml"), file).expect("a file");
    }

    fn order(&self, order: &str, export: &str) -> (bool, String) {
        let control = self.path("control.sock");
        said(&["export", order, text(&control), export])
    }

    fn add(&self, export: &str) -> (bool, String) {
        self.order("add", export)
    }

    /// The exports, in order of their addition.
    fn listed(&self) -> Vec<String> {
        let status = self.0.status();
        let exports = status["exports"].as_array().expect("a list").iter();
        let name = |export: &Value| export["name"].as_str().expect("a name").to_owned();
        exports.map(name).collect()
    }

    /// The bytes of the cache of each export.
    fn caches(&self) -> Vec<(String, u64)> {
        let control = self.path("control.sock");
        let status = run_json(&["top", text(&control), "--json"]);
        let engines = status["engines"].as_array().expect("a list").iter();
        let size = |engine: &Value| {
            let blocks = engine["capacity_blocks"].as_u64().expect("a number");
            let export = engine["exports"][0].as_str().expect("a name");
            (export.to_owned(), blocks * BLOCK as u64)
        };
        engines.map(size).collect()
    }

    /// Has the server read its file again, until these are its exports.
    fn reload(&self, server: &mut Running, exports: &[&str]) {
        server.signal(Signal::HUP);
        eventually("the file is read again", || self.listed() == exports);
    }

    fn client(&self, export: &str) -> Plain {
        Plain::connect(&self.path("nbd.sock"), export).expect("a connection")
    }
}

/// Each of two caches of one store would give what the other has not written yet, and write back over it.
#[test]
fn a_source_that_an_export_uses_is_not_opened_for_another() {
    let below = LivePlace::new();
    below.write("");
    let store = below.serve();
    let place = Place(LivePlace::new());
    let other = place.path("vm1.img");
    let (socket, link) = (below.path("nbd.sock"), below.path("link.sock"));
    symlink(&socket, &link).expect("a link");
    let far = format!("nbd+unix:///vm1?socket={}", text(&socket));
    let linked = format!("nbd+unix:///vm1?socket={}", text(&link));
    let more = format!(
        "write-mode = \"write-back\"\ndirty-age-max = \"1h\"\nstate-dir = \"{}\"",
        text(&place.path("marks"))
    );
    place.write("256KiB", &[&format!("a={far}")], &more);
    let mut server = place.0.serve();
    for source in [&far, &linked, &format!("{far},share=64KiB,read-only")] {
        let (ok, text) = place.add(&format!("b={source}"));
        let problem = "is the same file or server as export a";
        assert!(!ok && text.contains(problem), "{source}: {text}");
    }
    // The export keeps its source until the server is started again.
    let other = text(&other);
    fs::copy(other, place.path("c.img")).expect("a copy");
    let c = format!("c={}", text(&place.path("c.img")));
    let exports = [&format!("a={other}"), &format!("b={far}"), &c];
    place.write("256KiB", &exports.map(String::as_str), &more);
    place.reload(&mut server, &["a", "c"]);

    let mut client = place.client("a");
    let written = client.write(0, &[0xaa; BLOCK]);
    written.expect("connected").expect("a write");
    drop(client);
    eventually("it is removed", || place.order("remove", "a").0);
    let (ok, text) = place.add(&format!("b={linked}"));
    assert!(ok, "{text}");
    let mut client = place.client("b");
    let read = client.read(0, BLOCK).expect("connected").expect("a read");
    assert_eq!(read, [0xaa; BLOCK], "what was written before");
    let written = client.write(0, &[0xbb; BLOCK]);
    written.expect("connected").expect("a write");
    client.flush().expect("connected").expect("a flush");
    assert!(server.stop().status.success());
    let image = fs::read(below.path("vm1.img")).expect("the image");
    assert_eq!(image[..BLOCK], [0xbb; BLOCK], "what was written last");
    assert!(store.stop().status.success());
}

#[test]
fn sources_that_only_read_may_be_the_same() {
    let below = LivePlace::new();
    below.write("");
    let store = below.serve();
    let place = Place(LivePlace::new());
    let far = format!(
        "nbd+unix:///vm1?socket={},read-only",
        text(&below.path("nbd.sock"))
    );
    place.write("256KiB", &[&format!("a={far}")], "");
    let server = place.0.serve();
    let (ok, text) = place.add(&format!("b={far}"));
    assert!(ok, "{text}");
    assert!(server.stop().status.success());
    assert!(store.stop().status.success());
}

#[test]
fn a_cache_that_exports_share_goes_with_the_last_and_comes_with_the_first() {
    let place = Place(LivePlace::new());
    let file = |name: &str| {
        fs::write(place.path(name), vec![1; 1 << 20]).expect("an image");
        format!("{name}={}", text(&place.path(name)))
    };
    let (a, b, c) = (file("a"), file("b") + ",share=4MiB", file("c"));
    place.write("16MiB", &[&a, &b], "");
    let mut server = place.0.serve();
    let mib = |sizes: &[(&str, u64)]| {
        let sizes = sizes.iter();
        let sizes = sizes.map(|(export, mib)| ((*export).to_owned(), mib << 20));
        sizes.collect::<Vec<_>>()
    };
    assert_eq!(place.caches(), mib(&[("a", 12), ("b", 4)]));
    place.write("3MiB", &[&b.replace("4MiB", "3MiB")], "");
    server.signal(Signal::HUP);
    eventually("b has all", || place.caches() == mib(&[("b", 3)]));
    let (ok, text) = place.add(&a);
    assert!(!ok && text.contains("add share=SIZE"), "{text}");
    place.write("8MiB", &[&a, &b], "");
    place.reload(&mut server, &["b", "a"]);
    assert_eq!(place.caches(), mib(&[("b", 4), ("a", 4)]));
    // By orders, too: it has the size that the file gives it.
    let (ok, text) = place.order("remove", "a");
    assert!(ok, "{text}");
    let (ok, text) = place.add(&c);
    assert!(ok, "{text}");
    assert_eq!(place.caches(), mib(&[("b", 4), ("c", 4)]));
    let read = place.client("c").read(0, BLOCK);
    assert_eq!(read.expect("connected").expect("a read"), [1; BLOCK]);
    assert!(server.stop().status.success());
}

#[test]
fn a_server_that_waits_for_a_silent_source_ends_when_it_is_told_to() {
    let place = Place(LivePlace::new());
    let silent = UnixListener::bind(place.path("silent")).expect("a socket");
    let source = format!("b=nbd+unix:///x?socket={}", text(&place.path("silent")));
    place.write("256KiB", &[&source], "store-timeout = 0");
    let file = place.path("serve.toml");
    for signal in [Signal::TERM, Signal::INT] {
        let command = futae(&["serve", "--config", text(&file)]);
        let mut server = Running::start("futae serve", command);
        let _waits = silent.accept().expect("it connects");
        server.signal(signal);
        let ended = server.wait();
        assert!(ended.status.success(), "{ended:?}");
    }
    assert!(!place.path("nbd.sock").exists());
}

#[test]
fn a_source_that_is_silent_is_said_to_be_and_holds_up_no_other_order() {
    let place = Place(LivePlace::new());
    let silent = UnixListener::bind(place.path("silent")).expect("a socket");
    let source = format!("b=nbd+unix:///x?socket={}", text(&place.path("silent")));
    let image = format!("a={}", text(&place.path("vm1.img")));
    // As long as the handshake may take at most.
    place.write("256KiB", &[&image], "store-timeout = 0");
    let mut server = place.0.serve();
    thread::scope(|scope| {
        let adding = scope.spawn(|| place.add(&source));
        let (waits, _) = silent.accept().expect("it connects");
        let (ok, text) = place.order("limit", "a");
        assert!(ok, "{text}");
        assert!(!adding.is_finished(), "the limit had to wait");
        drop(waits);
        let (ok, text) = adding.join().expect("no panic");
        assert!(!ok && text.contains("/silent"), "{text}");
        let again = scope.spawn(|| place.add(&source));
        let _waits = silent.accept().expect("it connects");
        server.signal(Signal::TERM);
        assert!(server.wait().status.success());
        let (ok, text) = again.join().expect("no panic");
        assert!(!ok && !text.contains("not answered"), "{text}");
    });

    place.write("256KiB", &[&image], "store-timeout = \"50ms\"");
    let server = place.0.serve();
    let (ok, text) = place.add(&source);
    assert!(!ok && text.contains("no answer within 50ms"), "{text}");
    assert!(server.stop().status.success());
}
