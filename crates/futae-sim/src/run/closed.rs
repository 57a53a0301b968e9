//! The closed loop: each guest asks its next request a think time after the answer to its previous
//! one, so that who hits decides in which order guests ask.

use super::found::{Found, Start};
use super::noting::Lengths;
use super::order::{Drawn, Order, Ordered, SPAN_US_MAX, Times};
use super::queued::Queued;
use super::{GuestPace, Plan, SimulationError};
use crate::batch::Batch;
use crate::duration::seconds;
use crate::machine::{self, Machine, Served};
use crate::queueing::{Collected, Latencies, LatencyModel, Network};
use futae_trace::{DenseStream, DenseTrace, Doubt};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::str::FromStr;

/// How long a guest thinks between an answer and its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Think {
    /// As recorded: the time from a request to the next one, less the recorded latency of the first
    /// if the trace has latencies.
    Recorded,
    /// Always this long, in nanoseconds.
    Fixed(u64),
}

/// A malformed think time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "think time {text:?} is neither recorded nor 0 nor a time with a unit, such as 200us or 5ms"
)]
pub struct ThinkError {
    text: String,
}

impl FromStr for Think {
    type Err = ThinkError;

    fn from_str(text: &str) -> Result<Self, ThinkError> {
        match text {
            "recorded" => return Ok(Self::Recorded),
            "0" => return Ok(Self::Fixed(0)),
            _ => {}
        }
        let time = seconds(text).map(|seconds| Self::Fixed((seconds * 1e9).round() as u64));
        time.ok_or_else(|| ThinkError {
            text: text.chars().take(60).collect(),
        })
    }
}

/// A closed loop: who asks when, and how long answers take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedLoop {
    /// Think times.
    pub think: Think,
    /// Latencies of answers, which queue where a place has a width.
    pub model: LatencyModel,
}

/// When a guest asks.
pub(super) struct Pace {
    start_us: u64,
    requests: Vec<Paced>,
}

/// A request of a guest.
struct Paced {
    /// The think time before it, in microseconds.
    think_us: u64,
    accesses: u32,
    /// Whether the recording sent it before the previous one was answered.
    overlaps: bool,
}

impl Pace {
    /// From the times of the requests, and their latencies in microseconds, if there are any. All
    /// guests count from `zero_us`.
    fn new(times: &Times, latencies: &[u32], zero_us: u64) -> Self {
        let start = times.span().map_or(0, |span| span.0);
        let mut free = start;
        let paced = |(at, &(sent, accesses)): (usize, &(u64, u32))| {
            let request = Paced {
                think_us: sent.saturating_sub(free),
                accesses,
                overlaps: sent < free,
            };
            let latency = latencies.get(at).copied().unwrap_or(0);
            free = sent.saturating_add(u64::from(latency));
            request
        };
        Self {
            start_us: start - zero_us,
            requests: times.requests().iter().enumerate().map(paced).collect(),
        }
    }
}

/// The guests of a closed loop.
pub(super) struct Closed {
    pub(super) spec: ClosedLoop,
    paces: Vec<Pace>,
    /// The lengths of each guest's accesses.
    lengths: Vec<Lengths>,
}

impl Closed {
    /// Guests with these times and recorded latencies, and the order in which they begin: that of
    /// `order`, which cannot be in turns.
    pub(super) fn new(
        spec: ClosedLoop,
        order: Order,
        (times, latencies): (&[Times], &[Vec<u32>]),
        lengths: Vec<Lengths>,
        names: &[String],
    ) -> Result<(Self, Ordered, Option<Doubt>), SimulationError> {
        if order == Order::Turns {
            return Err(SimulationError::ClosedTurns);
        }
        let missing = times.iter().position(Times::are_missing);
        let (ordered, doubt) = match (missing, spec.think, order) {
            (Some(at), Think::Recorded, _) => {
                return Err(SimulationError::NoThink(names[at].clone()));
            }
            (Some(_), Think::Fixed(_), Order::Usual) => (Ordered::ClosedTogether, None),
            _ => match Ordered::of(order, times, names)? {
                (Ordered::Together, doubt) => (Ordered::ClosedTogether, doubt),
                (_, doubt) => (Ordered::Closed, doubt),
            },
        };
        let span = |times: &Times| times.span().unwrap_or_default();
        let first = times.iter().map(|times| span(times).0).min().unwrap_or(0);
        let none = Vec::new();
        let pace = |(guest, times): (usize, &Times)| {
            let (start, end) = span(times);
            let zero = match ordered {
                Ordered::Closed => first,
                _ => start,
            };
            let last = match spec.think {
                Think::Recorded => end,
                Think::Fixed(_) => start,
            };
            match last - zero > SPAN_US_MAX {
                true => Err(SimulationError::Span(names[guest].clone())),
                false => Ok(Pace::new(
                    times,
                    latencies.get(guest).unwrap_or(&none),
                    zero,
                )),
            }
        };
        let paces = times.iter().enumerate().map(pace);
        let closed = Self {
            spec,
            paces: paces.collect::<Result<_, _>>()?,
            lengths,
        };
        Ok((closed, ordered, doubt))
    }

    /// Whether the lengths of accesses are known.
    pub(super) fn has_bytes(&self) -> bool {
        Lengths::are_known(&self.lengths)
    }
}

/// The results of a closed loop.
pub(super) struct Outcome {
    pub(super) found: Found,
    pub(super) latencies: Latencies,
    pub(super) by_guest: Vec<GuestPace>,
}

/// A guest that asks.
struct Asker<'a> {
    drawn: Drawn<DenseStream<'a>>,
    pace: &'a Pace,
    lengths: &'a Lengths,
    /// The next request.
    next: usize,
    /// Accesses sent.
    sent: usize,
    /// Accesses of the request under way that are not answered yet.
    waiting: u32,
    asked_ns: u64,
    is_counted: bool,
    first_counted_ns: Option<u64>,
    finish_ns: u64,
    times: Collected,
    /// Counted requests that overlap in the recording.
    overlapped: u64,
}

impl<'a> Asker<'a> {
    fn new(trace: &'a DenseTrace, pace: &'a Pace, lengths: &'a Lengths) -> Self {
        Self {
            drawn: Drawn::new(trace.stream()),
            pace,
            lengths,
            next: 0,
            sent: 0,
            waiting: 0,
            asked_ns: 0,
            is_counted: false,
            first_counted_ns: None,
            finish_ns: 0,
            times: Collected::new(),
            overlapped: 0,
        }
    }

    /// One more access of its request is answered. Returns when it asks its next one, if this was
    /// the last and there is a next.
    fn answered(&mut self, now: u64, think: Think) -> Option<u64> {
        self.waiting -= 1;
        if self.waiting > 0 {
            return None;
        }
        self.finish_ns = now;
        if self.is_counted {
            self.times.add(now - self.asked_ns);
        }
        let recorded_us = self.pace.requests.get(self.next)?.think_us;
        let think_ns = match think {
            Think::Recorded => recorded_us.saturating_mul(1000),
            Think::Fixed(ns) => ns,
        };
        Some(now.saturating_add(think_ns))
    }

    fn result(&self, guest: u32) -> GuestPace {
        let times = self.times.times();
        let span_ns = self.first_counted_ns.map(|first| self.finish_ns - first);
        let seconds = span_ns.map(|ns| ns as f64 / 1e9).filter(|&it| it > 0.0);
        GuestPace {
            guest,
            times,
            finish_seconds: self.finish_ns as f64 / 1e9,
            requests_per_second: seconds.map(|seconds| times.requests as f64 / seconds),
            overlapped_requests: self.overlapped,
        }
    }
}

/// Accesses between two checks of the policies, and between two calls of the progress callback.
const CHECK: u64 = 4096;

impl Closed {
    /// Runs one hierarchy. Decisions are made when requests are sent: a request for a block that is
    /// still being read does not wait for that read.
    pub(super) fn run(
        &self,
        plan: &Plan<'_>,
        traces: &[DenseTrace],
        progress: &mut dyn FnMut(f64),
    ) -> Result<Outcome, SimulationError> {
        let shape = plan.shape()?;
        let levels = shape.levels.len();
        let mut machine = machine::build(&shape)?;
        let model = self.spec.model;
        let network = Network::new(model, plan.guests, levels as u32, None, plan.seed).thinking();
        let mut queued = Queued::new(machine.as_mut(), network, (plan.warmup_requests, levels));
        let mut served = vec![Served::default(); (levels + 1) * plan.guests as usize];
        let mut guests: Vec<Asker<'_>> = (traces.iter().zip(&self.paces).zip(&self.lengths))
            .map(|((trace, pace), lengths)| Asker::new(trace, pace, lengths))
            .collect();
        // By time; of simultaneous requests, the first guest's comes first.
        let mut due: BinaryHeap<Reverse<(u64, usize)>> = (0..)
            .zip(&guests)
            .filter(|(_, guest)| !guest.pace.requests.is_empty())
            .map(|(at, guest)| Reverse((guest.pace.start_us.saturating_mul(1000), at)))
            .collect();
        let has_bytes = self.has_bytes();
        let end = plan.warmup_requests + plan.requests;
        let mut sent = 0;
        let mut start = Start::of(&queued, 0);
        loop {
            // An answer that comes first may bring an earlier request.
            let next = due.peek().map(|it| it.0.0);
            if let Some((now, guest)) = queued.answer(next) {
                let asks = guests[guest as usize].answered(now, self.spec.think);
                due.extend(asks.map(|time| Reverse((time, guest as usize))));
                continue;
            }
            let Some(Reverse((now, guest))) = due.pop() else {
                break;
            };
            let asker = &mut guests[guest];
            let request = &asker.pace.requests[asker.next];
            asker.next += 1;
            asker.asked_ns = now;
            asker.is_counted = sent >= plan.warmup_requests && sent < end;
            if asker.is_counted {
                asker.first_counted_ns.get_or_insert(now);
                asker.overlapped += u64::from(request.overlaps);
            }
            for _ in 0..request.accesses {
                if sent == end {
                    break;
                }
                if sent == plan.warmup_requests {
                    start = Start::of(&queued, sent);
                    served.fill(Served::default());
                }
                let Some(request) = asker.drawn.next() else {
                    break;
                };
                let block = guest as u64 * plan.blocks + request.block();
                let bytes = [asker.lengths.get(asker.sent)];
                let batch = Batch {
                    blocks: &[block as u32],
                    writes: &[u64::from(request.is_write())],
                    next_uses: &[],
                    bytes: if has_bytes { &bytes } else { &[] },
                };
                queued.send(now, &batch, &mut served);
                asker.waiting += 1;
                asker.sent += 1;
                sent += 1;
                if sent.is_multiple_of(CHECK) || sent == end {
                    if let Some(fault) = queued.fault() {
                        return Err(SimulationError::Policy(fault.clone()));
                    }
                    progress(sent as f64 / end as f64);
                }
            }
        }
        let found = start.found(&queued, served, (levels, plan.guests), sent);
        let by_guest = (0..).zip(&guests).map(|(at, guest)| guest.result(at));
        Ok(Outcome {
            found,
            by_guest: by_guest.collect(),
            latencies: queued.finish()?,
        })
    }
}
