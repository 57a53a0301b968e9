//! Messages as bytes: little-endian fields one after the other, lists and texts after their length.

use crate::Counters;
use crate::device::DeviceId;
use crate::in_place::{RingAnswer, RingOffer, Verdict};
use crate::message::{
    BootId, Device, DeviceSample, FileSample, GroupSample, Hello, Memory, Message, Notices,
    PageCache, Pressure, Range, Reason, References, Replacement, Sample, Source,
};

const HELLO: u8 = 1;
const SAMPLE: u8 = 2;
const NOTICES: u8 = 3;
const REFERENCES: u8 = 4;
const RING: u8 = 5;
const RING_ANSWER: u8 = 6;
const PAGE_CACHE: u8 = 7;

/// Longest text, in bytes.
const MAX_TEXT: usize = 255;

/// The number of the kind of `message`.
pub fn kind(message: &Message) -> u8 {
    match message {
        Message::Hello(_) => HELLO,
        Message::Sample(_) => SAMPLE,
        Message::Notices(_) => NOTICES,
        Message::References(_) => REFERENCES,
        Message::Ring(_) => RING,
        Message::RingAnswer(_) => RING_ANSWER,
        Message::PageCache(_) => PAGE_CACHE,
    }
}

/// Whether messages of this kind are known here.
pub fn is_known(kind: u8) -> bool {
    (HELLO..=PAGE_CACHE).contains(&kind)
}

/// Appends the payload. Lists and texts that are too long are cut.
pub fn write(message: &Message, out: &mut Vec<u8>) {
    let mut writer = Writer { out };
    match message {
        Message::Hello(hello) => writer.hello(hello),
        Message::Sample(sample) => writer.sample(sample),
        Message::Notices(notices) => writer.notices(notices),
        Message::References(references) => {
            writer.u32(references.threshold);
            writer.list(&references.pages, References::MAX_PAGES, |writer, &page| {
                writer.u64(page);
            });
        }
        Message::Ring(offer) => writer.ring(offer),
        Message::RingAnswer(answer) => {
            writer.u64(answer.offer);
            writer.u8(match answer.verdict {
                Verdict::Reads => 0,
                Verdict::Refuses => 1,
            });
            writer.u64(answer.taken);
            writer.text(&answer.why);
        }
        Message::PageCache(cache) => {
            writer.u8(match cache.replacement {
                Replacement::Linux => 0,
                Replacement::Mglru => 1,
            });
            writer.u64(cache.read_ahead_bytes);
            writer.u8(cache.large_folios.into());
        }
    }
}

/// The message of this kind in `payload`, which it must fill exactly.
pub fn read(kind: u8, payload: &[u8]) -> Option<Message> {
    let mut reader = Reader { rest: payload };
    let message = match kind {
        HELLO => Message::Hello(reader.hello()?),
        SAMPLE => Message::Sample(reader.sample()?),
        NOTICES => Message::Notices(reader.notices()?),
        REFERENCES => Message::References(References {
            threshold: reader.u32()?,
            pages: reader.list(References::MAX_PAGES, Reader::u64)?,
        }),
        RING => Message::Ring(RingOffer {
            version: reader.u32()?,
            offer: reader.u64()?,
            table: reader.list(RingOffer::MAX_TABLE_PAGES, Reader::u64)?,
            ring: reader.list(RingOffer::MAX_RING_PAGES, Reader::u64)?,
        }),
        RING_ANSWER => Message::RingAnswer(RingAnswer {
            offer: reader.u64()?,
            verdict: match reader.u8()? {
                0 => Verdict::Reads,
                1 => Verdict::Refuses,
                _ => return None,
            },
            taken: reader.u64()?,
            why: reader.text()?,
        }),
        PAGE_CACHE => Message::PageCache(PageCache {
            replacement: match reader.u8()? {
                0 => Replacement::Linux,
                1 => Replacement::Mglru,
                _ => return None,
            },
            read_ahead_bytes: reader.u64()?,
            large_folios: match reader.u8() {
                // Agents before they told of folios.
                None | Some(0) => false,
                Some(1) => true,
                Some(_) => return None,
            },
        }),
        _ => return None,
    };
    reader.rest.is_empty().then_some(message)
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    fn u8(&mut self, value: u8) {
        self.out.push(value);
    }
    fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }
    fn text(&mut self, text: &str) {
        let end = (0..=text.len().min(MAX_TEXT))
            .rev()
            .find(|&end| text.is_char_boundary(end));
        let cut = &text[..end.unwrap_or(0)];
        self.u8(u8::try_from(cut.len()).unwrap_or(0));
        self.out.extend_from_slice(cut.as_bytes());
    }
    fn list<T>(&mut self, list: &[T], most: usize, mut write: impl FnMut(&mut Self, &T)) {
        let cut = &list[..list.len().min(most)];
        self.u32(u32::try_from(cut.len()).unwrap_or(0));
        for item in cut {
            write(self, item);
        }
    }
    fn device_id(&mut self, id: DeviceId) {
        self.u32(id.major);
        self.u32(id.minor);
    }
    fn counters(&mut self, counters: &Counters) {
        for field in counters.to_array() {
            self.u64(field);
        }
    }
    fn hello(&mut self, hello: &Hello) {
        self.text(&hello.guest);
        self.text(&hello.kernel);
        self.out.extend_from_slice(&hello.boot.0);
        self.u64(hello.run);
        self.u8(match hello.source {
            Source::Tracepoints => 0,
            Source::Functions => 1,
            Source::Vmstat => 2,
        });
        self.list(&hello.devices, Hello::MAX_DEVICES, |writer, device| {
            writer.device_id(device.id);
            writer.text(&device.name);
            writer.text(&device.serial);
            writer.u64(device.sectors);
        });
    }
    fn sample(&mut self, sample: &Sample) {
        self.u64(sample.at_us);
        self.u64(sample.period_us);
        self.counters(&sample.total);
        self.list(&sample.devices, Sample::MAX_DEVICES, |writer, one| {
            writer.device_id(one.device);
            writer.counters(&one.counters);
        });
        self.list(&sample.groups, Sample::MAX_GROUPS, |writer, one| {
            writer.u64(one.id);
            writer.text(&one.path);
            writer.counters(&one.counters);
        });
        self.list(&sample.files, Sample::MAX_FILES, |writer, one| {
            writer.device_id(one.device);
            writer.u64(one.inode);
            writer.counters(&one.counters);
        });
        let memory = &sample.memory;
        for field in [
            memory.total,
            memory.free,
            memory.available,
            memory.cached,
            memory.buffers,
        ] {
            self.u64(field);
        }
        let pressure: Vec<_> = sample.pressure.into_iter().collect();
        self.list(&pressure, 1, |writer, pressure| {
            writer.u64(pressure.some_us);
            writer.u64(pressure.full_us);
        });
        self.u64(sample.notices_lost);
        self.u64(sample.notices_homeless);
        self.u64(sample.references_lost);
    }
    fn ring(&mut self, offer: &RingOffer) {
        self.u32(offer.version);
        self.u64(offer.offer);
        for (pages, most) in [
            (&offer.table, RingOffer::MAX_TABLE_PAGES),
            (&offer.ring, RingOffer::MAX_RING_PAGES),
        ] {
            self.list(pages, most, |writer, &page| writer.u64(page));
        }
    }
    fn notices(&mut self, notices: &Notices) {
        self.device_id(notices.device);
        self.u8(match notices.reason {
            Reason::Reclaim => 0,
            Reason::Invalidate => 1,
        });
        self.list(&notices.ranges, Notices::MAX_RANGES, |writer, range| {
            writer.u64(range.start);
            writer.u64(range.count);
        });
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    fn text(&mut self) -> Option<String> {
        let length = usize::from(self.u8()?);
        let (head, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        str::from_utf8(head).ok().map(str::to_owned)
    }
    /// A list of no more than `most`. Grows as its items are read, so a length that is not true
    /// reserves no memory.
    fn list<T>(
        &mut self,
        most: usize,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = usize::try_from(self.u32()?)
            .ok()
            .filter(|&count| count <= most)?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(item(self)?);
        }
        Some(list)
    }
    fn device_id(&mut self) -> Option<DeviceId> {
        Some(DeviceId {
            major: self.u32()?,
            minor: self.u32()?,
        })
    }
    fn counters(&mut self) -> Option<Counters> {
        let mut fields = [0; Counters::FIELDS];
        for field in &mut fields {
            *field = self.u64()?;
        }
        Some(Counters::from_array(fields))
    }
    fn hello(&mut self) -> Option<Hello> {
        Some(Hello {
            guest: self.text()?,
            kernel: self.text()?,
            boot: BootId(self.array()?),
            run: self.u64()?,
            source: match self.u8()? {
                0 => Source::Tracepoints,
                1 => Source::Functions,
                2 => Source::Vmstat,
                _ => return None,
            },
            devices: self.list(Hello::MAX_DEVICES, |reader| {
                Some(Device {
                    id: reader.device_id()?,
                    name: reader.text()?,
                    serial: reader.text()?,
                    sectors: reader.u64()?,
                })
            })?,
        })
    }
    fn sample(&mut self) -> Option<Sample> {
        Some(Sample {
            at_us: self.u64()?,
            period_us: self.u64()?,
            total: self.counters()?,
            devices: self.list(Sample::MAX_DEVICES, |reader| {
                Some(DeviceSample {
                    device: reader.device_id()?,
                    counters: reader.counters()?,
                })
            })?,
            groups: self.list(Sample::MAX_GROUPS, |reader| {
                Some(GroupSample {
                    id: reader.u64()?,
                    path: reader.text()?,
                    counters: reader.counters()?,
                })
            })?,
            files: self.list(Sample::MAX_FILES, |reader| {
                Some(FileSample {
                    device: reader.device_id()?,
                    inode: reader.u64()?,
                    counters: reader.counters()?,
                })
            })?,
            memory: Memory {
                total: self.u64()?,
                free: self.u64()?,
                available: self.u64()?,
                cached: self.u64()?,
                buffers: self.u64()?,
            },
            pressure: self
                .list(1, |reader| {
                    Some(Pressure {
                        some_us: reader.u64()?,
                        full_us: reader.u64()?,
                    })
                })?
                .pop(),
            notices_lost: self.u64()?,
            notices_homeless: self.u64()?,
            references_lost: self.u64()?,
        })
    }
    fn notices(&mut self) -> Option<Notices> {
        Some(Notices {
            device: self.device_id()?,
            reason: match self.u8()? {
                0 => Reason::Reclaim,
                1 => Reason::Invalidate,
                _ => return None,
            },
            ranges: self.list(Notices::MAX_RANGES, |reader| {
                Some(Range {
                    start: reader.u64()?,
                    count: reader.u64()?,
                })
            })?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_does_not_tell_of_folios_is_understood() {
        let told = PageCache {
            replacement: Replacement::Mglru,
            read_ahead_bytes: 131_072,
            large_folios: true,
        };
        let mut payload = Vec::new();
        write(&Message::PageCache(told), &mut payload);
        assert_eq!(read(PAGE_CACHE, &payload), Some(Message::PageCache(told)));
        let (&folios, before) = payload.split_last().expect("it is not empty");
        assert_eq!(folios, 1);
        let silent = PageCache {
            large_folios: false,
            ..told
        };
        assert_eq!(read(PAGE_CACHE, before), Some(Message::PageCache(silent)));
        assert_eq!(read(PAGE_CACHE, &[before, &[2]].concat()), None);
    }
}
