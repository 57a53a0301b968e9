//! What is believed of an agent, what is refused, and who gets it.

use super::answers::Answers;
use super::disks::disks_of;
use super::limits::Pace;
use super::sinks::{NoticeSink, RingSink, SampleSink};
use super::status::{AgentStatus, AgentVolume, Shared};
use super::stop::Stop;
use crate::in_place::{RingAnswer, RingOffer, Verdict};
use crate::stream::Health;
use crate::{
    DeviceId, Frame, Hello, Message, Notices, Range, Reason, References, Replay, SECTOR_BYTES,
    printable,
};
use std::time::Instant;

/// Believes each frame of one agent once, checks it, and hands it on.
#[derive(Default)]
pub struct Dispatch {
    volumes: Vec<Volume>,
    samples: Vec<Box<dyn SampleSink>>,
    rings: Option<Box<dyn RingSink>>,
    answers: Answers,
    replay: Replay,
    pace: Pace,
    heard: Shared,
}

/// Where the evicted ranges of one disk go.
struct Volume {
    sink: Box<dyn NoticeSink>,
    /// The disk; none if no disk of the guest is this volume.
    disk: Option<DeviceId>,
}

impl Dispatch {
    /// Hands the evicted ranges of one of the guest's disks to `sink`, too: of the disk that is its volume.
    #[must_use]
    pub fn notices_to(mut self, sink: impl NoticeSink + 'static) -> Self {
        let volume = AgentVolume {
            name: sink.volume_name().to_owned(),
            ..AgentVolume::default()
        };
        self.heard.lock().status.volumes.push(volume);
        self.volumes.push(Volume {
            sink: Box::new(sink),
            disk: None,
        });
        self
    }

    /// Hands hellos, samples and sampled reads to `sink`, too.
    #[must_use]
    pub fn samples_to(mut self, sink: impl SampleSink + 'static) -> Self {
        self.samples.push(Box::new(sink));
        self
    }

    /// Hands `sink` what the agent says of its ring of evicted pages. Without one, rings are refused.
    #[must_use]
    pub fn rings_to(mut self, sink: impl RingSink + 'static) -> Self {
        self.rings = Some(Box::new(sink));
        self
    }

    /// What is known of the agent.
    #[must_use]
    pub fn status(&self) -> AgentStatus {
        self.heard.now()
    }

    pub(super) fn shared(&self) -> Shared {
        self.heard.clone()
    }

    pub(super) fn answers(&self) -> &Answers {
        &self.answers
    }

    /// The connection is gone. What was said over it cannot be played again.
    pub fn hung_up(&mut self) {
        for volume in &mut self.volumes {
            volume.disk = None;
        }
        {
            let status = &mut self.heard.lock().status;
            status.connected = false;
            // The next agent may be another guest's, and one that does not say it.
            status.page_cache = None;
        }
        self.answers.connected(None);
        if let Some(rings) = &mut self.rings {
            rings.gone();
        }
    }

    pub(super) fn note_health(&self, health: Health) {
        let status = &mut self.heard.lock().status;
        status.frames = health.frames;
        status.broken_frames =
            health.broken_frames + health.unknown_frames + u64::from(health.skipped_bytes > 0);
    }

    /// Takes a frame, if it is the next of the run that speaks. Evicted ranges are told at a bounded rate, so
    /// this may wait for as long as `stop` has not come.
    pub fn frame(&mut self, frame: Frame, stop: &Stop) {
        if !self.replay.is_new(&frame) {
            self.heard.lock().status.replayed_frames += 1;
            return;
        }
        self.heard.lock().last = Some(Instant::now());
        let sequence = frame.sequence;
        let message = match frame.message {
            Message::Notices(notices) => return self.notices(notices, stop),
            Message::Ring(offer) => return self.ring(offer),
            // Hosts say that, agents do not.
            Message::RingAnswer(_) => return,
            Message::Hello(hello) => {
                let hello = fit_for_print(hello);
                self.hello(&hello);
                Message::Hello(hello)
            }
            Message::PageCache(cache) => {
                self.heard.lock().status.page_cache = Some(cache);
                Message::PageCache(cache)
            }
            Message::Sample(sample) => {
                let untold = sample.notices_lost.saturating_add(sample.notices_homeless);
                let mut heard = self.heard.lock();
                heard.period_seconds = sample.period_us as f64 / 1e6;
                let status = &mut heard.status;
                status.samples += 1;
                status.untold_pages = status.untold_pages.saturating_add(untold);
                Message::Sample(sample)
            }
            Message::References(mut references) => {
                references.threshold = references.threshold.min(References::ALL);
                self.heard.lock().status.sampled_reads += references.pages.len() as u64;
                Message::References(references)
            }
        };
        let frame = Frame { sequence, message };
        for sink in &mut self.samples {
            sink.take(&frame);
        }
    }

    fn hello(&mut self, hello: &Hello) {
        let wanted = self.volumes.iter().map(|volume| &volume.sink);
        let wanted: Vec<_> = wanted
            .map(|sink| (sink.volume_name(), sink.volume_bytes()))
            .collect();
        let disks = disks_of(&wanted, &hello.devices);
        for (volume, &disk) in self.volumes.iter_mut().zip(&disks) {
            volume.disk = disk.map(|disk| disk.id);
            volume.sink.hello(hello, disk);
        }
        let status = &mut self.heard.lock().status;
        status.connected = true;
        status.guest.clone_from(&hello.guest);
        status.source = Some(hello.source);
        for (volume, disk) in status.volumes.iter_mut().zip(disks) {
            volume.disk = disk.map(|disk| disk.name.clone()).unwrap_or_default();
        }
        let first = status.volumes.first().map(|volume| volume.disk.clone());
        status.disk = first.unwrap_or_default();
    }

    fn ring(&mut self, offer: RingOffer) {
        // Who has not said which disk is whose cannot demote pages either.
        let has_hello = self.heard.lock().status.connected;
        match self.rings.as_mut().filter(|_| has_hello) {
            Some(rings) => rings.offered(offer, &self.answers),
            None => self.answers.send(RingAnswer {
                offer: offer.offer,
                verdict: Verdict::Refuses,
                taken: 0,
                why: "this host does not read evicted pages in place".to_owned(),
            }),
        }
    }

    fn notices(&mut self, notices: Notices, stop: &Stop) {
        if self.volumes.is_empty() {
            return;
        }
        let count = notices.ranges.len();
        let mut volumes = self.volumes.iter();
        let at = volumes.position(|volume| volume.disk == Some(notices.device));
        let Some(at) = at.filter(|_| notices.reason == Reason::Reclaim) else {
            let status = &mut self.heard.lock().status;
            status.refused_ranges += count as u64;
            if at.is_none() {
                status.other_disk_ranges += count as u64;
            }
            return;
        };
        for (told, range) in notices.ranges.into_iter().enumerate() {
            if !self.evicted(at, &range, stop) {
                self.heard.lock().status.refused_ranges += (count - told - 1) as u64;
                return;
            }
        }
    }

    /// Tells the cache of a range of volume `at`, a step at a time; false if the rest of the message is to be dropped.
    fn evicted(&mut self, at: usize, range: &Range, stop: &Stop) -> bool {
        let Some(Volume { sink, .. }) = self.volumes.get_mut(at) else {
            return false;
        };
        let Some((mut start, end)) = bytes_of(range, sink.volume_bytes()) else {
            self.heard.lock().status.refused_ranges += 1;
            return true;
        };
        self.heard.lock().status.note_evicted(at, end - start);
        let step = sink.step_bytes().max(1);
        while start < end {
            // Up to the next multiple, so that blocks are not cut in two.
            let next = (start / step + 1).saturating_mul(step).min(end);
            if !self.pace.step(stop) || !sink.evicted(start..next, stop) {
                return false;
            }
            start = next;
        }
        true
    }
}

/// Where a range of sectors begins and ends, in bytes; none if it is empty or beyond the volume.
fn bytes_of(range: &Range, volume_bytes: u64) -> Option<(u64, u64)> {
    let bytes = |sectors: u64| sectors.checked_mul(SECTOR_BYTES);
    let end = bytes(range.start.checked_add(range.count)?)?;
    let is_within = range.count > 0 && end <= volume_bytes;
    bytes(range.start)
        .filter(|_| is_within)
        .map(|start| (start, end))
}

/// Names that an agent chose go to terminals and logs.
fn fit_for_print(mut hello: Hello) -> Hello {
    let devices = hello.devices.iter_mut().map(|device| &mut device.name);
    for name in [&mut hello.guest, &mut hello.kernel]
        .into_iter()
        .chain(devices)
    {
        *name = printable(name);
    }
    hello
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_within_the_volume_or_none() {
        let of = |start, count| bytes_of(&Range { start, count }, 4096);
        assert_eq!(of(1, 7), Some((512, 4096)));
        for (start, count) in [
            (0, 0),
            (8, 1),
            (1, 8),
            (u64::MAX, 1),
            (0, u64::MAX),
            (1 << 62, 1),
        ] {
            assert_eq!(of(start, count), None, "{start} {count}");
        }
    }
}
