//! One round: random operations of several clients over one server, and everything that goes wrong around them.

mod answers;
mod requests;

use crate::client::{Client, Event};
use crate::config::{Config, Kind as Place, Manner, POLICIES, pick};
use crate::connection::{Connection, Kind};
use crate::log::{Counts, Log};
use crate::model::{Outcome, Volume};
use crate::sector::{Label, OUTSIDER, SECTOR};
use crate::server::{EXPORTS, Server};
use futae_nbd::ClientWish;
use futae_policy::Prng;
use futae_testkit::wait::PATIENCE;
use rustix::process::Signal;
use std::fs;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Bytes of one request at most.
const LONGEST: u64 = 96 << 10;
/// NBD_STATE_ZERO of `base:allocation`.
const READS_AS_ZEROES: u32 = 2;

/// What was found wrong.
pub type Result<T> = std::result::Result<T, String>;

/// Plays one round.
pub struct Driver {
    random: Prng,
    config: Config,
    server: Server,
    volumes: Vec<Volume>,
    seats: Vec<Option<Connection>>,
    events: (Sender<Event>, Receiver<Event>),
    log: Log,
    pub counts: Counts,
    /// The number of the last event.
    now: u64,
    connections: u64,
    has_faults: bool,
    is_ending: bool,
    /// Volumes on which a FLUSH was under way when the server ended, and when its connection was made.
    unanswered: Vec<(usize, u64)>,
}

impl Driver {
    /// Makes the volumes and starts the server.
    pub fn new(config: Config, random: Prng) -> Self {
        let volumes: Vec<_> = (0..)
            .zip(&config.sizes)
            .map(|(id, &bytes)| Volume::new(id, bytes, config.writes_back))
            .collect();
        let mut server = Server::new(&config, &volumes);
        server.start_store();
        server.start();
        Self {
            random,
            seats: config.manners.iter().map(|_| None).collect(),
            config,
            server,
            volumes,
            events: channel(),
            log: Log::default(),
            counts: Counts::default(),
            now: 0,
            connections: 0,
            has_faults: false,
            is_ending: false,
            unanswered: Vec::new(),
        }
    }

    /// How the server is started.
    pub fn command(&self) -> String {
        self.server.command()
    }

    /// Does this many operations, ends the server, and compares the images.
    pub fn play(&mut self, operations: u64) -> Result<()> {
        while self.counts.operations < operations {
            self.step()?;
        }
        self.drain_all()?;
        self.set_faults(false);
        self.end_server(false)?;
        self.now += 1;
        for at in 0..self.volumes.len() {
            let image = fs::read(self.server.image(at)).expect("the image");
            self.check(at, 0, &image, self.now)?;
        }
        self.counts.rounds = 1;
        Ok(())
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.random.below(chances) == 0
    }

    fn step(&mut self) -> Result<()> {
        while let Ok(event) = self.events.1.try_recv() {
            self.take(event)?;
        }
        if self.one_in(350) {
            let is_kill = !self.one_in(3);
            return self.restart(is_kill);
        }
        if self.one_in(60) {
            return self.resize();
        }
        if self.one_in(150) {
            return self.change_policy();
        }
        self.store_weather();
        let seat = self.random.below(self.seats.len() as u64) as usize;
        let Some(connection) = &self.seats[seat] else {
            return self.sit(seat);
        };
        if connection.pending.len() >= self.config.depth {
            if !self.server.has_store() {
                // Everybody may be waiting for it.
                self.server.start_store();
            }
            return self.wait();
        }
        if self.one_in(80) {
            return self.leave(seat);
        }
        self.operate(seat)
    }

    fn store_weather(&mut self) {
        if !self.config.kinds.contains(&Place::Remote) {
            return;
        }
        if !self.server.has_store() {
            if self.one_in(20) {
                self.server.start_store();
                self.log.note(self.now, "the store is back");
            }
        } else if self.one_in(700) {
            self.server.kill_store();
            self.counts.store_kills += 1;
            self.log.note(self.now, "the store is killed");
        } else if self.one_in(100) {
            let is_on = !self.has_faults;
            self.set_faults(is_on);
        }
    }

    fn set_faults(&mut self, is_on: bool) {
        self.has_faults = is_on;
        self.server.set_faults(is_on);
        let what = if is_on {
            "the store begins to fail"
        } else {
            "the store is well"
        };
        self.log.note(self.now, what);
    }

    /// Connects.
    fn sit(&mut self, seat: usize) -> Result<()> {
        let volume = self.random.below(self.volumes.len() as u64) as usize;
        self.sit_at(seat, volume)
    }

    fn sit_at(&mut self, seat: usize, volume: usize) -> Result<()> {
        let structured = self.one_in(2);
        let demotes = self.config.manners[seat] != Manner::Plain;
        let block_bytes = self.config.block_bytes;
        let wish = ClientWish {
            structured,
            base_allocation: structured,
            demotion_block_bytes: demotes.then_some(block_bytes as u32),
            identity: false,
        };
        self.connections += 1;
        let id = self.connections;
        let client = Client::connect(
            &self.server.socket(),
            EXPORTS[volume],
            &wish,
            id,
            &self.events.0,
        );
        let client =
            client.map_err(|error| format!("connecting to {}: {error}", EXPORTS[volume]))?;
        if client.export.size_bytes != self.volumes[volume].bytes {
            return Err(format!(
                "{} has {} bytes",
                EXPORTS[volume], client.export.size_bytes
            ));
        }
        self.log
            .add(self.now, id, volume, 0, 0, "connects".to_owned());
        self.seats[seat] = Some(Connection::new((id, self.now), client, volume, block_bytes));
        self.counts.reconnects += 1;
        Ok(())
    }

    /// Closes a connection, mostly after all was answered.
    fn leave(&mut self, seat: usize) -> Result<()> {
        if !self.one_in(5) {
            self.drain(seat)?;
        }
        // What is under way may still happen at any time.
        if let Some(one) = self.seats[seat].take()
            && one.is_flushing()
        {
            self.volumes[one.volume].perhaps_reported(one.connected);
        }
        Ok(())
    }

    /// Waits until a connection has nothing under way.
    fn drain(&mut self, seat: usize) -> Result<()> {
        if !self.server.has_store() {
            self.server.start_store();
        }
        while self.seats[seat]
            .as_ref()
            .is_some_and(|one| !one.pending.is_empty())
        {
            self.wait()?;
        }
        Ok(())
    }

    fn drain_all(&mut self) -> Result<()> {
        (0..self.seats.len()).try_for_each(|seat| self.drain(seat))
    }

    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE * 2;
        loop {
            match self.events.1.recv_timeout(Duration::from_millis(100)) {
                Ok(event) => return self.take(event),
                Err(_) if Instant::now() > deadline => {
                    return Err("a request is not answered".to_owned());
                }
                // It may have ended by itself, and all wait for it.
                Err(_) if !self.server.has_store() => self.server.start_store(),
                Err(_) => {}
            }
        }
    }

    fn resize(&mut self) -> Result<()> {
        if !self.server.has_store() || self.has_faults {
            return Ok(());
        }
        let blocks = 1 + self.random.below(self.config.cache_blocks * 2);
        let of = match self.config.share_blocks {
            None => String::new(),
            Some(_) => format!(",\"export\":\"{}\"", self.an_export()),
        };
        let order = format!("{{\"command\":\"resize\",\"cache\":\"{blocks}blocks\"{of}}}");
        let answer = self.server.order(&order);
        if answer["capacity_blocks"].is_u64() {
            self.counts.resizes += 1;
            self.log
                .note(self.now, &format!("the cache has {blocks} blocks"));
        }
        Ok(())
    }

    /// Has a cache evict by another policy from now on. Its blocks stay.
    fn change_policy(&mut self) -> Result<()> {
        let (policy, export) = (pick(&mut self.random, &POLICIES), self.an_export());
        let order =
            format!("{{\"command\":\"policy\",\"policy\":\"{policy}\",\"export\":\"{export}\"}}");
        let answer = self.server.order(&order);
        let Some(is_changed) = answer["changed"].as_bool() else {
            return Err(format!("{order}: {answer}"));
        };
        self.counts.policy_changes += u64::from(is_changed);
        self.log
            .note(self.now, &format!("the policy of {export} is {policy}"));
        Ok(())
    }

    fn an_export(&mut self) -> &'static str {
        EXPORTS[self.random.below(self.volumes.len() as u64) as usize]
    }

    /// Ends the server, and starts it again.
    fn restart(&mut self, is_kill: bool) -> Result<()> {
        self.end_server(is_kill)?;
        if self.config.keeps_memory && self.one_in(3) {
            self.write_from_outside();
        }
        if !self.server.has_store() {
            self.server.start_store();
        }
        self.server.start();
        if is_kill && !self.one_in(4) {
            for volume in 0..self.volumes.len() {
                self.take_stock(volume)?;
            }
        }
        Ok(())
    }

    /// Another program writes to an image while no server runs. What is kept of it must not come back.
    fn write_from_outside(&mut self) {
        let volume = self.random.below(self.volumes.len() as u64) as usize;
        let sectors = self.volumes[volume].bytes / SECTOR as u64;
        let sector = self.random.below(sectors);
        let count = (1 + self.random.below(256)).min(sectors - sector);
        if self.config.kinds[volume] == Place::Remote {
            return;
        }
        self.now += 1;
        let op = self.now;
        let (offset, length) = (sector * SECTOR as u64, count as usize * SECTOR);
        let mut data = vec![0; length];
        for (sector, part) in (sector..).zip(data.chunks_exact_mut(SECTOR)) {
            let label = Label {
                volume: volume as u32,
                writer: OUTSIDER,
                sector,
                version: op,
            };
            label.fill(part);
        }
        self.server.write_image(volume, offset, &data);
        let model = &mut self.volumes[volume];
        model.begin(op, op, offset, length, OUTSIDER, Some(&data));
        let outcome = Outcome::Done { fua: true };
        model.end(op, op, offset, length, outcome, op);
        self.counts.written_outside += 1;
        self.log.add(
            op,
            0,
            volume,
            offset,
            length,
            "written by another program".to_owned(),
        );
    }

    /// Reads all of a volume, and flushes it.
    fn take_stock(&mut self, volume: usize) -> Result<()> {
        self.sit_at(0, volume)?;
        let bytes = self.volumes[volume].bytes;
        for offset in (0..bytes).step_by(65536) {
            self.ask(
                0,
                Kind::Read,
                offset,
                (bytes - offset).min(65536) as usize,
                false,
            );
            self.drain(0)?;
        }
        self.ask(0, Kind::Flush, 0, 0, false);
        self.drain(0)?;
        self.ask(0, Kind::Flush, 0, 0, false);
        self.drain(0)?;
        self.leave(0)
    }

    fn end_server(&mut self, is_kill: bool) -> Result<()> {
        let status = self.server.order("{\"command\":\"status\"}");
        let engines = status["engines"].as_array().cloned().unwrap_or_default();
        let taken = engines
            .iter()
            .filter_map(|engine| engine["demotions_in"].as_u64());
        self.counts.demotions_taken += taken.sum::<u64>();
        let sum = |key: &str| {
            engines
                .iter()
                .filter_map(|engine| engine[key].as_u64())
                .sum::<u64>()
        };
        self.counts.verified += sum("demotions_verified");
        self.counts.compared += sum("demotions_compared");
        self.counts.different += sum("demotions_different");
        self.counts.equal_reads += sum("equal_reads");
        self.counts.kept_blocks += sum("memory_verified_blocks");
        let wrong = sum("demotions_wrong");
        if wrong > 0 {
            return Err(format!(
                "{wrong} blocks that were demoted are not what the store has"
            ));
        }
        if !is_kill && !self.server.has_store() {
            self.server.start_store();
        }
        self.log.note(
            self.now,
            if is_kill {
                "the server is killed"
            } else {
                "the server is stopped"
            },
        );
        self.is_ending = true;
        self.server
            .signal(if is_kill { Signal::KILL } else { Signal::TERM });
        let ended = self.server.ended();
        if !is_kill {
            self.counts.stops += 1;
        } else {
            self.counts.kills += 1;
        }
        while self.seats.iter().any(Option::is_some) {
            self.wait()?;
        }
        self.is_ending = false;
        self.now += 1;
        if ended.errors.contains("panicked") {
            return Err(format!("the server panicked: {}", ended.errors));
        }
        let is_remote = self.config.kinds.contains(&Place::Remote);
        if !is_kill && !ended.status.success() && !is_remote {
            return Err(format!(
                "the server ended with {}: {}",
                ended.status, ended.errors
            ));
        }
        for volume in &mut self.volumes {
            if ended.status.success() {
                volume.keep(self.now);
            }
            volume.server_ended(self.now, !ended.status.success());
        }
        if !is_kill && !ended.status.success() {
            // The end itself has said what could not be written.
            for volume in &mut self.volumes {
                volume.perhaps_reported(self.now);
            }
        }
        for (volume, connected) in self.unanswered.drain(..) {
            self.volumes[volume].perhaps_reported(connected);
        }
        Ok(())
    }
}
