//! `--feed` and `--samples-to`: the sockets on which agents report, and where their samples go.

use super::super::volumes::VolumeSpec;
use futae_agent_protocol::receiver::serial_of;
use futae_host::{Access, FeedOptions, Gate, Listen, RelayOptions, feed_path};

/// The sockets on which agents report. What has the same socket is one feed; an export is in one at most.
pub(super) fn feeds(
    texts: &[String],
    exports: &[VolumeSpec],
    gates: &[Gate],
) -> Result<Vec<FeedOptions>, String> {
    let mut feeds: Vec<FeedOptions> = Vec::new();
    for text in texts {
        let (text, access) =
            Access::take_from(text).map_err(|problem| format!("--feed {text}: {problem}"))?;
        if text == "agent" {
            feeds.extend(one_each(exports, gates, access)?);
            continue;
        }
        let feed = feed(text, access, exports)?;
        match feeds.iter_mut().find(|known| known.path == feed.path) {
            Some(known) if known.access != access => {
                return Err(format!(
                    "--feed {text}: the feed of export {} has this socket with another mode, owner or group; give both \
                     the same",
                    known.exports.join(", ")
                ));
            }
            Some(known) => known.exports.extend(feed.exports),
            None => feeds.push(feed),
        }
    }
    let all: Vec<&String> = feeds.iter().flat_map(|feed| &feed.exports).collect();
    for (at, name) in all.iter().enumerate() {
        if all[..at].contains(name) {
            return Err(format!(
                "--feed: export {name} has two; it is a disk of one guest, and its agent reports at one socket"
            ));
        }
    }
    feeds.iter().try_for_each(refuse_alike)?;
    Ok(feeds)
}

/// `agent`: a socket for each export, beside that of the clients.
fn one_each(
    exports: &[VolumeSpec],
    gates: &[Gate],
    access: Access,
) -> Result<impl Iterator<Item = FeedOptions>, String> {
    let beside = gates.iter().find_map(|gate| match &gate.address {
        Listen::Unix(path) => Some(path.clone()),
        Listen::Tcp { .. } | Listen::VhostUser(_) => None,
    });
    let beside = beside.ok_or(
        "--feed agent makes sockets beside that of --listen unix:PATH, and there is none; \
         write --feed EXPORT=unix:PATH",
    )?;
    Ok(exports.iter().map(move |export| FeedOptions {
        exports: vec![export.name.clone()],
        path: feed_path(&beside, &export.name),
        access,
    }))
}

/// One `--feed` with its path.
fn feed(text: &str, access: Access, exports: &[VolumeSpec]) -> Result<FeedOptions, String> {
    let wrong = || format!("--feed {text}: write EXPORT[,EXPORT]...=unix:PATH, unix:PATH or agent");
    let (names, path) = match (text.split_once("=unix:"), exports) {
        (Some((names, path)), _) => (names, path),
        (None, [only]) => (
            only.name.as_str(),
            text.strip_prefix("unix:").ok_or_else(wrong)?,
        ),
        (None, _) => return Err(wrong()),
    };
    if path.is_empty() {
        return Err(wrong());
    }
    let is_export = |name: &str| exports.iter().any(|known| known.name == name);
    // A name may contain commas.
    let names = match is_export(names) {
        true => vec![names],
        false => names.split(',').collect(),
    };
    if let Some(unknown) = names.iter().find(|name| !is_export(name)) {
        return Err(format!("--feed {text}: no export is named {unknown:?}"));
    }
    Ok(FeedOptions {
        exports: names.into_iter().map(str::to_owned).collect(),
        path: path.into(),
        access,
    })
}

/// Refuses a feed of which two exports would have disks with the same serial number.
fn refuse_alike(feed: &FeedOptions) -> Result<(), String> {
    let names = &feed.exports;
    for (at, name) in names.iter().enumerate() {
        let mut others = names[..at].iter();
        if let Some(other) = others.find(|other| serial_of(other) == serial_of(name)) {
            return Err(format!(
                "--feed: the disks of exports {other} and {name} would have the same serial number {:?}, which is all of a \
                 name that a disk keeps; rename one of them",
                String::from_utf8_lossy(serial_of(name))
            ));
        }
    }
    Ok(())
}

/// Where the samples go that come by the feeds, one place for each feed at most.
pub(super) fn relays(texts: &[String], feeds: &[FeedOptions]) -> Result<Vec<RelayOptions>, String> {
    let mut relays: Vec<RelayOptions> = Vec::new();
    for text in texts {
        let wrong = || format!("--samples-to {text}: write EXPORT=unix:PATH or unix:PATH");
        let (export, path) = match (text.split_once("=unix:"), feeds) {
            (Some((export, path)), _) => (export, path),
            (None, [FeedOptions { exports, .. }]) => (
                exports.first().ok_or_else(wrong)?.as_str(),
                text.strip_prefix("unix:").ok_or_else(wrong)?,
            ),
            (None, _) => return Err(wrong()),
        };
        if path.is_empty() {
            return Err(wrong());
        }
        let Some(feed) = feeds.iter().find(|feed| feed.has(export)) else {
            return Err(format!(
                "--samples-to {text}: no agent reports on export {export:?}; add --feed {export}=unix:PATH"
            ));
        };
        if relays.iter().any(|other| feed.has(&other.export)) {
            return Err(format!("--samples-to: the feed of export {export} has two"));
        }
        relays.push(RelayOptions {
            export: export.to_owned(),
            path: path.into(),
        });
    }
    Ok(relays)
}

#[cfg(test)]
mod tests {
    use super::super::exports::export;
    use super::*;
    use std::path::PathBuf;

    fn specs(names: &[&str]) -> Vec<VolumeSpec> {
        let specs = names.iter().map(|name| export(&format!("{name}=x")));
        specs.map(|spec| spec.expect("valid")).collect()
    }

    /// The names and the path of each feed.
    fn read(texts: &[&str], exports: &[VolumeSpec]) -> Result<Vec<(String, PathBuf)>, String> {
        let listen = [Gate::from(Listen::Unix("/run/s.sock".into()))];
        let texts: Vec<_> = texts.iter().map(|&text| text.to_owned()).collect();
        let feeds = feeds(&texts, exports, &listen)?.into_iter();
        Ok(feeds
            .map(|feed| (feed.exports.join(" "), feed.path))
            .collect())
    }

    fn pair(exports: &str, path: &str) -> (String, PathBuf) {
        (exports.to_owned(), PathBuf::from(path))
    }

    #[test]
    fn feeds_are_read_as_written() {
        let exports = specs(&["a", "b"]);
        let one = |exports: &str, path: &str| Ok(vec![pair(exports, path)]);
        assert_eq!(read(&["b=unix:/f"], &exports), one("b", "/f"));
        assert_eq!(read(&["unix:/f"], &exports[..1]), one("a", "/f"));
        assert_eq!(read(&["b,a=unix:/f"], &exports), one("b a", "/f"));
        let both = vec![
            pair("a", "/run/a.agent.sock"),
            pair("b", "/run/b.agent.sock"),
        ];
        assert_eq!(read(&["agent"], &exports), Ok(both));
        for texts in [
            &[""][..],
            &["unix:/f"],
            &["c=unix:/f"],
            &["a,=unix:/f"],
            &["a,c=unix:/f"],
            &["a=/f"],
            &["a=unix:"],
            &["tcp:h:1"],
            &["a=unix:/f", "agent"],
            &["a,a=unix:/f"],
            &["a,b=unix:/f", "b=unix:/g"],
        ] {
            assert!(read(texts, &exports).is_err(), "{texts:?}");
        }
        assert!(feeds(&["agent".to_owned()], &exports, &[]).is_err());
    }

    #[test]
    fn what_has_the_same_socket_is_one_feed() {
        let exports = specs(&["a", "b", "c"]);
        let texts = ["a=unix:/f", "b=unix:/g", "c=unix:/f"];
        let expected = vec![pair("a c", "/f"), pair("b", "/g")];
        assert_eq!(read(&texts, &exports), Ok(expected));
        let texts = ["a=unix:/f,mode=0660", "b=unix:/f,mode=0660"];
        assert_eq!(read(&texts, &exports), Ok(vec![pair("a b", "/f")]));
        let error = read(&["a=unix:/f", "b=unix:/f,mode=0660"], &exports);
        assert!(error.is_err_and(|error| error.contains("give both the same")));
        // Sockets that are made for each export are not shared.
        let feeds = read(&["agent"], &specs(&["a/b", "a_b"])).expect("valid");
        assert_eq!(feeds.len(), 2);
    }

    #[test]
    fn a_name_with_a_comma_is_one_name() {
        let exports = specs(&["a,b", "a", "b"]);
        let whole = Ok(vec![pair("a,b", "/f")]);
        assert_eq!(read(&["a,b=unix:/f"], &exports), whole);
        let texts = ["a=unix:/f", "a,b=unix:/f"];
        assert_eq!(read(&texts, &exports), Ok(vec![pair("a a,b", "/f")]));
    }

    #[test]
    fn disks_of_one_guest_are_told_apart_by_their_serial_numbers() {
        let exports = specs(&["a-name-of-20-letters-root", "a-name-of-20-letters-data"]);
        let texts = exports.iter().map(|spec| format!("{}=unix:/f", spec.name));
        let texts: Vec<_> = texts.collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let error = read(&texts, &exports).expect_err("alike");
        assert!(error.contains("\"a-name-of-20-letters\""), "{error}");
        assert!(read(&texts[..1], &exports).is_ok());
    }

    #[test]
    fn samples_go_where_a_feed_has_them() {
        let feed = |names: &[&str]| FeedOptions {
            exports: names.iter().map(|&name| name.to_owned()).collect(),
            path: PathBuf::new(),
            access: Access::default(),
        };
        let read = |texts: &[&str], feeds: &[FeedOptions]| {
            let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
            let relays = relays(&texts, feeds)?;
            let pairs = relays.into_iter().map(|relay| (relay.export, relay.path));
            Ok::<_, String>(pairs.collect::<Vec<_>>())
        };
        let (one, two) = ([feed(&["a", "d"])], [feed(&["a", "d"]), feed(&["b"])]);
        let expected = vec![pair("a", "/x")];
        assert_eq!(read(&["unix:/x"], &one).as_ref(), Ok(&expected));
        assert_eq!(read(&["a=unix:/x"], &two), Ok(expected));
        assert_eq!(read(&["d=unix:/x"], &two), Ok(vec![pair("d", "/x")]));
        for (texts, feeds) in [
            (&["unix:/x"][..], &two[..]),
            (&["c=unix:/x"], &two),
            (&["a=unix:"], &two),
            (&["a=tcp:x:1"], &one),
            (&["a=unix:/x", "a=unix:/y"], &two),
            (&["a=unix:/x", "d=unix:/x"], &two),
        ] {
            assert!(read(texts, feeds).is_err(), "{texts:?}");
        }
        let error = read(&["unix:/x"], &[]).expect_err("no feed");
        assert!(error.contains("EXPORT=unix:PATH"), "{error}");
    }
}
