//! Two caches, one above the other: what the upper one asks of its stores travels as letters to the lower one, which
//! get there in any order, as over several connections; so do the answers.

use crate::letter::Letter;
use crate::sim::{Inside, Sim};
use futae_engine::{
    ClientId, Demotion, Engine, IoBuf, IoError, Operation, Request, Store, StoreDone,
    StoreOperation,
};
use futae_policy::VolumeId;
use std::sync::Arc;

/// A volume of the lower cache, as a store of the upper one.
pub struct Link {
    pub sim: Arc<Sim>,
    pub volume: usize,
    pub client: ClientId,
    pub incarnation: u64,
    pub bytes: u64,
}

impl Link {
    fn post(&self, sequence: u64, operation: Operation, done: Option<StoreDone>) {
        let buffer = match &operation {
            Operation::Write { data, .. } => Some(IoBuf::copy_of(data.as_slice())),
            _ => None,
        };
        let letter = Letter::Ask {
            volume: self.volume,
            client: self.client,
            sequence,
            operation,
            buffer,
            done,
        };
        self.sim.post(self.incarnation, letter);
        self.sim.preempt();
    }
}

impl Store for Link {
    fn size_bytes(&self) -> u64 {
        self.bytes
    }

    fn describe(&self) -> String {
        "a simulated lower cache".to_owned()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn submit(&self, sequence: u64, operation: StoreOperation, done: StoreDone) {
        let operation = match operation {
            StoreOperation::Read { offset, buffer } => Operation::Read {
                offset,
                length: buffer.len() as u64,
            },
            StoreOperation::Write {
                offset,
                buffer,
                fua,
            } => Operation::Write {
                offset,
                data: buffer,
                fua,
            },
            StoreOperation::Flush => Operation::Flush,
            StoreOperation::Trim { offset, length } => Operation::Trim { offset, length },
            StoreOperation::WriteZeroes {
                offset,
                length,
                fua,
                no_hole,
            } => Operation::WriteZeroes {
                offset,
                length,
                fua,
                no_hole,
            },
        };
        self.post(sequence, operation, Some(done));
    }

    fn together(&self, submit: &mut dyn FnMut()) {
        self.sim.lock().quiet += 1;
        submit();
        self.sim.lock().quiet -= 1;
        self.sim.preempt();
    }

    fn takes_demotions(&self) -> bool {
        true
    }

    fn generation(&self) -> u64 {
        1
    }

    fn demote(&self, sequence: u64, _generation: u64, offset: u64, data: IoBuf) {
        {
            let mut inside = self.sim.lock();
            let began = inside.action_began;
            if inside.is_of_now(self.incarnation) {
                inside.check(self.volume, (offset, data.as_slice()), began, "a demotion");
            }
        }
        self.post(
            sequence,
            Operation::Demote(Demotion::new(offset, data)),
            None,
        );
    }

    fn notice(&self, sequence: u64, offset: u64, length: u64) {
        self.post(sequence, Operation::Notice { offset, length }, None);
    }

    fn extents(&self, offset: u64, length: u64) -> Result<Vec<futae_engine::Extent>, IoError> {
        let below = self.sim.lock().below.clone();
        match below {
            Some(below) => below.extents(VolumeId(self.volume as u16), offset, length),
            None => Ok(Vec::new()),
        }
    }
}

impl Inside {
    /// Whether that engine runs now.
    pub fn is_of_now(&self, incarnation: u64) -> bool {
        self.incarnation == incarnation && self.crashing.is_none()
    }
}

impl Sim {
    fn post(self: &Arc<Self>, incarnation: u64, letter: Letter) {
        let mut inside = self.lock();
        if inside.is_of_now(incarnation) {
            inside.letters.push(letter);
        }
    }

    /// A letter gets there.
    pub fn deliver(self: &Arc<Self>) {
        let (letter, below, incarnation) = {
            let mut inside = self.lock();
            let count = inside.letters.len() as u64;
            if count == 0 || inside.quiet > 0 {
                return;
            }
            let which = inside.prng.below(count) as usize;
            let letter = inside.letters.swap_remove(which);
            (letter, inside.below.clone(), inside.incarnation)
        };
        self.lock().trace(|| match &letter {
            Letter::Answer(..) => "  an answer goes up".to_owned(),
            Letter::Ask {
                volume,
                sequence,
                operation,
                ..
            } => format!("  volume {volume} below <- {sequence} {operation:?}"),
        });
        match letter {
            Letter::Answer(done, result) => done(result),
            Letter::Ask {
                volume,
                client,
                sequence,
                operation,
                buffer,
                done,
            } => {
                if let Some(below) = below {
                    let back = Back {
                        sim: Arc::clone(self),
                        incarnation,
                        buffer,
                        done,
                    };
                    back.ask(&below, (volume, client, sequence), operation);
                }
            }
        }
    }
}

/// The way back of an answer.
struct Back {
    sim: Arc<Sim>,
    incarnation: u64,
    buffer: Option<IoBuf>,
    done: Option<StoreDone>,
}

impl Back {
    fn ask(
        self,
        below: &Arc<Engine>,
        (volume, client, sequence): (usize, ClientId, u64),
        operation: Operation,
    ) {
        below.submit(Request {
            volume: VolumeId(volume as u16),
            client,
            sequence,
            operation,
            done: Box::new(move |result| {
                if let Some(done) = self.done {
                    let result = result.map(|data| self.buffer.unwrap_or(data));
                    self.sim
                        .post(self.incarnation, Letter::Answer(done, result));
                }
            }),
        });
    }
}
