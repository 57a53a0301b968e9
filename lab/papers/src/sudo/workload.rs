//! The synthetic session of X and eqntott.
//!
//! The paper does not print what its programs refer to; this stands for it. Six X programs have
//! together 900 pages of text and 1350 of heap, 1.7 times the machine's 1300 frames.
//!
//! * Start-up: programs start one after another, each when the one before is half through. A
//!   program goes through its text once, a window of a few pages at a time, with calls back to its
//!   hot text (the first eighth). Its heap grows meanwhile; it uses the newest pages, and now and
//!   then any. Every program calls upon the server's hot text and the first of its heap.
//! * Run: eqntott uses its text and goes over its heap again and again; between, programs of X do
//!   what they do every time a clock ticks or a terminal scrolls: the first half of their text
//!   in order, and some of the first quarter of their heap.
//! * End: each program uses some of its text, and of the first of its heap.
//!
//! What the outcome depends on is told in the book's chapter on the papers.

use futae_policy::Prng;

/// One page, by a number over all programs.
#[derive(Clone, Copy, Debug)]
pub enum Page {
    /// Never modified, and in the program's file.
    Text {
        /// The page's number.
        number: u64,
        /// Whether it belongs to X.
        of_x: bool,
    },
    /// Heap or stack: zeros at first, on the swap disk if written out.
    Heap(u64),
}

impl Page {
    /// The page's number over all programs.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Self::Text { number, .. } | Self::Heap(number) => number,
        }
    }
}

/// Pages of text and heap: the server, twm, xload, oclock, xterm, exterm.
const X: [(u64, u64); 6] = [
    (300, 450),
    (120, 180),
    (100, 150),
    (100, 150),
    (140, 210),
    (140, 210),
];
const EQNTOTT: (u64, u64) = (40, 60);
/// References of a program's start-up for each page of its text.
const STEPS_A_PAGE: u64 = 20;
const RUN: u64 = 30_000;
const WINDOW: u64 = 6;
/// References of eqntott between two updates of X.
const UPDATE: u64 = 1000;

/// A program: where its pages begin, and how many there are.
#[derive(Clone, Copy)]
struct Program {
    first_text: u64,
    text: u64,
    first_heap: u64,
    heap: u64,
    of_x: bool,
}

impl Program {
    fn text(&self, at: u64) -> Page {
        Page::Text {
            number: self.first_text + at % self.text,
            of_x: self.of_x,
        }
    }

    fn heap(&self, at: u64) -> Page {
        Page::Heap(self.first_heap + at % self.heap)
    }
}

/// The references of a whole session.
pub struct Session {
    /// In order.
    pub references: Vec<Page>,
    /// How many of them are the start-up.
    pub started: usize,
    pages: u64,
}

impl Session {
    /// The session for a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut pages = 0;
        let mut program = |(text, heap), of_x| {
            let (first_text, first_heap) = (pages, pages + text);
            pages += text + heap;
            Program {
                first_text,
                text,
                first_heap,
                heap,
                of_x,
            }
        };
        let x = X.map(|sizes| program(sizes, true));
        let eqntott = program(EQNTOTT, false);
        let mut session = Self {
            references: Vec::new(),
            started: 0,
            pages,
        };
        let mut prng = Prng::new(seed);
        session.start(&x, &mut prng);
        session.started = session.references.len();
        session.run(&x, eqntott, &mut prng);
        session.end(&x, &mut prng);
        session
    }

    /// Pages of all programs.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages as usize
    }

    fn start(&mut self, x: &[Program], prng: &mut Prng) {
        let length = |program: &Program| program.text * STEPS_A_PAGE;
        // Each begins when the one before is half through.
        let mut begin = 0;
        let mut spans = Vec::new();
        for program in x {
            spans.push((begin, begin + length(program), program));
            begin += length(program) / 2;
        }
        let end = spans.iter().map(|span| span.1).max().unwrap_or(0);
        for now in 0..end {
            for &(from, to, program) in &spans {
                if (from..to).contains(&now) {
                    let progress = (now - from) as f64 / (to - from) as f64;
                    self.step(program, progress, &x[0], prng);
                }
            }
        }
    }

    /// One step of a program that has gone through this share of its start-up.
    fn step(&mut self, program: &Program, progress: f64, server: &Program, prng: &mut Prng) {
        let window = (progress * program.text as f64) as u64;
        let grown = 1 + (progress * (program.heap - 1) as f64) as u64;
        let page = match prng.below(100) {
            0..40 => program.text(window + prng.below(WINDOW)),
            40..60 => program.text(prng.below(program.text / 8)),
            60..80 => program.heap(grown - 1 - prng.below(grown.min(WINDOW))),
            80..92 => program.heap(prng.below(grown)),
            92..97 => server.text(prng.below(server.text / 8)),
            _ => server.heap(prng.below(server.heap / 4)),
        };
        self.references.push(page);
    }

    fn run(&mut self, x: &[Program], eqntott: Program, prng: &mut Prng) {
        for now in 0..RUN {
            if now % UPDATE == 0 {
                self.update(&x[prng.below(x.len() as u64) as usize], prng);
            }
            let page = match prng.below(100) {
                0..45 => eqntott.text(prng.below(eqntott.text)),
                _ => eqntott.heap(now / 20 + prng.below(WINDOW)),
            };
            self.references.push(page);
        }
    }

    /// A program of X does what it does again and again: a clock ticks, a terminal scrolls.
    fn update(&mut self, program: &Program, prng: &mut Prng) {
        for at in 0..program.text / 2 {
            self.references.push(program.text(at));
            if at % 4 == 0 {
                let page = program.heap(prng.below(program.heap / 4));
                self.references.push(page);
            }
        }
    }

    fn end(&mut self, x: &[Program], prng: &mut Prng) {
        for program in x {
            for _ in 0..program.text / 5 {
                self.references.push(program.text(prng.below(program.text)));
                self.references
                    .push(program.heap(prng.below(program.heap / 4)));
            }
        }
    }
}
