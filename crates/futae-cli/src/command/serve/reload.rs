//! What a running server does when its configuration file has changed.

use super::args::Args;
use super::config::ConfigFile;
use super::opener::Opener;
use super::plan::Plan;
use crate::command::volumes::VolumeSpec;
use futae_control::resize;
use futae_host::Server;
use futae_terminal::failure::Failure;
use futae_units::Size;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::{error, info, warn};

/// What a server was started with.
pub(super) struct Running {
    file: ConfigFile,
    opener: Arc<Opener>,
    /// Whether clients can use TLS.
    has_tls: bool,
    /// Whether the process was told to stop.
    is_stopping: Arc<AtomicBool>,
}

impl Running {
    /// None without a file: then there is nothing to read again.
    pub(super) fn new(args: &Args, plan: &Plan, is_stopping: Arc<AtomicBool>) -> Option<Self> {
        Some(Self {
            file: args.file.clone()?,
            opener: Arc::clone(&plan.opener),
            has_tls: plan.server.tls.is_some(),
            is_stopping,
        })
    }

    /// Reads the file again and does what can be done; the log has what cannot.
    pub(super) fn reload(&self, server: &Server) {
        let (new, plan) = match self.again() {
            Ok(read) => read,
            Err(failure) => {
                error!("configuration not reloaded, nothing has changed: {failure}");
                return;
            }
        };
        let tls = plan.server.tls.as_ref().filter(|_| self.has_tls);
        // Before exports come that its rules are about.
        let reloaded = tls.map(|tls| server.reload_tls(tls));
        if let Some(Err(problem)) = &reloaded {
            error!("TLS: nothing has changed: {problem}");
        }
        // The file names the same certificates and keys also when they have been replaced, so only success says what is in force.
        let has_rules = plan.server.tls.is_none() || matches!(reloaded, Some(Ok(())));
        // What leaves makes room for what comes, but the only export can leave only once another has come.
        let (mut removed, only) = remove_others(&plan, server);
        let mut resized = self.resize(&plan, server, only.as_deref());
        let added = self.add_missing(&plan, server, has_rules);
        if let Some(name) = only {
            if remove(&name, server) {
                removed += 1;
            } else {
                // It keeps its blocks after all.
                resized += self.resize(&plan, server, None);
            }
        }
        if let (Some(tls), Some(Ok(()))) = (tls, &reloaded) {
            server.remark_on_rules(tls);
        }
        let changed = self.change_policy(&plan, server);
        let limited = limit_all(&plan, server);
        let path = new.path().display();
        let mut waits = self.waits(&new, &plan.exports);
        waits.retain(|what| tls.is_none() || !what.starts_with("tls-"));
        for what in &waits {
            warn!("{path}: {what}; this takes effect when futae serve is started again");
        }
        let waits = waits.len();
        info!(
            added,
            removed,
            resized,
            policies = changed,
            limited,
            waits,
            "{path} read again: {added} exports added, {removed} removed, {limited} with other limits a second, {resized} caches resized, {changed} with another \
             policy, {waits} changes need a restart"
        );
    }

    /// Gives every cache the policy of the plan, also those that are yet to be made. Returns how many had another.
    fn change_policy(&self, plan: &Plan, server: &Server) -> usize {
        let policy = plan.policy().to_string();
        let (mut changed, mut is_refused) = (0, false);
        for (export, _) in plan.sizes() {
            if server.cache_of(export).is_none() {
                continue;
            }
            match server.change_policy(export, &policy) {
                Ok(false) => {}
                Ok(true) => {
                    changed += 1;
                    info!(
                        export,
                        "export {export}: the policy of its cache is now {policy}"
                    );
                }
                Err(problem) => {
                    is_refused = true;
                    error!(export, "export {export}: {problem}");
                }
            }
        }
        // What a cache refuses, a new one would have to refuse too.
        if !is_refused {
            self.opener.plan_policy(plan.policy());
        }
        changed
    }

    /// Gives every cache the size of the plan, also the common one that is yet to be made; says how many had another. The blocks
    /// of `leaving` are free.
    fn resize(&self, plan: &Plan, server: &Server, leaving: Option<&str>) -> usize {
        let keeps_cache = |name: &str| {
            let (old, new) = (self.opener.spec_of(name), plan.spec_of(name));
            old.is_none_or(|old| new.is_none_or(|new| old.share.is_some() == new.share.is_some()))
        };
        let common_blocks = self.common_blocks(plan, server, leaving);
        self.opener.plan_common(common_blocks);
        resize_all(plan, server, common_blocks, &keeps_cache)
    }

    /// Blocks of the cache of the exports without a share.
    fn common_blocks(&self, plan: &Plan, server: &Server, leaving: Option<&str>) -> u32 {
        let (taken, lent) = (
            self.taken_blocks(plan, server, leaving),
            self.lent_blocks(plan, server),
        );
        let blocks = (u64::from(plan.common_blocks) + lent).saturating_sub(taken);
        let is_needed = plan.exports.iter().any(|export| export.share.is_none());
        u32::try_from(blocks.max(is_needed.into())).unwrap_or(u32::MAX)
    }

    /// Blocks of the caches of exports that are to have none of their own any more: they keep them until the next start, or
    /// until their clients leave. So that all caches together stay within `cache`, the common one has so many fewer. The export
    /// `leaving` is about to be removed.
    fn taken_blocks(&self, plan: &Plan, server: &Server, leaving: Option<&str>) -> u64 {
        let is_own = |spec: Option<&VolumeSpec>| spec.is_some_and(|spec| spec.share.is_some());
        let names = server.export_names().into_iter();
        let kept = names.filter(|name| {
            leaving != Some(name.as_str())
                && is_own(self.opener.spec_of(name).as_ref())
                && !is_own(plan.spec_of(name))
        });
        let caches = kept.filter_map(|name| server.cache_of(&name));
        caches.map(|cache| cache.status().capacity_blocks).sum()
    }

    /// Blocks of caches that exports of the common cache are to have at the next start: until then they are in the common
    /// one, which has so many more.
    fn lent_blocks(&self, plan: &Plan, server: &Server) -> u64 {
        let there = server.export_names();
        let lent = plan.sizes().filter(|(export, _)| {
            let has_share = |spec: Option<&VolumeSpec>| spec.map(|spec| spec.share.is_some());
            there.iter().any(|name| name == export)
                && has_share(self.opener.spec_of(export).as_ref()) == Some(false)
                && has_share(plan.spec_of(export)) == Some(true)
        });
        lent.map(|(_, blocks)| u64::from(blocks)).sum()
    }

    /// Adds the exports that the server does not have, and says how many. None, unless clients need for them what the plan says
    /// that they need: `has_rules`.
    fn add_missing(&self, plan: &Plan, server: &Server, has_rules: bool) -> usize {
        let there = server.export_names();
        let mut added = 0;
        for spec in &plan.exports {
            let name = &spec.name;
            if there.contains(name) {
                continue;
            }
            // Sources may be silent, each of them for long.
            if self.is_stopping.load(Ordering::Acquire) {
                break;
            }
            if plan.has_own_socket(name) {
                warn!(
                    export = name,
                    "export {name} is not added: it has a socket of its own, which is made when futae serve is started again"
                );
                continue;
            }
            if !has_rules {
                warn!(
                    export = name,
                    "export {name} is not added: TLS is not in force as the file has it, so clients could open the export that the file \
                     does not allow; mend what the log says of TLS, or start futae serve again"
                );
                continue;
            }
            let open = || {
                self.opener
                    .open_spec(spec)
                    .map_err(|failure| failure.to_string())
            };
            match server.add_export(name, open) {
                Ok(()) => added += 1,
                Err(problem) => error!(export = name, "export {name} is not added: {problem}"),
            }
        }
        added
    }

    /// The file as it is now, checked.
    fn again(&self) -> Result<(ConfigFile, Plan), Failure> {
        let args = Args::again(self.file.path())?;
        let plan = Plan::new(&args)?;
        Ok((args.file.unwrap_or_default(), plan))
    }

    /// What is not as the file has it now, and cannot be while the server runs.
    fn waits(&self, new: &ConfigFile, exports: &[VolumeSpec]) -> Vec<String> {
        let changed = self.file.changed(new).into_iter();
        let keys = changed.filter(|key| !matches!(*key, "cache" | "policy" | "export"));
        let keys = keys.map(|key| format!("{key} has changed"));
        let changed = exports.iter().filter(|export| {
            let old = self.opener.spec_of(&export.name);
            old.is_some_and(|old| !is_same_but_for_amounts(&old, export))
        });
        let changed = changed.map(|export| format!("export {} has changed", export.name));
        keys.chain(changed).collect()
    }
}

/// Removes the exports that are not in the plan, and says how many. Leaves the only export that there is, and returns its name.
fn remove_others(plan: &Plan, server: &Server) -> (usize, Option<String>) {
    let (mut removed, mut only) = (0, None);
    for name in server.export_names() {
        if plan.spec_of(&name).is_some() {
            continue;
        }
        if server.export_names().len() == 1 {
            only = Some(name);
        } else {
            removed += usize::from(remove(&name, server));
        }
    }
    (removed, only)
}

/// Removes an export, unless that fails.
fn remove(name: &str, server: &Server) -> bool {
    let removed = server.remove_export(name, false);
    if let Err(problem) = &removed {
        error!(export = name, "{problem}");
    }
    removed.is_ok()
}

/// Gives every cache the size that it has in the plan, and the common one `common_blocks`; says how many had another. Those that
/// shrink go first. An export that is to have a cache of its own, or no longer, is still in the cache that it was opened with:
/// `keeps_cache`.
fn resize_all(
    plan: &Plan,
    server: &Server,
    common_blocks: u32,
    keeps_cache: &dyn Fn(&str) -> bool,
) -> usize {
    let mut resized = 0;
    for shrinks in [true, false] {
        for (export, blocks) in plan.sizes() {
            let Some(engine) = server.cache_of(export).filter(|_| keeps_cache(export)) else {
                continue;
            };
            let now = engine.status().capacity_blocks;
            let is_common = plan
                .spec_of(export)
                .is_some_and(|spec| spec.share.is_none());
            let blocks = u64::from(if is_common { common_blocks } else { blocks });
            if now == blocks || (now > blocks) != shrinks {
                continue;
            }
            let size = Size::Bytes(blocks * engine.block_bytes());
            match resize(&engine, size) {
                Ok(_) => {
                    resized += 1;
                    info!(export, "export {export}: its cache is now {size}");
                }
                Err(problem) => error!(
                    export,
                    "export {export}: its cache cannot be {size}: {problem}"
                ),
            }
        }
    }
    resized
}

/// Gives every export the limits that it has in the plan, and says how many had others.
fn limit_all(plan: &Plan, server: &Server) -> usize {
    let there = server.export_names();
    let specs = plan.exports.iter();
    let specs = specs.filter(|spec| there.contains(&spec.name));
    let set = |spec: &&VolumeSpec| match server.set_rates(&spec.name, spec.rates) {
        Ok(has_changed) => has_changed,
        Err(problem) => {
            error!(export = spec.name, "{problem}");
            false
        }
    };
    specs.filter(set).count()
}

/// Whether all is as it was, but for the size of a cache of its own and for rates.
fn is_same_but_for_amounts(old: &VolumeSpec, new: &VolumeSpec) -> bool {
    let old = VolumeSpec {
        // A cache of its own that is new, or gone, is more than another size.
        share: match (old.share, new.share) {
            (Some(_), Some(new)) => Some(new),
            (old, _) => old,
        },
        rates: new.rates,
        // A guest that has come is there, however it came.
        is_incoming: new.is_incoming,
        ..old.clone()
    };
    old == *new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> VolumeSpec {
        VolumeSpec::new("export", &text[..1], &text[2..]).expect("valid")
    }

    #[test]
    fn a_size_of_a_cache_or_a_rate_is_no_change_of_its_export() {
        let same = |old, new| is_same_but_for_amounts(&spec(old), &spec(new));
        assert!(same("a=/a,share=4KiB", "a=/a,share=8KiB"));
        assert!(same("a=/a", "a=/a"));
        assert!(same("a=/a,iops=5", "a=/a,bandwidth=1MiB"));
        for new in ["a=/a", "a=/b,share=4KiB", "a=/a,share=4KiB,read-only"] {
            assert!(!same("a=/a,share=4KiB", new), "{new}");
        }
    }
}
