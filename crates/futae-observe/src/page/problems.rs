//! What is wrong, as a list at the top of the page.

use super::html::escaped;
use crate::snapshot::Snapshot;

/// A list of problems; nothing if there are none.
pub(super) fn problems(snapshot: &Snapshot) -> String {
    let mut found = Vec::new();
    for one in snapshot.volumes() {
        let volume = &one.volume;
        let name = &volume.name;
        if volume.unclean {
            found.push(format!(
                "{name}: an earlier server ended with answered writes in its cache; they are lost"
            ));
        }
        if volume.errors > 0 {
            found.push(format!("{name}: {} requests failed", volume.errors));
        }
        if volume.demotions_keep_differing {
            found.push(format!(
                "{name}: most blocks that are demoted have data that the disk never had"
            ));
        }
        if one.export.is_some_and(|export| export.is_blind) {
            found.push(format!(
                "{name}: the cache is exclusive, and neither a client nor an agent reports evictions; give the guest an agent, \
                 or take another policy"
            ));
        }
    }
    for one in &snapshot.forecasts {
        if let Some(alarm) = &one.alarm {
            found.push(format!("{}: {alarm}", one.cache));
        }
    }
    for cache in &snapshot.engines {
        if cache.engine.write_back_errors > 0 {
            found.push(format!(
                "{}: {} write-backs failed",
                Snapshot::name_of(cache),
                cache.engine.write_back_errors
            ));
        }
    }
    if found.is_empty() {
        return String::new();
    }
    let items: String = found
        .iter()
        .map(|problem| format!("<li>{}</li>\n", escaped(problem)))
        .collect();
    format!("<ul class=bad id=problems>\n{items}</ul>\n")
}
