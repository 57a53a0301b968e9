//! What `mount -t futae` calls (`mount.futae`, packaging/mount.futae): options as fstab has them become those of `futae mount`, which
//! goes on in the background.

use super::args::Args as MountArgs;
use anyhow::Context;
use clap::{Arg, ArgAction, Args as _, Command};
use futae_terminal::failure::Failure;
use rustix::mount::MountFlags;
use std::io::Read;
use std::path::Path;
use std::process::{Command as Program, Stdio};
use std::thread;

/// The status by which mount(8) knows that mounting has failed.
const MOUNT_FAILURE: i32 = 32;

/// Mount what a line of fstab names; mount(8) calls this
#[derive(clap::Args)]
pub struct Args {
    /// As mount(8) passes them: SOURCE DIRECTORY [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<String>,
}

/// A call by mount(8).
#[derive(Debug, Default, PartialEq, Eq)]
struct Call {
    source: String,
    directory: String,
    options: String,
    /// Nothing is mounted.
    is_fake: bool,
    /// Unknown options are left out.
    is_sloppy: bool,
}

/// Mounts, and returns once the files are there; or has the kernel refuse or permit writes to what is mounted (`remount`).
///
/// # Errors
///
/// An option that there is not, or a remount that the kernel refuses. What `futae mount` says otherwise goes to standard error as it is, and its status is that of mount(8).
pub fn run(args: &Args) -> Result<(), Failure> {
    let call = Call::read(&args.words).map_err(Failure::usage)?;
    if let Some(flags) = remount_flags(&call.options) {
        if call.is_fake {
            return Ok(());
        }
        let remounted = rustix::mount::mount_remount(&call.directory, flags, c"");
        return Ok(remounted.with_context(|| format!("{} cannot be remounted", call.directory))?);
    }
    let options = futae_options(&call.options, call.is_sloppy).map_err(Failure::usage)?;
    if call.is_fake {
        return Ok(());
    }
    let futae = std::env::current_exe().context("the program futae cannot be found again")?;
    let mut command = Program::new(futae);
    command.arg("mount").args(options).arg("--detached");
    let directory = std::path::absolute(&call.directory).context("the directory is missing")?;
    command
        .arg("--")
        .arg(absolute(&call.source))
        .arg(directory)
        .current_dir("/");
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("futae mount cannot be started")?;
    let errors = child.stderr.take();
    // It goes on in the background, and gives up its standard error when the files are there.
    let errors = thread::spawn(move || {
        let mut errors = errors?;
        std::io::copy(&mut errors, &mut std::io::stderr()).ok()
    });
    let mut said = Vec::new();
    if let Some(mut out) = child.stdout.take() {
        // Of a pipe that breaks, what was read counts.
        let _ = out.read_to_end(&mut said);
    }
    let _ = errors.join();
    if said.is_empty() {
        let _ = child.wait();
        // It has said why.
        std::process::exit(MOUNT_FAILURE);
    }
    Ok(())
}

/// The flags of a remount, if the options ask for one. Other options are those that mount(8) found in fstab and of the mount itself; they stay as they are.
fn remount_flags(options: &str) -> Option<MountFlags> {
    let (mut flags, mut is_remount) = (MountFlags::NOSUID | MountFlags::NODEV, false);
    for option in split(options) {
        match option.as_str() {
            "remount" => is_remount = true,
            "ro" => flags |= MountFlags::RDONLY,
            "rw" => flags -= MountFlags::RDONLY,
            "noatime" => flags |= MountFlags::NOATIME,
            _ => {}
        }
    }
    is_remount.then_some(flags)
}

/// A source by its path if it is one: mount(8) may be anywhere, and the daemon is at the root.
fn absolute(source: &str) -> String {
    let path = std::path::absolute(source).ok();
    let path = path.filter(|_| Path::new(source).exists());
    let path = path.and_then(|path| path.into_os_string().into_string().ok());
    path.unwrap_or_else(|| source.to_owned())
}

impl Call {
    fn read(words: &[String]) -> Result<Self, String> {
        let (mut call, mut places) = (Self::default(), Vec::new());
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
                places.push(word.clone());
                continue;
            };
            for (at, letter) in letters.char_indices() {
                match letter {
                    's' => call.is_sloppy = true,
                    'f' => call.is_fake = true,
                    'n' | 'v' | 'w' => {}
                    'r' => add(&mut call.options, "ro"),
                    'o' | 't' | 'N' => {
                        let rest = &letters[at + 1..];
                        let rest = Some(rest).filter(|rest| !rest.is_empty());
                        let value = rest.or_else(|| words.next().map(String::as_str));
                        let value =
                            value.ok_or_else(|| format!("-{letter}: its value is missing"))?;
                        if letter == 'o' {
                            add(&mut call.options, value);
                        }
                        break;
                    }
                    _ => return Err(format!("mount.futae knows no -{letter}")),
                }
            }
        }
        let [source, directory] = <[String; 2]>::try_from(places)
            .map_err(|_| "write mount.futae SOURCE DIRECTORY [-o OPTIONS]".to_owned())?;
        Ok(Self {
            source,
            directory,
            ..call
        })
    }
}

fn add(options: &mut String, more: &str) {
    if !options.is_empty() {
        options.push(',');
    }
    options.push_str(more);
}

/// Options of `futae mount` from those of mount(8), which separates them by commas outside of double quotes.
fn futae_options(text: &str, is_sloppy: bool) -> Result<Vec<String>, String> {
    let command = MountArgs::augment_args(Command::new("futae mount"));
    let mut options = Vec::new();
    for option in split(text) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option.as_str(), None),
        };
        let dashed = name.replace('_', "-");
        match name {
            "ro" => options.push("--read-only".to_owned()),
            "noexec" | "suid" | "dev" => {
                return Err(format!(
                    "{name}: futae cannot mount so; its mounts are nosuid, nodev and exec"
                ));
            }
            _ if is_of_mount(name) => {}
            _ => match option_named(&command, &dashed) {
                Some(known) if !takes_value(known) && value.is_some() => {
                    return Err(format!("{name}: it takes no value"));
                }
                Some(known) if needs_value(known) && value.is_none() => {
                    return Err(format!("{name}: its value is missing; write {name}=VALUE"));
                }
                Some(_) => options.push(match value {
                    Some(value) => format!("--{dashed}={value}"),
                    None => format!("--{dashed}"),
                }),
                None if is_sloppy => {}
                None => {
                    return Err(format!(
                        "{name}: no option of futae mount has this name; `futae mount --help` lists them"
                    ));
                }
            },
        }
    }
    Ok(options)
}

fn option_named<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let mut all = command.get_arguments();
    all.find(|it| it.get_long() == Some(name) && !it.is_hide_set())
}

fn takes_value(option: &Arg) -> bool {
    !matches!(option.get_action(), ArgAction::SetTrue)
}

fn needs_value(option: &Arg) -> bool {
    let is_optional = option
        .get_num_args()
        .is_some_and(|count| count.min_values() == 0);
    takes_value(option) && !is_optional
}

/// Whether an option is for mount(8), systemd or a person who reads fstab; or is how futae mounts anyway.
fn is_of_mount(name: &str) -> bool {
    let known = [
        "",
        "_netdev",
        "async",
        "auto",
        "atime",
        "comment",
        "defaults",
        "diratime",
        "exec",
        "group",
        "noatime",
        "noauto",
        "nodev",
        "nodiratime",
        "nofail",
        "nosuid",
        "nouser",
        "nousers",
        "owner",
        "relatime",
        "rw",
        "user",
        "users",
    ];
    known.contains(&name) || name.starts_with("x-") || name.starts_with("X-")
}

fn split(text: &str) -> Vec<String> {
    let (mut options, mut is_quoted) = (vec![String::new()], false);
    for letter in text.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => options.push(String::new()),
            _ => {
                if let Some(option) = options.last_mut() {
                    option.push(letter);
                }
            }
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> Result<Call, String> {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        Call::read(&words)
    }

    #[test]
    fn a_call_is_read_as_mount_writes_it() {
        let read = call("/a.img /mnt -sv -o rw,cache=1MiB -t futae -r").expect("valid");
        let expected = Call {
            source: "/a.img".to_owned(),
            directory: "/mnt".to_owned(),
            options: "rw,cache=1MiB,ro".to_owned(),
            is_fake: false,
            is_sloppy: true,
        };
        assert_eq!(read, expected);
        assert!(call("/a /b -f").is_ok_and(|call| call.is_fake));
        for text in ["/a", "/a /b /c", "/a /b -o", "/a /b -x"] {
            assert!(call(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_last_word_of_a_remount_counts() {
        let flags = |text| remount_flags(text).map(|flags| flags.contains(MountFlags::RDONLY));
        assert_eq!(flags("ro,cache=1MiB"), None);
        assert_eq!(flags("rw,user_id=0,remount,ro"), Some(true));
        assert_eq!(flags("ro,remount,rw"), Some(false));
        let kept = remount_flags("remount,noatime").expect("a remount");
        assert!(kept.contains(MountFlags::NOATIME | MountFlags::NOSUID | MountFlags::NODEV));
    }

    #[test]
    fn options_are_those_of_futae_mount() {
        let options = |text| futae_options(text, false);
        assert_eq!(
            options(
                "rw,nosuid,_netdev,x-systemd.automount,cache=1MiB,read_only,allow_other=\"mode=0660,group=kvm\""
            ),
            Ok(vec![
                "--cache=1MiB".to_owned(),
                "--read-only".to_owned(),
                "--allow-other=mode=0660,group=kvm".to_owned()
            ])
        );
        assert_eq!(options("ro,allow_other").map(|it| it.len()), Ok(2));
        assert_eq!(options(""), Ok(Vec::new()));
        for text in [
            "noexec",
            "suid",
            "cash=1",
            "cache",
            "detached",
            "read-only=1",
        ] {
            assert!(options(text).is_err(), "{text}");
        }
        assert_eq!(futae_options("cash=1", true), Ok(Vec::new()));
    }
}
