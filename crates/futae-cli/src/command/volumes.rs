//! `NAME=SOURCE` with its options: what `futae serve` exports and `futae mount` shows.

use anyhow::Context;
use futae_agent_protocol::printable;
use futae_engine::{FileStore, Store};
use futae_host::RateLimits;
use futae_nbd::{NbdUri, Transport};
use futae_nbd_store::NbdStore;
use futae_policy::{Argument, Class, PolicySpec, Trait};
use futae_terminal::failure::Failure;
use futae_units::Size;
use rustix::fs::statfs;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where a volume's blocks are.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    File(PathBuf),
    Nbd(NbdUri),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Nbd(uri) => uri.fmt(f),
        }
    }
}

impl Source {
    /// An NBD address, or else a path.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            let uri = text.parse::<NbdUri>().map_err(|error| error.to_string())?;
            NbdStore::check(&uri).map_err(|error| error.to_string())?;
            return Ok(Self::Nbd(uri));
        }
        Ok(Self::File(text.into()))
    }

    /// Opens it for the guest that comes by live migration from another server.
    pub fn open_incoming(&self, timeout: Duration) -> Result<Arc<dyn Store>, Failure> {
        Ok(match self {
            Self::File(path) => Arc::new(FileStore::open_incoming(path)?),
            Self::Nbd(uri) => {
                Arc::new(NbdStore::connect_with_timeout(uri, None, timeout)?.incoming())
            }
        })
    }

    /// Opens it, for a cache that demotes nothing.
    pub fn open(&self, read_only: bool, timeout: Duration) -> Result<Arc<dyn Store>, Failure> {
        Ok(match self {
            Self::File(path) => Arc::new(FileStore::open(path, read_only)?),
            Self::Nbd(uri) => {
                let store = NbdStore::connect_with_timeout(uri, None, timeout)?;
                Arc::new(if read_only { store.read_only() } else { store })
            }
        })
    }

    /// Which one it is, by whatever name, as far as this machine can tell; none if it is not there.
    fn identity(&self) -> Option<Identity> {
        match self {
            Self::File(path) => path.metadata().ok().map(|found| Identity::of(&found)),
            Self::Nbd(uri) => {
                let real = real_socket(uri).unwrap_or_else(|| uri.clone());
                Some(Identity::Export(NbdUri { tls: None, ..real }))
            }
        }
    }

    /// The class that its blocks are in unless said otherwise.
    fn usual_class(&self) -> StoreClass {
        let is_far = match self {
            Self::File(path) => statfs(path).is_ok_and(|system| is_remote(system.f_type as u64)),
            Self::Nbd(_) => true,
        };
        if is_far {
            StoreClass::Remote
        } else {
            StoreClass::Local
        }
    }
}

/// What all names of one source have in common.
#[derive(Clone, Debug, PartialEq)]
enum Identity {
    /// A file: its file system, and its number there.
    File(u64, u64),
    /// A device, also one with several nodes.
    Device(u64),
    /// An export of a server, with or without encryption.
    Export(NbdUri),
}

impl Identity {
    fn of(found: &Metadata) -> Self {
        let kind = found.file_type();
        match kind.is_block_device() || kind.is_char_device() {
            true => Self::Device(found.rdev()),
            false => Self::File(found.dev(), found.ino()),
        }
    }
}

/// The address with the real path of its socket, if it is a socket that is there.
pub(super) fn real_socket(uri: &NbdUri) -> Option<NbdUri> {
    let Transport::Unix { socket } = &uri.transport else {
        return None;
    };
    Some(NbdUri {
        transport: Transport::Unix {
            socket: socket.canonicalize().ok()?,
        },
        ..uri.clone()
    })
}

/// Whether a file system of this kind (`linux/magic.h`) is on another machine.
fn is_remote(kind: u64) -> bool {
    const NFS: u64 = 0x6969;
    const SMB: [u64; 3] = [0x517b, 0xff53_4d42, 0xfe53_4d42];
    const CEPH: u64 = 0x00c3_6400;
    const AFS: [u64; 2] = [0x5346_414f, 0x6b41_4653];
    const V9FS: u64 = 0x0102_1997;
    const LUSTRE: u64 = 0x0bd0_0bd0;
    let kind = kind & 0xffff_ffff;
    SMB.contains(&kind) || AFS.contains(&kind) || [NFS, CEPH, V9FS, LUSTRE].contains(&kind)
}

/// How far a store is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StoreClass {
    Local,
    Remote,
    /// A class of its own.
    Named(String),
}

impl StoreClass {
    fn new(text: &str) -> Result<Self, String> {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        match text {
            "local" => Ok(Self::Local),
            "remote" => Ok(Self::Remote),
            name if !name.is_empty() && name.chars().all(legal) => Ok(Self::Named(name.to_owned())),
            _ => Err(format!(
                "class {text:?}: there are local and remote, and names of letters, digits, - and _"
            )),
        }
    }
}

/// A volume as it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VolumeSpec {
    pub name: String,
    pub source: Source,
    pub class: StoreClass,
    /// Its blocks stay while there are blocks of others.
    pub is_protected: bool,
    pub share: Option<Size>,
    pub read_only: bool,
    /// Its guest comes by live migration from a server that has it open until then.
    pub is_incoming: bool,
    /// Connections that may use it at a time.
    pub connections: Option<usize>,
    /// Requests that these may have under way together.
    pub requests: Option<usize>,
    /// What these are served in a second.
    pub rates: RateLimits,
}

impl VolumeSpec {
    /// A volume of which nothing more is said.
    pub fn plain(name: &str, source: Source) -> Self {
        Self {
            name: name.to_owned(),
            class: source.usual_class(),
            source,
            is_protected: false,
            share: None,
            read_only: false,
            is_incoming: false,
            connections: None,
            requests: None,
            rates: RateLimits::default(),
        }
    }

    /// Reads `SOURCE[,OPTION]...`; `what` is what the volume is called in errors.
    pub fn new(what: &str, name: &str, text: &str) -> Result<Self, String> {
        check_name(what, name)?;
        let (mut share, mut read_only, mut is_protected, mut class) = (None, false, false, None);
        let (mut connections, mut requests, mut is_incoming) = (None, None, false);
        let (mut iops, mut bandwidth, mut weight) = (None, None, None);
        let number = |option: &str, text: &str| match text.parse::<u64>() {
            Ok(number) if number > 0 => Ok(Some(number)),
            _ => Err(format!(
                "{what} {name}: {option}={text}: write a number from 1 on"
            )),
        };
        let quota = |option: &str, text: &str| {
            let number = number(option, text)?;
            Ok::<_, String>(number.and_then(|number| usize::try_from(number).ok()))
        };
        let mut rest = text;
        // From the end, so that a file's name may have commas in it.
        while let Some((before, option)) = rest.rsplit_once(',') {
            if option == "read-only" {
                read_only = true;
            } else if option == "incoming" {
                is_incoming = true;
            } else if option == "protected" {
                is_protected = true;
            } else if let Some(size) = option.strip_prefix("share=") {
                let size = size.parse();
                share = Some(size.map_err(|error| format!("{what} {name}: share: {error}"))?);
            } else if let Some(of) = option.strip_prefix("class=") {
                let of = StoreClass::new(of);
                class = Some(of.map_err(|error| format!("{what} {name}: class: {error}"))?);
            } else if let Some(text) = option.strip_prefix("connections=") {
                connections = quota("connections", text)?;
            } else if let Some(text) = option.strip_prefix("requests=") {
                requests = quota("requests", text)?;
            } else if let Some(text) = option.strip_prefix("iops=") {
                iops = number("iops", text)?;
            } else if let Some(text) = option.strip_prefix("weight=") {
                let number = number("weight", text)?;
                weight = number.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
            } else if let Some(size) = option.strip_prefix("bandwidth=") {
                let size = size.parse();
                bandwidth =
                    Some(size.map_err(|error| format!("{what} {name}: bandwidth: {error}"))?);
            } else if Path::new(rest).exists() {
                break;
            } else {
                return Err(format!(
                    "{what} {name}: {option:?} is not an option, and no file is named {rest:?}; \
                     the options are share=SIZE, class=local|remote|NAME, connections=N, requests=N, iops=N, \
                     bandwidth=SIZE, weight=N, protected, read-only and incoming"
                ));
            }
            rest = before;
        }
        if rest.is_empty() {
            return Err(format!(
                "{what} {name}: the file is missing; write {name}=FILE"
            ));
        }
        if is_incoming && read_only {
            return Err(format!(
                "{what} {name}: incoming and read-only: a guest that is migrated writes; leave one of them out"
            ));
        }
        let source = Source::new(rest).map_err(|error| format!("{what} {name}: {error}"))?;
        let rates = RateLimits::new(iops, bandwidth).and_then(|rates| rates.with_weight(weight));
        let rates = rates.map_err(|error| format!("{what} {name}: {error}"))?;
        let plain = Self::plain(name, source);
        Ok(Self {
            class: class.unwrap_or(plain.class),
            is_protected,
            share,
            read_only,
            is_incoming,
            connections,
            requests,
            rates,
            ..plain
        })
    }
}

/// Refuses names that terminals and metrics would show as other names.
fn check_name(what: &str, name: &str) -> Result<(), String> {
    if printable(name) == name {
        return Ok(());
    }
    Err(format!(
        "{what} {name:?}: a name has no control characters and no marks that turn the direction of text"
    ))
}

/// Puts the files that are directly in a directory in its place, each named after both. Hidden ones are left out.
pub(super) fn expand(what: &str, volumes: Vec<VolumeSpec>) -> Result<Vec<VolumeSpec>, Failure> {
    let mut all = Vec::new();
    for volume in volumes {
        match &volume.source {
            Source::File(path) if path.is_dir() => all.extend(files_in(what, &volume, path)?),
            _ => all.push(volume),
        }
    }
    Ok(all)
}

fn files_in(what: &str, volume: &VolumeSpec, path: &Path) -> Result<Vec<VolumeSpec>, Failure> {
    let (name, shown) = (&volume.name, path.display());
    if volume.share.is_some() {
        return Err(Failure::usage(format!(
            "{what} {name}: {shown} is a directory, and a share is for one file; leave out share=SIZE"
        )));
    }
    let entries = std::fs::read_dir(path).with_context(|| format!("{what} {name}: {shown}"))?;
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let path = entry
            .with_context(|| format!("{what} {name}: {shown}"))?
            .path();
        let is_hidden = path
            .file_name()
            .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.is_file() && !is_hidden {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(anyhow::anyhow!("{what} {name}: {shown} is a directory without files").into());
    }
    let file = |path: PathBuf| {
        let own = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{name}-{own}");
        check_name(what, &name).map_err(Failure::usage)?;
        Ok(VolumeSpec {
            name,
            source: Source::File(path.clone()),
            ..volume.clone()
        })
    };
    files.into_iter().map(file).collect()
}

/// Refuses two volumes of one name, and one source twice.
pub(super) fn refuse_twice(what: &str, volumes: &[VolumeSpec]) -> Result<(), Failure> {
    let claims: Vec<Claim> = volumes.iter().map(Claim::new).collect();
    for (at, one) in volumes.iter().enumerate() {
        if volumes[..at].iter().any(|other| other.name == one.name) {
            let name = &one.name;
            return Err(Failure::usage(format!(
                "{what} {name}: two {what}s are named {name:?}"
            )));
        }
        claims[at].refuse_beside(what, &claims[..at])?;
    }
    Ok(())
}

/// The use that a volume makes of its source.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    name: String,
    source: Source,
    identity: Option<Identity>,
    read_only: bool,
}

impl Claim {
    /// Of a source as it is now: what its name stands for may change.
    pub fn new(volume: &VolumeSpec) -> Self {
        Self {
            name: volume.name.clone(),
            source: volume.source.clone(),
            identity: volume.source.identity(),
            read_only: volume.read_only,
        }
    }

    /// Refuses a second use of a source, unless nobody writes: each volume would be cached, and not see what is written to
    /// the other.
    pub fn refuse_beside<'a>(
        &self,
        what: &str,
        others: impl IntoIterator<Item = &'a Self>,
    ) -> Result<(), Failure> {
        let is_same = |other: &&Self| {
            self.identity.is_some()
                && self.identity == other.identity
                && !(self.read_only && other.read_only)
        };
        let Some(other) = others.into_iter().find(is_same) else {
            return Ok(());
        };
        Err(Failure::usage(format!(
            "{what} {}: {} is the same file or server as {what} {}; name it once, several clients may use it, or make both \
             read-only",
            self.name, self.source, other.name
        )))
    }
}

/// The classes of their own that volumes are in, by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassNames(pub Vec<String>);

impl ClassNames {
    /// Gives the names numbers, and tells the policy of them, if it weighs classes.
    pub fn new(volumes: &[VolumeSpec], policy: &mut PolicySpec) -> Result<Self, Failure> {
        const KEY: &str = "classes";
        let is_it = |argument: &Argument| matches!(argument, Argument::Named(key, _) if key == KEY);
        let mut cost = policy.find_mut(Trait::WeighsClasses);
        let mut names: Vec<String> = Vec::new();
        if let Some(cost) = &mut cost {
            let at = cost.arguments.iter().position(is_it);
            if let Some(Argument::Named(_, given)) = at.map(|at| cost.arguments.remove(at)) {
                names.extend(given.split('+').map(str::to_owned));
            }
        }
        for volume in volumes {
            match &volume.class {
                StoreClass::Named(name) if !names.contains(name) => names.push(name.clone()),
                _ => {}
            }
        }
        if names.len() > usize::from(Class::STORES_MAX) {
            return Err(Failure::usage(format!(
                "{} classes of stores have names, and there can be {}; use fewer",
                names.len(),
                Class::STORES_MAX
            )));
        }
        if let Some(cost) = cost.filter(|_| !names.is_empty()) {
            let named = Argument::Named(KEY.to_owned(), names.join("+"));
            cost.arguments.push(named);
        }
        Ok(Self(names))
    }

    /// The marks of a volume's blocks.
    pub fn class_of(&self, volume: &VolumeSpec) -> Class {
        let class = match &volume.class {
            StoreClass::Local => Class::NORMAL,
            StoreClass::Remote => Class::REMOTE,
            StoreClass::Named(name) => {
                let at = self.0.iter().position(|known| known == name);
                Class::of_store(at.map_or(0, |at| at as u8 + 1))
            }
        };
        if volume.is_protected {
            class.with(Class::PROTECTED)
        } else {
            class
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(text: &str) -> Result<VolumeSpec, String> {
        VolumeSpec::new("export", "a", text)
    }

    #[test]
    fn volumes_are_read_as_written() {
        let spec = volume(
            "disk.img,share=1GiB,protected,connections=2,iops=100,bandwidth=8MiB,weight=3,requests=9,read-only",
        );
        let file = |path: &str| VolumeSpec::plain("a", Source::File(path.into()));
        let expected = VolumeSpec {
            share: Some(Size::Bytes(1 << 30)),
            read_only: true,
            is_protected: true,
            connections: Some(2),
            requests: Some(9),
            rates: RateLimits {
                iops: Some(100),
                bandwidth_bytes: Some(8 << 20),
                weight: Some(3),
            },
            ..file("disk.img")
        };
        assert_eq!(spec, Ok(expected));
        assert_eq!(volume("b=c"), Ok(file("b=c")));
        let incoming = volume("b,incoming").map(|volume| (volume.is_incoming, volume.read_only));
        assert_eq!(incoming, Ok((true, false)));
        let both = volume("b,incoming,read-only").expect_err("a guest writes");
        assert!(both.contains("leave one of them out"), "{both}");
        let class = |text: &str| volume(text).map(|volume| volume.class);
        let uri = "nbd+unix:///a?socket=/run/b";
        assert_eq!(class(uri), Ok(StoreClass::Remote));
        assert_eq!(class(&format!("{uri},share=1GiB")), Ok(StoreClass::Remote));
        assert_eq!(class("nbd://host/a,class=local"), Ok(StoreClass::Local));
        assert_eq!(class("b,class=remote"), Ok(StoreClass::Remote));
        assert_eq!(class("b,class=nfs"), Ok(StoreClass::Named("nfs".into())));
        for text in [
            "",
            "x,share=lots",
            "x,readonly",
            "x,iops=0",
            "x,iops=many",
            "x,bandwidth=0",
            "x,weight=0",
            "x,weight=1001",
            "x,bandwidth=1.5",
            "x,class=",
            "x,class=far away",
            "nbd://",
            "ftp://x/y",
        ] {
            assert!(volume(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_directory_is_its_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        for name in ["b.img", "a.img", ".hidden"] {
            std::fs::write(path(name), "x").expect("a file");
        }
        std::fs::create_dir(path("c")).expect("a directory");
        let spec = |options: &str| {
            let text = format!("{}{options}", directory.path().display());
            volume(&text).expect("valid")
        };
        let found = expand("export", vec![spec(",class=nfs,read-only")]).ok();
        let found = found.expect("two files");
        let names: Vec<_> = found.iter().map(|volume| volume.name.as_str()).collect();
        assert_eq!(names, ["a-a.img", "a-b.img"]);
        assert!(
            found
                .iter()
                .all(|volume| volume.read_only && volume.class == StoreClass::Named("nfs".into()))
        );
        assert_eq!(found[0].source, Source::File(path("a.img")));
        assert!(expand("export", vec![spec(",share=1MiB")]).is_err());
        let empty = VolumeSpec::plain("e", Source::File(path("c")));
        assert!(expand("export", vec![empty]).is_err());
    }

    #[test]
    fn a_source_has_one_volume_by_whatever_name_unless_nobody_writes() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name).display().to_string();
        std::fs::write(path("a"), "x").expect("a file");
        std::fs::write(path("b"), "x").expect("a file");
        std::fs::hard_link(path("a"), path("hard")).expect("a link");
        std::os::unix::fs::symlink(path("a"), path("soft")).expect("a link");
        let is_refused = |one: &str, other: &str| {
            let named = |name, text| VolumeSpec::new("export", name, text).expect("valid");
            refuse_twice("export", &[named("1", one), named("2", other)]).is_err()
        };
        let nbd = |socket: &str| format!("nbd+unix:///x?socket={}", path(socket));
        let tls = format!("nbds+unix:///x?socket={}&tls-certificates=/c", path("a"));
        for (one, other) in [
            (path("a"), path("a")),
            (path("a"), path("hard")),
            (path("soft"), path("a")),
            (path("a"), path("a") + ",read-only"),
            (nbd("a"), nbd("soft")),
            (nbd("none"), nbd("none")),
            (nbd("a"), tls),
            ("/dev/null".into(), "/dev/../dev/null".into()),
            ("nbd://host/x".into(), "nbd://host:10809/x".into()),
        ] {
            assert!(is_refused(&one, &other), "{one} {other}");
            let both = [one, other].map(|text| text.replace(",read-only", "") + ",read-only");
            assert!(!is_refused(&both[0], &both[1]), "{both:?}");
        }
        for (one, other) in [
            (path("a"), path("b")),
            (path("none"), path("none")),
            ("/dev/null".into(), "/dev/zero".into()),
            (nbd("a"), nbd("b")),
            (nbd("a"), "nbd://host/x".into()),
            ("nbd://host/x".into(), "nbd://host/y".into()),
        ] {
            assert!(!is_refused(&one, &other), "{one} {other}");
        }
    }

    #[test]
    fn network_file_systems_are_far() {
        let tmpfs = 0x0102_1994;
        let nfs = 0x6969;
        // As a number with a sign has it.
        let smb = 0xffff_ffff_fe53_4d42;
        assert_eq!([tmpfs, nfs, smb].map(is_remote), [false, true, true]);
    }

    #[test]
    fn named_classes_are_numbered_and_the_policy_is_told() {
        let volumes = ["x,class=nfs", "y", "z,class=ceph,protected", "w,class=nfs"];
        let volumes = volumes.map(|text| volume(text).expect("valid"));
        let told = |policy: &str| {
            let mut policy: PolicySpec = policy.parse().expect("valid");
            let names = ClassNames::new(&volumes, &mut policy).map_err(|error| error.to_string());
            (policy.to_string(), names.expect("few"))
        };
        assert_eq!(told("lru").0, "lru");
        let (policy, names) = told("directory(cost(exclusive,classes=ceph,weights=nfs-clean:2))");
        let expected = "directory(cost(exclusive,weights=nfs-clean:2,classes=ceph+nfs))";
        assert_eq!(policy, expected);
        let classes = volumes.map(|volume| names.class_of(&volume));
        let ceph = Class::of_store(1).with(Class::PROTECTED);
        let nfs = Class::of_store(2);
        assert_eq!(classes, [nfs, Class::NORMAL, ceph, nfs]);
    }
}
