//! Adding and removing exports while the server runs.

use crate::export::Entry;
use crate::fair::USUAL_WEIGHT;
use crate::quota::Quota;
use crate::rate::RateLimits;
use crate::shared::Shared;
use crate::stop::Flushes;
use crate::{Export, HostError, PendingExport};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;
use tracing::info;

impl Shared {
    /// Serialises changes of exports.
    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an export. Calls `open` to open its source once it is certain that it can be added. A source may be silent for long:
    /// only other additions wait for it.
    pub(crate) fn add_export(
        &self,
        name: &str,
        open: impl FnOnce() -> Result<PendingExport, String>,
    ) -> Result<Export, String> {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if self.exports.find(name).is_some() {
            return Err(format!(
                "an export is named {name:?} already; remove it first"
            ));
        }
        if !self.gated.1 {
            return Err(format!(
                "no client could open export {name:?}: every socket of this server is for one export; start it with a \
                 --listen for all"
            ));
        }
        let pending = open()?;
        let _changing = self.change();
        // A stop leaves the caches as they are for the next server.
        if self.exports.is_closed() {
            return Err(HostError::Stopping.to_string());
        }
        let (export, tell_added) = pending.place()?;
        let checked = self.options.check_rates(name, export.rates);
        let added = checked.and_then(|()| self.exports.add(export.clone(), None));
        if let Err(error) = added {
            let _ = self.dispose(&export);
            return Err(error.to_string());
        }
        tell_added();
        self.count_exports();
        info!(export = name, "export {name}: added");
        Ok(export)
    }

    /// Removes an export after its clients' writes are on stable storage. Returns how many
    /// connections were ended for it. On an error the export stays as it is.
    pub(crate) fn remove_export(&self, name: &str, force: bool) -> Result<usize, String> {
        let _changing = self.change();
        let export = self.removable(name)?;
        let used = |users: usize| {
            format!(
                "export {name} is in use by {users} connections; end them, or use futae export remove --force, which does"
            )
        };
        let users = self.registry.users(name);
        if users > 0 && !force {
            return Err(used(users));
        }
        let stays = |problem: String| format!("export {name} stays: {problem}");
        // While clients can still learn of a failure.
        self.flush(&export).map_err(stays)?;
        let Some(entry) = self.exports.take_out(name) else {
            return Err(stays("the server stops".to_owned()));
        };
        let ended = self.registry.users(name);
        let done = if ended > 0 && !force {
            Err(used(ended))
        } else {
            self.finish(&export).map_err(stays)
        };
        if let Err(problem) = done {
            self.exports.put_back(entry);
            return Err(problem);
        }
        self.count_exports();
        info!(
            export = name,
            "export {name}: removed, {ended} connections ended"
        );
        Ok(ended)
    }

    /// Changes the rates of an export. Returns whether they differ from the previous ones.
    pub(crate) fn set_rates(&self, name: &str, rates: RateLimits) -> Result<bool, String> {
        let _changing = self.change();
        let entry = self.exports.find(name).filter(Entry::is_export);
        let entry = entry.ok_or_else(|| format!("no export is named {name:?}"))?;
        let checked = self.options.check_rates(name, rates);
        checked.map_err(|error| error.to_string())?;
        let has_changed = entry.rate.set(rates);
        if let Some(part) = entry.quota.as_deref().and_then(Quota::part) {
            part.set_weight(rates.weight.unwrap_or(USUAL_WEIGHT));
        }
        if has_changed {
            let (iops, bandwidth) = (rates.iops, rates.bandwidth_bytes);
            let shown = |limit: Option<u64>, unit| match limit {
                Some(limit) => format!("at most {limit} {unit} a second"),
                None => format!("no limit of {unit} a second"),
            };
            info!(
                export = name,
                "export {name}: {}, {}",
                shown(iops, "requests"),
                shown(bandwidth, "bytes")
            );
        }
        Ok(has_changed)
    }

    /// Adopts the size of an export whose image or device was extended. Returns its size before and
    /// after, and how many guests were informed.
    pub(crate) fn lengthen_export(&self, name: &str) -> Result<(u64, u64, usize), String> {
        let _changing = self.change();
        let Some(Entry { export, .. }) = self.exports.find(name) else {
            return Err(format!("no export is named {name:?}"));
        };
        if export.engine.logs_decisions() {
            return Err(format!(
                "export {name} stays as it is: a decision log cannot be replayed past a change of size; start the server \
                 without --decision-log"
            ));
        }
        let sizes = export
            .engine
            .lengthen_volume(export.volume, self.options.stop_timeout);
        let (before, after) =
            sizes.map_err(|error| format!("export {name} stays as it is: {error}"))?;
        let told = self.registry.announce(name);
        info!(
            export = name,
            "export {name}: {before} bytes, now {after}; {told} guests told"
        );
        Ok((before, after, told))
    }

    /// The export is out of the table: ends the connections that use it, and removes its volume.
    fn finish(&self, export: &Export) -> Result<(), String> {
        let (name, timeout) = (&export.name, self.options.stop_timeout);
        self.registry.hang_up_on(name);
        let left = self.registry.wait_without(Some(name), timeout);
        if left > 0 {
            return Err(format!("{left} of its connections do not end"));
        }
        // Writes since the first flush.
        self.flush(export)?;
        self.dispose(export)
    }

    fn dispose(&self, export: &Export) -> Result<(), String> {
        let (engine, volume) = (&export.engine, export.volume);
        engine
            .end_clean(volume)
            .map_err(|error| format!("its unclean mark cannot be removed: {error}"))?;
        engine
            .take_out_volume(volume, self.options.stop_timeout)
            .map_err(|error| error.to_string())
    }

    fn flush(&self, export: &Export) -> Result<(), String> {
        let timeout = self.options.stop_timeout;
        let mut flushes = Flushes::new(vec![export.clone()]);
        flushes.begin();
        let failed = flushes.finish(timeout.max(Duration::from_secs(1)), timeout);
        failed.into_iter().next().map_or(Ok(()), |(_, problem)| {
            Err(format!(
                "its writes cannot be brought to stable storage: {problem}"
            ))
        })
    }

    fn removable(&self, name: &str) -> Result<Export, String> {
        let all = self.exports.all();
        let export = all.iter().find(|export| export.name == name);
        let Some(export) = export else {
            return Err(format!("no export is named {name:?}"));
        };
        let mut feeds = self.options.feeds.iter();
        let has_feed = feeds.any(|feed| feed.has(name));
        let problem = if self.gated.0.iter().any(|gated| gated == name) {
            "it has a socket of its own, which is made and removed when the server starts and stops"
        } else if has_feed {
            "an agent reports on it at a socket that is made and removed when the server starts and stops"
        } else if export.engine.logs_decisions() {
            "a decision log cannot be replayed past a removal; start the server without --decision-log"
        } else if all.len() == 1 {
            "it is the only one; stop the server"
        } else {
            return Ok(export.clone());
        };
        Err(format!("export {name} stays: {problem}"))
    }

    fn count_exports(&self) {
        let entries = self.exports.entries();
        let numbers = entries.iter().map(|entry| entry.number + 1).max();
        self.budget.set_exports(entries.len(), numbers.unwrap_or(0));
    }
}
