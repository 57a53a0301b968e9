//! Starts of an engine: over disks or over another one, with its marks, its page cache and its first clients.

use crate::client::Client;
use crate::config::Config;
use crate::front::{Around, Front, Mark};
use crate::link::Link;
use crate::pages::Pages;
use crate::pages::kept::Kept;
use crate::sim::Sim;
use futae_engine::{Engine, SetupError, Store, UncleanMark, World};
use futae_policy::{Class, VolumeId};
use std::sync::Arc;

impl Sim {
    /// Starts an engine over the disks.
    pub fn start(self: &Arc<Self>) -> Result<(), String> {
        let (config, slots, seed, incarnation) = {
            let mut inside = self.lock();
            inside.incarnation += 1;
            let slots = inside.config.slots;
            let slots = if inside.prng.below(3) == 0 {
                1 + inside.prng.below(20) as u32
            } else {
                slots
            };
            let seed = inside.prng.bits();
            (inside.config.clone(), slots, seed, inside.incarnation)
        };
        let around = Arc::new(Around {
            sim: Arc::clone(self),
            incarnation,
        });
        let below = match &config.below {
            Some(below) => {
                let seed = self.lock().prng.bits();
                let below = self.make(below, below.slots, seed, &around)?;
                self.add_disks(&below, incarnation)?;
                self.lock().below = Some(Arc::clone(&below));
                Some(below)
            }
            None => None,
        };
        let engine = self.make(&config, slots, seed, &around)?;
        match &below {
            Some(below) => self.add_links(&engine, below, incarnation)?,
            None => self.add_disks(&engine, incarnation)?,
        }
        self.mount(&engine, incarnation);
        let mut clients = Vec::new();
        for _ in 0..2 {
            let volume = self.lock().prng.below(config.volumes.len() as u64) as usize;
            let id = engine.join(VolumeId(volume as u16));
            let joined = self.lock().event();
            clients.push(Client::new(id, volume, joined));
        }
        let mut inside = self.lock();
        inside.clients = clients;
        inside.engine = Some(engine);
        Ok(())
    }

    /// Has the kernel's page cache hold the blocks, if it is to.
    fn mount(self: &Arc<Self>, engine: &Arc<Engine>, incarnation: u64) {
        {
            let mut inside = self.lock();
            if inside.config.pages.is_none() {
                return;
            }
            let is_watching = inside.prng.below(4) > 0;
            inside.pages = Some(Pages::new(is_watching));
        }
        engine.approximate_hit_order();
        engine.keep_elsewhere(Arc::new(Kept {
            sim: Arc::clone(self),
            incarnation,
        }));
    }

    fn make(
        self: &Arc<Self>,
        config: &Config,
        slots: u32,
        seed: u64,
        around: &Arc<Around>,
    ) -> Result<Arc<Engine>, String> {
        let text = |error: SetupError| error.to_string();
        let options = config.options(slots, seed)?;
        let world: Arc<dyn World> = Arc::clone(around) as _;
        let engine = Engine::in_world(&options, world).map_err(text)?;
        if config.verifies {
            let how = config.verification();
            engine.verify_demotions(how).map_err(text)?;
        }
        if config.shares {
            engine.share_equal().map_err(text)?;
        }
        if let Some(blocks) = config.step_blocks {
            engine.set_step_blocks(blocks);
        }
        Ok(engine)
    }

    /// Adds the disks as volumes, with their marks.
    fn add_disks(self: &Arc<Self>, engine: &Arc<Engine>, incarnation: u64) -> Result<(), String> {
        let (volumes, has_marks) = {
            let inside = self.lock();
            (inside.config.volumes.clone(), inside.config.has_marks)
        };
        for (number, bytes) in volumes.into_iter().enumerate() {
            let front: Arc<dyn Store> = Arc::new(Front {
                sim: Arc::clone(self),
                volume: number,
                incarnation,
                bytes,
            });
            let id = add(engine, number, front)?;
            if has_marks {
                let mark: Arc<dyn UncleanMark> = Arc::new(Mark {
                    sim: Arc::clone(self),
                    volume: number,
                    incarnation,
                });
                let mut inside = self.lock();
                let known = &mut inside.volumes[number];
                known.owes_loss = known.is_marked;
                known.told.clear();
                known.untold.clear();
                let loss = known.is_marked.then(|| "writes were lost".to_owned());
                drop(inside);
                engine.guard(id, mark, loss);
            }
        }
        Ok(())
    }

    /// Adds the volumes of the cache below.
    fn add_links(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        below: &Arc<Engine>,
        incarnation: u64,
    ) -> Result<(), String> {
        let volumes = self.lock().config.volumes.clone();
        for (number, bytes) in volumes.into_iter().enumerate() {
            let link: Arc<dyn Store> = Arc::new(Link {
                sim: Arc::clone(self),
                volume: number,
                client: below.join(VolumeId(number as u16)),
                incarnation,
                bytes,
            });
            add(engine, number, link)?;
        }
        Ok(())
    }
}

fn add(engine: &Engine, number: usize, store: Arc<dyn Store>) -> Result<VolumeId, String> {
    let name = ["a", "b"][number % 2];
    let id = engine.add_volume(name, store, Class::NORMAL);
    let id = id.map_err(|error| error.to_string())?;
    if usize::from(id.0) == number {
        Ok(id)
    } else {
        Err(format!("volume {number} is number {}", id.0))
    }
}
