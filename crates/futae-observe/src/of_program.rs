//! Every metric of a program, of a server and of agents: its name, its kind, its unit, what it means and how its value is taken.

use crate::metric::Kind::{Counter, Gauge};
use crate::metric::{Metric, Value, metric};
use crate::snapshot::Snapshot;
use futae_host::{AgentVolume, FeedReport, InPlaceReport, ServerStatus};

/// Of every program. Labels: `level`.
pub(crate) const PROGRAM: &[Metric<Snapshot>] = &[metric(
    "uptime_seconds",
    Gauge,
    "Time since the start",
    |it| Value::Real(it.uptime_seconds),
)];

/// Of a server. Labels: `level`.
pub(crate) const SERVER: &[Metric<ServerStatus>] = &[
    metric("connections", Gauge, "Connections now", |it| {
        it.connections.into()
    }),
    metric(
        "handshakes",
        Gauge,
        "Connections that have not chosen an export yet",
        |it| it.handshakes.into(),
    ),
    metric(
        "demotion_connections",
        Gauge,
        "Connections that may demote evicted blocks",
        |it| it.demotion_clients.into(),
    ),
    metric(
        "connections_accepted",
        Counter,
        "Connections accepted",
        |it| it.accepted.into(),
    ),
    metric(
        "connections_turned_away",
        Counter,
        "Connections closed at once, at a limit",
        |it| it.turned_away.into(),
    ),
    metric(
        "connections_dismissed",
        Counter,
        "Connections ended to make room for peers with fewer",
        |it| it.dismissed.into(),
    ),
    metric(
        "connections_stalled",
        Counter,
        "Connections ended because they held memory that others waited for",
        |it| it.stalled_connections.into(),
    ),
    metric(
        "protocol_errors",
        Counter,
        "Connections ended because the peer broke the protocol",
        |it| it.protocol_errors.into(),
    ),
    metric("client_requests", Counter, "Requests received", |it| {
        it.traffic.requests.into()
    }),
    metric("client_replies", Counter, "Replies sent", |it| {
        it.traffic.replies.into()
    }),
    metric(
        "client_requests_refused",
        Counter,
        "Requests answered with an error before a cache saw them",
        |it| it.traffic.refused_requests.into(),
    ),
    metric(
        "demotions_misshapen",
        Counter,
        "Demotions with a wrong range, or to a read-only export",
        |it| it.traffic.misshapen_demotions.into(),
    ),
    metric(
        "buffer_limit_bytes",
        Gauge,
        "Memory that all connections together may take, --buffer-memory",
        |it| it.buffer_memory_bytes.into(),
    ),
    metric(
        "buffer_bytes",
        Gauge,
        "Memory that all connections together take",
        |it| it.buffer_bytes.into(),
    ),
    metric(
        "buffer_peak_bytes",
        Gauge,
        "The most that they took",
        |it| it.buffer_bytes_peak.into(),
    ),
    metric(
        "buffer_waiting_connections",
        Gauge,
        "Connections whose next request waits for memory",
        |it| it.buffer_waiters.into(),
    ),
];

/// Of the agent in a guest. Labels: `level`, `export` (the first of its feed), `guest`.
pub(crate) const AGENT: &[Metric<FeedReport>] = &[
    metric(
        "agent_connected",
        Gauge,
        "1: an agent is connected and speaks",
        |it| it.agent.connected.into(),
    ),
    metric(
        "agent_last_frame_seconds",
        Gauge,
        "Time since its last message",
        |it| it.agent.last_frame_seconds.into(),
    ),
    metric(
        "agent_refused_ranges",
        Counter,
        "Ranges that were not taken, those of other disks included",
        |it| it.agent.refused_ranges.into(),
    ),
    metric(
        "agent_other_disk_ranges",
        Counter,
        "Ranges of other disks of the guest",
        |it| it.agent.other_disk_ranges.into(),
    ),
    metric(
        "agent_untold_pages",
        Counter,
        "Evicted pages that the agent could not tell of",
        |it| it.agent.untold_pages.into(),
    ),
    metric(
        "agent_broken_frames",
        Counter,
        "Messages that were damaged or unknown",
        |it| it.agent.broken_frames.into(),
    ),
    metric(
        "agent_in_place_reading",
        Gauge,
        "1: evicted pages are read in the guest's memory",
        |it| {
            it.in_place
                .as_ref()
                .map(|one| u64::from(one.reading))
                .into()
        },
    ),
    metric(
        "agent_in_place_pages",
        Counter,
        "Evicted pages read in the guest's memory and handed to the cache",
        |it| it.in_place.as_ref().map(|one| one.pages).into(),
    ),
    metric(
        "agent_in_place_refused_pages",
        Counter,
        "Pages of other disks, beyond their volume, or not in the guest's memory",
        |it| {
            let refused = |one: &InPlaceReport| one.foreign_pages + one.unreadable_pages;
            it.in_place.as_ref().map(refused).into()
        },
    ),
    metric(
        "agent_in_place_differing_pages",
        Counter,
        "Pages told to the cache without their data, because those of their disk keep differing from what it served",
        |it| it.in_place.as_ref().map(|one| one.differing_pages).into(),
    ),
    metric(
        "agent_in_place_missed_pages",
        Counter,
        "Pages that the guest had given up before they were read",
        |it| it.in_place.as_ref().map(|one| one.missed_pages).into(),
    ),
    metric(
        "agent_in_place_resyncs",
        Counter,
        "Readings that went on elsewhere than where the last one ended",
        |it| it.in_place.as_ref().map(|one| one.resyncs).into(),
    ),
    metric(
        "agent_in_place_server_seconds",
        Counter,
        "Processor time of the server for reading pages and handing them to the cache",
        |it| it.in_place.as_ref().map(|one| one.seconds).into(),
    ),
    metric(
        "agent_in_place_guest_seconds",
        Counter,
        "Processor time of the guest for copying pages and telling of them, as it says",
        |it| it.in_place.as_ref().map(|one| one.guest_seconds).into(),
    ),
];

/// Of each disk of the agent's guest that is an export. Labels: `level`, `export`, `guest`.
pub(crate) const AGENT_DISK: &[Metric<AgentVolume>] = &[
    metric(
        "agent_evicted_ranges",
        Counter,
        "Ranges of evicted pages on the disk that is the export",
        |it| it.ranges.into(),
    ),
    metric(
        "agent_evicted_bytes",
        Counter,
        "Data in these ranges",
        |it| it.bytes.into(),
    ),
];
