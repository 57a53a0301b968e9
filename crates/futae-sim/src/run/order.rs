//! The order in which the recorded requests of several guests are sent.

use super::SimulationError;
use futae_trace::{BlockRequest, BlockStream, Doubt, Request, View};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::str::FromStr;

/// The requested order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As recorded if all traces have times that overlap, together if they do not overlap, and in
    /// turns if a trace has no times.
    #[default]
    Usual,
    /// By the times in the traces.
    Recorded,
    /// By the times in the traces, each counted from its first request.
    Together,
    /// One access of each guest in turn, ignoring times.
    Turns,
}

/// The resulting order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ordered {
    /// By the times in the traces.
    Recorded,
    /// By times counted from each trace's first request.
    Together,
    /// In turns.
    Turns,
    /// Each guest a think time after the answer to its previous request; their first requests by the
    /// times in the traces.
    Closed,
    /// The same, but every guest begins at the same time.
    ClosedTogether,
}

/// An unknown name of an order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown order {0:?}; there are recorded, together and turns")]
pub struct OrderError(String);

impl FromStr for Order {
    type Err = OrderError;

    fn from_str(text: &str) -> Result<Self, OrderError> {
        match text {
            "recorded" => Ok(Self::Recorded),
            "together" => Ok(Self::Together),
            "turns" => Ok(Self::Turns),
            other => Err(OrderError(other.chars().take(60).collect())),
        }
    }
}

impl fmt::Display for Ordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recorded => "ask in the order of their timestamps",
            Self::Together => {
                "ask in the order of their timestamps, each counted from its first request"
            }
            Self::Turns => "take turns request by request",
            Self::Closed => {
                "ask a think time after each answer, beginning at their first timestamps"
            }
            Self::ClosedTogether => "ask a think time after each answer, beginning together",
        })
    }
}

/// The longest time that a simulation of latencies counts, in microseconds: 2^63 nanoseconds, so that the latencies can be added.
pub(super) const SPAN_US_MAX: u64 = i64::MAX.cast_unsigned() / 1000;

/// The times of a trace's requests, and the number of accesses of each. A request that is earlier
/// than the previous one counts as simultaneous with it, so that a guest's requests stay in order.
pub(super) struct Times {
    view: View,
    requests: Vec<(u64, u32)>,
    /// How many of them have a time before that of an earlier one.
    back: u64,
    are_missing: bool,
    /// Whether requests are kept although some have no times.
    keeps_untimed: bool,
}

impl Times {
    pub(super) fn new(view: View) -> Self {
        Self {
            view,
            requests: Vec::new(),
            back: 0,
            are_missing: false,
            keeps_untimed: false,
        }
    }

    /// The same, but requests are kept although some have no times; those have the time of the one
    /// before.
    pub(super) fn keeping_untimed(mut self) -> Self {
        self.keeps_untimed = true;
        self
    }

    pub(super) fn add(&mut self, request: &Request) {
        let blocks = self.view.blocks(request);
        let accesses = blocks.end() - blocks.start() + 1;
        let last = self.requests.last().map_or(0, |request| request.0);
        self.are_missing |= request.time_us.is_none();
        if self.are_missing && !self.keeps_untimed {
            self.requests = Vec::new();
            return;
        }
        let time = request.time_us.unwrap_or(last);
        self.back += u64::from(time < last);
        self.requests.push((time.max(last), accesses as u32));
    }

    /// The doubt about requests whose times go back.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        (self.back > 0).then_some(Doubt::TimesBack {
            requests: self.back,
        })
    }

    /// Whether some request has no time.
    pub(super) fn are_missing(&self) -> bool {
        self.are_missing
    }

    /// The time of each request, none earlier than the one before it, and its number of accesses.
    pub(super) fn requests(&self) -> &[(u64, u32)] {
        &self.requests
    }

    /// The times of the first request and of the last.
    pub(super) fn span(&self) -> Option<(u64, u64)> {
        Some((self.requests.first()?.0, self.requests.last()?.0))
    }
}

impl Ordered {
    /// The order for traces with these times and names, and doubts about it.
    pub(super) fn of(
        order: Order,
        times: &[Times],
        names: &[String],
    ) -> Result<(Self, Option<Doubt>), SimulationError> {
        let missing = times.iter().position(|times| times.are_missing);
        match (order, missing) {
            (Order::Turns, _) => Ok((Self::Turns, None)),
            (Order::Usual, Some(_)) => Ok((Self::Turns, Some(Doubt::TimesMissing))),
            (_, Some(at)) => Err(SimulationError::NoTimes(names[at].clone())),
            (Order::Recorded, None) => Ok((Self::Recorded, None)),
            (Order::Together, None) => Ok((Self::Together, None)),
            (Order::Usual, None) if overlap(times) => Ok((Self::Recorded, None)),
            (Order::Usual, None) => Ok((Self::Together, Some(Doubt::TimesApart))),
        }
    }

    /// Whether times count from each trace's first request; `None` if times are ignored.
    pub(super) fn is_together(self) -> Option<bool> {
        match self {
            Self::Recorded => Some(false),
            Self::Together => Some(true),
            Self::Turns | Self::Closed | Self::ClosedTogether => None,
        }
    }
}

/// Whether at every time between the first and the last request some trace was being recorded.
fn overlap(times: &[Times]) -> bool {
    let mut spans: Vec<(u64, u64)> = times.iter().filter_map(Times::span).collect();
    spans.sort_unstable();
    let mut end = spans.first().map_or(0, |span| span.1);
    spans.iter().all(|&(first, last)| {
        let meets = first <= end;
        end = end.max(last);
        meets
    })
}

/// Times of requests, in order, and the number of accesses up to and including each.
pub(super) type Clock = Vec<(u64, u64)>;

impl Times {
    /// The clock of a single trace, if all of it has times.
    pub(super) fn into_clock(self) -> Option<Clock> {
        let mut all = 0;
        let until = |(time, accesses)| {
            all += u64::from(accesses);
            (time, all)
        };
        (!self.are_missing).then(|| self.requests.into_iter().map(until).collect())
    }
}

/// The guest of each access, in order of time, and the times. Among simultaneous requests, the
/// first guest's comes first.
pub(super) fn schedule(times: &[Times], together: bool) -> (Vec<u16>, Clock) {
    let zero = |guest: usize| match together {
        true => times[guest].span().map_or(0, |span| span.0),
        false => 0,
    };
    let time = |guest: usize, at: usize| {
        let request = times[guest].requests.get(at)?;
        Some(Reverse((request.0 - zero(guest), guest)))
    };
    let mut next = vec![0; times.len()];
    let mut heap: BinaryHeap<_> = (0..times.len())
        .filter_map(|guest| time(guest, 0))
        .collect();
    let accesses = times
        .iter()
        .flat_map(|times| &times.requests)
        .map(|it| it.1 as usize);
    let mut schedule = Vec::with_capacity(accesses.sum());
    let mut clock = Vec::new();
    while let Some(Reverse((time_us, guest))) = heap.pop() {
        let accesses = times[guest].requests[next[guest]].1;
        schedule.extend(std::iter::repeat_n(guest as u16, accesses as usize));
        clock.push((time_us, schedule.len() as u64));
        next[guest] += 1;
        heap.extend(time(guest, next[guest]));
    }
    (schedule, clock)
}

/// The requests of several guests, scheduled. The blocks of guest *g* are numbered from `g * blocks`.
pub(super) struct Asked<'a, S> {
    guests: Vec<Drawn<S>>,
    blocks: u64,
    schedule: &'a [u16],
}

/// A guest's requests, some of them read ahead.
pub(super) struct Drawn<S> {
    stream: S,
    batch: Vec<BlockRequest>,
    used: usize,
}

/// Requests drawn from a guest at a time.
const BATCH: usize = 256;

impl<'a, S: BlockStream> Asked<'a, S> {
    pub(super) fn new(guests: Vec<S>, blocks: u64, schedule: &'a [u16]) -> Self {
        Self {
            guests: guests.into_iter().map(Drawn::new).collect(),
            blocks,
            schedule,
        }
    }
}

impl<S: BlockStream> Drawn<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            batch: Vec::new(),
            used: 0,
        }
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<BlockRequest> {
        if self.used == self.batch.len() {
            self.batch.resize(BATCH, BlockRequest::default());
            let got = self.stream.fill(&mut self.batch);
            self.batch.truncate(got);
            self.used = 0;
        }
        let request = self.batch.get(self.used).copied()?;
        self.used += 1;
        Some(request)
    }
}

impl<S: BlockStream> BlockStream for Asked<'_, S> {
    fn fill(&mut self, out: &mut [BlockRequest]) -> usize {
        let (now, later) = self.schedule.split_at(out.len().min(self.schedule.len()));
        for (at, (place, &guest)) in out.iter_mut().zip(now).enumerate() {
            let Some(request) = self.guests[usize::from(guest)].next() else {
                return at;
            };
            *place = request.at(u64::from(guest) * self.blocks + request.block());
        }
        self.schedule = later;
        now.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_trace::RequestKind;

    fn times(all: &[(u64, u64)]) -> Times {
        let mut times = Times::new(View::Blocks(4096));
        for &(time, blocks) in all {
            times.add(&Request {
                guest: 0,
                volume: futae_policy::VolumeId(0),
                offset_bytes: 0,
                length_bytes: blocks * 4096,
                kind: RequestKind::Read,
                time_us: Some(time),
            });
        }
        times
    }

    #[test]
    fn guests_ask_in_the_order_of_time() {
        let both = [
            times(&[(10, 2), (30, 1), (20, 1), (40, 1)]),
            times(&[(15, 1), (30, 3)]),
        ];
        assert_eq!(schedule(&both, false).0, [0, 0, 1, 0, 0, 1, 1, 1, 0]);
        let apart = [times(&[(0, 1), (10, 1)]), times(&[(1000, 1), (1005, 1)])];
        assert_eq!(schedule(&apart, false).0, [0, 0, 1, 1]);
        assert_eq!(schedule(&apart, true).0, [0, 1, 1, 0]);
        assert!(overlap(&both) && !overlap(&apart));
        let chain = [
            times(&[(0, 1), (10, 1)]),
            times(&[(12, 1), (20, 1)]),
            times(&[(5, 1), (12, 1)]),
        ];
        assert!(overlap(&chain));
    }

    #[test]
    fn an_order_needs_times() {
        let mut untimed = times(&[(1, 1)]);
        untimed.are_missing = true;
        let names = ["a".to_owned(), "b".to_owned()];
        let all = [times(&[(1, 1)]), untimed];
        let usual = Ordered::of(Order::Usual, &all, &names);
        assert!(matches!(
            usual,
            Ok((Ordered::Turns, Some(Doubt::TimesMissing)))
        ));
        let recorded = Ordered::of(Order::Recorded, &all, &names);
        assert!(recorded.is_err_and(|e| e.to_string().contains("trace b has no times")));
        assert!("by time".parse::<Order>().is_err());
    }
}
