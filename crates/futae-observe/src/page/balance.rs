//! The page of a balancer: who has what, and what was moved and why.

use super::html::{Cell, Table, escaped, sized};
use super::{PAGE_TYPE, framed, lasted};
use crate::moves::{Done, Moves, Period, given};
use crate::reply::Reply;
use crate::watch::nonce;
use futae_allocate::{Decision, GuestState};
use std::sync::Arc;

impl Moves {
    /// Makes the page, whenever it is called.
    pub fn painter(self: &Arc<Self>) -> impl Fn() -> Reply + Send + Sync + 'static + use<> {
        let moves = Arc::clone(self);
        move || {
            let (version, seconds, done) = moves.so_far();
            let nonce = nonce();
            let shown = nonce.as_deref().unwrap_or_default();
            Reply {
                content_type: PAGE_TYPE,
                body: balance(version, seconds, &done, shown),
                nonce,
            }
        }
    }
}

/// The page; its script and its style have the `nonce`.
fn balance(version: &str, seconds: f64, done: &Done, nonce: &str) -> String {
    let head = format!(
        "<h1>futae balance {}</h1>\n<p>memory between guests; up {}</p>\n",
        escaped(version),
        lasted(seconds)
    );
    let last = done.last.as_ref();
    let main = [
        head,
        last.map_or_else(String::new, problems),
        last.map_or_else(String::new, |period| now(period, done)),
        last.map_or_else(String::new, |period| guests(&period.decision)),
        moves(done),
    ];
    framed("futae balance", &main.concat(), nonce)
}

fn problems(period: &Period) -> String {
    if period.problems.is_empty() {
        return String::new();
    }
    let items = period.problems.iter();
    let items: String = items
        .map(|problem| format!("<li>{}</li>\n", escaped(problem)))
        .collect();
    format!("<ul class=bad id=problems>\n{items}</ul>\n")
}

/// What was decided last, in a sentence, whether or not something moved.
fn now(period: &Period, done: &Done) -> String {
    let mut host = String::new();
    if let Some(free) = period.host_free {
        host = format!(" The host could give {} more.", sized(free));
    }
    if let Some(pressure) = period.host_pressure {
        host += &format!(
            " Its programs waited for memory in {:.1} % of the last period.",
            pressure * 100.0
        );
    }
    let dry = match period.dry_run {
        true => " No guest is told anything (--dry-run).",
        false => "",
    };
    format!(
        "<section><h2>Last period</h2>\n<p id=last>{}: {}. Memory moved in {} of {} periods, {} in all.{host}{dry}</p></section>\n",
        escaped(&period.time),
        escaped(&period.decision.why()),
        done.moved,
        done.periods,
        sized(done.moved_bytes)
    )
}

fn guests(decision: &Decision) -> String {
    let heads = ["guest", "has", "target", "pages read", "missed"];
    let mut table = Table::new("guests", "Guests", &heads);
    for guest in &decision.guests {
        let unknown = || Cell::text("", "\u{2013}");
        table.row(
            &guest.name,
            &[
                guest
                    .achieved
                    .map_or_else(unknown, |has| Cell::bytes("has_bytes", has)),
                Cell::bytes("target_bytes", guest.target),
                guest
                    .activity
                    .map_or_else(unknown, |did| Cell::count("accesses", did.accesses())),
                Cell::share("missed", guest.activity.map(|did| did.miss_ratio())),
            ],
        );
    }
    table.html("Memory and reads of each guest in the last period. A guest without numbers is silent or cannot be reached; its memory is not changed.")
}

fn moves(done: &Done) -> String {
    let heads = ["period", "time", "from", "to", "moved", "why", "sizes"];
    let mut table = Table::new("moves", "Moves", &heads);
    for one in &done.moves {
        let decision = &one.decision;
        let names = |is_it: fn(&&GuestState) -> bool| {
            let guests = decision.guests.iter().filter(is_it);
            let names: Vec<&str> = guests.map(|guest| guest.name.as_str()).collect();
            names.join(", ")
        };
        let why = match one.dry_run {
            true => format!("{} (not done: --dry-run)", decision.why()),
            false => decision.why(),
        };
        table.row(
            &decision.period.to_string(),
            &[
                Cell::text("time", &one.time),
                Cell::text("from", &names(|guest| guest.target < guest.before)),
                Cell::text("to", &names(|guest| guest.target > guest.before)),
                Cell::bytes("bytes", given(decision)),
                Cell::text("why", &why),
                Cell::text("sizes", &sizes(decision)),
            ],
        );
    }
    table.html(
        "The last moves, the newest first, each with the numbers that led to it. The unit “hit” is the time of a read from memory.",
    )
}

/// Who went from which size to which.
fn sizes(decision: &Decision) -> String {
    let mib = |bytes: u64| bytes as f64 / (1u64 << 20) as f64;
    let moved = decision.guests.iter();
    let moved = moved.filter(|guest| guest.before != guest.target);
    let moved = moved.map(|guest| {
        format!(
            "{} {:.1} \u{2192} {:.1} MiB",
            guest.name,
            mib(guest.before),
            mib(guest.target)
        )
    });
    moved.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moves::MOVES_MAX;
    use futae_allocate::{Activity, GuestState, Reason};

    const MIB: u64 = 1 << 20;

    fn period(number: u64, moved: u64) -> Period {
        let guest = |name: &str, before: u64, target: u64| GuestState {
            name: name.to_owned(),
            before,
            achieved: Some(before),
            target,
            activity: Some(Activity {
                hits: 75,
                misses: 25,
                ..Activity::default()
            }),
        };
        Period {
            time: format!("2026-11-24T10:00:{:02}Z", number % 60),
            decision: Decision {
                period: number,
                reason: Reason::Better {
                    now: 3.436,
                    best: 2.299,
                    wished: Vec::new(),
                    more: true,
                },
                given: Vec::new(),
                guests: vec![
                    guest("<b>", 256 * MIB, 256 * MIB - moved),
                    guest("web", 64 * MIB, 64 * MIB + moved),
                ],
            },
            host_free: Some(512 * MIB),
            host_pressure: Some(0.125),
            dry_run: false,
            problems: vec!["web: its agent has been silent for 20 s".to_owned()],
        }
    }

    #[test]
    fn a_move_is_shown_with_its_guests_its_bytes_and_its_reason() {
        let moves = Arc::new(Moves::new("1.2.3"));
        let page = moves.painter();
        assert!(!page().body.contains("id=\"moves\""), "nothing has moved");
        moves.note(period(7, 64 * MIB));
        moves.note(period(8, 0));
        let Reply { body, nonce, .. } = page();
        for words in [
            "<tr data-name=\"7\">",
            "2026-11-24T10:00:07Z",
            "data-key=\"from\" data-value=\"&lt;b&gt;\"",
            "data-key=\"to\" data-value=\"web\"",
            "data-key=\"bytes\" data-value=\"67108864\">64.0 MiB",
            "an access takes 3.436 hits, 2.299 at best",
            "256.0 \u{2192} 192.0 MiB",
            "data-key=\"target_bytes\" data-value=\"67108864\"",
            "data-key=\"missed\" data-value=\"0.25\">25.0 %",
            "silent for 20 s",
            "12.5 %",
        ] {
            assert!(body.contains(words), "{words}\n{body}");
        }
        assert!(!body.contains("<b>&") && !body.contains("<tr data-name=\"8\">"));
        assert!(nonce.is_some_and(|nonce| body.contains(&nonce)));
    }

    #[test]
    fn the_newest_moves_are_kept_and_all_are_counted() {
        let moves = Arc::new(Moves::new("1.2.3"));
        for number in 0..MOVES_MAX as u64 + 9 {
            moves.note(period(number, MIB));
        }
        let body = moves.painter()().body;
        let at = |number: u64| body.find(&format!("<tr data-name=\"{number}\">"));
        let (first, last) = (at(9), at(MOVES_MAX as u64 + 8));
        assert!(last.is_some() && last < first && at(8).is_none(), "{body}");
        assert!(body.contains("59 of 59 periods"), "{body}");
    }
}
