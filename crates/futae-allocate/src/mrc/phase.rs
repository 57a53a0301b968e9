//! Moving, waiting for the result, taking it back.

/// Worse by less than this is noise.
const WORSE: f64 = 1.05;

/// What a move must hold up against.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The targets before it.
    pub base: Vec<u64>,
    /// Mean access time before it, in hits, as measured.
    pub before: f64,
    /// What the curves promised.
    pub promised: f64,
    /// By guest, for means over guests before and after.
    pub weights: Vec<f64>,
    /// Periods since the last part of it was told.
    pub periods: u32,
}

/// Where a move is.
#[derive(Debug)]
pub enum Phase {
    /// Nothing was moved, or it is judged. Nothing moves for this many periods.
    Resting { periods: u32 },
    /// Something was moved, and more may be.
    Moving { trial: Trial },
    /// What was moved is given time; more of the same may be.
    Settling { trial: Trial },
    /// Going back to these targets; then this many periods of rest.
    Back { target: Vec<u64>, periods: u32 },
}

/// What may be done in a period.
pub enum Verdict {
    /// Anything.
    Free,
    /// Nothing, for this many periods.
    Wait { periods: u32 },
    /// The move must be taken back.
    Back { trial: Trial, measured: f64 },
    /// Going back goes on.
    Further { target: Vec<u64> },
}

impl Phase {
    /// A workload that has changed makes whatever was promised void.
    pub fn forget(&mut self, changed: bool) {
        if changed {
            *self = Self::Resting { periods: 2 };
        }
    }

    /// Begins a period at whose beginning all targets `now` were reached.
    pub fn next(
        &mut self,
        now: &[u64],
        changed: bool,
        cool_down: u32,
        measured: impl Fn(&Trial) -> f64,
    ) -> Verdict {
        self.forget(changed);
        if let Self::Settling { trial } = self {
            trial.periods += 1;
            if trial.periods >= cool_down {
                return self.judge(measured);
            }
        }
        match self {
            Self::Resting { periods } if *periods > 0 => {
                *periods -= 1;
                Verdict::Wait { periods: *periods }
            }
            Self::Resting { .. } | Self::Moving { .. } | Self::Settling { .. } => Verdict::Free,
            Self::Back { target, periods } => {
                if target == now {
                    *self = Self::Resting { periods: *periods };
                    return self.next(now, false, cool_down, measured);
                }
                let target = target.clone();
                Verdict::Further { target }
            }
        }
    }

    /// Ends a move: it stays, or must be taken back.
    pub fn judge(&mut self, measured: impl Fn(&Trial) -> f64) -> Verdict {
        let (Self::Moving { trial } | Self::Settling { trial }) = self else {
            return Verdict::Free;
        };
        let trial = trial.clone();
        *self = Self::Resting { periods: 0 };
        let measured = measured(&trial);
        if measured > trial.before * WORSE && measured > trial.promised * WORSE {
            return Verdict::Back { trial, measured };
        }
        Verdict::Free
    }

    /// Something was moved: of a series of moves the first says where it began.
    pub fn moved(&mut self, trial: Trial) {
        let first = match self {
            Self::Moving { trial } | Self::Settling { trial } => Some(trial.clone()),
            _ => None,
        };
        let promised = trial.promised;
        let first = first.unwrap_or(trial);
        *self = Self::Moving {
            trial: Trial {
                promised,
                periods: 0,
                ..first
            },
        };
    }

    /// Nothing is moved in this period. Returns how many periods a move has still to show itself, if
    /// one has.
    pub fn settle(&mut self, cool_down: u32) -> Option<u32> {
        if let Self::Moving { trial } = self {
            let trial = trial.clone();
            *self = Self::Settling { trial };
        }
        match self {
            Self::Settling { trial } => Some(cool_down.saturating_sub(trial.periods)),
            _ => None,
        }
    }

    /// Whether going from `now` to `wished` takes back what a move has given, or gives back what it
    /// has taken.
    pub fn turns_back(&self, now: &[u64], wished: &[u64]) -> bool {
        let (Self::Moving { trial } | Self::Settling { trial }) = self else {
            return false;
        };
        let mut guests = trial.base.iter().zip(now).zip(wished);
        guests.any(|((base, now), wished)| {
            (now > base && wished < now) || (now < base && wished > now)
        })
    }
}
