//! What agents report, gathered until the loop asks for it.
//!
//! [`futae_agent_protocol::receiver`] has a thread for each agent, takes a frame once and in order, and lets an agent say
//! 32 MiB a period. What is more waits in the agent's own buffers.

use crate::config::AgentConfig;
use futae_agent_protocol::receiver::{
    AgentStatus, Allowance, Dispatch, Endpoint, Receiver, SampleSink, Stop,
};
use futae_agent_protocol::{Frame, Message, References, Sample, Source};
use futae_allocate::{Activity, OnlineCurve};
use futae_control::{SocketError, UnixSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sampled reads that are kept in a period.
const REFERENCES_MAX: usize = 1 << 21;
/// What the socket is called in a directory.
const SOCKET_NAME: &str = "agent.sock";

/// What has come since it was last taken.
#[derive(Debug, Default)]
pub struct Inbox {
    heard: Option<Heard>,
    references: Vec<References>,
    pages: usize,
}

/// Sums over the samples of a period.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    hits: u64,
    misses: u64,
    cache: u64,
    full_us: u64,
    period_us: u64,
    has_pressure: bool,
}

impl Inbox {
    fn sample(&mut self, sample: &Sample) {
        let heard = self.heard.get_or_insert_default();
        let counters = &sample.total;
        // An agent that sees no reads still sees what was missed before.
        let blind = counters.accesses == 0;
        let misses = if blind {
            counters.refaults
        } else {
            counters.misses
        };
        heard.hits = heard.hits.saturating_add(counters.hits());
        heard.misses = heard.misses.saturating_add(misses);
        let memory = &sample.memory;
        heard.cache = memory
            .free
            .saturating_add(memory.cached)
            .saturating_add(memory.buffers);
        heard.period_us = heard.period_us.saturating_add(sample.period_us);
        if let Some(pressure) = sample.pressure {
            heard.has_pressure = true;
            heard.full_us = heard.full_us.saturating_add(pressure.full_us);
        }
    }

    /// What the guest did since this was last asked; none if nothing came. Sampled reads go to
    /// `curve`.
    pub fn collect(&mut self, curve: Option<&mut OnlineCurve>) -> Option<Activity> {
        if let Some(curve) = curve {
            for references in &self.references {
                curve.given_share(f64::from(references.threshold) / f64::from(References::ALL));
                references.pages.iter().for_each(|&page| curve.access(page));
            }
        }
        self.references.clear();
        self.pages = 0;
        let heard = self.heard.take()?;
        let share = heard.full_us as f64 / (heard.period_us.max(1)) as f64;
        Some(Activity {
            hits: heard.hits,
            misses: heard.misses,
            cache: (heard.cache > 0).then_some(heard.cache),
            pressure: heard.has_pressure.then_some(share.min(1.0)),
        })
    }
}

impl SampleSink for Inbox {
    fn take(&mut self, frame: &Frame) {
        match &frame.message {
            Message::Sample(sample) => self.sample(sample),
            Message::References(references) => {
                self.pages += references.pages.len();
                if self.pages <= REFERENCES_MAX {
                    self.references.push(references.clone());
                }
            }
            Message::Hello(_)
            | Message::PageCache(_)
            | Message::Notices(_)
            | Message::Ring(_)
            | Message::RingAnswer(_) => {}
        }
    }
}

/// The inbox of a guest, for the thread that fills it and for the loop that empties it.
#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<Inbox>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SampleSink for Shared {
    fn take(&mut self, frame: &Frame) {
        self.lock().take(frame);
    }
}

/// The ear for one agent. Dropping it ends its thread.
#[derive(Debug)]
pub struct Feed {
    path: PathBuf,
    inbox: Shared,
    stop: Stop,
    receiver: Option<Receiver>,
}

impl Feed {
    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// A socket that cannot be made. One that nobody listens at is tried for ever.
    pub fn start(agent: &AgentConfig) -> Result<Self, SocketError> {
        let inbox = Shared::default();
        let (path, endpoint) = match agent {
            AgentConfig::Connect(path) => (path, Endpoint::Connect(path.clone())),
            AgentConfig::Listen(path) => {
                // What an allocator left that was killed is in nobody's way.
                let socket = UnixSocket::bind(path, SOCKET_NAME)?;
                (path, Endpoint::Listen(Box::new(socket)))
            }
        };
        let refused = |source| SocketError::Listen {
            path: path.clone(),
            source,
        };
        let stop = Stop::new().map_err(refused)?;
        let dispatch = Dispatch::default().samples_to(inbox.clone());
        let receiver = Receiver::start(endpoint, dispatch, Allowance::until_renewed(), &stop);
        Ok(Self {
            path: path.clone(),
            inbox,
            stop,
            receiver: Some(receiver.map_err(refused)?),
        })
    }

    /// What the guest did since this was last asked.
    pub fn take(&self, curve: Option<&mut OnlineCurve>) -> Option<Activity> {
        let mut inbox = self.inbox.lock();
        if let Some(receiver) = &self.receiver {
            receiver.renew();
        }
        inbox.collect(curve)
    }

    /// What is known of the agent.
    #[must_use]
    pub fn agent(&self) -> AgentStatus {
        let receiver = self.receiver.as_ref();
        receiver.map(Receiver::status).unwrap_or_default()
    }

    /// Whether its agent does not see what is found in memory.
    pub(crate) fn is_blind(&self) -> bool {
        matches!(self.agent().source, None | Some(Source::Vmstat))
    }

    /// The socket by which it is heard.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stop.tell();
        if let Some(receiver) = self.receiver.take() {
            receiver.join();
        }
    }
}
