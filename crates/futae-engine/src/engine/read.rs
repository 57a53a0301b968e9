//! Reads: resident data is copied; missing data is fetched once, adjacent blocks together.

use super::effects::Effects;
use super::flights::{Background, Flight, Span, WaitingRead};
use super::frames::Frame;
use super::line::Awaited;
use super::options::OnEviction;
use super::state::State;
use super::steps::STEP_BYTES;
use super::ticket::Ticket;
use super::verify::Macs;
use crate::{IoBuf, IoError, IoErrorKind, Request, StoreOperation};
use futae_policy::{AccessKind, BlockId, Outcome, Slot};

/// The state of a read request while its blocks are decided.
pub struct Reading {
    span: Span,
    /// Receives the data of resident blocks.
    buffer: Option<IoBuf>,
    /// Flights that the request must wait for, each once.
    waits: Vec<usize>,
    /// Flights that were started for the request.
    started: Vec<usize>,
}

impl State {
    /// Reads `span`: decides on every block at once, in ascending order. If the request continues
    /// an earlier part, its first block is not decided again. Missing data comes with flights that
    /// are under way or are started now.
    pub fn read(&mut self, request: Request, span: Span, goes_on: bool, effects: &mut Effects) {
        if span.length == 0 {
            return effects.answer(request.done, Ok(IoBuf::new(0)));
        }
        if let Some(awaited) = self.under_way.before_reading(&span) {
            let claim = self.claim_of_read(&request, &span);
            return self.wait(awaited, claim, request);
        }
        let (first, end) = self.block_range(&span);
        if end - first > self.steps.most() {
            return self.read_in_parts(request, span, goes_on, effects);
        }
        if let Some(key) = self.outgrown_flight(&span) {
            let claim = self.claim_of_read(&request, &span);
            return self.wait(Awaited::Flight(key), claim, request);
        }
        self.hear(end - first, effects);
        self.tally.bytes_read += span.length;
        let is_awaited = self.awaits_guest(span.volume);
        let mut reading = Reading {
            span,
            buffer: None,
            waits: Vec::new(),
            started: Vec::new(),
        };
        for index in first..end {
            let block = BlockId::new(span.volume, index);
            self.prove(block);
            let is_decided = goes_on && index == first;
            if self.elsewhere.is_some() {
                self.read_elsewhere(block, is_decided, &mut reading, effects);
                continue;
            }
            let twin = if is_decided || is_awaited {
                None
            } else {
                self.twin_of(block)
            };
            if let Some((twin, slot)) = twin {
                let from = self.block_span(block);
                let (frame, to) = (self.arena.frame(slot), reading.span);
                from.copy(frame, &to, reading.bytes());
                self.touch_twin(twin, span.volume, AccessKind::Read, effects);
                continue;
            }
            let outcome = if is_awaited {
                Outcome::Bypassed
            } else if is_decided {
                let slot = self.level.find(block);
                slot.map_or(Outcome::Bypassed, Outcome::Hit)
            } else {
                self.offer(block, AccessKind::Read, effects)
            };
            match outcome {
                Outcome::Hit(slot) => self.copy_or_wait(slot, block, &mut reading),
                Outcome::Admitted { slot, .. } if self.in_pieces() => {
                    self.load_later(block, slot);
                    self.fetch(block, None, &mut reading);
                }
                Outcome::Admitted { slot, .. } => self.fetch(block, Some(slot), &mut reading),
                Outcome::Bypassed => match self.unframed(block) {
                    Some(data) => {
                        let (from, to) = (self.block_span(block), reading.span);
                        from.copy(data.as_slice(), &to, reading.bytes());
                    }
                    None => self.fetch(block, None, &mut reading),
                },
            }
        }
        let Reading {
            span,
            buffer,
            waits,
            started,
        } = reading;
        if waits.is_empty() {
            // Every block was copied into the buffer.
            let buffer = buffer.unwrap_or_else(|| IoBuf::zeroed(span.length as usize));
            return effects.answer(request.done, Ok(buffer));
        }
        if buffer.is_some() {
            self.account.take(span.length);
        }
        let flights = waits.len() as u32;
        let reader = WaitingRead {
            span,
            buffer,
            flights,
            error: None,
            done: request.done,
        };
        let key = self.readers.insert(reader);
        for flight in waits {
            self.under_way.flights[flight].readers.push(key);
        }
        self.launch(&started, effects);
    }

    /// A read under way that has not all of a block that `span` needs; see [`Self::outgrown_flight_of`].
    fn outgrown_flight(&self, span: &Span) -> Option<usize> {
        if !self.volumes[usize::from(span.volume.0)].grows || self.under_way.flight_of.is_empty() {
            return None;
        }
        let (first, end) = self.block_range(span);
        let mut blocks = (first..end).map(|index| BlockId::new(span.volume, index));
        blocks.find_map(|block| self.outgrown_flight_of(block))
    }

    /// A read of a block under way that ends where the volume ended when it began, if the volume has become longer since. A
    /// change of another part of the volume does not wait for it.
    pub fn outgrown_flight_of(&self, block: BlockId) -> Option<usize> {
        let key = *self.under_way.flight_of.get(&block)?;
        let of = self.under_way.flights[key].span?;
        (of.end() < self.block_span(block).end()).then_some(key)
    }

    fn copy_or_wait(&mut self, slot: Slot, block: BlockId, reading: &mut Reading) {
        match self.frames.get(slot) {
            Frame::Awaits(flight) => {
                self.tally.shared_reads += 1;
                reading.wait_for(flight as usize);
            }
            // The content has not been verified: the data comes from the store.
            Frame::Kept => self.fetch(block, Some(slot), reading),
            Frame::Loading => {
                self.tally.loading_reads += 1;
                let slot = (!self.in_pieces()).then_some(slot);
                self.fetch(block, slot, reading);
            }
            Frame::Ready | Frame::AwaitsWrite => {
                let from = self.block_span(block);
                let (span, frame) = (reading.span, self.arena.frame(slot));
                from.copy(frame, &span, reading.bytes());
            }
        }
    }

    /// Fetches a missing block: by the flight under way for it, by the flight being assembled if
    /// the block is adjacent, or by a new flight.
    pub fn fetch(&mut self, block: BlockId, slot: Option<Slot>, reading: &mut Reading) {
        let flight = if let Some(&flight) = self.under_way.flight_of.get(&block) {
            if !reading.started.contains(&flight) {
                self.tally.shared_reads += 1;
            }
            flight
        } else {
            let whole = self.block_span(block);
            // If the block does not get a slot, the read ends where the request does.
            let wanted = if slot.is_some() {
                whole
            } else {
                whole.overlap(&reading.span).unwrap_or(whole)
            };
            // Who reads once the guest has come needs what the store has then: such a read is for its readers alone.
            let is_whole = wanted == whole && !self.awaits_guest(block.volume());
            let flight =
                self.under_way
                    .extend_or_start(wanted, is_whole, STEP_BYTES, &mut reading.started);
            if is_whole {
                self.under_way.flight_of.insert(block, flight);
            }
            flight
        };
        if let Some(slot) = slot {
            self.frames.set(slot, Frame::awaits(flight));
            self.under_way.flights[flight].targets.push((block, slot));
        }
        reading.wait_for(flight);
    }

    /// Sends the reads of newly started flights to their stores.
    pub fn launch(&mut self, started: &[usize], effects: &mut Effects) {
        for &key in started {
            let Flight {
                span: Some(span),
                background,
                is_notice,
                ..
            } = self.under_way.flights[key]
            else {
                continue;
            };
            if is_notice {
                let volume = &mut self.volumes[usize::from(span.volume.0)];
                volume.notices.depart(span.length);
            }
            self.under_way.depart(key);
            self.account.take(span.length);
            self.tally.store_reads += 1;
            self.volumes[usize::from(span.volume.0)].tally.store_reads += 1;
            // A block that comes in pieces is counted with its first one.
            let is_first = span.offset.is_multiple_of(self.block_bytes);
            if background != Background::Piece || is_first {
                self.tally.store_read_blocks += span.length.div_ceil(self.block_bytes);
            }
            self.tally.bytes_store_read += span.length;
            if self.on_eviction == OnEviction::Demote {
                self.under_way.flights[key].generation = self.store(span.volume).generation();
            }
            let sequence = self.next_sequence();
            let buffer = IoBuf::new(span.length as usize);
            let operation = StoreOperation::Read {
                offset: span.offset,
                buffer,
            };
            effects.start(
                self.store(span.volume),
                sequence,
                operation,
                Ticket::Flight(key),
            );
        }
    }

    /// A read from a store has ended: fills frames, answers waiting requests, and resumes parked
    /// writes.
    pub fn finish_flight(
        &mut self,
        key: usize,
        result: Result<IoBuf, IoError>,
        macs: &Macs,
        effects: &mut Effects,
    ) {
        let flight = self.under_way.arrive(key);
        let Some(span) = flight.span else { return };
        // Bytes beyond those that the store has filled must not be used.
        let result = result.and_then(|mut buffer| match buffer.len() as u64 {
            filled if filled == span.length => {
                if !flight.whole {
                    self.put_dirty_over(&span, &mut buffer);
                }
                Ok(buffer)
            }
            filled => {
                let message = format!("the store sent {filled} of {} bytes", span.length);
                Err(IoError::new(IoErrorKind::Store, message))
            }
        });
        match &result {
            Ok(buffer) => self.land(&flight, span, (buffer, macs), effects),
            Err(_) => {
                self.note_error(span.volume);
                for (block, slot) in &flight.targets {
                    self.frames.set(*slot, Frame::Ready);
                    self.invalidate(*block);
                }
            }
        }
        match flight.background {
            Background::No => {}
            Background::Whole => self.loads.land_whole(),
            Background::Piece => self.land_piece(span, flight.generation, &result),
        }
        self.answer_readers(&flight.readers, span, result, effects);
        self.account.give(span.length);
        self.go_on_parked(flight.parked, effects);
        if flight.is_notice {
            let volume = &mut self.volumes[usize::from(span.volume.0)];
            volume.notices.arrive(span.length);
            self.notice_on(span.volume, effects);
        }
    }

    /// A read of parts of blocks keeps no write away. Of blocks that have become dirty since, what is here counts: the store may
    /// have a part of a later write that failed, and readers who had seen that would see the dirty data afterwards.
    fn put_dirty_over(&self, span: &Span, buffer: &mut IoBuf) {
        if !self.writes_back() || self.dirt(span.volume).len() == 0 {
            return;
        }
        let (first, end) = self.block_range(span);
        for block in (first..end).map(|index| BlockId::new(span.volume, index)) {
            if !self.is_dirty(block) {
                continue;
            }
            let of = self.block_span(block);
            match (self.unframed(block), self.level.find(block)) {
                (Some(data), _) => of.copy(data.as_slice(), span, buffer.as_mut_slice()),
                (None, Some(slot)) => of.copy(self.arena.frame(slot), span, buffer.as_mut_slice()),
                (None, None) => {}
            }
        }
    }

    fn land(
        &mut self,
        flight: &Flight,
        span: Span,
        (buffer, macs): (&IoBuf, &Macs),
        effects: &mut Effects,
    ) {
        for (block, slot) in &flight.targets {
            let to = self.block_span(*block);
            if self.elsewhere.is_some() {
                let mut data = IoBuf::new(to.length as usize);
                span.copy(buffer.as_slice(), &to, data.as_mut_slice());
                self.put_elsewhere((*block, *slot), data, !flight.readers.is_empty());
                continue;
            }
            span.copy(buffer.as_slice(), &to, self.arena.frame_mut(*slot));
            self.frames.set(*slot, Frame::Ready);
            self.generations.landed(*slot, flight.generation);
            self.seal(*block, *slot, macs.of(block.index()));
        }
        for block in &flight.evicted {
            if self.level.find(*block).is_some() {
                continue; // The block came back before it could be sent down.
            }
            let of = self.block_span(*block);
            let data = (self.on_eviction == OnEviction::Demote).then(|| {
                let mut data = IoBuf::new(of.length as usize);
                span.copy(buffer.as_slice(), &of, data.as_mut_slice());
                (data, flight.generation)
            });
            self.send_down(of, data, effects);
        }
    }

    /// The buffer of a finished request; a failed one may have none.
    fn take_back(&self, buffer: Option<IoBuf>, span: Span) -> IoBuf {
        match buffer {
            Some(buffer) => {
                self.account.give(span.length);
                buffer
            }
            None => IoBuf::new(0),
        }
    }

    fn answer_readers(
        &mut self,
        readers: &[usize],
        span: Span,
        result: Result<IoBuf, IoError>,
        effects: &mut Effects,
    ) {
        if let (&[key], Ok(_)) = (readers, &result) {
            let reader = &self.readers[key];
            if reader.span == span && reader.flights == 1 && reader.error.is_none() {
                // The flight matches the request: its buffer is the answer.
                let reader = self.readers.remove(key);
                drop(self.take_back(reader.buffer, span));
                return effects.answer(reader.done, result);
            }
        }
        for &key in readers {
            let reader = &mut self.readers[key];
            reader.flights -= 1;
            match &result {
                Ok(data) => {
                    let to = reader.span;
                    let account = &self.account;
                    let buffer = reader.buffer.get_or_insert_with(|| {
                        account.take(to.length);
                        IoBuf::new(to.length as usize)
                    });
                    span.copy(data.as_slice(), &to, buffer.as_mut_slice());
                }
                Err(error) => {
                    reader.error.get_or_insert_with(|| error.clone());
                }
            }
            if reader.flights == 0 {
                let reader = self.readers.remove(key);
                let buffer = self.take_back(reader.buffer, reader.span);
                effects.answer(reader.done, reader.error.map_or(Ok(buffer), Err));
            }
        }
    }
}

impl Reading {
    /// Copies the requested part of a block whose data is in memory.
    pub fn copy(&mut self, of: &Span, data: &IoBuf) {
        let to = self.span;
        of.copy(data.as_slice(), &to, self.bytes());
    }

    /// The buffer in which the answer is assembled.
    fn bytes(&mut self) -> &mut [u8] {
        let length = self.span.length as usize;
        self.buffer
            .get_or_insert_with(|| IoBuf::new(length))
            .as_mut_slice()
    }

    fn wait_for(&mut self, flight: usize) {
        if !self.waits.contains(&flight) {
            self.waits.push(flight);
        }
    }
}
