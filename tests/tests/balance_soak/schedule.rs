//! What happens to guests, and when: at random, from a seed.

use crate::GUESTS;
use crate::lies::Lie;
use futae_policy::Prng;

/// Something that is done to a guest.
#[derive(Clone, Debug)]
pub enum Event {
    /// It reads something else.
    Load,
    /// A program takes memory of its own for a while.
    Hog,
    /// Its agent is killed, and started again.
    AgentDies,
    /// It is killed, and booted again.
    Reboot,
    /// Its QEMU is stopped for longer than a period.
    Stall,
    /// Somebody else has its port.
    Malice(Vec<Lie>),
}

/// Has the order be any.
fn shuffle<T>(all: &mut [T], random: &mut Prng) {
    for at in (1..all.len()).rev() {
        all.swap(at, random.below(at as u64 + 1) as usize);
    }
}

/// What must happen to each guest: every kind once, to one of them.
pub fn musts(random: &mut Prng) -> [Vec<Event>; GUESTS] {
    let mut lies = Lie::ALL;
    shuffle(&mut lies, random);
    let malices = lies.chunks(3).map(|lies| Event::Malice(lies.to_vec()));
    let mut all = vec![
        Event::Load,
        Event::Hog,
        Event::AgentDies,
        Event::Reboot,
        Event::Stall,
    ];
    all.extend(malices);
    shuffle(&mut all, random);
    let mut musts = [const { Vec::new() }; GUESTS];
    for (at, event) in all.into_iter().enumerate() {
        musts[at % GUESTS].push(event);
    }
    musts
}

/// What happens next, when all that must has.
pub fn any(random: &mut Prng) -> Event {
    match random.below(100) {
        0..30 => Event::Load,
        30..45 => Event::Hog,
        45..57 => Event::AgentDies,
        57..67 => Event::Reboot,
        67..80 => Event::Stall,
        _ => {
            let mut lies = Lie::ALL;
            shuffle(&mut lies, random);
            Event::Malice(lies[..1 + random.below(3) as usize].to_vec())
        }
    }
}
