//! What a server gives up once it is ready to serve: the user that started it, and system calls that it never needs.

use super::filter;
use anyhow::{Context, anyhow};
use futae_terminal::failure::Failure;
use nix::unistd::{Gid, Uid, User, initgroups, setfsgid, setfsuid, setgid, setuid};
use std::ffi::CString;
use tracing::info;

/// What a server gives up.
#[derive(clap::Args, Clone)]
pub(super) struct PrivilegeArgs {
    /// Switch to this user, with its groups, once images and sockets are open. Exports that are
    /// added later are opened as this user. Needs root at the start
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Forbid the system calls that a server does not need, among them those that start programs, once images and sockets
    /// are open (seccomp)
    #[arg(long)]
    seccomp: bool,
}

impl PrivilegeArgs {
    /// Whether what they say is possible, before anything is opened.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.account().map(drop)?;
        if self.seccomp {
            filter::program()?;
        }
        Ok(())
    }

    /// Gives up what they say, in all threads.
    pub(super) fn give_up(&self) -> Result<(), Failure> {
        if let Some(account) = self.account()? {
            become_user(&account)?;
        }
        if self.seccomp {
            filter::apply()?;
            info!("system calls that a server does not need are forbidden from now on");
        }
        Ok(())
    }

    /// The user that the server will become, if it still is root.
    pub(super) fn later(&self) -> Result<Option<User>, Failure> {
        // A user who has no other to become need not be looked up, which a filter of system calls may forbid.
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        self.account()
    }

    fn account(&self) -> Result<Option<User>, Failure> {
        let Some(name) = &self.user else {
            return Ok(None);
        };
        let found = User::from_name(name).with_context(|| format!("--user {name}"))?;
        let account = found.ok_or_else(|| {
            Failure::usage(format!(
                "--user {name}: no user of this machine has this name"
            ))
        })?;
        if !rustix::process::geteuid().is_root()
            && account.uid.as_raw() != rustix::process::geteuid().as_raw()
        {
            return Err(Failure::usage(format!(
                "--user {name}: only root can become another user; start the server as root, or as {name}"
            )));
        }
        Ok(Some(account))
    }
}

/// Does something with files as a user does, without its further groups; as this process does if there is none.
pub(super) fn as_user<T>(user: Option<&User>, act: impl FnOnce() -> T) -> T {
    if let Some(user) = user {
        // The group first, while this thread may choose it.
        setfsgid(user.gid);
        setfsuid(user.uid);
    }
    let done = act();
    if user.is_some() {
        setfsuid(Uid::effective());
        setfsgid(Gid::effective());
    }
    done
}

fn become_user(account: &User) -> Result<(), Failure> {
    let name = &account.name;
    if rustix::process::geteuid().is_root() {
        let failed = |what| move || format!("--user {name}: {what}");
        let text = CString::new(name.as_str()).map_err(|_| anyhow!("--user {name}: no name"))?;
        // In this order: who is no longer root may change nothing.
        initgroups(&text, account.gid).with_context(failed("its groups cannot be taken over"))?;
        setgid(account.gid).with_context(failed("its group cannot be taken over"))?;
        setuid(account.uid).with_context(failed("it cannot be taken over"))?;
    }
    let (uid, gid) = (account.uid, account.gid);
    info!(user = name, "running as user {name} ({uid}, group {gid})");
    Ok(())
}
