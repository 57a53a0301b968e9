//! What clients ask for, and what is made of their answers.

use super::{Kind, Pending, Route};
use crate::content::{Place, SECTOR, ZERO, fill, place_at, version_of};
use crate::sim::{Inside, Sim};
use futae_engine::{ClientId, IoBuf, IoError, Operation, Request};
use futae_policy::{Prng, VolumeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Blocks beyond this are loaded in pieces.
const LARGE: u64 = 1 << 20;
/// A part of such a block.
const PAGE: u64 = 4096;

/// A range of a volume: blocks mostly, else any sectors.
fn range(prng: &mut Prng, bytes: u64, block_bytes: u64) -> (u64, u64) {
    let unit = match prng.below(4) {
        0 => SECTOR,
        // Of blocks that are loaded in pieces parts are asked for, mostly.
        1..=2 if block_bytes > LARGE => PAGE,
        _ => block_bytes,
    };
    let units = bytes.div_ceil(unit);
    let first = prng.below(units);
    let most = match prng.below(24) {
        0 => units,
        1..=12 => 1,
        _ => 4 * (block_bytes / unit).clamp(1, 3),
    };
    let count = 1 + prng.below(most.min(units - first));
    let offset = first * unit;
    (offset, (count * unit).min(bytes - offset))
}

impl Sim {
    /// A client begins a request.
    pub fn ask(self: &Arc<Self>) {
        let mut inside = self.lock();
        let clients = inside.clients.len() as u64;
        let which = inside.prng.below(clients) as usize;
        let (engine, volume) = (inside.engine.clone(), inside.clients[which].volume);
        let Some(engine) = engine else { return };
        let (bytes, block) = (inside.config.volumes[volume], inside.config.block_bytes);
        let (mut offset, mut length) = range(&mut inside.prng, bytes, block);
        let (kind, mut operation, sequence) = match inside.prng.below(100) {
            0..38 => (Kind::Read, Some(Operation::Read { offset, length }), None),
            38..40 => (Kind::Read, Some(Operation::ReadOn { offset, length }), None),
            40..68 => (Kind::Write, None, None),
            68..72 => (Kind::Write, Some(Operation::Trim { offset, length }), None),
            72..76 => {
                let (fua, no_hole) = (inside.prng.below(3) == 0, inside.prng.below(2) == 0);
                let zeroes = Operation::WriteZeroes {
                    offset,
                    length,
                    fua,
                    no_hole,
                };
                (Kind::Write, Some(zeroes), None)
            }
            76..82 => (Kind::Flush, Some(Operation::Flush), None),
            82..85 => (Kind::Hint, Some(Operation::Notice { offset, length }), None),
            _ => match inside.demote(which, offset / block * block) {
                Some((operation, sequence)) => (Kind::Hint, Some(operation), Some(sequence)),
                None => (Kind::Read, Some(Operation::Read { offset, length }), None),
            },
        };
        let route = match inside.route(kind, operation.as_ref(), (volume, offset, length)) {
            Some((route, range)) => {
                if range != (offset, length) {
                    (offset, length) = range;
                    operation = Some(Operation::Read { offset, length });
                }
                route
            }
            None => return,
        };
        let (id, invoked) = (inside.next_id, inside.event());
        inside.next_id += 1;
        let fua = match &operation {
            None => {
                let odds = inside.config.fua;
                inside.prng.below(odds) == 0
            }
            Some(Operation::WriteZeroes { fua, .. }) => *fua,
            Some(_) => false,
        };
        let mut pending = Pending {
            kind,
            client: inside.clients[which].id,
            volume,
            offset,
            length,
            fua,
            invoked,
            route,
            version: None,
            before: Vec::new(),
        };
        let is_zero = operation.is_some();
        let operation = operation.unwrap_or_else(|| {
            let mut data = IoBuf::new(length as usize);
            let place = Place {
                volume,
                sector: offset / SECTOR,
            };
            fill(data.as_mut_slice(), place, inside.next_version);
            pending.version = Some(inside.next_version);
            if route == Route::Through {
                inside.begin_write_pages(id, (volume, offset), data.as_slice());
            }
            Operation::Write { offset, data, fua }
        });
        if kind == Kind::Write {
            let version = if is_zero { ZERO } else { inside.next_version };
            inside.next_version += 1;
            let replaces = !matches!(operation, Operation::Trim { .. });
            for sector in offset / SECTOR..(offset + length) / SECTOR {
                let register = &mut inside.volumes[volume].registers[sector as usize];
                register.begin_write(version, invoked, replaces);
            }
            let client = &mut inside.clients[which];
            for first in blocks(offset, length, block) {
                let before = client.known.remove(&first);
                pending.before.extend(before.map(|data| (first, data)));
                client.wrote.insert(first, invoked);
            }
        }
        let client = &mut inside.clients[which];
        client.sequence += 1;
        let sequence = sequence.unwrap_or(client.sequence);
        let (client, incarnation) = (client.id, inside.incarnation);
        let version = inside.next_version - 1;
        inside.trace(|| {
            let is_write = kind == Kind::Write;
            format!("client {client:?} volume {volume}: {operation:?} at {offset}+{length} sequence {sequence} version {version} {is_write}")
        });
        inside.pending.insert(id, pending);
        drop(inside);
        let sim = Arc::clone(self);
        engine.submit(Request {
            volume: VolumeId(volume as u16),
            client,
            sequence,
            operation,
            done: Box::new(move |result| sim.answered(incarnation, id, result)),
        });
    }

    fn answered(self: &Arc<Self>, incarnation: u64, id: u64, result: Result<IoBuf, IoError>) {
        let mut inside = self.lock();
        if inside.incarnation != incarnation || inside.crashing.is_some() {
            return;
        }
        let Some(pending) = inside.pending.remove(&id) else {
            return inside.fail(|| "a request was answered twice".to_owned());
        };
        inside.cover.operations += 1;
        inside.changes += u64::from(matches!(pending.kind, Kind::Write | Kind::Flush));
        inside.trace(|| {
            let Pending {
                kind,
                volume,
                offset,
                length,
                invoked,
                ..
            } = pending;
            let is_ok = result.is_ok();
            format!("answer to {kind:?} of {invoked}, volume {volume} {offset}+{length}: {is_ok}")
        });
        let range = (pending.volume, pending.offset, pending.length);
        if pending.kind == Kind::Read || pending.kind == Kind::Write {
            let is_write = pending.kind == Kind::Write;
            inside.end_pages(id, pending.route, range, (is_write, &result));
        }
        inside.settle(pending, result);
    }
}

/// The first bytes of the blocks that a range touches.
fn blocks(offset: u64, length: u64, block_bytes: u64) -> impl Iterator<Item = u64> {
    let range = offset / block_bytes..(offset + length).div_ceil(block_bytes);
    range.map(move |index| index * block_bytes)
}

impl Inside {
    /// Holds bytes of a volume that somebody saw after `began` against what may be there.
    pub fn check(&mut self, volume: usize, (offset, bytes): (u64, &[u8]), began: u64, who: &str) {
        let now = self.event();
        self.cover.sectors += bytes.len() as u64 / SECTOR;
        for (at, sector) in bytes.chunks(SECTOR as usize).enumerate() {
            let place = Place {
                volume,
                sector: offset / SECTOR + at as u64,
            };
            let register = &mut self.volumes[volume].registers[place.sector as usize];
            let found = version_of(sector, place);
            let problem = match &found {
                Ok(version) => register.read(*version, began, now).err(),
                Err(torn) => Some(torn.clone()),
            };
            if let Some(problem) = problem {
                let known = register.describe();
                let found = found.map_or_else(|_| "?".to_owned(), |version| version.to_string());
                let sector = place.sector;
                return self.fail(|| {
                    format!(
                        "{who} from {began} to {now} has write {found} in sector {sector} of volume \
                         {volume}: {problem} ({known})"
                    )
                });
            }
        }
    }

    fn settle(&mut self, pending: Pending, result: Result<IoBuf, IoError>) {
        let Pending {
            kind,
            client,
            volume,
            offset,
            length,
            invoked,
            fua,
            ..
        } = pending;
        let stabilises = kind == Kind::Flush || (kind == Kind::Write && fua);
        match &result {
            Err(error) => {
                let now = self.event();
                let tells_loss = stabilises && self.volumes[volume].owes_loss;
                let told = &mut self.volumes[volume].told;
                // Each other client that was connected learns of it once, by a FLUSH, and by those that it has under way then.
                let is_further = kind == Kind::Flush && !told.is_empty();
                let is_told =
                    (tells_loss || is_further) && invoked < *told.entry(client).or_insert(now);
                if stabilises {
                    self.volumes[volume].untold.remove(&client);
                }
                if tells_loss {
                    self.volumes[volume].owes_loss = false;
                    self.note_untold(volume, client, invoked);
                } else if !is_told && !self.config.is_faulty() {
                    self.fail(|| format!("{kind:?} failed over a good disk: {error}"));
                }
            }
            Ok(_)
                if kind == Kind::Flush
                    && let Some(told) = self.volumes[volume].untold.get(&client)
                    && *told < invoked =>
            {
                let told = *told;
                self.fail(|| {
                    format!("a FLUSH from {invoked} went well, and its client was not told of a loss that another was told of at {told}")
                });
            }
            Ok(_) if stabilises && self.volumes[volume].owes_loss => {
                let is_alone = !self.pending.values().any(|other| {
                    let stabilises = other.kind == Kind::Flush || other.fua;
                    other.volume == volume && stabilises
                });
                if is_alone {
                    self.fail(|| format!("{kind:?} went well, and nobody was told of a loss"));
                }
            }
            Ok(_) => {}
        }
        match (kind, result) {
            (Kind::Read, Ok(data)) => {
                if data.len() as u64 != length {
                    let got = data.len();
                    return self.fail(|| format!("a read of {length} bytes brought {got}"));
                }
                self.check(volume, (offset, data.as_slice()), invoked, "a read");
                self.learn(&pending, data.as_slice());
            }
            (Kind::Write, result) => {
                let (now, oldest) = (self.event(), self.oldest_read());
                for sector in offset / SECTOR..(offset + length) / SECTOR {
                    let register = &mut self.volumes[volume].registers[sector as usize];
                    register.end_write(invoked, now, result.is_ok(), fua, oldest);
                }
                match (&result, pending.version) {
                    (Ok(_), Some(version)) => self.learn_written(&pending, version),
                    (Err(_), _) => self.keep_old(&pending),
                    (Ok(_), None) => {}
                }
                self.note_written(&pending, now);
            }
            (Kind::Flush, Ok(_)) => {
                for register in &mut self.volumes[volume].registers {
                    register.flushed(invoked);
                }
            }
            (Kind::Read | Kind::Flush, Err(_)) | (Kind::Hint, _) => {}
        }
    }

    /// A client is told of a loss by a request from `invoked`. The others that were connected then have to be told, too, if they
    /// are clients of the cache that tells it.
    fn note_untold(&mut self, volume: usize, told: ClientId, invoked: u64) {
        if self.config.below.is_some() {
            return;
        }
        let now = self.event();
        let others = self
            .clients
            .iter()
            .filter(|other| other.volume == volume && other.id != told && other.joined < invoked);
        let untold = others.map(|other| (other.id, now)).collect();
        self.volumes[volume].untold = untold;
    }

    /// A client whose write to a block has failed may keep what it had and demote it, which it promises not
    /// to do; the cache drops that. (Of a write to several blocks some may be as good as written.)
    fn keep_old(&mut self, pending: &Pending) {
        let touched = blocks(pending.offset, pending.length, self.config.block_bytes);
        if touched.count() > 1 {
            return;
        }
        for (first, data) in &pending.before {
            let whole = Pending {
                offset: *first,
                length: data.len() as u64,
                before: Vec::new(),
                version: None,
                ..*pending
            };
            self.learn(&whole, data);
        }
    }

    fn note_written(&mut self, pending: &Pending, now: u64) {
        let block_bytes = self.config.block_bytes;
        let client = self
            .clients
            .iter_mut()
            .find(|client| client.id == pending.client);
        if let Some(client) = client {
            for first in blocks(pending.offset, pending.length, block_bytes) {
                client.written.insert(first, now);
            }
        }
    }

    /// A client keeps the whole blocks of what it has read, as [`learn_with`](Self::learn_with).
    fn learn(&mut self, pending: &Pending, data: &[u8]) {
        self.learn_with(pending, |from, length| data[from..from + length].to_vec());
    }

    /// A client keeps the whole blocks of what it has written, as [`learn_with`](Self::learn_with).
    fn learn_written(&mut self, pending: &Pending, version: u64) {
        let place = Place {
            volume: pending.volume,
            sector: pending.offset / SECTOR,
        };
        self.learn_with(pending, |from, length| {
            let mut data = vec![0; length];
            fill(&mut data, place_at(place, from as u64), version);
            data
        });
    }

    /// A client keeps the whole blocks of what it has read or written, unless it has begun to write
    /// to them since. `data` returns so many bytes from a byte of the request on.
    fn learn_with(&mut self, pending: &Pending, data: impl Fn(usize, usize) -> Vec<u8>) {
        let (block_bytes, bytes) = (self.config.block_bytes, self.config.volumes[pending.volume]);
        let client = self
            .clients
            .iter_mut()
            .find(|client| client.id == pending.client);
        let Some(client) = client else { return };
        let end = pending.offset + pending.length;
        for first in blocks(pending.offset, pending.length, block_bytes) {
            let length = block_bytes.min(bytes - first);
            let is_whole = first >= pending.offset && first + length <= end;
            let time = |times: &BTreeMap<u64, u64>| times.get(&first).copied().unwrap_or(0);
            let written = time(&client.wrote).max(time(&client.written));
            let writing = self.pending.values().any(|other| {
                let overlaps = other.offset < first + length && first < other.offset + other.length;
                other.client == client.id && other.kind == Kind::Write && overlaps
            });
            if is_whole && written <= pending.invoked && !writing {
                let from = (first - pending.offset) as usize;
                client.known.insert(first, data(from, length as usize));
            }
        }
    }
}
