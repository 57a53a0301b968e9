//! Simulations of traces, which are read once for any number of hierarchies.

use super::closed::{Closed, ClosedLoop, Outcome, Think};
use super::drive::Known;
use super::facts::TraceFacts;
use super::noting::{Lengths, Noting, in_order};
use super::numbered::{ByPlace, Numbered};
use super::order::{Clock, Order, Ordered, Times, schedule};
use super::parallel::{in_parallel, leaves_threads};
use super::planned::Extras;
use super::reading::{Neighbours, Reading};
use super::view::ViewChoice;
use super::{Plan, Report, Run, SimulationError, TraceSimulation};
use crate::batch::next_uses;
use crate::spec::LevelSpec;
use futae_trace::{
    BlockRequest, DenseTrace, Digest, RequestReader, TraceError, TraceOptions, TraceReader, View,
};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Instant;

/// Traces in memory, one per guest.
pub struct Traces {
    guests: Vec<DenseTrace>,
    /// The same numbered by place, for runs that use neighbours.
    by_place: ByPlace,
    /// The guest of each access, in order; empty if guests take turns.
    schedule: Vec<u16>,
    /// The time of each request, if kept.
    clock: Option<Clock>,
    /// The length of each access of all guests; a single one if all are equal; none if they are not known.
    bytes: Vec<u32>,
    /// The length of each access if all are equal.
    equal_bytes: u32,
    /// The lifetime of each access's object, in seconds, if known and kept; 0 without one.
    lives: Vec<u32>,
    /// When guests ask, if the order depends on the answers.
    closed: Option<Closed>,
    next_uses: OnceLock<Vec<u32>>,
    digest: OnceLock<String>,
    /// Which runs may use neighbours.
    neighbours: Neighbours,
    facts: TraceFacts,
}

impl Traces {
    /// Reads a trace for each guest, all with the same options, merged by [`Order::Usual`].
    /// `progress` gets the fraction read, from 0 to 1.
    pub fn read(
        paths: &[PathBuf],
        options: &TraceOptions,
        view: ViewChoice,
        progress: &mut (dyn FnMut(f64) + Send),
    ) -> Result<Self, SimulationError> {
        let reading = Reading {
            options: vec![options.clone(); paths.len()],
            view,
            ..Reading::default()
        };
        Self::read_guests(paths, &reading, progress)
    }

    /// As [`read`](Self::read), with options for each trace.
    pub fn read_guests(
        paths: &[PathBuf],
        reading: &Reading,
        progress: &mut (dyn FnMut(f64) + Send),
    ) -> Result<Self, SimulationError> {
        let all = paths.iter().zip(&reading.options);
        let open = all.map(|(path, options)| {
            let latencies = (reading.closed).is_some_and(|it| it.think == Think::Recorded);
            let options = TraceOptions {
                latencies,
                ..options.clone()
            };
            TraceReader::open(path, &options)
        });
        Self::read_each(paths, open, None, reading, progress)
    }

    /// As [`read_guests`](Self::read_guests) from readers that are open. `origin` describes them in the facts.
    pub fn read_opened(
        readers: Vec<TraceReader>,
        origin: &'static str,
        reading: &Reading,
        progress: &mut (dyn FnMut(f64) + Send),
    ) -> Result<Self, SimulationError> {
        let names = readers.iter().map(|reader| reader.path().to_owned());
        let names: Vec<PathBuf> = names.collect();
        let open = readers.into_iter().map(Ok);
        Self::read_each(&names, open, Some(origin), reading, progress)
    }

    fn read_each(
        paths: &[PathBuf],
        open: impl Iterator<Item = Result<TraceReader, TraceError>>,
        origin: Option<&'static str>,
        reading: &Reading,
        progress: &mut (dyn FnMut(f64) + Send),
    ) -> Result<Self, SimulationError> {
        let order = reading.order;
        let begin = Instant::now();
        let mut facts = TraceFacts::of(paths);
        let (mut guests, mut lengths, mut times) = (Vec::new(), Vec::new(), Vec::new());
        let (mut lives, mut latencies) = (Vec::new(), Vec::new());
        for ((at, reader), options) in open.enumerate().zip(&reading.options) {
            let reader = reader?;
            let format = origin.unwrap_or(reader.format().name());
            let choice = reading.neighbours.view_of(reading.view)?;
            let view = choice.view(&reader, options.unit_bytes);
            let start = view == View::Start;
            let mut progress = |part| progress((at as f64 + part) / paths.len() as f64);
            let mut noting = Noting::progress_of(reader, &mut progress);
            noting.lengths = start.then(Lengths::default);
            if reading.closed.is_some() {
                noting.note_requests(view);
            } else if paths.len() > 1 && order != Order::Turns || reading.keep_times {
                noting.note_times(view);
            }
            let trace = reading.neighbours.read(&mut noting, view)?;
            (reading.neighbours).check(reading.view, &noting.reader, &trace)?;
            if !start {
                facts.view = "blocks";
            }
            facts.formats.push(format);
            facts.trace_requests += trace.requests();
            facts.accesses += trace.ids().len() as u64;
            facts.distinct_blocks += u64::from(trace.distinct());
            facts.records_skipped += noting.reader.skipped();
            for doubt in choice.doubts(&noting.reader) {
                if !facts.doubts.contains(&doubt) {
                    facts.doubts.push(doubt);
                }
            }
            lives = noting.reader.take_lives();
            latencies.push(noting.reader.take_latencies());
            guests.push(trace);
            facts
                .doubts
                .extend(noting.times.as_ref().and_then(Times::doubt));
            times.extend(noting.times);
            let equal = || Lengths::all_equal(options.unit_bytes);
            lengths.push(noting.lengths.unwrap_or_else(equal));
        }
        facts.read_seconds = begin.elapsed().as_secs_f64();
        let all = match reading.closed {
            Some(spec) => {
                Self::of_closed(guests, lengths, (spec, order), (&times, &latencies), facts)?
            }
            None => Self::of(guests, lengths, (order, times, reading.keep_times), facts)?,
        };
        Ok(Self {
            lives,
            neighbours: reading.neighbours,
            ..all
        })
    }

    fn of_closed(
        guests: Vec<DenseTrace>,
        lengths: Vec<Lengths>,
        (spec, order): (ClosedLoop, Order),
        recorded: (&[Times], &[Vec<u32>]),
        mut facts: TraceFacts,
    ) -> Result<Self, SimulationError> {
        let (closed, ordered, doubt) = Closed::new(spec, order, recorded, lengths, &facts.files)?;
        facts.order = Some(ordered);
        facts.doubts.extend(doubt);
        // What needs an order before the run takes turns; results of a run never do.
        let none = guests.iter().map(|_| Lengths::default()).collect();
        let turns = Self::of(guests, none, (Order::Turns, Vec::new(), false), facts)?;
        let mut facts = turns.facts;
        facts.order = Some(ordered);
        Ok(Self {
            closed: Some(closed),
            facts,
            ..turns
        })
    }

    fn of(
        guests: Vec<DenseTrace>,
        lengths: Vec<Lengths>,
        (order, times, keep_times): (Order, Vec<Times>, bool),
        mut facts: TraceFacts,
    ) -> Result<Self, SimulationError> {
        if guests.is_empty() {
            return Err(SimulationError::Empty);
        }
        let (mut scheduled, mut clock) = (Vec::new(), None);
        if guests.len() > 1 {
            let (ordered, doubt) = Ordered::of(order, &times, &facts.files)?;
            if let Some(together) = ordered.is_together() {
                let (turns, merged) = schedule(&times, together);
                (scheduled, clock) = (turns, keep_times.then_some(merged));
            }
            facts.doubts.extend(doubt);
            facts.order = Some(ordered);
        } else if keep_times {
            clock = times.into_iter().next().and_then(Times::into_clock);
        }
        Ok(Self {
            equal_bytes: lengths.first().map_or(0, |lengths| lengths.first),
            bytes: in_order(&guests, &scheduled, lengths),
            schedule: scheduled,
            clock,
            guests,
            by_place: ByPlace::default(),
            lives: Vec::new(),
            closed: None,
            next_uses: OnceLock::new(),
            digest: OnceLock::new(),
            neighbours: Neighbours::Unused,
            facts,
        })
    }

    /// Reads all requests from a reader per guest, which take turns. Nothing is kept but their blocks of `block_bytes` in this view.
    /// `origin` describes them in the facts.
    pub fn of_readers(
        readers: &mut [impl RequestReader],
        origin: &'static str,
        (view, block_bytes): (View, u64),
        neighbours: Neighbours,
    ) -> Result<Self, SimulationError> {
        let begin = Instant::now();
        let names = readers.iter().map(|reader| reader.path().to_owned());
        let mut facts = TraceFacts::of(&names.collect::<Vec<_>>());
        let mut guests = Vec::new();
        for reader in readers {
            let trace = neighbours.read(reader, view)?;
            if view != View::Start {
                facts.view = "blocks";
            }
            facts.formats.push(origin);
            facts.trace_requests += trace.requests();
            facts.accesses += trace.ids().len() as u64;
            facts.distinct_blocks += u64::from(trace.distinct());
            guests.push(trace);
        }
        facts.read_seconds = begin.elapsed().as_secs_f64();
        let lengths = guests.iter().map(|_| Lengths::all_equal(block_bytes));
        let lengths = lengths.collect();
        let all = Self::of(guests, lengths, (Order::Turns, Vec::new(), false), facts)?;
        Ok(Self { neighbours, ..all })
    }

    /// Facts about the traces.
    #[must_use]
    pub fn facts(&self) -> &TraceFacts {
        &self.facts
    }

    /// The number of accesses before this many microseconds after the first one; `None` if times
    /// are unknown or were not kept.
    #[must_use]
    pub fn accesses_before(&self, us: u64) -> Option<u64> {
        let clock = self.clock.as_ref()?;
        let end = clock.first()?.0.saturating_add(us);
        let before = clock.partition_point(|&(time, _)| time < end);
        Some(before.checked_sub(1).map_or(0, |last| clock[last].1))
    }

    /// The time from the first request to the last, in microseconds, if times were kept.
    #[must_use]
    pub fn span_us(&self) -> Option<u64> {
        let clock = self.clock.as_ref()?;
        Some(clock.last()?.0 - clock.first()?.0)
    }

    /// The times of requests, in microseconds, and the number of accesses up to and including each,
    /// if times were kept.
    pub(crate) fn clock(&self) -> Option<&[(u64, u64)]> {
        self.clock.as_deref()
    }

    /// The length of each access; a single one if all are equal; none if they are not known.
    pub(super) fn lengths(&self) -> &[u32] {
        &self.bytes
    }

    /// The only guest's trace, with the length of each request; `None` for several guests. Requests without a length there have
    /// the last value.
    pub(crate) fn objects(&self) -> Option<(&DenseTrace, &[u32], u32)> {
        match &self.guests[..] {
            [only] => Some((only, &self.bytes, self.equal_bytes)),
            _ => None,
        }
    }

    /// The lifetime of each access's object, in seconds, 0 without one; empty if no trace has
    /// lifetimes, or they were not [kept](TraceOptions::lives).
    #[must_use]
    pub fn lives(&self) -> &[u32] {
        &self.lives
    }

    /// The traces as a run with these levels has them: numbered by place if a level reads ahead, which takes 4 bytes an access.
    pub(super) fn numbered(&self, levels: &[LevelSpec]) -> Result<Numbered<'_>, SimulationError> {
        let ahead = |level: &&LevelSpec| level.policy.read_ahead_blocks();
        let farthest = levels.iter().max_by_key(ahead);
        match farthest.filter(|level| level.policy.reads_ahead()) {
            None => Ok(self.in_order()),
            Some(level) if self.neighbours == Neighbours::Unused => {
                Err(SimulationError::Neighbours(level.to_string()))
            }
            Some(level) => {
                let traces =
                    (self.by_place).traces(ahead(&level), &self.guests, &self.facts.files)?;
                Ok(self.in_order().by_place(traces))
            }
        }
    }

    /// The traces with their blocks numbered in the order of their first accesses.
    pub(super) fn in_order(&self) -> Numbered<'_> {
        Numbered::in_order(&self.guests, &self.schedule)
    }

    /// The number of blocks of the guest with the most.
    pub(super) fn distinct(&self) -> u64 {
        let blocks = self.guests.iter().map(|guest| u64::from(guest.distinct()));
        blocks.max().unwrap_or(0)
    }

    /// For each access, the number of the next to the same block.
    pub(super) fn next_uses(&self) -> Result<&[u32], SimulationError> {
        if self.closed.is_some() {
            return Err(SimulationError::ClosedFuture);
        }
        if self.facts.accesses >= u64::from(u32::MAX) {
            return Err(SimulationError::TooLong);
        }
        Ok(self.next_uses.get_or_init(|| match &self.guests[..] {
            [only] => next_uses(only.ids(), u64::from(only.numbers()), |&id| u64::from(id)),
            guests => {
                let mut all = vec![BlockRequest::default(); self.facts.accesses as usize];
                let numbered = self.in_order();
                numbered.with_stream(|stream| stream.fill(&mut all));
                next_uses(&all, numbered.blocks() * guests.len() as u64, |r| r.block())
            }
        }))
    }

    /// A digest of all requests.
    pub(crate) fn digest(&self) -> &str {
        self.digest.get_or_init(|| {
            if let [only] = &self.guests[..] {
                return only.digest().hex();
            }
            let (mut digest, mut batch) = (Digest::default(), [BlockRequest::default(); 1024]);
            self.in_order().with_stream(|stream| {
                loop {
                    let got = stream.fill(&mut batch);
                    digest.add(&batch[..got]);
                    if got < batch.len() {
                        return digest.hex();
                    }
                }
            })
        })
    }

    /// Simulates each hierarchy, on at most `threads` threads. The runs are in the order of the
    /// hierarchies. `block_bytes` is the size of a block.
    pub fn simulate(
        &self,
        hierarchies: &[TraceSimulation],
        block_bytes: u64,
        threads: usize,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<Report, SimulationError> {
        let seed = hierarchies.first().map_or(0, |first| first.seed);
        let is_spread = leaves_threads(threads, hierarchies.len());
        let runs = in_parallel(hierarchies.len(), threads, progress, |at, progress| {
            self.simulate_one(&hierarchies[at], block_bytes, is_spread, progress)
        });
        let runs = runs.into_iter().collect::<Result<_, _>>()?;
        let mut report = Report::of(runs, seed, self.digest().to_owned());
        report.sources.clone_from(&self.facts.files);
        report.trace = Some(self.facts.clone());
        Ok(report)
    }

    fn simulate_one(
        &self,
        spec: &TraceSimulation,
        block_bytes: u64,
        is_spread: bool,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Run, SimulationError> {
        let accesses = self.facts.accesses;
        if spec.warmup_requests > 0 && spec.warmup_requests >= accesses {
            let warmup = spec.warmup_requests;
            return Err(SimulationError::Warmup { warmup, accesses });
        }
        let numbered = self.numbered(&spec.levels)?;
        let left = accesses - spec.warmup_requests;
        let plan = Plan {
            levels: &spec.levels,
            links: &spec.links,
            write_mode: spec.write_mode,
            guests: self.guests.len() as u32,
            blocks: numbered.blocks(),
            volumes: numbered.volumes(),
            distinct: self.distinct(),
            footprint: self.facts.distinct_blocks,
            block_bytes,
            seed: spec.seed,
            warmup_requests: spec.warmup_requests.min(self.facts.accesses),
            requests: spec.requests.unwrap_or(left).min(left),
            is_spread,
        };
        if let Some(closed) = &self.closed {
            return self.simulate_closed(closed, &plan, numbered.guests(), progress);
        }
        let future = plan.needs_future()?;
        let extras = Extras {
            known: Known {
                next_uses: if future { self.next_uses()? } else { &[] },
                bytes: &self.bytes,
            },
            digest: false,
        };
        let ran = numbered.with_stream(|stream| plan.run_with(&extras, stream, progress));
        Ok(self.named(ran?.0))
    }

    fn simulate_closed(
        &self,
        closed: &Closed,
        plan: &Plan<'_>,
        guests: &[DenseTrace],
        progress: &mut dyn FnMut(f64),
    ) -> Result<Run, SimulationError> {
        let begin = Instant::now();
        if plan.needs_future()? {
            return Err(SimulationError::ClosedFuture);
        }
        let Outcome {
            found,
            latencies,
            by_guest,
        } = closed.run(plan, guests, progress)?;
        let shape = plan.shape()?;
        let has_bytes = closed.has_bytes();
        let mut run = plan.results(&shape, found, has_bytes, begin.elapsed());
        run.set_latencies(latencies);
        run.pace_by_guest = by_guest;
        Ok(self.named(run))
    }

    /// A run with the names of the guests' traces, and without byte miss ratios if sizes were ignored.
    fn named(&self, mut run: Run) -> Run {
        for (guest, file) in run.by_guest.iter_mut().zip(&self.facts.files) {
            guest.source.clone_from(file);
        }
        if self.facts.sizes_ignored() {
            run.byte_miss_ratio = None;
            let guests = run.by_guest.iter_mut();
            guests.for_each(|guest| guest.byte_miss_ratio = None);
        }
        run
    }
}
