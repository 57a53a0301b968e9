//! Marks of exports whose cache had data that was not on stable storage: where they are, and what a server does that
//! finds one.

use super::super::names::{file_name, first_directory};
use super::super::volumes::{Source, VolumeSpec, real_socket};
use super::privileges::{PrivilegeArgs, as_user};
use super::reach::{Reach, boot_id, differs, has_ended};
use crate::command::state::name_of;
use anyhow::anyhow;
use futae_engine::{Engine, MarkFile, Store, UncleanMark};
use futae_log::utc;
use futae_policy::VolumeId;
use futae_terminal::failure::Failure;
use nix::unistd::User;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use tracing::warn;

/// Where marks are that have no image to be beside.
const STATE_DIRECTORY: &str = "/var/lib/futae";

/// How the names of marks in a state directory end.
const SUFFIX: &str = ".unclean";

/// What becomes of written data when a server ends uncleanly.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Writes")]
pub(super) struct UncleanArgs {
    /// Directory of the marks that record, across a crash, that a write-back cache held unwritten data. Created
    /// if it is missing [default: beside an image, as .NAME.futae-unclean; for devices and NBD addresses
    /// $STATE_DIRECTORY, else /var/lib/futae]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Accept the writes that an earlier server lost in a crash: log them, remove the marks, and do not fail
    /// the first FLUSH
    #[arg(long)]
    accept_lost_writes: bool,
}

impl UncleanArgs {
    /// Looks for the mark of an export, says what it means, and has the cache keep it from now on.
    pub(super) fn guard(
        &self,
        spec: &VolumeSpec,
        engine: &Engine,
        volume: VolumeId,
        (privileges, reach, store): (&PrivilegeArgs, &Reach, &Arc<dyn Store>),
    ) -> Result<(), Failure> {
        if engine.is_read_only(volume) {
            return Ok(());
        }
        let (name, source) = (&spec.name, &spec.source);
        let writes_back = engine.writes_back();
        let Places { made, looked_at } = self.places(spec);
        let mut found = Vec::new();
        // A mark beside an image that another server has is of that one, which removes it.
        let is_ours = store.is_ours();
        let places = made.iter().chain(&looked_at).filter(|_| is_ours);
        for (at, mark) in places.enumerate() {
            match mark.found() {
                Ok(Some(since)) => found.push((mark, since)),
                // Another user's directory, and not the place where a mark is made.
                Err(error) if at >= made.len() && error.kind() == ErrorKind::PermissionDenied => {
                    if writes_back {
                        let path = mark.path().display();
                        warn!(
                            export = name,
                            "whether an earlier server left a mark in {path} cannot be seen: {error}"
                        );
                    }
                }
                Err(error) if writes_back => return Err(refused(name, mark, &error)),
                // A mark cannot have been made where none can be looked for.
                Ok(None) | Err(_) => {}
            }
        }
        let lost = |since: Option<SystemTime>| {
            format!(
                "export {name}: an earlier server ended with unwritten data in its cache; writes to {source} that it \
                 answered{} and that were not flushed may be lost",
                since
                    .map(|since| format!(" since {}", utc(since)))
                    .unwrap_or_default()
            )
        };
        let mut loss = found.first().map(|(_, since)| lost(*since));
        // One found elsewhere stays where it is, in place of a new one.
        let marks = match (&made[..], found.first()) {
            ([_], Some((mark, _))) => vec![(*mark).clone()],
            // With those that the earlier server made under another name.
            _ => {
                let made_now = made.iter().cloned();
                made_now.chain(others_of(&found, &made)).collect()
            }
        };
        // A mark that cannot be read may be of any server.
        let is_over = |(mark, _): &(&MarkFile, _)| {
            let note = std::fs::read_to_string(mark.path());
            note.is_ok_and(|note| has_ended(&note))
        };
        let has_accepted = if self.accept_lost_writes {
            Some("accepted")
        } else {
            let are_all_over = !found.is_empty() && found.iter().all(is_over);
            are_all_over.then_some(
                "its clients ended when this machine was started again, so no FLUSH fails",
            )
        };
        // A mark that stays until a client is told is there for what is written meanwhile, too. If the clients of then are not
        // where those of now are, nothing is said of them.
        let line = reach.line(name);
        let is_of_others = |(mark, _): &(&MarkFile, _)| {
            let note = std::fs::read_to_string(mark.path());
            note.is_ok_and(|note| differs(&note, &line))
        };
        let is_rewritten = has_accepted.is_none() && found.iter().any(is_of_others);
        let marks = noted(spec, if is_rewritten { "" } else { &line }, marks);
        let found_marks = found.iter().map(|(mark, _)| *mark);
        let doomed: Vec<&MarkFile> = match has_accepted.is_some() {
            true => {
                let is_there = |mark: &&MarkFile| matches!(mark.found(), Ok(Some(_)));
                found_marks.chain(marks.0.iter().filter(is_there)).collect()
            }
            false => found_marks.filter(|mark| !marks.has(mark)).collect(),
        };
        for mark in doomed {
            // A mark that is made anew before the first write need not be gone for good.
            let removed = match has_accepted.is_some() && writes_back {
                true => mark.forget(),
                false => mark.clear(),
            };
            removed.map_err(|error| anyhow!("{}: {error}", mark.path().display()))?;
        }
        if let Some(why) = has_accepted {
            if let Some(loss) = loss.take() {
                warn!(export = name, "{loss}; {why}");
            }
        } else if let Some(loss) = &loss {
            warn!(
                export = name,
                "{loss}; the first FLUSH of its clients will fail (--accept-lost-writes: none will)"
            );
        }
        for mark in marks.0.iter().filter(|_| writes_back) {
            // By whom marks will be made.
            let user = privileges.later()?;
            make_directory(mark, user.as_ref())
                .and_then(|()| as_user(user.as_ref(), || mark.probe()))
                .and_then(|()| if is_rewritten { mark.set() } else { Ok(()) })
                .map_err(|error| refused(name, mark, &error))?;
        }
        if writes_back || loss.is_some() {
            let of_store = OfStore {
                marks,
                store: Arc::clone(store),
                loss_of_other: Mutex::new((!is_ours).then(|| lost(None))),
            };
            engine.guard(volume, Arc::new(of_store), loss);
        }
        Ok(())
    }

    /// Whether `--state-dir` can be made where it is to be.
    ///
    /// # Errors
    ///
    /// What is there is no directory, or what it is to be in.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let Some(directory) = &self.state_dir else {
            return Ok(());
        };
        let there = directory.ancestors().find(|above| above.exists());
        match there {
            Some(there) if !there.is_dir() => Err(anyhow!(
                "--state-dir {}: {} is no directory",
                directory.display(),
                there.display()
            )
            .into()),
            _ => Ok(()),
        }
    }

    /// Where the mark of an export may be.
    fn places(&self, spec: &VolumeSpec) -> Places {
        let real = match &spec.source {
            Source::File(path) => path.canonicalize().ok(),
            Source::Nbd(_) => None,
        };
        let full = name_of(&spec.source);
        let beside = real.filter(|path| path.is_file()).map(|path| beside(&path));
        let usual = std::env::var_os("STATE_DIRECTORY").map(first_directory);
        let state = self.state_dir.clone().or(usual);
        let state = state.unwrap_or_else(|| STATE_DIRECTORY.into());
        let (directory, state) = (state.clone(), state.join(mark_name(&full)));
        let (made, looked_at) = match beside {
            Some(beside) if self.state_dir.is_some() => (vec![state], vec![beside]),
            Some(beside) => (vec![beside], vec![state]),
            None => {
                let resolved = resolved(&spec.source);
                let resolved = resolved.map(|name| directory.join(mark_name(&name)));
                (std::iter::once(state).chain(resolved).collect(), Vec::new())
            }
        };
        let [made, looked_at] = [made, looked_at].map(|paths| {
            let marks = paths.into_iter();
            marks
                .map(|path| MarkFile::new(path, String::new()))
                .collect()
        });
        Places { made, looked_at }
    }
}

/// Marks with what they say, each of all of them. `line` is said of the clients.
fn noted(spec: &VolumeSpec, line: &str, marks: Vec<MarkFile>) -> Marks {
    let all: String = marks.iter().map(|mark| named(mark.path())).collect();
    let note = format!(
        "futae serve (process {}) has answered writes to {}, export {}, that are not on stable storage yet.\n\
         If it is not running any more, those that were not flushed may be lost.\n{line}{all}",
        std::process::id(),
        name_of(&spec.source),
        spec.name
    );
    let marks = marks.into_iter();
    let marks = marks.map(|mark| MarkFile::new(mark.path().to_owned(), note.clone()));
    Marks(marks.collect())
}

/// Where the mark of an export may be.
struct Places {
    /// Where new ones are made, all of them at once.
    made: Vec<MarkFile>,
    /// Where an earlier server may have made one.
    looked_at: Vec<MarkFile>,
}

/// Marks that are set and removed together.
struct Marks(Vec<MarkFile>);

impl Marks {
    fn has(&self, mark: &MarkFile) -> bool {
        self.0.iter().any(|one| one.path() == mark.path())
    }
}

impl UncleanMark for Marks {
    fn set(&self) -> std::io::Result<()> {
        self.0.iter().try_for_each(UncleanMark::set)
    }

    fn clear(&self) -> std::io::Result<()> {
        self.0.iter().try_for_each(UncleanMark::clear)
    }
}

/// The marks of a store, which are set only when no other server can remove them.
struct OfStore {
    marks: Marks,
    store: Arc<dyn Store>,
    /// What is said if the server that still has the store leaves its mark when it ends.
    loss_of_other: Mutex<Option<String>>,
}

impl UncleanMark for OfStore {
    fn set(&self) -> std::io::Result<()> {
        self.marks.set()
    }

    fn is_possible(&self) -> bool {
        self.store.is_ours()
    }

    fn left(&self) -> Option<String> {
        let loss = self.loss_of_other.lock();
        let loss = loss.unwrap_or_else(PoisonError::into_inner).take()?;
        let mut marks = self.marks.0.iter();
        let is_left = marks.any(|mark| !matches!(mark.found(), Ok(None)));
        is_left.then(|| {
            warn!("{loss}; the first FLUSH of its clients will fail");
            loss
        })
    }

    fn clear(&self) -> std::io::Result<()> {
        self.marks.clear()
    }
}

/// How a mark's note begins the line that names one of the marks that were made with it.
const MADE_AS: &str = "Marked as ";

fn named(mark: &Path) -> String {
    let name = mark.file_name().unwrap_or_default();
    format!("{MADE_AS}{}\n", name.display())
}

/// Marks that were made together with these, in the same directory, and are not among `made`.
fn others_of<S>(found: &[(&MarkFile, S)], made: &[MarkFile]) -> Vec<MarkFile> {
    let mut others: Vec<MarkFile> = Vec::new();
    for (mark, _) in found {
        let note = std::fs::read_to_string(mark.path()).unwrap_or_default();
        let names = note.lines().filter_map(|line| line.strip_prefix(MADE_AS));
        for name in names.filter(|name| is_mark_name(name)) {
            let path = mark.path().with_file_name(name);
            let mut known = made.iter().chain(&others);
            if !known.any(|known| known.path() == path) {
                others.push(MarkFile::new(path, note.clone()));
            }
        }
    }
    others
}

/// Whether it can be the name of a mark, and of nothing else.
fn is_mark_name(name: &str) -> bool {
    !name.contains('/') && name.ends_with(SUFFIX)
}

/// What a device or a socket is now, however its name is written, so that the next server finds the mark under another
/// name for the same source. Only until the machine is started again: then it may be another one.
fn resolved(source: &Source) -> Option<String> {
    let name = match source {
        Source::File(path) => format!("device {}", path.metadata().ok()?.rdev()),
        Source::Nbd(uri) => real_socket(uri)?.to_string(),
    };
    Some(format!("{name} {}", boot_id()?))
}

fn refused(name: &str, mark: &MarkFile, error: &std::io::Error) -> Failure {
    let path = mark.path().display();
    let message = format!(
        "export {name}: --write-mode write-back needs a mark by which clients learn of writes that a crash \
         has lost, and {path} cannot be made: {error}; name a directory that can be written by --state-dir DIR, or use \
         --write-mode write-through"
    );
    anyhow!(message).into()
}

fn make_directory(mark: &MarkFile, user: Option<&User>) -> std::io::Result<()> {
    let missing = mark.path().parent().filter(|directory| !directory.exists());
    let Some(directory) = missing else {
        return Ok(());
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    match user {
        Some(user) => chown(directory, Some(user.uid.as_raw()), Some(user.gid.as_raw())),
        None => Ok(()),
    }
}

/// The mark beside an image.
fn beside(image: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(image.file_name().unwrap_or_default());
    name.push(".futae-unclean");
    image.with_file_name(name)
}

/// The name of a mark for a source of any kind.
fn mark_name(source: &str) -> String {
    file_name(source, SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_have_names_of_their_own() {
        assert!(is_mark_name(&mark_name("/dev/sda")));
        let image = beside(Path::new("/srv/a.img"));
        assert_eq!(image, Path::new("/srv/.a.img.futae-unclean"));
    }
}
