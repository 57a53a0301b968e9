//! Policies written in Python: their methods are called in batches, and their answers are checked.

use futae_policy::{
    Access, Admission, Built, Departure, External, Policy, PolicySpec, Shape, SimulatorHints, Slot,
    SpecError,
};
use hashbrown::HashMap;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// This many blocks are handed over at once at most.
const BATCH: usize = 4096;
/// So many victims are asked for ahead at first, and twice as many each time.
const AHEAD_MIN: usize = 16;

/// What a method raised first.
type Raised = Arc<Mutex<Option<PyErr>>>;

/// Classes by the names that policy strings have for them.
pub struct Classes {
    classes: Vec<(String, Py<PyAny>)>,
    raised: Raised,
    is_stopped: Arc<AtomicBool>,
}

impl Classes {
    pub fn new(classes: Vec<(String, Py<PyAny>)>) -> Self {
        Self {
            classes,
            raised: Raised::default(),
            is_stopped: Arc::default(),
        }
    }

    /// Becomes true when no object is to be called any more.
    pub fn is_stopped(&self) -> &AtomicBool {
        &self.is_stopped
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

    fn build(&self, spec: &PolicySpec, shape: &Shape) -> Result<Built, SpecError> {
        let named = self.classes.iter().find(|class| class.0 == spec.name);
        let Some((name, class)) = named.filter(|_| spec.arguments.is_empty()) else {
            return Err(wrong(
                &spec.name,
                "a policy in Python takes no arguments here",
            ));
        };
        let kept = |what: String, error: PyErr| {
            let problem = wrong(name, format!("{what}: {error}"));
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            problem
        };
        Python::attach(|py| {
            let policy = class.bind(py).call1((shape.slots,));
            let policy = policy.map_err(|error| kept("cannot be made".to_owned(), error))?;
            // What fails to be looked up is not absent.
            let method = |key: &str| match policy.getattr_opt(key) {
                Ok(method) => Ok(method.map(Bound::unbind)),
                Err(error) => Err(kept(format!("{key} cannot be had"), error)),
            };
            let needed =
                |key: &str| method(key)?.ok_or_else(|| wrong(name, format!("has no method {key}")));
            let miss = needed("miss")?;
            let victims = match method("victims")? {
                None => Victims::OneByOne(needed("evict")?),
                Some(victims) => Victims::Ahead(Ahead {
                    victims,
                    evicted: needed("evicted")?,
                    known: VecDeque::new(),
                    is_known: vec![false; shape.slots as usize],
                    wanted: AHEAD_MIN,
                }),
            };
            Ok(Built::Any(Box::new(InPython {
                name: name.clone(),
                admit: method("admit")?,
                hit: method("hit")?,
                miss,
                victims,
                remove: method("remove")?,
                raised: Arc::clone(&self.raised),
                is_stopped: Arc::clone(&self.is_stopped),
                blocks: vec![0; shape.slots as usize],
                slots: HashMap::new(),
                gone: Vec::new(),
                waiting: Vec::new(),
                are_hits: false,
                fault: None,
            })))
        })
    }
}

/// How the object says which blocks go.
enum Victims {
    /// `evict`: one for each block that comes.
    OneByOne(Py<PyAny>),
    /// `victims`: the next ones, of which it is told later which went.
    Ahead(Ahead),
}

/// Victims that are known before they are needed.
struct Ahead {
    victims: Py<PyAny>,
    evicted: Py<PyAny>,
    /// Next one in front, and among them those that were struck out.
    known: VecDeque<Slot>,
    /// By slot: not struck out.
    is_known: Vec<bool>,
    /// How many to ask for next.
    wanted: usize,
}

impl Ahead {
    /// A block that is requested or removed is no victim any more; the others are as before.
    #[inline]
    fn strike(&mut self, slot: Slot) {
        self.is_known[slot.i()] = false;
    }

    fn next(&mut self) -> Option<Slot> {
        while let Some(slot) = self.known.pop_front() {
            if std::mem::take(&mut self.is_known[slot.i()]) {
                return Some(slot);
            }
        }
        None
    }
}

/// An object that decides, beside what is resident.
struct InPython {
    name: String,
    admit: Option<Py<PyAny>>,
    hit: Option<Py<PyAny>>,
    miss: Py<PyAny>,
    victims: Victims,
    remove: Option<Py<PyAny>>,
    raised: Raised,
    is_stopped: Arc<AtomicBool>,
    /// The block in each slot.
    blocks: Vec<u64>,
    /// The slot of each block.
    slots: HashMap<u64, Slot>,
    /// Blocks that were evicted, of which the object was not told yet.
    gone: Vec<u64>,
    /// Blocks that were hit, or that were placed after those were evicted, of which it was not told yet either.
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

    /// Notes a block that was evicted.
    fn note_gone(&mut self, block: u64) {
        if self.are_hits || self.gone.len() == BATCH {
            Python::attach(|py| self.tell(py));
            self.are_hits = false;
        }
        self.gone.push(block);
    }

    /// Tells the object what it was not told yet.
    fn tell(&mut self, py: Python<'_>) {
        let is_over = self.is_over();
        if let Victims::Ahead(ahead) = &self.victims
            && !self.gone.is_empty()
            && !is_over
        {
            let told = PyList::new(py, &self.gone);
            let told = told.and_then(|blocks| ahead.evicted.call1(py, (blocks,)));
            if let Err(error) = told {
                self.give_up("evicted", error);
            }
        }
        self.gone.clear();
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

    /// Whether the object is not asked any more.
    #[inline]
    fn is_over(&mut self) -> bool {
        if self.fault.is_none() && self.is_stopped.load(Ordering::Relaxed) {
            self.refuse("was ended".to_owned());
        }
        self.fault.is_some()
    }

    #[cold]
    fn refuse(&mut self, problem: String) {
        let fault = wrong(&self.name, problem);
        self.fault.get_or_insert(fault);
    }

    /// The victim that the object names for a block that comes.
    fn asked(&mut self, incoming: u64) -> Option<Slot> {
        let answer = Python::attach(|py| {
            self.tell(py);
            let Victims::OneByOne(evict) = &self.victims else {
                return Ok(None);
            };
            let answer = evict.call1(py, (incoming,));
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

    /// The next of the victims that are known ahead, of which the object is asked if there is none.
    fn ahead(&mut self) -> Option<Slot> {
        let mut slot = self.known()?.next();
        if slot.is_none() {
            self.look_ahead();
            slot = self.known()?.next();
        }
        let slot = slot?;
        self.note_gone(self.blocks[slot.i()]);
        Some(slot)
    }

    fn known(&mut self) -> Option<&mut Ahead> {
        match &mut self.victims {
            Victims::OneByOne(_) => None,
            Victims::Ahead(ahead) => Some(ahead),
        }
    }

    fn look_ahead(&mut self) {
        let found = Python::attach(|py| {
            self.tell(py);
            let Victims::Ahead(ahead) = &self.victims else {
                return Ok(Vec::new());
            };
            let wanted = ahead.wanted.min(self.slots.len());
            ahead.victims.call1(py, (wanted,))?.extract::<Vec<u64>>(py)
        });
        let blocks = match found {
            Ok(blocks) => blocks,
            Err(error) => return self.give_up("victims", error),
        };
        if self.fault.is_some() {
            return;
        }
        let Victims::Ahead(ahead) = &mut self.victims else {
            return;
        };
        ahead.wanted = (ahead.wanted * 2).min(BATCH);
        for block in &blocks {
            let slot = self.slots.get(block).copied();
            match slot.filter(|slot| !ahead.is_known[slot.i()]) {
                Some(slot) => {
                    ahead.is_known[slot.i()] = true;
                    ahead.known.push_back(slot);
                }
                None => {
                    let why = match slot {
                        Some(_) => "twice",
                        None => "which is not resident",
                    };
                    return self.refuse(format!("victims answered {block}, {why}"));
                }
            }
        }
        if blocks.is_empty() {
            self.refuse("victims answered no block, and one has to go".to_owned());
        }
    }

    /// Any slot, for the calls that may still come once the object is not asked any more.
    #[cold]
    fn any(&self) -> Option<Slot> {
        self.slots.values().next().copied()
    }
}

impl Policy for InPython {
    fn miss(&mut self, access: &Access) -> Admission {
        if self.is_over() {
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
    fn hit(&mut self, slot: Slot, access: &Access) {
        if self.hit.is_some() {
            if let Victims::Ahead(ahead) = &mut self.victims {
                ahead.strike(slot);
            }
            self.note(access.block.raw(), true);
        }
    }

    fn victim(&mut self, incoming: &Access) -> Option<Slot> {
        if self.slots.is_empty() {
            return None;
        }
        if self.is_over() {
            return self.any();
        }
        match self.victims {
            Victims::OneByOne(_) => self.asked(incoming.block.raw()),
            Victims::Ahead(_) => self.ahead(),
        }
    }

    fn remove(&mut self, slot: Slot, why: Departure) {
        let block = self.blocks[slot.i()];
        self.slots.remove(&block);
        // The object knows of what it gave up itself.
        if why == Departure::Evicted || self.fault.is_some() {
            return;
        }
        if let Victims::Ahead(ahead) = &mut self.victims {
            ahead.strike(slot);
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
