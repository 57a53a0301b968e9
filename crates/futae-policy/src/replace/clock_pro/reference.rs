//! The circle as a list that is rotated about its hot hand; the other two hands are stored as
//! blocks.

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hot,
    Cold,
    Name,
}

#[derive(Clone, Copy)]
struct Entry {
    block: u64,
    kind: Kind,
    /// In its test period.
    tested: bool,
    marked: bool,
}

pub struct ClockPro {
    slots: usize,
    target: usize,
    /// From the hot hand on.
    ring: Vec<Entry>,
    cold_at: Option<u64>,
    test_at: Option<u64>,
}

impl ClockPro {
    pub fn new(slots: usize) -> Self {
        Self {
            slots,
            target: 1,
            ring: Vec::new(),
            cold_at: None,
            test_at: None,
        }
    }

    fn number(&self, kind: Kind) -> usize {
        self.ring.iter().filter(|entry| entry.kind == kind).count()
    }

    fn place(&self, block: Option<u64>) -> usize {
        let at = self
            .ring
            .iter()
            .position(|entry| Some(entry.block) == block);
        at.unwrap_or(0)
    }

    fn next(&self, place: usize) -> Option<u64> {
        Some(self.ring[(place + 1) % self.ring.len()].block)
    }

    fn adapt(&mut self, up: bool) {
        let most = (self.slots - 1).max(1);
        let target = if up { self.target + 1 } else { self.target - 1 };
        self.target = target.clamp(1, most);
    }

    fn take(&mut self, place: usize) -> Entry {
        let block = Some(self.ring[place].block);
        let next = self.next(place).filter(|_| self.ring.len() > 1);
        if self.cold_at == block {
            self.cold_at = next;
        }
        if self.test_at == block {
            self.test_at = next;
        }
        self.ring.remove(place)
    }

    fn put(&mut self, block: u64, kind: Kind) {
        if self.ring.is_empty() {
            (self.cold_at, self.test_at) = (Some(block), Some(block));
        }
        self.ring.push(Entry {
            block,
            kind,
            tested: kind == Kind::Cold,
            marked: false,
        });
    }

    /// Ends a test period. Returns whether the entry was removed.
    fn end_test(&mut self, place: usize) -> bool {
        let entry = self.ring[place];
        if entry.kind == Kind::Name {
            self.take(place);
            self.adapt(false);
            return true;
        }
        if entry.tested {
            self.ring[place].tested = false;
            self.adapt(entry.marked);
        }
        false
    }

    fn run_hot(&mut self) {
        let mut cooled = false;
        loop {
            if self.ring[0].kind == Kind::Hot {
                if cooled {
                    return;
                }
                if !self.ring[0].marked {
                    self.ring[0].kind = Kind::Cold;
                    cooled = true;
                }
                self.ring[0].marked = false;
                self.ring.rotate_left(1);
            } else if !self.end_test(0) {
                self.ring.rotate_left(1);
            }
            if cooled && self.number(Kind::Hot) == 0 {
                return;
            }
        }
    }

    fn promote(&mut self, block: u64) {
        self.adapt(true);
        if self.target == self.slots {
            return self.put(block, Kind::Cold);
        }
        while self.number(Kind::Hot) >= self.slots - self.target {
            self.run_hot();
        }
        self.put(block, Kind::Hot);
    }

    fn evict(&mut self) {
        loop {
            if self.number(Kind::Cold) == 0 {
                self.run_hot();
            }
            let place = self.place(self.cold_at);
            let entry = self.ring[place];
            if entry.kind != Kind::Cold {
                self.cold_at = self.next(place);
            } else if entry.marked {
                let entry = self.take(place);
                if entry.tested {
                    self.promote(entry.block);
                } else {
                    self.put(entry.block, Kind::Cold);
                }
            } else if entry.tested {
                self.ring[place].kind = Kind::Name;
                self.cold_at = self.next(place);
                break;
            } else {
                self.take(place);
                break;
            }
        }
        while self.number(Kind::Name) > self.slots {
            let place = self.place(self.test_at);
            self.test_at = self.next(place);
            self.end_test(place);
        }
    }
}

impl crate::contract::Reference for ClockPro {
    fn access(&mut self, block: u64) -> bool {
        let held = self.ring.iter_mut().find(|entry| entry.block == block);
        if let Some(held) = held
            && held.kind != Kind::Name
        {
            held.marked = true;
            return true;
        }
        let resident = self.number(Kind::Hot) + self.number(Kind::Cold);
        if resident == self.slots {
            self.evict();
        }
        let name = self.ring.iter().position(|entry| entry.block == block);
        if let Some(place) = name {
            self.take(place);
            self.promote(block);
        } else if resident < self.slots - self.target {
            self.put(block, Kind::Hot);
        } else {
            self.put(block, Kind::Cold);
        }
        false
    }

    fn resident(&self) -> Vec<u64> {
        let held = self.ring.iter().filter(|entry| entry.kind != Kind::Name);
        held.map(|entry| entry.block).collect()
    }
}
