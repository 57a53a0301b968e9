//! Policies written in Python: their methods are called in batches, and their answers are checked.

use futae_policy::{
    Access, Admission, Departure, External, Policy, PolicySpec, RegisteredPolicy, Shape,
    SimulatorHints, Slot, SpecError,
};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

/// This many blocks are handed over at once at most.
const BATCH: usize = 4096;

/// What a method raised first.
type Raised = Arc<Mutex<Option<PyErr>>>;

/// Classes by the names that policy strings have for them.
pub struct Classes {
    classes: Vec<(String, Py<PyAny>)>,
    raised: Raised,
}

impl Classes {
    pub fn new(classes: Vec<(String, Py<PyAny>)>) -> Self {
        Self {
            classes,
            raised: Raised::default(),
        }
    }

    /// The exception behind an error, if there is one.
    pub fn raised(&self) -> Option<PyErr> {
        let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        raised.take()
    }
}

fn wrong(policy: &str, problem: impl Display) -> SpecError {
    SpecError::External {
        policy: policy.to_owned(),
        problem: problem.to_string(),
    }
}

impl External for Classes {
    fn has(&self, name: &str) -> bool {
        self.classes.iter().any(|class| class.0 == name)
    }

    fn build(
        &self,
        spec: &PolicySpec,
        shape: &Shape,
    ) -> Result<Box<dyn RegisteredPolicy>, SpecError> {
        let named = self.classes.iter().find(|class| class.0 == spec.name);
        let Some((name, class)) = named.filter(|_| spec.arguments.is_empty()) else {
            return Err(wrong(
                &spec.name,
                "a policy in Python takes no arguments here",
            ));
        };
        Python::attach(|py| {
            let policy = class.call1(py, (shape.slots,)).map_err(|error| {
                let problem = format!("cannot be made: {error}");
                *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                wrong(name, problem)
            })?;
            let method = |key: &str| policy.getattr(py, PyString::new(py, key)).ok();
            let needed =
                |key: &str| method(key).ok_or_else(|| wrong(name, format!("has no method {key}")));
            Ok(Box::new(InPython {
                name: name.clone(),
                admit: method("admit"),
                hit: method("hit"),
                miss: needed("miss")?,
                evict: needed("evict")?,
                remove: method("remove"),
                raised: Arc::clone(&self.raised),
                blocks: vec![0; shape.slots as usize],
                slots: HashMap::new(),
                waiting: Vec::new(),
                are_hits: false,
                fault: None,
            }) as Box<dyn RegisteredPolicy>)
        })
    }
}

/// An object that decides, beside what is resident.
struct InPython {
    name: String,
    admit: Option<Py<PyAny>>,
    hit: Option<Py<PyAny>>,
    miss: Py<PyAny>,
    evict: Py<PyAny>,
    remove: Option<Py<PyAny>>,
    raised: Raised,
    /// The block in each slot.
    blocks: Vec<u64>,
    /// The slot of each block.
    slots: HashMap<u64, Slot>,
    /// Blocks that were hit, or that were placed, and of which the object was not told yet.
    waiting: Vec<u64>,
    are_hits: bool,
    fault: Option<SpecError>,
}

impl InPython {
    /// Notes a hit or a block that was placed.
    #[inline]
    fn note(&mut self, block: u64, is_hit: bool) {
        if self.are_hits != is_hit || self.waiting.len() == BATCH {
            Python::attach(|py| self.tell(py));
            self.are_hits = is_hit;
        }
        self.waiting.push(block);
    }

    /// Tells the object what it was not told yet.
    fn tell(&mut self, py: Python<'_>) {
        if self.waiting.is_empty() || self.fault.is_some() {
            self.waiting.clear();
            return;
        }
        let (name, method) = match self.are_hits {
            true => ("hit", self.hit.as_ref()),
            false => ("miss", Some(&self.miss)),
        };
        let told = method.map_or(Ok(()), |method| {
            let blocks = PyList::new(py, &self.waiting)?;
            method.call1(py, (blocks,)).map(drop)
        });
        self.waiting.clear();
        if let Err(error) = told {
            self.give_up(name, error);
        }
    }

    #[cold]
    fn give_up(&mut self, method: &str, error: PyErr) {
        self.refuse(format!("{method} raised {error}"));
        let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        raised.get_or_insert(error);
    }

    #[cold]
    fn refuse(&mut self, problem: String) {
        let fault = wrong(&self.name, problem);
        self.fault.get_or_insert(fault);
    }

    /// Any slot, for the calls that may still come once the object is not asked any more.
    #[cold]
    fn any(&self) -> Option<Slot> {
        self.slots.values().next().copied()
    }
}

impl Policy for InPython {
    fn miss(&mut self, access: &Access) -> Admission {
        if self.fault.is_some() {
            return Admission::Bypass;
        }
        if self.admit.is_none() {
            return Admission::Admit;
        }
        let answer = Python::attach(|py| {
            self.tell(py);
            let admit = self.admit.as_ref()?;
            let answer = admit.call1(py, (access.block.raw(),));
            let answer = answer.and_then(|answer| answer.extract::<bool>(py));
            answer.map_err(|error| self.give_up("admit", error)).ok()
        });
        match answer {
            Some(true) => Admission::Admit,
            Some(false) | None => Admission::Bypass,
        }
    }

    fn insert(&mut self, slot: Slot, access: &Access) {
        let block = access.block.raw();
        self.blocks[slot.i()] = block;
        self.slots.insert(block, slot);
        self.note(block, false);
    }

    #[inline]
    fn hit(&mut self, _slot: Slot, access: &Access) {
        if self.hit.is_some() {
            self.note(access.block.raw(), true);
        }
    }

    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        if self.slots.is_empty() {
            return None;
        }
        if self.fault.is_some() {
            return self.any();
        }
        let answer = Python::attach(|py| {
            self.tell(py);
            let answer = self.evict.call1(py, (incoming.block.raw(),));
            answer.and_then(|answer| match answer.is_none(py) {
                true => Ok(None),
                false => answer.extract::<u64>(py).map(Some),
            })
        });
        match answer {
            Err(error) => {
                self.give_up("evict", error);
                None
            }
            Ok(None) => None,
            Ok(Some(block)) => {
                let slot = self.slots.get(&block).copied();
                if slot.is_none() {
                    self.refuse(format!("evict answered {block}, which is not resident"));
                }
                slot
            }
        }
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        let block = self.blocks[slot.i()];
        self.slots.remove(&block);
        // The object knows of what it gave up itself.
        if why == Departure::Evicted || self.fault.is_some() {
            return;
        }
        Python::attach(|py| {
            self.tell(py);
            let Some(remove) = &self.remove else {
                let problem =
                    "has no method remove, which it needs here: a block left that it did not evict";
                return self.refuse(problem.to_owned());
            };
            if let Err(error) = remove.call1(py, (block,)) {
                self.give_up("remove", error);
            }
        });
    }

    fn fault(&self) -> Option<&SpecError> {
        self.fault.as_ref()
    }

    /// By number: what comes when is the object's secret.
    fn order(&self) -> Vec<Slot> {
        let mut slots: Vec<Slot> = self.slots.values().copied().collect();
        slots.sort_unstable();
        slots
    }

    fn audit(&self, resident: u32) {
        assert_eq!(self.slots.len(), resident as usize);
    }
}

impl SimulatorHints for InPython {}
