//! Complete simulations of a trace of objects.

use super::cache::{Counts, NEVER, ObjectCache};
use crate::duration::with_unit;
use crate::run::{TraceFacts, Traces, in_parallel};
use futae_policy::{AccessKind, Kind, PolicySpec, Shape, SpecError, Trait, build};
use futae_trace::Format;
use futae_units::{Size, SizeError};
use serde::Serialize;
use std::str::FromStr;
use std::time::Instant;

/// Accesses between two reports of progress.
const STEP: usize = 1 << 16;

/// The lifetime of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lives {
    /// As in the trace: the last lifetime given for an object. Infinite without one.
    #[default]
    Trace,
    /// This many microseconds after they were placed or written.
    Micros(u64),
    /// Infinite.
    Ever,
}

impl FromStr for Lives {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Ever);
        }
        let us = with_unit(text).map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        let lives = us.filter(|&us| us > 0).map(Self::Micros);
        lives.ok_or_else(|| {
            format!("{text:?} is neither none nor a time of at least 1us (15min, 1h)")
        })
    }
}

/// One cache for a trace of objects.
#[derive(Clone, Debug)]
pub struct ObjectSimulation {
    /// The policy.
    pub policy: PolicySpec,
    /// The capacity; a share is a fraction of the bytes of all objects.
    pub size: Size,
    /// Larger objects are not placed.
    pub admit_bytes_max: Option<u64>,
    /// The lifetime of objects.
    pub lives: Lives,
    /// Seed for randomised policies.
    pub seed: u64,
    /// Requests before counting begins.
    pub warmup_requests: u64,
    /// Requests that are counted; `None`: all remaining ones.
    pub requests: Option<u64>,
}

/// Why objects cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// Several guests.
    #[error("objects that differ in size are simulated in one cache for one trace")]
    Guests,
    /// The trace has no sizes of objects.
    #[error(
        "the requests have no lengths, so the sizes of objects are not known; leave out --objects, or say with --columns \
         which column is the length"
    )]
    NoSizes,
    /// A request may cover several objects.
    #[error("the trace was read in blocks; an object is a request as a whole: --view start")]
    Blocks,
    /// The trace has no times for lifetimes.
    #[error(
        "how long objects live is known, and when they are asked for is not: the trace has no times; leave out --ttl, or say \
         --ttl none"
    )]
    NoTimes,
    /// The policy depends on a number of slots.
    #[error(
        "policy {0} divides a number of slots, which a cache of objects has not; there are {known}",
        known = names()
    )]
    Policy(String),
    /// The policy cannot be built.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The capacity is not valid in bytes.
    #[error("size {0}: {1}")]
    Size(Size, SizeError),
    /// The capacity is in blocks, or 0.
    #[error(
        "size {0} is no capacity for objects: give bytes, such as 1GiB, or a share of all bytes, such as 10%"
    )]
    Blocked(Size),
    /// The warm-up leaves nothing to count.
    #[error(
        "a warm-up of {0} requests leaves nothing to count: the trace has {1}; shorten --warmup"
    )]
    Warmup(u64, u64),
}

fn names() -> String {
    Kind::names_with(Trait::AnySize)
}

/// The results of one cache.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectRun {
    /// The policy.
    pub policy: String,
    /// Its capacity in bytes.
    pub capacity_bytes: u64,
    /// The largest admitted size in bytes, if it is limited.
    pub admit_bytes_max: Option<u64>,
    /// Its counters.
    #[serde(flatten)]
    pub counts: Counts,
    /// Hits per request.
    pub hit_ratio: Option<f64>,
    /// Misses per request.
    pub miss_ratio: Option<f64>,
    /// Bytes missed per byte requested.
    pub byte_miss_ratio: Option<f64>,
    /// Resident objects at the end.
    pub resident_objects: u64,
    /// Their bytes.
    pub resident_bytes: u64,
    /// Requests before counting began.
    pub warmup_requests: u64,
    /// Wall-clock time.
    pub seconds: f64,
}

/// The results of simulations of objects.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectReport {
    /// One for each simulation.
    pub runs: Vec<ObjectRun>,
    /// Distinct objects.
    pub objects: u64,
    /// Their bytes, each object with the size of its first request.
    pub footprint_bytes: u64,
    /// The seed of all randomness.
    pub seed: u64,
    /// A digest of all requests: equal digests mean equal requests.
    pub trace_digest: String,
    /// Facts about the trace.
    pub trace: TraceFacts,
    /// The version of futae.
    pub version: &'static str,
}

/// Simulates each cache under a whole trace, on at most this many threads. `progress` gets the
/// fraction done.
///
/// # Errors
///
/// The trace's requests are not objects with sizes, or a policy or a size does not suit objects.
pub fn simulate(
    traces: &Traces,
    simulations: &[ObjectSimulation],
    threads: usize,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<ObjectReport, ObjectError> {
    let (trace, lengths, equal) = traces.objects().ok_or(ObjectError::Guests)?;
    if traces.facts().view != "start" {
        return Err(ObjectError::Blocks);
    }
    let numbers_alone = |name: &&str| {
        let format = name.parse::<Format>().ok();
        format.is_some_and(|it| it.has_block_numbers() && it != Format::OracleGeneral)
    };
    if traces.facts().formats.iter().any(numbers_alone) {
        return Err(ObjectError::NoSizes);
    }
    if lengths.is_empty() && equal == 0 || !lengths.is_empty() && lengths.iter().all(|&it| it == 0)
    {
        return Err(ObjectError::NoSizes);
    }
    let length = |at: usize| lengths.get(at).copied().unwrap_or(equal);
    let (mut footprint_bytes, mut objects) = (0, 0);
    for (at, &object) in trace.ids().iter().enumerate() {
        // Objects are numbered in the order of their first requests.
        if object == objects {
            objects += 1;
            footprint_bytes += u64::from(length(at).max(1));
        }
    }
    let accesses = trace.ids().len() as u64;
    for simulation in simulations {
        prepared(simulation, footprint_bytes, accesses)?;
        let lives = match simulation.lives {
            Lives::Trace => !traces.lives().is_empty(),
            Lives::Micros(_) => true,
            Lives::Ever => false,
        };
        if lives && traces.clock().is_none() {
            return Err(ObjectError::NoTimes);
        }
    }
    let runs = in_parallel(simulations.len(), threads, progress, |at, progress| {
        let simulation = &simulations[at];
        let (mut cache, capacity_bytes) = prepared(simulation, footprint_bytes, accesses)?;
        let begin = Instant::now();
        let warmup = simulation.warmup_requests as usize;
        let last = simulation.requests.map_or(trace.ids().len(), |requests| {
            trace
                .ids()
                .len()
                .min(warmup.saturating_add(requests as usize))
        });
        let mut ends = Ends::of(traces, simulation.lives, objects);
        for (at, &object) in trace.ids()[..last].iter().enumerate() {
            if at == warmup {
                cache.restart();
            }
            let (now, expires) = ends.next(at, object);
            let kind = match trace.is_write(at) {
                true => AccessKind::Write,
                false => AccessKind::Read,
            };
            cache.access_at(object, length(at), kind, now, expires);
            if at % STEP == 0 {
                progress(at as f64 / last as f64);
            }
        }
        // Where no request is to be counted, none comes after the warm-up.
        if last == warmup {
            cache.restart();
        }
        progress(1.0);
        Ok(of(simulation, &cache, capacity_bytes, begin))
    });
    Ok(ObjectReport {
        runs: runs.into_iter().collect::<Result<_, ObjectError>>()?,
        objects: u64::from(objects),
        footprint_bytes,
        seed: simulations.first().map_or(0, |simulation| simulation.seed),
        trace_digest: traces.digest().to_owned(),
        trace: traces.facts().clone(),
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// The expiry of objects, in microseconds.
struct Ends<'a> {
    /// The time of each request; empty if all objects live for ever.
    clock: &'a [(u64, u64)],
    /// The lifetime in each request, in seconds; 0 without one.
    said: &'a [u32],
    /// The last lifetime given for each object, in seconds; 0 without one.
    known: Vec<u32>,
    /// The lifetime of all objects, in microseconds, if they have the same.
    fixed_us: Option<u64>,
}

impl<'a> Ends<'a> {
    fn of(traces: &'a Traces, lives: Lives, objects: u32) -> Self {
        let clock = || traces.clock().unwrap_or_default();
        let (clock, said, fixed_us) = match lives {
            Lives::Trace if !traces.lives().is_empty() => (clock(), traces.lives(), None),
            Lives::Micros(us) => (clock(), &[][..], Some(us)),
            Lives::Trace | Lives::Ever => (&[][..], &[][..], None),
        };
        let known = if said.is_empty() { 0 } else { objects as usize };
        Self {
            clock,
            said,
            known: vec![0; known],
            fixed_us,
        }
    }

    /// The time of a request, and the object's expiry if it is placed or written then.
    #[inline]
    fn next(&mut self, at: usize, object: u32) -> (u64, u64) {
        let Some(&(now, _)) = self.clock.get(at) else {
            return (0, NEVER);
        };
        let us = match (self.fixed_us, self.said.get(at)) {
            (Some(us), _) => us,
            (None, None) => return (now, NEVER),
            (None, Some(&said)) => {
                let known = &mut self.known[object as usize];
                if said > 0 {
                    *known = said;
                }
                match *known {
                    0 => return (now, NEVER),
                    known => u64::from(known) * 1_000_000,
                }
            }
        };
        (now, now.saturating_add(us))
    }
}

/// The empty cache of a simulation, and its capacity in bytes.
fn prepared(
    simulation: &ObjectSimulation,
    footprint_bytes: u64,
    accesses: u64,
) -> Result<(ObjectCache, u64), ObjectError> {
    if !simulation.policy.takes_any_size() {
        // An unknown name or argument is reported first.
        build(&simulation.policy, &Shape { slots: 16, seed: 0 })?;
        return Err(ObjectError::Policy(simulation.policy.to_string()));
    }
    if simulation.warmup_requests >= accesses {
        return Err(ObjectError::Warmup(simulation.warmup_requests, accesses));
    }
    let capacity_bytes = match simulation.size {
        Size::Blocks(_) => return Err(ObjectError::Blocked(simulation.size)),
        Size::Percent(percent) => (footprint_bytes as f64 * percent / 100.0) as u64,
        size => size.bytes(1).map_err(|why| ObjectError::Size(size, why))?,
    };
    if capacity_bytes == 0 {
        return Err(ObjectError::Blocked(simulation.size));
    }
    let shape = Shape {
        slots: 1,
        seed: simulation.seed,
    };
    let mut policy = build(&simulation.policy, &shape)?;
    policy.number_blocks(0);
    let cache = ObjectCache::new(policy, capacity_bytes, simulation.admit_bytes_max);
    Ok((cache, capacity_bytes))
}

fn of(
    simulation: &ObjectSimulation,
    cache: &ObjectCache,
    capacity_bytes: u64,
    begin: Instant,
) -> ObjectRun {
    let counts = *cache.counts();
    let ratio = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
    let (resident_objects, resident_bytes) = cache.resident();
    ObjectRun {
        policy: simulation.policy.to_string(),
        capacity_bytes,
        admit_bytes_max: simulation.admit_bytes_max,
        counts,
        hit_ratio: ratio(counts.hits, counts.requests),
        miss_ratio: ratio(counts.misses, counts.requests),
        byte_miss_ratio: ratio(counts.missed_bytes, counts.requested_bytes),
        resident_objects,
        resident_bytes,
        warmup_requests: simulation.warmup_requests,
        seconds: begin.elapsed().as_secs_f64(),
    }
}
