//! Measured costs of store operations, reported to the policy.

use super::cost::by_class;
use super::flights::Content;
use super::state::State;
use super::ticket::Ticket;
use crate::Asked;
use std::time::{Duration, Instant};

/// How often the policy gets the costs of the stores.
const WEIGH_INTERVAL: Duration = Duration::from_secs(2);

impl State {
    /// Records how long a successful store operation took.
    pub fn note_cost(&mut self, ticket: Ticket, took: Duration) {
        let (span, reads) = match ticket {
            Ticket::Flight(key) => (self.under_way.flights[key].span, true),
            Ticket::Run(key) => (Some(self.under_way.runs[key].span), false),
            Ticket::Write(key) if self.under_way.writes[key].content == Content::Data => {
                (Some(self.under_way.writes[key].span), false)
            }
            Ticket::Write(_) | Ticket::Flush(_) | Ticket::Mark(_) => return,
        };
        let Some(span) = span else { return };
        let blocks = span.length.div_ceil(self.block_bytes);
        let volume = &mut self.volumes[usize::from(span.volume.0)];
        if let Some(latencies) = &volume.store_latencies {
            let asked = if reads { Asked::Read } else { Asked::Write };
            latencies.note(asked, took);
        }
        if let Some(costs) = &mut volume.costs {
            let cost = if reads {
                &mut costs.read
            } else {
                &mut costs.write
            };
            cost.note(took, blocks);
        }
    }

    /// Reports the costs of the stores to the policy, every [`WEIGH_INTERVAL`].
    pub fn weigh(&mut self, now: Instant) {
        let is_early = |then: Instant| now.saturating_duration_since(then) < WEIGH_INTERVAL;
        if self.weighed.is_some_and(is_early) {
            return;
        }
        self.weighed = Some(now);
        let measured = self.volumes.iter().filter_map(|volume| {
            let costs = volume.costs.as_deref()?;
            Some((volume.class, costs))
        });
        let costs = by_class(measured);
        self.level.note_costs(&costs);
    }
}
