//! Services of the package on a Debian that has nothing else: of several users beside each other, and in any order.

use futae_testkit::wait::eventually;
use futae_tests::binary::run;
use futae_tests::debian::Debian;
use futae_tests::package::package;
use futae_tests::tidy::root;
use futae_tests::tools::{has, text};
use std::fs;

/// A Debian with the package, and `/srv/futae/vm1.img`.
fn debian() -> Option<Debian> {
    if !has("dpkg-deb") {
        return None;
    }
    let debian = Debian::boot()?;
    let manual = debian.shared("manual");
    let output = run(&["reference", "manual", text(&manual)]);
    assert!(output.status.success(), "{output:?}");
    let _ = package("futae", "1.0", &debian.shared(""), &manual);
    fs::write(debian.shared("vm1.img"), vec![7; 4 << 20]).expect("an image");
    debian.run("apt-get install --quiet /srv/futae/futae_1.0.deb; mkdir -p /etc/futae");
    Some(debian)
}

/// The settings of a page for a drop-in of a unit, which have this line.
fn settings(page: &str, with: &str) -> String {
    let page = fs::read_to_string(root().join(page)).expect("the page");
    let mut fences = page.split("```ini\n").skip(1);
    let own = fences.find(|fence| fence.contains(with)).expect("settings");
    own.split("```").next().unwrap_or_default().to_owned()
}

/// Servers of root, of a user of the unit (`User=`) and of one of the configuration (`user =`), beside each other.
#[test]
fn servers_of_several_users_save_their_states_and_are_reloaded() {
    let Some(debian) = debian() else { return };
    debian.run(
        "useradd --system futae
         for vm in vm1 vm2 vm3; do
             mkdir -p /etc/systemd/system/futae-serve@$vm.service.d
             cp /srv/futae/vm1.img /srv/$vm.img
             grep -v '^metrics\\|^web' /usr/share/futae/examples/serve.toml >/etc/futae/$vm.toml
             sed -i \"s,/var/lib/libvirt/images/vm1,/srv/$vm,; s/1GiB/8MiB/; s/vm1/$vm/g\" /etc/futae/$vm.toml
         done
         chown futae /srv/vm2.img; chown nobody /srv/vm3.img
         sed -i 's,/futae/vm2.state,/futae/vm2/vm2.state,' /etc/futae/vm2.toml
         sed -i 's,/futae/vm3.state,/futae/vm3/vm3.state,; 1i user = \"nobody\"' /etc/futae/vm3.toml
         install -d -o nobody /var/lib/futae/vm3",
    );
    let drop_in = |vm: &str, settings: &str| {
        fs::write(debian.shared("own.conf"), settings).expect("a file");
        let at = format!("/etc/systemd/system/futae-serve@{vm}.service.d/own.conf");
        debian.run(&format!("cp /srv/futae/own.conf {at}"));
    };
    drop_in("vm2", &settings("docs/how-to/install.md", "User=futae"));
    let page = fs::read_to_string(root().join("docs/how-to/secure-a-server.md"));
    let page = page.expect("the page");
    let needs = page.split("also needs `").nth(1).expect("what it needs");
    let needs = needs.split('`').next().unwrap_or_default();
    drop_in("vm3", &format!("[Service]\n{needs}\n"));
    let all = "futae-serve@vm1 futae-serve@vm2 futae-serve@vm3";
    debian.run(&format!(
        "systemctl daemon-reload; systemctl start {all}; systemctl restart futae-serve@vm1"
    ));
    // Each is still allowed what it needs.
    debian.run(&format!("systemctl reload {all}; systemctl stop {all}"));
    for (file, owner) in [
        ("vm1.state", "root"),
        ("vm2/vm2.state", "futae"),
        ("vm3/vm3.state", "nobody"),
    ] {
        let of = debian.run(&format!("stat --format %U /var/lib/futae/{file}"));
        assert_eq!(of.trim(), owner, "{file}: {}", debian.journal());
    }
}

/// A balancer waits for the server that has its guest's share, however late that starts.
#[test]
fn a_balancer_waits_for_a_server_that_starts_later() {
    let Some(debian) = debian() else { return };
    let share = "total = \"8MiB\"\nperiod = 1\nreserve = \"0MiB\"\nevaluator = \"paper\"\n[[guest]]\nname = \"vm1\"\n\
                 minimum = \"1MiB\"\nmaximum = \"7MiB\"\n\
                 actuator = { kind = \"share\", control = \"/run/futae/vm1/control.sock\", export = \"vm1\" }\n";
    fs::write(debian.shared("balance.toml"), share).expect("a file");
    debian.run(
        "cp /srv/futae/balance.toml /etc/futae/
         (cat /usr/share/futae/examples/serve.toml; echo 'share = \"4MiB\"') >/etc/futae/vm1.toml
         sed -i s,/var/lib/libvirt/images/,/srv/futae/, /etc/futae/vm1.toml; systemctl start futae-balance || true",
    );
    // More often than systemd starts a unit of its own accord.
    eventually("it is started again and again", || {
        let restarts = debian.property("futae-balance", "NRestarts");
        restarts.parse::<u32>().is_ok_and(|restarts| restarts > 6)
    });
    debian.run("systemctl start futae-serve@vm1");
    eventually("it balances", || {
        debian.property("futae-balance", "ActiveState") == "active"
    });
    debian.run("systemctl stop futae-balance");
}
