//! Looks at the caches, and remembers what it saw.

use crate::curves::{CurveShown, Curves};
use crate::history::{History, STEP_SECONDS};
use crate::metrics::{CONTENT_TYPE, metrics};
use crate::page::{PAGE_TYPE, page};
use crate::reply::Reply;
use crate::snapshot::Snapshot;
use futae_engine::Engine;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long what was seen is shown again: a client that asks without end has the caches looked at ten times a second.
const FRESH: Duration = Duration::from_millis(100);

/// Looks at the caches for all who ask, at most ten times a second.
pub struct Eye {
    look: Box<dyn Fn() -> Snapshot + Send + Sync>,
    seen: Mutex<Option<(Instant, Snapshot)>>,
}

impl Eye {
    /// Looks by calling `look`.
    pub fn new(look: impl Fn() -> Snapshot + Send + Sync + 'static) -> Self {
        Self {
            look: Box::new(look),
            seen: Mutex::default(),
        }
    }

    /// What the caches do now, or did a tenth of a second ago.
    pub fn snapshot(&self) -> Snapshot {
        let mut seen = locked(&self.seen);
        match &*seen {
            Some((at, snapshot)) if at.elapsed() < FRESH => snapshot.clone(),
            _ => seen.insert((Instant::now(), (self.look)())).1.clone(),
        }
    }

    /// The answer to a program: the metrics.
    #[must_use]
    pub fn metrics(&self) -> Reply {
        Reply {
            content_type: CONTENT_TYPE,
            body: metrics(self.snapshot()),
            nonce: None,
        }
    }
}

/// The caches that there are.
type Caches = dyn Fn() -> Vec<Arc<Engine>> + Send + Sync;

#[derive(Default)]
struct Kept {
    history: History,
    curves: Vec<CurveShown>,
    is_over: bool,
}

struct Shared {
    eye: Arc<Eye>,
    caches: Box<Caches>,
    kept: Mutex<Kept>,
    changed: Condvar,
}

/// The shortest time between two looks at the samples of busy caches.
const BUSY: Duration = Duration::from_millis(50);
/// How full a sample's room may be at a look.
const FULL: f64 = 0.25;

/// The page, with a thread that looks every five seconds for its charts, and at what busy caches are asked for more often. Dropped, it looks no more.
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to look; at the requests to `caches` for their curves.
    ///
    /// # Errors
    ///
    /// What the operating system says if it gives no thread.
    pub fn start(
        eye: Arc<Eye>,
        caches: impl Fn() -> Vec<Arc<Engine>> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            eye,
            caches: Box::new(caches),
            kept: Mutex::default(),
            changed: Condvar::new(),
        });
        let there = Arc::clone(&shared);
        let thread = Builder::new()
            .name("watch".into())
            .spawn(move || keep_looking(&there))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Makes the page, whenever it is called.
    pub fn painter(&self) -> impl Fn() -> Reply + Send + Sync + 'static + use<> {
        let shared = Arc::clone(&self.shared);
        move || {
            let snapshot = shared.eye.snapshot();
            let (history, curves) = {
                let kept = locked(&shared.kept);
                (kept.history.clone(), kept.curves.clone())
            };
            let nonce = nonce();
            let shown = nonce.as_deref().unwrap_or_default();
            Reply {
                content_type: PAGE_TYPE,
                body: page(&snapshot, &history, &curves, shown),
                nonce,
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        locked(&self.shared.kept).is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep_looking(shared: &Shared) {
    let step = Duration::from_secs_f64(STEP_SECONDS);
    let mut curves = Curves::default();
    let (begun, mut next, mut wait) = (Instant::now(), Instant::now(), BUSY);
    loop {
        let now = Instant::now();
        let caches = (shared.caches)();
        let fullest = curves.follow(&caches, now.duration_since(begun).as_secs_f64());
        // So long that the room is a quarter full next time, if requests go on like that.
        let longer = if fullest > 0.0 { FULL / fullest } else { 2.0 };
        wait = wait.mul_f64(longer.clamp(0.01, 2.0)).clamp(BUSY, step);
        let mut shown = (now >= next).then(|| (shared.eye.snapshot(), curves.shown(&caches)));
        drop(caches);
        let mut kept = locked(&shared.kept);
        if let Some((snapshot, curves)) = shown.take() {
            kept.history.note(&snapshot);
            kept.curves = curves;
            next = now + step;
        }
        let until = wait.min(next.saturating_duration_since(now));
        let waited = shared
            .changed
            .wait_timeout_while(kept, until, |kept| !kept.is_over);
        let (kept, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if kept.is_over {
            return curves.end();
        }
    }
}

/// A number that nobody can guess, for one answer; none if the operating system has none, and then nothing in the page has an effect.
pub(crate) fn nonce() -> Option<String> {
    let mut bytes = [0; 16];
    let got = getrandom(&mut bytes, GetRandomFlags::empty());
    let is_whole = got.is_ok_and(|length| length == bytes.len());
    is_whole.then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
