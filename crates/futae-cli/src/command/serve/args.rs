//! What `futae serve` is given, by a command line and a file.

use super::clients::ClientArgs;
use super::config::ConfigFile;
use super::evictions::EvictionArgs;
use super::memory::MemoryArgs;
use super::privileges::PrivilegeArgs;
use super::tls::TlsArgs;
use super::unclean::UncleanArgs;
use crate::command::observe_args::ObserveArgs;
use crate::command::otlp::OtlpArgs;
use crate::command::state::StateArgs;
use crate::command::write_args::{StoreArgs, WriteArgs};
use anyhow::anyhow;
use clap::{Args as _, Command, FromArgMatches};
use futae_log::LogArgs;
use futae_terminal::failure::Failure;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Serve disk images over NBD and vhost-user from one cache
#[derive(clap::Args)]
pub struct Args {
    /// TOML file with options by their long names (cache = "4GiB") and exports as `[[export]]`
    /// tables. Options on the command line take precedence over it, and extend its lists. On SIGHUP
    /// the server reads it again: exports, sizes of caches and the policy change at once; other
    /// changes are logged and need a restart
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[arg(skip)]
    pub(super) file: Option<ConfigFile>,
    /// Memory for all caches together, e.g. 4GiB
    #[arg(long, value_name = "SIZE", required_unless_present = "config")]
    pub(super) cache: Option<String>,
    /// Size of a block, a power of two from 4KiB to 256MiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    pub(super) block: String,
    /// Replacement policy; `futae policies` lists them [default: an exclusive cache that also keeps the blocks it
    /// serves, until blocks that clients evict need the room]
    #[arg(long)]
    pub(super) policy: Option<String>,
    /// An export:
    /// `NAME=SOURCE[,share=SIZE][,class=local|remote|CLASS][,connections=N][,requests=N][,iops=N][,bandwidth=SIZE][,weight=N][,protected][,read-only][,incoming]`.
    /// SOURCE is a file, a block device or an NBD address. An export with a share has a cache of
    /// that size of its own; the other exports share the rest. The policy `cost` groups stores by
    /// class; the default is remote for NBD addresses and local for others. The policy `directory`
    /// evicts blocks of protected exports last. connections limits the connections of the export,
    /// requests their requests in flight, iops their requests per second, and bandwidth their bytes
    /// of READ, WRITE and demotions per second; weight, from 1 to 1000, is the export's share of
    /// --requests-max relative to the weights of others [default: 1]. incoming: the guest comes by live migration from another
    /// server, which may still have SOURCE open
    #[arg(
        long = "export",
        value_name = "NAME=SOURCE",
        required_unless_present = "config"
    )]
    pub(super) exports: Vec<String>,
    /// Address to listen on: `[EXPORT=]unix:PATH[,mode=OCTAL][,owner=NAME][,group=NAME]` (a socket, or a directory to make
    /// futae.sock in), `[EXPORT=]tcp:HOST:PORT`, or
    /// `[EXPORT=]vhost-user:PATH[,mode=...]`, the disk of a virtual machine with shared memory. With an export, clients of this address see and open that export only.
    /// A unix socket has mode 0600 unless another mode is given
    #[arg(long, value_name = "ADDRESS", required_unless_present = "config")]
    pub(super) listen: Vec<String>,
    /// Allow TCP addresses that other machines can reach although clients need neither a certificate nor a key there
    /// (see --tls-client-ca and --tls-psk)
    #[arg(long)]
    pub(super) insecure_tcp: bool,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
    /// Unix socket for orders (status, resize, policy, exports): unix:PATH, with mode, owner and group as for --listen
    #[arg(long, value_name = "ADDRESS")]
    pub(super) control: Option<String>,
    /// Address at which the agent in a guest reports what its page cache evicts:
    /// [EXPORTS=]unix:PATH, a socket for the exports that are the guest's disks, with commas
    /// between them; or `agent`, a socket for each export beside the first unix socket of --listen,
    /// named EXPORT.agent.sock. Options with the same PATH are one socket. An exclusive cache then
    /// keeps the blocks that it has just served until the agent reports their evictions
    #[arg(long = "feed", value_name = "ADDRESS")]
    pub(super) feeds: Vec<String>,
    /// Offer a channel disk of 4 MiB for each --feed, named EXPORT.evictions after its first
    /// export. Attach it to the guest as an additional disk: its agent (`futae agent --evictions`)
    /// writes evicted pages with their data to it, so that the server need not read them from the
    /// store. Data enters the cache only if it is verified (see --evictions-memory)
    #[arg(long, requires = "feeds")]
    pub(super) evictions_disk: bool,
    /// Pass the samples of an agent on to `futae balance`, so that one agent serves both:
    /// [EXPORT=]unix:PATH, the socket that balance listens on (`agent = { listen = "PATH" }`), for
    /// the --feed of that export. While no program listens there, samples are dropped and the
    /// server tries the socket again; the cache never waits for it
    #[arg(long = "samples-to", value_name = "ADDRESS")]
    pub(super) samples_to: Vec<String>,
    /// Memory for requests and replies of all clients, in addition to the caches; at least 64MiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(super) buffer_memory: String,
    /// Maximum number of connections. When it is reached, a new client replaces a connection of the client with
    /// the most connections
    #[arg(long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) connections_max: u32,
    /// Maximum number of requests in flight of all exports together. When exports have more, each
    /// gets a share by its weight; others use the share of an idle export [default: no limit]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) requests_max: Option<u32>,
    /// Log every decision of the cache to FILE, in place of an earlier log; the caches of exports with a share log to FILE.NAME
    #[arg(long, value_name = "FILE")]
    pub(super) decision_log: Option<PathBuf>,
    #[command(flatten)]
    pub(super) writes: WriteArgs,
    #[command(flatten)]
    pub(super) unclean: UncleanArgs,
    #[command(flatten)]
    pub(super) privileges: PrivilegeArgs,
    #[command(flatten)]
    pub(super) memory: MemoryArgs,
    #[command(flatten)]
    pub(super) clients: ClientArgs,
    #[command(flatten)]
    pub(super) state: StateArgs,
    #[command(flatten)]
    pub(super) store: StoreArgs,
    /// Accept blocks that clients evict (demotions). auto: if the policy needs them, as exclusive does
    #[arg(long, value_name = "WHETHER", default_value = "auto")]
    pub(super) demotion: Demotion,
    #[command(flatten)]
    pub(super) evictions: EvictionArgs,
    #[command(flatten)]
    pub(super) observe: ObserveArgs,
    #[command(flatten)]
    pub(super) otlp: OtlpArgs,
    /// Seed of randomised policies
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
    /// Print JSON, one line at the start and one at the end
    #[arg(long)]
    pub(super) json: bool,
    /// The log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Whether clients may demote evicted blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Demotion {
    Auto,
    On,
    Off,
}

impl Args {
    /// The options that a file may have.
    pub(super) fn options() -> Command {
        Self::augment_args(Command::new("futae serve"))
    }

    /// With what the file says that `--config` names.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn with_file(self) -> Result<Self, Failure> {
        match &self.config {
            None => Ok(self),
            Some(path) => Self::again(path),
        }
    }

    /// What a file says, and the command line of this process.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn again(path: &Path) -> Result<Self, Failure> {
        let file = ConfigFile::read(path, &Self::options())?;
        // Behind the program and the command.
        Self::of(file, std::env::args_os().skip(2))
    }

    /// What a file alone says.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn of_file(path: &Path) -> Result<Self, Failure> {
        Self::of(ConfigFile::read(path, &Self::options())?, [])
    }

    /// What a file alone would say with this text.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn of_text(path: &Path, text: &str) -> Result<Self, Failure> {
        Self::of(ConfigFile::take(path, text, &Self::options())?, [])
    }

    /// The options of the file, with those of a command line, which come first in what they say and are added where an
    /// option can be given several times.
    ///
    /// # Errors
    ///
    /// What the command line would be told, with the line of the file.
    pub(super) fn of(
        file: ConfigFile,
        given: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, Failure> {
        let mut line = file.words();
        line.extend(without_config(given));
        let command = Self::options()
            .args_override_self(true)
            .no_binary_name(true);
        let matches = command.try_get_matches_from(line);
        let parsed = matches.and_then(|matches| Self::from_arg_matches(&matches));
        let mut args = parsed.map_err(|error| {
            let text = error.to_string();
            let text = text.split("\n\n").next().unwrap_or_default();
            let text = text.strip_prefix("error: ").unwrap_or(text);
            if !file.has("export") && text.contains("--export <NAME=SOURCE>") {
                let path = file.path().display();
                return Failure::usage(format!(
                    "{path}: there is no export, here or in an included file; a server has one at least"
                ));
            }
            Failure::usage(file.place(text))
        })?;
        args.config = Some(file.path().to_owned());
        args.file = Some(file);
        Ok(args)
    }

    /// A failure about an option, with the line of the file that has it.
    pub(super) fn placed(&self, failure: Failure) -> Failure {
        match (&self.file, failure) {
            (Some(file), Failure::Usage(message)) => Failure::usage(file.place(&message)),
            (Some(file), Failure::Failed(error)) => {
                anyhow!(file.place(&format!("{error:#}"))).into()
            }
            (None, failure) => failure,
        }
    }
}

/// The words of a command line but for `--config FILE`.
fn without_config(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut given = given.into_iter();
    let mut rest = Vec::new();
    while let Some(word) = given.next() {
        if word == "--config" {
            given.next();
        } else if !word.as_encoded_bytes().starts_with(b"--config=") {
            rest.push(word);
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile, String> {
        let file = ConfigFile::take(Path::new("f"), text, &Args::options());
        file.map_err(|failure| failure.to_string())
    }

    fn args(text: &str, given: &[&str]) -> Result<Args, String> {
        let given = given.iter().map(OsString::from);
        Args::of(parse(text)?, given).map_err(|failure| failure.to_string())
    }

    const FILE: &str = "# A server.\ncache = \"16MiB\"\nlisten = [\"unix:/s\", \"tcp:localhost:0\"]\njson = true\n\
                        share-equal = false\nseed = 7\n\n[[export]]\nname = \"a\"\nsource = \"/a,b.img\"\nshare = \"4MiB\"\n\
                        read-only = true\nfeed = \"unix:/f\"\n\n[[export]]\nname = \"b\"\nsource = \"/b.img\"\n";

    #[test]
    fn a_file_says_what_a_command_line_would() {
        let from_file = args(FILE, &[]).expect("valid");
        assert_eq!(from_file.cache, Some("16MiB".to_owned()));
        assert_eq!(
            from_file.exports,
            ["a=/a,b.img,read-only,share=4MiB", "b=/b.img"]
        );
        assert_eq!(from_file.listen, ["unix:/s", "tcp:localhost:0"]);
        assert_eq!(from_file.feeds, ["a=unix:/f"]);
        assert_eq!((from_file.json, from_file.seed), (true, 7));
        for seed in ["0x7", "0o7", "0b111", "0x0000_0007"] {
            let text = FILE.replace("seed = 7", &format!("seed = {seed}"));
            assert_eq!(args(&text, &[]).expect(seed).seed, 7);
        }
        let text = "cache = \"1MiB\"\nexport = \"a=/a\"\nlisten = \"unix:/s\"\n";
        assert_eq!(args(text, &[]).expect("valid").exports, ["a=/a"]);
    }

    #[test]
    fn the_command_line_goes_before_the_file_and_adds_to_its_lists() {
        let given = [
            "--config",
            "f",
            "--cache",
            "1MiB",
            "--config=f",
            "--listen=unix:/t",
        ];
        let both = args(FILE, &given).expect("valid");
        assert_eq!(both.cache, Some("1MiB".to_owned()));
        assert_eq!(both.listen, ["unix:/s", "tcp:localhost:0", "unix:/t"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, said) in [
            ("cache = ", "1: "),
            ("\nchache = \"1MiB\"", "2: chache: no option"),
            (
                "config = \"x\"",
                "1: config: a file names others by include",
            ),
            ("cache = true", "1: cache: write a text"),
            ("cache = \"\"", "1: cache: the value is empty"),
            ("json = \"yes\"", "1: json: write true or false"),
            (
                "listen = [\"unix:/s\", 1979-05-27]",
                "1: listen: write a text",
            ),
            ("[[export]]\nname = \"a\"", "1: export: source is missing"),
            (
                "[[export]]\nname = \"a\"\nsorce = \"x\"",
                "3: export: sorce: an export has no such key",
            ),
            (
                "[[export]]\nname = \"a=b\"\nsource = \"x\"",
                "1: export: name: \"a=b\"",
            ),
            (
                "export = [\"a=b\", { name = \"a\", source = \"x\" }]",
                "1: export: either",
            ),
            (
                "[[export]]\nread-only = 1",
                "2: export: read-only: write true",
            ),
        ] {
            let problem = parse(text).expect_err(text);
            assert!(problem.contains(said), "{text}: {problem}");
        }
        let bad = FILE.replace("seed = 7", "seed = \"x\"");
        let problem = args(&bad, &[]).err().expect("no number");
        assert!(
            problem.starts_with("f:6: ") && problem.contains("--seed"),
            "{problem}"
        );
        let problem = args("cache = \"1MiB\"", &[])
            .err()
            .expect("something is missing");
        assert!(
            problem.contains("no export, here or in an included file")
                && problem.starts_with("f: "),
            "{problem}"
        );
        let file = parse(FILE).expect("valid");
        assert_eq!(file.place("export b: no"), "f:15: export b: no");
        assert_eq!(file.place("--cache 1: no"), "f:2: --cache 1: no");
        assert_eq!(file.place("--caches: no"), "f: --caches: no");
    }

    #[test]
    fn what_changed_is_known_by_its_keys() {
        let (old, new) = (
            parse(FILE),
            parse(&FILE.replace("4MiB", "8MiB").replace("seed = 7", "")),
        );
        let (old, new) = (old.expect("valid"), new.expect("valid"));
        assert_eq!(old.changed(&new), ["export", "seed"]);
        assert!(old.changed(&old.clone()).is_empty());
    }
}
