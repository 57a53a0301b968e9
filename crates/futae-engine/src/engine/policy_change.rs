//! Changes the replacement policy of a running cache.

use super::front::Engine;
use super::state::State;
use crate::SetupError;
use futae_policy::{Policy, PolicySpec, Shape};
use std::sync::{Arc, PoisonError};

impl Engine {
    /// The current policy.
    pub fn policy(&self) -> PolicySpec {
        self.lock().policy.clone()
    }

    /// Switches to another policy. Every block stays, dirty or not, with its class; the new policy
    /// takes over the order as far as it can ([`futae_policy::Level::change_policy`]). Returns
    /// false if `policy` is the current one, which then stays. The lock is held once for all
    /// resident blocks.
    ///
    /// # Errors
    ///
    /// The policy cannot be built, or cannot run live. The cache is then unchanged.
    pub fn change_policy(self: &Arc<Self>, policy: &PolicySpec) -> Result<bool, SetupError> {
        if policy.needs_future() {
            return Err(SetupError::NeedsFuture(policy.to_string()));
        }
        // The size stays constant meanwhile.
        let sizing = self.sizing.lock().unwrap_or_else(PoisonError::into_inner);
        let shape = {
            let state = self.lock();
            Shape {
                slots: state.level.capacity(),
                seed: state.seed,
            }
        };
        // The level may be smaller now, and grow to this again.
        policy.check_slots(sizing.capacity_blocks)?;
        let built = futae_policy::build(policy, &shape)?;
        if self.policy() == *policy {
            return Ok(false);
        }
        // Dropped without the lock.
        let _old = self.act(|state, _| state.change_policy(policy, built));
        drop(sizing);
        self.see_to_clock()?;
        Ok(true)
    }
}

impl State {
    fn change_policy(&mut self, policy: &PolicySpec, built: Box<dyn Policy>) -> Box<dyn Policy> {
        let old = self.level.change_policy(built, policy.handover_kind());
        self.steps.count(u64::from(self.level.resident()));
        self.policy = policy.clone();
        if let Some(elsewhere) = &mut self.elsewhere {
            elsewhere.spreads = !policy.takes_marks();
        }
        self.remarks_logged = 0;
        self.weighed = None;
        self.weigh(self.world.now());
        if let Some(log) = &mut self.log {
            log.note_policy(policy);
        }
        old
    }
}
