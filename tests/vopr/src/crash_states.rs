//! Every state that a crash can leave: at each moment of a run at which a disk, or what a client was told, has
//! changed, every image that the disk may then have is rebuilt and judged.
//!
//! What is stable is there. Of the writes that are not stable, and of those under way, any subset is there,
//! each in its order; the disk promises no more. Subsets of few writes are gone through one by one (each
//! differs from the last in one write); of many they are drawn. Some images more have writes that are torn
//! between sectors, since a disk promises whole sectors only.

use crate::config::Config;
use crate::content::{Place, SECTOR, version_of};
use crate::sim::{Inside, Sim};
use futae_policy::Prng;
use std::sync::Arc;

/// Writes of which every subset is gone through.
const EXHAUSTIVE_MAX: usize = 9;
/// Subsets that are drawn where there are more.
const DRAWN: u64 = 256;
/// Images with torn writes, at each moment.
const TORN: u64 = 16;

/// What was judged.
#[derive(Clone, Copy, Debug, Default)]
pub struct States {
    /// Images.
    pub images: u64,
    /// Moments at which every subset was gone through.
    pub exhaustive: u64,
    /// Moments.
    pub moments: u64,
}

/// A write that may be on the disk or not: its sectors, and their content.
type Write = Vec<(usize, Vec<u8>)>;

/// The images of one volume that a crash may leave now.
struct Images<'a> {
    volume: usize,
    inside: &'a Inside,
    writes: Vec<Write>,
    /// By sector: the writes that reach it, in their order.
    reach: Vec<Vec<(usize, usize)>>,
    base: Vec<u8>,
    image: Vec<u8>,
    there: Vec<bool>,
    /// Whether only the process has died: what the disk has answered is there.
    is_process: bool,
    judged: u64,
}

impl Images<'_> {
    fn sector(bytes: &[u8], sector: usize) -> &[u8] {
        &bytes[sector * SECTOR as usize..(sector + 1) * SECTOR as usize]
    }

    /// Puts the newest content of `sector` that is there into the image, and judges it.
    fn renew(&mut self, sector: usize) -> Result<(), String> {
        let newest = self.reach[sector]
            .iter()
            .rev()
            .find(|(write, _)| self.there[*write]);
        let content = match newest {
            Some(&(write, at)) => &self.writes[write][at].1,
            None => Self::sector(&self.base, sector),
        };
        let from = sector * SECTOR as usize;
        self.image[from..from + SECTOR as usize].copy_from_slice(content);
        self.judge(sector)
    }

    fn judge(&self, sector: usize) -> Result<(), String> {
        let place = Place {
            volume: self.volume,
            sector: sector as u64,
        };
        let register = &self.inside.volumes[self.volume].registers[sector];
        let found = version_of(Self::sector(&self.image, sector), place);
        let judged = found.clone().and_then(|version| {
            register.survived(version)?;
            let must_be_new = self.is_process && self.inside.config.write_back.is_none();
            if must_be_new && !register.is_current(version, self.inside.events) {
                return Err("a write that went through is lost with the process".to_owned());
            }
            Ok(())
        });
        judged.map_err(|why| {
            let found = found.map_or_else(|_| "?".to_owned(), |version| version.to_string());
            let (volume, now) = (self.volume, self.inside.events);
            let crash = if self.is_process {
                "of the process"
            } else {
                "of the power"
            };
            let there = &self.there;
            format!(
                "a crash {crash} at {now} can leave write {found} in sector {sector} of volume \
                 {volume}: {why} ({}; of the writes that are not stable are there: {there:?})",
                register.describe()
            )
        })
    }

    fn judge_all(&mut self) -> Result<(), String> {
        self.judged += 1;
        (0..self.reach.len()).try_for_each(|sector| self.renew(sector))
    }

    fn flip(&mut self, write: usize) -> Result<(), String> {
        self.there[write] = !self.there[write];
        self.judged += 1;
        for at in 0..self.writes[write].len() {
            let sector = self.writes[write][at].0;
            self.renew(sector)?;
        }
        Ok(())
    }

    /// Every subset, each one write away from the last.
    fn all(&mut self) -> Result<(), String> {
        self.judge_all()?;
        for count in 1..1_u64 << self.writes.len() {
            self.flip(count.trailing_zeros() as usize)?;
        }
        Ok(())
    }

    fn drawn(&mut self, prng: &mut Prng) -> Result<(), String> {
        self.judge_all()?;
        for _ in 0..DRAWN {
            let which = prng.below(self.writes.len() as u64) as usize;
            self.flip(which)?;
        }
        Ok(())
    }

    /// Images of which each sector is of any of the writes that reach it, or of none.
    fn torn(&mut self, prng: &mut Prng) -> Result<(), String> {
        let reached: Vec<usize> = (0..self.reach.len())
            .filter(|&sector| !self.reach[sector].is_empty())
            .collect();
        if reached.is_empty() {
            return Ok(());
        }
        for _ in 0..TORN {
            self.judged += 1;
            for &sector in &reached {
                let which = prng.below(self.reach[sector].len() as u64 + 1) as usize;
                let content = match self.reach[sector].get(which) {
                    Some(&(write, at)) => &self.writes[write][at].1,
                    None => Self::sector(&self.base, sector),
                };
                let from = sector * SECTOR as usize;
                self.image[from..from + SECTOR as usize].copy_from_slice(content);
                self.judge(sector)?;
            }
        }
        Ok(())
    }
}

impl Inside {
    fn images(&self, volume: usize, is_process: bool) -> Images<'_> {
        let known = &self.volumes[volume];
        let mut writes: Vec<Write> = if is_process {
            Vec::new()
        } else {
            known.disk.unstable()
        };
        let under_way = self.held.iter().filter(|held| held.volume == volume);
        writes.extend(under_way.filter_map(|held| {
            let (offset, data) = held.to_write()?;
            let first = (offset / SECTOR) as usize;
            let sectors = data.chunks(SECTOR as usize).enumerate();
            Some(
                sectors
                    .map(|(at, data)| (first + at, data.to_vec()))
                    .collect(),
            )
        }));
        let mut reach = vec![Vec::new(); known.registers.len()];
        for (number, write) in writes.iter().enumerate() {
            for (at, (sector, _)) in write.iter().enumerate() {
                reach[*sector].push((number, at));
            }
        }
        let base = if is_process {
            known.disk.bytes()
        } else {
            known.disk.stable()
        };
        Images {
            volume,
            inside: self,
            there: vec![false; writes.len()],
            writes,
            reach,
            base: base.to_vec(),
            image: base.to_vec(),
            is_process,
            judged: 0,
        }
    }

    /// Judges every image that a crash may leave now.
    fn judge_images(&self, prng: &mut Prng, states: &mut States) -> Result<(), String> {
        for volume in 0..self.volumes.len() {
            for is_process in [true, false] {
                let mut images = self.images(volume, is_process);
                states.moments += 1;
                let result = if images.writes.len() <= EXHAUSTIVE_MAX {
                    states.exhaustive += 1;
                    images.all()
                } else {
                    images.drawn(prng)
                };
                let result = result.and_then(|()| images.torn(prng));
                states.images += images.judged;
                result?;
            }
        }
        Ok(())
    }
}

impl Sim {
    /// Runs to the end; at each moment at which something has changed, judges every state that a
    /// crash could leave.
    ///
    /// # Errors
    ///
    /// What went wrong, or could.
    pub fn run_through_states(self: &Arc<Self>, states: &mut States) -> Result<(), String> {
        let mut prng = {
            let mut inside = self.lock();
            inside.config = Config::of_crash_states(&mut inside.prng);
            inside.lay_out();
            Prng::new(inside.prng.bits())
        };
        self.start()?;
        let (actions, mut changes) = (self.lock().config.actions, u64::MAX);
        for _ in 0..actions {
            self.turn();
            self.verdict()?;
            let inside = self.lock();
            if inside.changes != changes {
                changes = inside.changes;
                inside.judge_images(&mut prng, states)?;
            }
        }
        self.end()?;
        self.verdict()
    }
}
