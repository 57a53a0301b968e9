//! The page of a balancer: who has what, and what was moved and why.

use super::html::{Cell, Table, escaped, sized};
use super::{framed, lasted};
use crate::moves::{Done, Period, given};
use futae_allocate::{Decision, GuestState};

/// The page; its script and its style have the `nonce`.
pub(crate) fn balance(version: &str, seconds: f64, done: &Done, nonce: &str) -> String {
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
