//! What clients ask for.

use super::{Driver, LONGEST, Result};
use crate::config::{Kind as Place, Manner, pick};
use crate::connection::{Kind, Pending};
use crate::sector::{FORGER, Label, SECTOR, pieces};
use futae_nbd::{Command, CommandFlags};

/// Contents that many blocks have.
const COMMON_PATTERNS: u64 = 3;

impl Driver {
    /// One random request.
    pub(super) fn operate(&mut self, seat: usize) -> Result<()> {
        let manner = self.config.manners[seat];
        let kind = match self.random.below(100) {
            0..38 => Kind::Read,
            38..70 if manner != Manner::Hostile => Kind::Write,
            70..73 if manner != Manner::Hostile => Kind::Trim,
            73..77 if manner != Manner::Hostile => Kind::Zero,
            77..80 => Kind::Flush,
            80..84 => Kind::Cache,
            84..86 => Kind::Status,
            _ => match manner {
                Manner::Plain => Kind::Read,
                Manner::Demoting => return self.demote(seat),
                Manner::Hostile => return self.forge(seat),
            },
        };
        let Some(connection) = &self.seats[seat] else {
            return Ok(());
        };
        let volume = connection.volume;
        if kind == Kind::Status && connection.client.export.base_allocation_id.is_none() {
            return Ok(());
        }
        let (mut offset, mut length) = self.range(volume);
        if kind.changes() {
            let model = &self.volumes[volume];
            let ends = [offset, offset + length as u64];
            let may_cut = ends
                .iter()
                .filter(|&end| end % SECTOR as u64 != 0)
                .all(|end| model.may_cut((end / SECTOR as u64) as usize));
            if !may_cut || self.config.kinds[volume] == Place::ReadOnly {
                let end = (ends[1]).next_multiple_of(SECTOR as u64);
                offset -= offset % SECTOR as u64;
                length = (end - offset) as usize;
            }
            if model.is_being_cut(offset, length) {
                return Ok(());
            }
        }
        if kind == Kind::Flush {
            (offset, length) = (0, 0);
        }
        let fua = kind.changes() && self.one_in(6);
        self.ask(seat, kind, offset, length, fua);
        Ok(())
    }

    /// A range of a volume: often in the same corner, mostly whole blocks or sectors.
    fn range(&mut self, volume: usize) -> (u64, usize) {
        let bytes = self.volumes[volume].bytes;
        let block = self.config.block_bytes as u64;
        let unit = pick(&mut self.random, &[block, block, block, SECTOR as u64, 1]);
        let reach = if self.one_in(2) { bytes } else { bytes / 8 };
        let offset = self.random.below(reach) / unit * unit;
        let most = if self.one_in(4) { LONGEST } else { 2 * block };
        let length = (1 + self.random.below(most / unit)) * unit;
        (offset, length.min(bytes - offset) as usize)
    }

    pub(super) fn ask(&mut self, seat: usize, kind: Kind, offset: u64, length: usize, fua: bool) {
        self.now += 1;
        self.counts.operations += 1;
        let now = self.now;
        let Some(connection) = &mut self.seats[seat] else {
            return;
        };
        let volume = connection.volume;
        let writer = connection.id as u32;
        let mut data = Vec::new();
        if kind == Kind::Write {
            let is_common = self.config.shares_equal && self.random.below(2) == 0;
            let pattern = is_common.then(|| self.random.below(COMMON_PATTERNS));
            data = vec![0; length];
            for (sector, inside, part) in pieces(offset, length) {
                let label = match pattern {
                    Some(pattern) => Label::common(pattern, sector as u64),
                    None => Label {
                        volume: volume as u32,
                        writer,
                        sector: sector as u64,
                        version: now,
                    },
                };
                let mut whole = [0; SECTOR];
                label.fill(&mut whole);
                data[part].copy_from_slice(&whole[inside]);
            }
        }
        if kind.changes() {
            connection.touch(offset, length, now);
            if self.config.kinds[volume] != Place::ReadOnly {
                let written = (kind == Kind::Write).then_some(&data[..]);
                self.volumes[volume].begin(now, now, offset, length, writer, written);
            }
        }
        let command = match kind {
            Kind::Read => Command::Read,
            Kind::Write => Command::Write,
            Kind::Trim => Command::Trim,
            Kind::Zero => Command::WriteZeroes,
            Kind::Flush => Command::Flush,
            Kind::Cache => Command::Cache,
            Kind::Status => Command::BlockStatus,
        };
        let flags = if fua {
            CommandFlags::FUA
        } else {
            CommandFlags::NONE
        };
        let what = format!("{kind:?}{} begins", if fua { " with FUA" } else { "" });
        self.log
            .add(now, connection.id, volume, offset, length, what);
        connection
            .client
            .ask(command, flags, now, offset, length, &data);
        let pending = Pending {
            kind,
            offset,
            length,
            data,
            fua,
        };
        connection.pending.insert(now, pending);
    }

    /// Demotes a block, keeping all promises.
    pub(super) fn demote(&mut self, seat: usize) -> Result<()> {
        let turn = self.random.bits();
        let Some(connection) = &mut self.seats[seat] else {
            return Ok(());
        };
        if connection.client.export.demotion.is_none() {
            return Err("a server that is to take demotions does not".to_owned());
        }
        if let Some((offset, data)) = connection.evict(turn) {
            self.now += 1;
            self.counts.operations += 1;
            self.counts.demotions_sent += 1;
            let (id, volume) = (connection.id, connection.volume);
            self.log.add(
                self.now,
                id,
                volume,
                offset,
                data.len(),
                "demotion".to_owned(),
            );
            connection.client.demote(self.now, offset, &data);
        }
        Ok(())
    }

    /// Demotes forged bytes, where nobody may believe them: anywhere, if they are verified.
    pub(super) fn forge(&mut self, seat: usize) -> Result<()> {
        let (bits, is_odd) = (self.random.bits(), self.one_in(10));
        let Some(connection) = &mut self.seats[seat] else {
            return Ok(());
        };
        let volume = connection.volume;
        let is_read_only = self.config.kinds[volume] == Place::ReadOnly;
        let may_write = !is_read_only && !connection.others_wrote;
        // Without demotion its data would be taken for requests.
        let is_believed = may_write && !self.config.verifies();
        if is_believed || connection.client.export.demotion.is_none() {
            return Ok(());
        }
        let block = self.config.block_bytes as u64;
        let mut offset = bits % self.volumes[volume].bytes / block * block;
        let length = connection.block_length(offset);
        let mut data = vec![0; length];
        for (sector, _, part) in pieces(offset, length) {
            let label = Label {
                volume: volume as u32,
                writer: FORGER,
                sector: sector as u64,
                version: self.now,
            };
            label.fill(&mut data[part]);
        }
        if is_odd {
            offset += SECTOR as u64;
        }
        self.now += 1;
        self.counts.operations += 1;
        self.counts.demotions_forged += 1;
        self.log.add(
            self.now,
            connection.id,
            volume,
            offset,
            length,
            "FORGED demotion".to_owned(),
        );
        connection.client.demote(self.now, offset, &data);
        Ok(())
    }
}
