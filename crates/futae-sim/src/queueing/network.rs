//! The queues, driven by events: a request arrives at a place, waits, is served, and moves to the
//! next place.

use super::model::{LatencyModel, Place, Service};
use super::times::{Collected, Latencies, StationResult};
use futae_policy::Prng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A place that serves a number of requests at a time.
#[derive(Clone, Debug, Default)]
pub struct Station {
    width: Option<u32>,
    /// When each service under way ends.
    busy_until: BinaryHeap<Reverse<u64>>,
    work_ns: u128,
    wait_ns: u128,
    pieces: u64,
}

impl Station {
    /// A place that serves this many at a time; `None`: any number.
    #[must_use]
    pub fn new(width: Option<u32>) -> Self {
        Self {
            width,
            ..Self::default()
        }
    }

    /// Adds work that arrives at `now`, no earlier than the work before it; returns when it is
    /// done.
    fn take(&mut self, now: u64, ns: u64, is_counted: bool) -> u64 {
        let Some(width) = self.width else {
            return now.saturating_add(ns);
        };
        let begin = if self.busy_until.len() < width as usize {
            now
        } else {
            self.busy_until
                .pop()
                .map_or(now, |Reverse(free)| free.max(now))
        };
        let end = begin.saturating_add(ns);
        self.busy_until.push(Reverse(end));
        if is_counted {
            self.work_ns += u128::from(ns);
            self.wait_ns += u128::from(begin - now);
            self.pieces += 1;
        }
        end
    }
}

/// The path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The guest that asks, from 0.
    pub guest: u32,
    /// The level that serves it, from 0; the number of levels stands for the store.
    pub depth: u32,
    /// Whether it is a write.
    pub is_write: bool,
}

/// The purpose of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    Read,
    Write,
    /// Background work, for which no client waits.
    Background,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Job {
    guest: u32,
    /// Number of links still to pass.
    next_link: u32,
    last_link: u32,
    /// The place after the links; `None` if the path ends with them.
    depth: Option<u32>,
    began: u64,
    purpose: Purpose,
    is_counted: bool,
    /// Whether the client's wait is over.
    is_done: bool,
}

/// Caches, links and a store, with their queues.
pub struct Network {
    model: LatencyModel,
    levels: u32,
    /// By guest and boundary.
    links: Vec<Station>,
    /// By guest and level.
    places: Vec<Station>,
    store: Station,
    prng: Prng,
    /// Pending events: time, sequence number among equal times, and job.
    events: BinaryHeap<Reverse<(u64, u64, Job)>>,
    order: u64,
    /// If the number of clients is given: that, and when each sends its next request.
    clients: Option<(u32, BinaryHeap<Reverse<u64>>)>,
    /// Clients that have sent nothing yet, and do so at the beginning.
    fresh: u32,
    /// Whether each guest waits for its answers, and the last answer that was given: when, and to
    /// whom.
    is_thinking: bool,
    answered: Option<(u64, u32)>,
    is_counting: bool,
    first_ns: Option<u64>,
    last_arrival_ns: u64,
    last_end_ns: u64,
    reads: Collected,
    writes: Collected,
}

impl Network {
    /// Empty queues for this many guests and levels, at least one each. With `clients`, that many
    /// requests of all guests together are under way at a time; without, each arrives when
    /// [`ask`](Self::ask) says.
    #[must_use]
    pub fn new(
        model: LatencyModel,
        guests: u32,
        levels: u32,
        clients: Option<u32>,
        seed: u64,
    ) -> Self {
        let all = |count: u32, place: &Place| -> Vec<Station> {
            (0..count).map(|_| Station::new(place.width)).collect()
        };
        let clients = clients.map(|count| (count.max(1), BinaryHeap::new()));
        // All guests share the last level.
        let places = (0..guests * levels).map(|at| match at % levels {
            0 => Station::new(model.upper.width),
            _ => Station::new(model.lower.width),
        });
        Self {
            links: all(guests * levels.saturating_sub(1), &model.link),
            places: places.collect(),
            store: Station::new(model.store.width),
            model,
            levels,
            prng: Prng::new(seed),
            events: BinaryHeap::new(),
            order: 0,
            fresh: clients.as_ref().map_or(0, |(count, _)| *count),
            clients,
            is_thinking: false,
            answered: None,
            is_counting: false,
            first_ns: None,
            last_arrival_ns: 0,
            last_end_ns: 0,
            reads: Collected::new(),
            writes: Collected::new(),
        }
    }

    /// The same for guests that wait for their [answers](Self::answer).
    #[must_use]
    pub fn thinking(mut self) -> Self {
        self.is_thinking = true;
        self
    }

    /// Advances to the next answer, up to and including `until` if that is given. Returns when it
    /// was given, and to which guest; `None` if there is none by then.
    pub fn answer(&mut self, until: Option<u64>) -> Option<(u64, u32)> {
        while self.answered.is_none() {
            let next = self.events.peek()?.0.0;
            if until.is_some_and(|until| next > until) {
                return None;
            }
            self.step();
        }
        self.answered.take()
    }

    /// Requests are counted from now on.
    pub fn begin_counting(&mut self) {
        self.is_counting = true;
    }

    /// The arrival time of the next request: `recorded`, in nanoseconds and no earlier than the
    /// previous one, or when a client becomes free. Advances the time to it.
    pub fn arrival(&mut self, recorded: u64) -> u64 {
        if self.clients.is_none() {
            self.run_until(recorded);
            return recorded;
        }
        if self.fresh > 0 {
            self.fresh -= 1;
            self.run_until(0);
            return 0;
        }
        loop {
            let free = self
                .clients
                .as_ref()
                .and_then(|(_, free)| free.peek())
                .map(|it| it.0);
            match free {
                // An event before that may free a client earlier.
                Some(free) => {
                    self.run_until(free);
                    let earliest = self.clients.as_ref().and_then(|(_, free)| free.peek());
                    if earliest.is_some_and(|it| it.0 == free) {
                        if let Some((_, free)) = &mut self.clients {
                            free.pop();
                        }
                        return free;
                    }
                }
                None if self.step() => {}
                None => return self.last_end_ns,
            }
        }
    }

    /// Sends a request that arrives at `now`, as returned by [`arrival`](Self::arrival).
    pub fn ask(&mut self, now: u64, route: Route) {
        let purpose = if route.is_write {
            Purpose::Write
        } else {
            Purpose::Read
        };
        if self.is_counting {
            self.first_ns.get_or_insert(now);
            self.last_arrival_ns = now;
        }
        let job = Job {
            guest: route.guest,
            next_link: 0,
            last_link: route.depth.min(self.levels - 1),
            depth: Some(route.depth),
            began: now,
            purpose,
            is_counted: self.is_counting,
            is_done: false,
        };
        self.go_on(now, job);
    }

    /// A block crosses the boundary below level `above` of a guest, in the background.
    pub fn demote(&mut self, now: u64, guest: u32, above: u32) {
        let job = Job {
            guest,
            next_link: above,
            last_link: above + 1,
            depth: None,
            began: now,
            purpose: Purpose::Background,
            is_counted: self.is_counting,
            is_done: false,
        };
        self.go_on(now, job);
    }

    /// The store reads or writes a block, in the background.
    pub fn use_store(&mut self, now: u64, is_write: bool) {
        let service = self.store_service(is_write);
        let ns = service.draw_ns(&mut self.prng);
        self.store.take(now, ns, self.is_counting);
    }

    fn store_service(&self, is_write: bool) -> Service {
        match self.model.store_write {
            Some(service) if is_write => service,
            _ => self.model.store.service,
        }
    }

    /// Starts the next service of a job that arrives there at `now`, or ends the job.
    fn go_on(&mut self, now: u64, mut job: Job) {
        let end = if job.next_link < job.last_link {
            let boundary = job.guest * (self.levels - 1) + job.next_link;
            let ns = self.model.link.service.draw_ns(&mut self.prng);
            job.next_link += 1;
            self.links[boundary as usize].take(now, ns, job.is_counted)
        } else if let Some(depth) = job.depth.take() {
            job.is_done = true;
            if depth >= self.levels {
                let service = self.store_service(job.purpose == Purpose::Write);
                let ns = service.draw_ns(&mut self.prng);
                self.store.take(now, ns, job.is_counted)
            } else {
                let place = if depth == 0 {
                    &self.model.upper
                } else {
                    &self.model.lower
                };
                let ns = place.service.draw_ns(&mut self.prng);
                // All guests share the last level.
                let guest = if depth + 1 == self.levels {
                    0
                } else {
                    job.guest
                };
                self.places[(guest * self.levels + depth) as usize].take(now, ns, job.is_counted)
            }
        } else {
            self.end(now, &job);
            return;
        };
        self.order += 1;
        self.events.push(Reverse((end, self.order, job)));
    }

    fn end(&mut self, now: u64, job: &Job) {
        if !job.is_done {
            return;
        }
        self.last_end_ns = self.last_end_ns.max(now);
        self.answered = Some((now, job.guest));
        if let Some((_, free)) = &mut self.clients {
            free.push(Reverse(now));
        }
        if job.is_counted {
            match job.purpose {
                Purpose::Read => self.reads.add(now - job.began),
                Purpose::Write => self.writes.add(now - job.began),
                Purpose::Background => {}
            }
        }
    }

    /// Processes the next event. Returns whether there was one.
    fn step(&mut self) -> bool {
        let Some(Reverse((now, _, job))) = self.events.pop() else {
            return false;
        };
        self.go_on(now, job);
        true
    }

    fn run_until(&mut self, until: u64) {
        while self.events.peek().is_some_and(|next| next.0.0 <= until) {
            self.step();
        }
    }

    /// Processes all remaining events. Returns whether every time was counted: times stop at 2^64 - 1 nanoseconds, which no
    /// simulation of anything reaches.
    pub fn drain(&mut self) -> bool {
        while self.step() {}
        self.last_end_ns < u64::MAX
    }

    /// Processes all remaining events and returns the latencies.
    #[must_use]
    pub fn finish(mut self) -> Latencies {
        self.drain();
        let mut all = Collected::new();
        all.plus(&self.reads);
        all.plus(&self.writes);
        let first = self.first_ns.unwrap_or(0);
        let span_ns = self.last_end_ns.saturating_sub(first);
        let result = |stations: &[Station]| {
            let width = stations.first()?.width?;
            let (mut work, mut wait, mut pieces) = (0, 0, 0);
            for station in stations {
                work += station.work_ns;
                wait += station.wait_ns;
                pieces += station.pieces;
            }
            let able = span_ns as f64 * f64::from(width) * stations.len() as f64;
            Some(StationResult {
                width,
                utilisation: if able > 0.0 {
                    (work as f64 / able).min(1.0)
                } else {
                    0.0
                },
                mean_wait_seconds: wait as f64 / pieces.max(1) as f64 / 1e9,
            })
        };
        Latencies {
            arrivals: match self.clients {
                Some(_) => "closed",
                None if self.is_thinking => "thinking",
                None => "recorded",
            },
            clients: self.clients.as_ref().map(|(count, _)| *count),
            all: all.times(),
            reads: self.reads.times(),
            writes: self.writes.times(),
            link: result(&self.links),
            store: result(std::slice::from_ref(&self.store)),
            span_seconds: span_ns as f64 / 1e9,
            backlog_seconds: self.last_end_ns.saturating_sub(self.last_arrival_ns) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests;
