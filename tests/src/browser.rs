//! A browser without a window and without a network, which opens a page that futae has written.

use crate::tools::text;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// The program.
pub const BROWSER: &str = "chromium";
/// What it may take at most, in seconds.
const PATIENCE: &str = "180";
/// Its window.
const WIDTH: u32 = 1400;
const HEIGHT: u32 = 2600;

/// Runs first in the copy of the page: what goes wrong from then on is kept.
const LISTEN: &str = r#"<script>
window.wrong = [];
addEventListener("error", (event) => wrong.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => wrong.push(event.violatedDirective));
</script>"#;

/// Runs last: what is drawn and how large, before and after presses on a name and on a head.
const MEASURE: &str = r##"<pre id="measured"></pre><script>
(() => {
  const box = (element) => {
    const { left, top, width, height } = element.getBoundingClientRect();
    return { left, top, width, height };
  };
  const middle = (element) => {
    const { left, top, width, height } = box(element);
    return [left + width / 2, top + height / 2, width];
  };
  const all = (element, selector) => [...element.querySelectorAll(selector)];
  const figures = {};
  for (const figure of all(document, "figure")) {
    figures[figure.id] = {
      plots: all(figure, "svg.plot").map((plot) => ({
        box: box(plot),
        texts: all(plot, "text").filter((text) => box(text).width > 0).length,
        series: all(plot, ".series:not(.rule)").map((series) => ({
          name: series.dataset.name,
          line: all(series, "polyline").map((line) => line.getBBox().width)[0] ?? null,
          points: all(series, ".pt").map(middle),
          tips: all(series, ".pt").map((point) => point.dataset.tip),
          colour: getComputedStyle(series).stroke,
        })),
        rules: all(plot, ".rule path").map((rule) => rule.getBBox().height),
        bars: all(plot, ".bar").map((bar) => ({
          tip: bar.dataset.tip,
          ratio: Number(bar.dataset.ratio),
          width: bar.querySelector("rect").getBBox().width,
          colour: getComputedStyle(bar.querySelector("rect")).fill,
        })),
      })),
      names: all(figure, ".legend button").map((button) => button.textContent),
    };
  }
  const rows = () => all(document, "#numbers tbody tr").map((row) => row.cells[0].textContent);
  const measured = { figures, rows: rows(), title: document.title };
  const button = document.querySelector(".legend button");
  if (button) {
    const series = button.closest("figure").querySelector('.series[data-line="0"]');
    const widths = [box(series).width];
    for (let press = 0; press < 2; press++) {
      button.click();
      widths.push(box(series).width);
    }
    measured.pressed = widths;
  }
  all(document, "#numbers th")[6].click();
  measured.sorted = all(document, "#numbers tbody tr").map((row) => row.cells[6].textContent);
  measured.results = document.getElementById("results").textContent;
  measured.wrong = window.wrong;
  measured.loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
  document.getElementById("measured").textContent = JSON.stringify(measured);
})();
</script>"##;

/// A page in a frame as wide as a phone, and its measures.
const PHONE: &str = r#"<!DOCTYPE html><meta charset=utf-8><div id=place></div><script>
const frame = document.createElement("iframe");
frame.width = 360;
frame.height = 640;
frame.onload = () => {
  const page = frame.contentDocument;
  const shown = (one) => one.getClientRects().length > 0 && one.textContent.trim() !== "";
  const texts = [...page.querySelectorAll("p, td, th, li, h1, h2, text")].filter(shown);
  const height = (one) => {
    const size = parseFloat(frame.contentWindow.getComputedStyle(one).fontSize);
    const svg = one.closest("svg");
    return svg ? (size * svg.getBoundingClientRect().width) / svg.viewBox.baseVal.width : size;
  };
  const covered = [];
  for (const svg of page.querySelectorAll("svg")) {
    const parts = [...svg.querySelectorAll("text")].filter(shown);
    parts.forEach((one, at) => {
      const a = one.getBoundingClientRect();
      for (const other of parts.slice(at + 1)) {
        const b = other.getBoundingClientRect();
        if (a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom)
          covered.push([one.textContent, other.textContent]);
      }
    });
  }
  const pre = document.createElement("pre");
  pre.id = "measured";
  const width = page.documentElement.scrollWidth;
  pre.textContent = JSON.stringify({ width, text: Math.min(...texts.map(height)), covered });
  document.body.append(pre);
};
frame.srcdoc = PAGE;
document.getElementById("place").append(frame);
</script>"#;

/// A browser, with a directory of its own.
pub struct Browser {
    directory: TempDir,
}

/// What is seen of a page.
pub struct Seen {
    /// What the page said of itself when measured.
    pub measured: Value,
    /// What the browser wrote on its console.
    pub console: Vec<String>,
}

/// A page of a server as the browser has it.
pub struct Visited {
    /// The elements once the page was there.
    pub dom: String,
    /// What the browser wrote on its console.
    pub console: Vec<String>,
    /// What it looks like in light colours.
    pub picture: Pixels,
}

/// The address of a file.
fn file(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// What a browser wrote on its console.
fn console(output: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let console = said.lines().filter(|line| line.contains(":CONSOLE"));
    console.map(str::to_owned).collect()
}

/// A picture, three bytes a pixel.
pub struct Pixels {
    width: usize,
    bytes: Vec<u8>,
    channels: usize,
}

impl Default for Browser {
    fn default() -> Self {
        let directory = tempfile::tempdir().expect("a directory for the browser");
        Self { directory }
    }
}

impl Browser {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, arguments: &[String], page: &str) -> Output {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", PATIENCE, BROWSER]);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            // No name has an address: what is not in the page cannot be had, but from a server of this machine.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--force-device-scale-factor=1",
        ]);
        command.arg(format!("--window-size={WIDTH},{HEIGHT}"));
        let state = self.path("state");
        command.arg(format!("--user-data-dir={}", state.display()));
        command.env("HOME", self.directory.path());
        command.args(arguments);
        command.arg(page);
        let output = command.output().expect("timeout starts");
        assert!(
            output.status.success(),
            "{BROWSER}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }

    /// Opens a copy of the page that measures itself.
    pub fn open(&self, page: &Path) -> Seen {
        let html = fs::read_to_string(page).expect("the page is there");
        let with_ears = html.replacen("<head>", &format!("<head>{LISTEN}"), 1);
        let copy = with_ears.replacen("</body>", &format!("{MEASURE}</body>"), 1);
        assert_eq!(copy.len(), html.len() + LISTEN.len() + MEASURE.len());
        let path = self.path("copy.html");
        fs::write(&path, copy).expect("a copy of the page");
        let output = self.run(&["--dump-dom".to_owned()], &file(&path));
        let dom = String::from_utf8_lossy(&output.stdout).into_owned();
        let begin = "<pre id=\"measured\">";
        let measured = dom
            .split_once(begin)
            .and_then(|(_, rest)| rest.split_once("</pre>"));
        let (measured, _) = measured.expect("the page was measured");
        let unescaped = measured.replace("&lt;", "<").replace("&gt;", ">");
        let unescaped = unescaped.replace("&nbsp;", "\u{a0}").replace("&amp;", "&");
        Seen {
            measured: serde_json::from_str(&unescaped).expect("measures are JSON"),
            console: console(&output),
        }
    }

    /// What a page measures in the window of a phone, 360 pixels wide: `width` of all of it, the least height of a line of
    /// text (`text`), and pairs of texts in pictures that cover each other (`covered`).
    pub fn phone(&self, html: &str) -> Value {
        // A window of that width is less than a browser makes.
        let frame = serde_json::to_string(html)
            .expect("JSON")
            .replace("</", "<\\/");
        let path = self.path("phone.html");
        fs::write(&path, PHONE.replace("PAGE", &frame)).expect("a page");
        let output = self.run(&["--dump-dom".to_owned()], &file(&path));
        let dom = String::from_utf8_lossy(&output.stdout).into_owned();
        let measured = dom.split_once("<pre id=\"measured\">");
        let measured = measured.and_then(|(_, rest)| rest.split_once("</pre>"));
        let measured = measured.unwrap_or_else(|| panic!("not measured: {dom}"));
        serde_json::from_str(measured.0).expect("measures are JSON")
    }

    /// A picture of the page, in light or dark colours.
    pub fn picture(&self, page: &Path, is_dark: bool) -> Pixels {
        self.picture_of(&file(page), is_dark)
    }

    /// Opens a page that a server has, as it is.
    pub fn visit(&self, address: &str) -> Visited {
        let output = self.run(&["--dump-dom".to_owned()], address);
        Visited {
            dom: String::from_utf8_lossy(&output.stdout).into_owned(),
            console: console(&output),
            picture: self.picture_of(address, false),
        }
    }

    fn picture_of(&self, address: &str, is_dark: bool) -> Pixels {
        let path = self.path("picture.png");
        let scheme = if is_dark { 0 } else { 1 };
        let arguments = [
            format!("--screenshot={}", text(&path)),
            format!("--blink-settings=preferredColorScheme={scheme}"),
        ];
        self.run(&arguments, address);
        let pixels = Pixels::of_png(&path);
        assert_eq!(pixels.size(), (WIDTH as usize, HEIGHT as usize));
        pixels
    }
}

impl Pixels {
    /// Decodes a PNG file with 8 bits a channel.
    pub fn of_png(path: &Path) -> Self {
        let file = std::io::BufReader::new(File::open(path).expect("the picture is there"));
        let mut reader = png::Decoder::new(file).read_info().expect("a PNG");
        let mut bytes = vec![0; reader.output_buffer_size().expect("a size")];
        let info = reader.next_frame(&mut bytes).expect("a picture");
        assert_eq!(info.bit_depth, png::BitDepth::Eight);
        Self {
            width: info.width as usize,
            channels: info.color_type.samples(),
            bytes,
        }
    }

    /// Its width and height.
    pub fn size(&self) -> (usize, usize) {
        (self.width, self.bytes.len() / self.channels / self.width)
    }

    /// How many pixels of a part of it have about this colour.
    pub fn count(&self, part: &Value, colour: [u8; 3]) -> usize {
        let side = |name: &str| part[name].as_f64().expect("a part of a page") as usize;
        let (left, top) = (side("left"), side("top"));
        let (right, bottom) = (left + side("width"), top + side("height"));
        let (width, height) = self.size();
        let is_near = |x: usize, y: usize| {
            let at = (y * self.width + x) * self.channels;
            let pairs = self.bytes[at..at + 3].iter().zip(&colour);
            pairs.fold(0, |sum, (a, b)| sum + u32::from(a.abs_diff(*b))) <= 24
        };
        let rows = top..bottom.min(height);
        let of_row = |y| (left..right.min(width)).filter(|&x| is_near(x, y)).count();
        rows.map(of_row).sum()
    }
}

/// A colour as a browser writes it, `rgb(0, 103, 165)`.
#[must_use]
pub fn colour(text: &Value) -> [u8; 3] {
    let text = text.as_str().expect("a colour");
    let numbers = text.trim_start_matches("rgb(").trim_end_matches(')');
    let numbers = numbers.split(", ").map(|n| n.parse().expect("rgb"));
    let numbers: Vec<u8> = numbers.collect();
    numbers.try_into().expect("three numbers")
}
