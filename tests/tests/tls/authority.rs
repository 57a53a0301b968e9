//! Authorities and certificates, made by openssl as an operator would.

use futae_tests::tools::{has, run, text};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tempfile::TempDir;

/// A directory with two authorities, `ca` and `other`: of the first `server`, `vm1` and `vm2`, of the second `server2`
/// and `stranger`. Each is NAME.pem and NAME.key; those of clients are also in a directory as libnbd and QEMU want it.
pub struct Authorities(TempDir);

impl Authorities {
    /// None without openssl.
    pub fn new() -> Option<Self> {
        // It knows no --version, and ends with an error: it is there all the same.
        if !has("openssl") {
            return None;
        }
        let made = Self(tempfile::tempdir().expect("a directory"));
        let server = "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth";
        let client = "extendedKeyUsage=clientAuth";
        for authority in ["ca", "other"] {
            made.authority(authority);
        }
        made.sign("ca", "server", server);
        made.sign("other", "server2", server);
        made.sign("ca", "vm1", client);
        made.sign(
            "ca",
            "vm2",
            &format!("subjectAltName=DNS:vm2.example\n{client}"),
        );
        made.sign("other", "stranger", client);
        for name in ["vm1", "vm2"] {
            let directory = made.path(name);
            fs::create_dir(&directory).expect("a directory");
            for (from, to) in [
                ("ca.pem", "ca-cert.pem"),
                (&*format!("{name}.pem"), "client-cert.pem"),
                (&*format!("{name}.key"), "client-key.pem"),
            ] {
                fs::copy(made.path(from), directory.join(to)).expect("a copy");
            }
        }
        Some(made)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, in whose content DIR is the directory.
    pub fn write(&self, name: &str, content: &str) {
        let content = content.replace("DIR", text(self.0.path()));
        fs::write(self.path(name), content).expect("a file");
    }

    /// Puts a certificate and its key in the place of others.
    pub fn copy(&self, from: &str, to: &str) {
        self.copy_as(&format!("{from}.key"), &format!("{to}.key"), 0o600);
        self.copy_as(&format!("{from}.pem"), &format!("{to}.pem"), 0o644);
    }

    pub fn copy_as(&self, from: &str, to: &str, mode: u32) {
        fs::copy(self.path(from), self.path(to)).expect("a copy");
        fs::set_permissions(self.path(to), Permissions::from_mode(mode)).expect("a mode");
    }

    fn authority(&self, name: &str) {
        let (key, certificate) = self.files(name);
        let subject = format!("/CN=authority {name}");
        run(
            "openssl",
            &[
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
                "-subj",
                &subject,
                "-addext",
                "keyUsage=critical,keyCertSign",
                "-keyout",
                &key,
                "-out",
                &certificate,
            ],
        );
    }

    fn sign(&self, authority: &str, name: &str, extensions: &str) {
        let ((key, certificate), (by_key, by)) = (self.files(name), self.files(authority));
        let (request, file) = (format!("{key}.csr"), format!("{key}.ext"));
        fs::write(&file, format!("basicConstraints=CA:FALSE\n{extensions}\n")).expect("a file");
        let subject = format!("/CN={name}");
        run(
            "openssl",
            &[
                "req",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-subj",
                &subject,
                "-keyout",
                &key,
                "-out",
                &request,
            ],
        );
        run(
            "openssl",
            &[
                "x509",
                "-req",
                "-in",
                &request,
                "-CA",
                &by,
                "-CAkey",
                &by_key,
                "-CAcreateserial",
                "-days",
                "2",
                "-extfile",
                &file,
                "-out",
                &certificate,
            ],
        );
    }

    fn files(&self, name: &str) -> (String, String) {
        let path = |kind: &str| text(&self.path(&format!("{name}.{kind}"))).to_owned();
        (path("key"), path("pem"))
    }
}
