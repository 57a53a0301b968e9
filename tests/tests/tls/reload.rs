//! Exports that come by SIGHUP together with rules that cannot be in force yet.

use super::{Credentials, OverTls, Server, image};
use futae_testkit::wait::eventually;
use futae_tests::live::LivePlace;
use futae_tests::tools::text;
use rustix::process::Signal;
use std::fs;

/// Adds an export to the file, and a line behind the exports.
fn add_three(server: &Server, line: &str) {
    let three = text(&image(&server.files, "three.img", 3)).to_owned();
    let file = server.files.path("serve.toml");
    let before = fs::read_to_string(&file).expect("a file");
    let added = format!("two.img\", \"three={three}\"]\n{line}");
    fs::write(&file, before.replace("two.img\"]", &added)).expect("a file");
}

/// Has the server read its file again while its key cannot be used. Returns the key.
fn reload_without_key(server: &mut Server) -> Vec<u8> {
    let key = server.files.path("server.key");
    let good = fs::read(&key).expect("a key");
    fs::write(&key, "").expect("a file");
    server.running.signal(Signal::HUP);
    server.logged("TLS: nothing has changed: ");
    server.logged("read again: 0 exports added");
    assert!(server.log().contains("export three is not added: TLS"));
    good
}

/// The same with the key again.
fn reload_with_key(server: &mut Server, key: &[u8]) {
    fs::write(server.files.path("server.key"), key).expect("a file");
    server.running.signal(Signal::HUP);
    server.logged("read again: 1 exports added");
}

#[test]
fn an_export_comes_only_once_its_rules_are_in_force() {
    let Some(mut server) = Server::start("") else {
        return;
    };
    add_three(&server, "tls-allow = \"three=vm2\"");
    let good = reload_without_key(&mut server);
    let of = |client: &str| Credentials::new(&server.files, "ca", Some(client));
    let opens = |client: &str| OverTls::open(server.connect(), &of(client), "three").is_ok();
    assert!(!opens("vm1"), "no rule gives it");
    reload_with_key(&mut server, &good);
    let of = |client: &str| Credentials::new(&server.files, "ca", Some(client));
    let opens = |client: &str| OverTls::open(server.connect(), &of(client), "three").is_ok();
    assert!(opens("vm2") && !opens("vm1"));
}

#[test]
fn an_export_does_not_come_while_a_replaced_file_cannot_be_used() {
    let Some(mut server) = Server::start("") else {
        return;
    };
    add_three(&server, "");
    // Only who has a certificate of another authority may open exports now.
    let authority = server.files.path("ca.pem");
    fs::copy(server.files.path("other.pem"), authority).expect("a copy");
    let good = reload_without_key(&mut server);
    reload_with_key(&mut server, &good);
}

#[test]
fn an_export_for_clients_over_tls_does_not_come_to_a_server_without_tls() {
    let place = LivePlace::new();
    place.write("");
    let mut server = place.serve();
    let two = place.path("two.img");
    fs::write(&two, vec![0; 1 << 20]).expect("an image");
    let tls = "tls-cert = \"/none\"\ntls-key = \"/none\"\ntls-client-ca = \"/none\"\ntls-allow = \"vm2=vm2\"";
    place.write(tls);
    let file = place.path("serve.toml");
    let with_tls = fs::read_to_string(&file).expect("a file");
    let more = format!(
        "{with_tls}iops = 5\n[[export]]\nname = \"vm2\"\nsource = \"{}\"\n",
        text(&two)
    );
    fs::write(&file, more).expect("a file");
    server.signal(Signal::HUP);
    // Limits change after exports have come.
    eventually("the file was read", || {
        place.status()["exports"][0]["iops_limit"] == 5
    });
    let status = place.status();
    let exports = status["exports"].as_array().expect("a list");
    assert_eq!(exports.len(), 1, "{status}");
    assert!(server.stop().status.success());
}
