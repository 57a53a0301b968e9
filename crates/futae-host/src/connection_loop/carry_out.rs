//! How a connection begins the requests that it has received.

use super::ConnectionLoop;
use crate::answer;
use crate::intake::{Item, is_empty};
use crate::mailbox::{Completion, Tag, TagKind};
use crate::outbox::Frame;
use crate::requests::{asked, carried, memory_of};
use futae_engine::{Demotion, Extent, IoBuf, IoError, Operation};
use futae_nbd::{Command, CommandFlags, RequestHeader};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl ConnectionLoop<'_, '_> {
    /// Begins what has been received.
    pub(super) fn take(&mut self, item: Item) {
        match item {
            Item::Request(header, payload) => self.carry_out(&header, payload),
            Item::Refused(header, error, why) => {
                let structured = self.session.rules.structured_replies;
                self.traffic.refused_requests.fetch_add(1, Relaxed);
                self.reply(answer::failure(header.cookie, error, why, structured, 0));
            }
            Item::Ignored => {
                self.traffic.misshapen_demotions.fetch_add(1, Relaxed);
            }
        }
    }

    fn reply(&mut self, frame: Frame) {
        self.held_requests += 1;
        self.outbox.push(frame);
    }

    fn carry_out(&mut self, header: &RequestHeader, payload: Option<IoBuf>) {
        self.arrivals += 1;
        if is_empty(header) {
            return self.answer_empty(header);
        }
        let (offset, length) = (header.offset, u64::from(header.length_bytes));
        let fua = header.flags.contains(CommandFlags::FUA);
        let no_hole = header.flags.contains(CommandFlags::NO_HOLE);
        let data = payload.unwrap_or_else(|| IoBuf::new(0));
        let (kind, operation) = match header.command {
            Command::Read => (TagKind::Read, Operation::Read { offset, length }),
            Command::Write => (TagKind::Plain, Operation::Write { offset, data, fua }),
            Command::Flush => (TagKind::Plain, Operation::Flush),
            Command::Trim if fua => (TagKind::ThenFlush, Operation::Trim { offset, length }),
            Command::Trim => (TagKind::Plain, Operation::Trim { offset, length }),
            Command::Cache => (TagKind::Plain, Operation::Notice { offset, length }),
            Command::WriteZeroes => (
                TagKind::Plain,
                Operation::WriteZeroes {
                    offset,
                    length,
                    fua,
                    no_hole,
                },
            ),
            Command::Demote => (
                TagKind::Silent,
                Operation::Demote(Demotion::new(offset, data)),
            ),
            Command::BlockStatus => return self.block_status(header),
            // The protocol checks let no other command through.
            Command::Disconnect | Command::Unknown(_) => return self.stop_reading(),
        };
        let tag = self.tag(header, kind, fua || header.command == Command::Flush);
        self.held_requests += 1;
        let agreed = self.session.rules.demotion.is_some();
        self.enqueue(
            if agreed { header.cookie } else { self.arrivals },
            tag,
            operation,
        );
    }

    fn tag(&self, header: &RequestHeader, kind: TagKind, is_promise: bool) -> Tag {
        Tag {
            cookie: header.cookie,
            offset: header.offset,
            held_bytes: memory_of(header, &self.session.engine),
            carried_bytes: carried(header),
            kind,
            asked: asked(header.command),
            is_promise,
            taken: self.taken,
        }
    }

    fn answer_empty(&mut self, header: &RequestHeader) {
        let structured = self.session.rules.structured_replies;
        let cookie = header.cookie;
        match header.command {
            Command::Read => self.reply(answer::empty_read(cookie, structured)),
            Command::BlockStatus => {
                let error = futae_nbd::ErrorNumber::Invalid;
                let why = "a block status needs a range";
                self.reply(answer::failure(cookie, error, why, structured, 0));
            }
            Command::Demote => {}
            _ => self.reply(answer::success(cookie, 0)),
        }
    }

    /// Queries the store on a thread of the cache, since the answer may take long.
    fn block_status(&mut self, header: &RequestHeader) {
        let tag = self.tag(header, TagKind::Encoded, false);
        let (length, volume) = (header.length_bytes, self.session.volume);
        let only_first = header.flags.contains(CommandFlags::REQ_ONE);
        let range = u64::from(length).min(answer::BLOCK_STATUS_RANGE);
        let mailbox = Arc::clone(&self.mailbox);
        let done = Box::new(move |extents: Result<Vec<Extent>, IoError>| {
            let result = extents
                .and_then(|extents| answer::block_status(tag.cookie, &extents, length, only_first));
            mailbox.put(Completion { tag, result });
        });
        self.held_requests += 1;
        self.in_flight += 1;
        self.asking += 1;
        let engine = &self.session.engine;
        engine.extents_later(volume, header.offset, range, done);
    }
}
