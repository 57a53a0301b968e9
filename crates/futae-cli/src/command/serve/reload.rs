//! What a running server does when its configuration file has changed.

use super::Args;
use super::config::ConfigFile;
use super::plan::Plan;
use crate::command::volumes::VolumeSpec;
use crate::failure::Failure;
use futae_control::resize;
use futae_host::Server;
use futae_units::Size;
use tracing::{error, info, warn};

/// What a server was started with.
pub(super) struct Running {
    file: ConfigFile,
    exports: Vec<VolumeSpec>,
    has_tls: bool,
}

impl Running {
    /// None without a file: then there is nothing to read again.
    pub(super) fn new(args: &Args, plan: &Plan) -> Option<Self> {
        Some(Self {
            file: args.file.clone()?,
            exports: plan.exports.clone(),
            has_tls: plan.server.tls.is_some(),
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
        if let Some(Err(problem)) = tls.map(|tls| server.reload_tls(tls)) {
            error!("TLS: nothing has changed: {problem}");
        }
        let resized = resize_all(&plan, server);
        let path = new.path().display();
        let mut waits = self.waits(&new, &plan.exports);
        waits.retain(|what| tls.is_none() || !what.starts_with("tls-"));
        for what in &waits {
            warn!("{path}: {what}; this takes effect when futae serve is started again");
        }
        let waits = waits.len();
        info!(
            resized,
            waits, "{path} read again: {resized} caches resized, {waits} changes need a restart"
        );
    }

    /// The file as it is now, checked.
    fn again(&self) -> Result<(ConfigFile, Plan), Failure> {
        let args = ConfigFile::read(self.file.path())?.with(std::env::args_os().skip(2))?;
        let plan = Plan::new(&args)?;
        Ok((args.file.unwrap_or_default(), plan))
    }

    /// What is not as the file has it now, and cannot be while the server runs.
    fn waits(&self, new: &ConfigFile, exports: &[VolumeSpec]) -> Vec<String> {
        let find =
            |all: &[VolumeSpec], name: &str| all.iter().find(|export| export.name == name).cloned();
        let changed = self.file.changed(new).into_iter();
        let keys = changed.filter(|key| !matches!(*key, "cache" | "export"));
        let keys = keys.map(|key| format!("{key} has changed"));
        let added = exports
            .iter()
            .filter_map(|export| match find(&self.exports, &export.name) {
                None => Some(format!("export {} has been added", export.name)),
                Some(old) if is_same_but_for_size(&old, export) => None,
                Some(_) => Some(format!("export {} has changed", export.name)),
            });
        let gone = self
            .exports
            .iter()
            .filter(|old| find(exports, &old.name).is_none());
        let gone = gone.map(|old| format!("export {} has been removed", old.name));
        keys.chain(added).chain(gone).collect()
    }
}

/// Gives every cache the size that it has in the plan, and says how many had another. Those that shrink go first.
fn resize_all(plan: &Plan, server: &Server) -> usize {
    let mut resized = 0;
    for shrinks in [true, false] {
        for (export, blocks) in plan.sizes() {
            let Some(engine) = server.cache_of(export) else {
                continue;
            };
            let now = engine.status().capacity_blocks;
            if now == u64::from(blocks) || (now > u64::from(blocks)) != shrinks {
                continue;
            }
            let size = Size::Bytes(u64::from(blocks) * engine.block_bytes());
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

/// Whether all is as it was, but for the size of a cache of its own.
fn is_same_but_for_size(old: &VolumeSpec, new: &VolumeSpec) -> bool {
    let old = VolumeSpec {
        // A cache of its own that is new, or gone, is more than another size.
        share: match (old.share, new.share) {
            (Some(_), Some(new)) => Some(new),
            (old, _) => old,
        },
        ..old.clone()
    };
    old == *new
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn specs(texts: &[&str]) -> Vec<VolumeSpec> {
        let spec = |text: &&str| VolumeSpec::new("export", &text[..1], &text[2..]);
        texts
            .iter()
            .map(spec)
            .collect::<Result<_, _>>()
            .expect("valid")
    }

    #[test]
    fn only_sizes_of_caches_do_not_wait() {
        let file = |text: &str| ConfigFile::parse(Path::new("f"), text).expect("valid");
        let running = Running {
            file: file("cache = \"1MiB\"\nseed = 1"),
            exports: specs(&["a=/a,share=4KiB", "b=/b", "c=/c"]),
            has_tls: false,
        };
        let none: [&str; 0] = [];
        let same = file("cache = \"2MiB\"\nseed = 1");
        assert_eq!(
            running.waits(&same, &specs(&["c=/c", "a=/a,share=8KiB", "b=/b"])),
            none
        );
        let other = specs(&["a=/a", "b=/b,read-only", "d=/d"]);
        let said = [
            "seed has changed",
            "export a has changed",
            "export b has changed",
            "export d has been added",
            "export c has been removed",
        ];
        assert_eq!(running.waits(&file("cache = \"2MiB\""), &other), said);
    }
}
