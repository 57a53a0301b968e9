//! The user's book, docs/: its commands, taken out of its pages and run as a reader would.
//!
//! A fence marked `console` holds commands, each after `$ `, and what they print. A page's commands run in one
//! shell in an empty directory, from top to bottom. Comments steer this:
//!
//! - `<!-- setup: COMMANDS -->` runs before a page's first command;
//! - `<!-- needs: fuse, root, TOOL -->` names what a page's commands need;
//! - `<!-- not run: REASON -->`, right above a fence, leaves the fence out;
//! - `<!-- fails -->` above a fence says that its commands fail, and `<!-- exact -->` that they print what the
//!   fence shows, to the letter.
//!
//! A command that ends in `&` runs in the background; the next one waits until it has printed a line on standard
//! output.

use crate::tidy::Source;

/// A command of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The line, from 1.
    pub line: usize,
    /// What a shell is to run.
    pub command: String,
    /// What it prints, as the page says.
    pub shown: String,
    /// Whether that is to the letter.
    pub is_exact: bool,
    /// Whether it must fail.
    pub fails: bool,
    /// Why it is not run, if it is not.
    pub not_run: Option<String>,
}

/// What a page has for a shell.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Commands before the first one that is shown.
    pub setup: String,
    /// What must be there.
    pub needs: Vec<String>,
    /// The commands in their order.
    pub steps: Vec<Step>,
    /// Mistakes in the page's marks, by line.
    pub mistakes: Vec<(usize, String)>,
}

/// Takes a page apart.
#[must_use]
pub fn page(text: &str) -> Page {
    let mut page = Page::default();
    let (mut marks, mut fence): (Vec<String>, Option<String>) = (Vec::new(), None);
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        let begin = at;
        at += 1;
        if let Some(kind) = &fence {
            if line.trim_start().starts_with("```") {
                (fence, marks) = (None, Vec::new());
            } else if kind == "console" {
                step(&mut page, line, begin + 1, &marks);
            } else if is_command(line) && !marks.iter().any(|mark| mark.starts_with("not run:")) {
                page.mistakes.push((
                    begin + 1,
                    format!("a command in a fence that is not `console`: {line}"),
                ));
            }
        } else if let Some(kind) = line.trim_start().strip_prefix("```") {
            fence = Some(kind.trim().to_owned());
        } else if line.starts_with("    ") && is_command(line) {
            page.mistakes
                .push((begin + 1, format!("a command outside of a fence: {line}")));
        } else if let Some(rest) = line.strip_prefix("<!-- ") {
            let mut comment = rest.to_owned();
            while !comment.contains("-->") && at < lines.len() {
                comment.push('\n');
                comment.push_str(lines[at]);
                at += 1;
            }
            let comment = comment.split("-->").next().unwrap_or_default().trim();
            if let Some(setup) = comment.strip_prefix("setup:") {
                setup.trim().clone_into(&mut page.setup);
            } else if let Some(needs) = comment.strip_prefix("needs:") {
                page.needs = needs
                    .split(',')
                    .map(|need| need.trim().to_owned())
                    .collect();
            } else {
                marks.push(comment.to_owned());
            }
        } else if !line.trim().is_empty() {
            marks.clear();
        }
    }
    page
}

/// Whether a line begins as commands of this project do.
fn is_command(line: &str) -> bool {
    let line = line.trim_start();
    let line = line.strip_prefix("$ ").unwrap_or(line);
    // The usage of a command has names in place of values: `[OPTIONS]`, `<FILE>`.
    let mut after = line.split('<').skip(1);
    let is_usage =
        line.contains("[OPTIONS]") || after.any(|rest| rest.starts_with(char::is_uppercase));
    line.starts_with("futae ") && line.contains(" --") && !is_usage
}

/// One line of a fence of commands: a command, more of one, or what one prints.
fn step(page: &mut Page, line: &str, number: usize, marks: &[String]) {
    // An open quote goes on in the next line.
    let is_open = |command: &str| command.ends_with('\\') || command.matches('\'').count() % 2 == 1;
    let is_continued = |step: &Step| step.shown.is_empty() && is_open(&step.command);
    match (line.strip_prefix("$ "), page.steps.last_mut()) {
        (Some(command), _) => page.steps.push(Step {
            line: number,
            command: command.to_owned(),
            shown: String::new(),
            is_exact: marks.iter().any(|mark| mark == "exact"),
            fails: marks.iter().any(|mark| mark == "fails"),
            not_run: marks
                .iter()
                .find_map(|mark| Some(mark.strip_prefix("not run:")?.trim().to_owned())),
        }),
        (None, Some(last)) if is_continued(last) => {
            last.command.push('\n');
            last.command.push_str(line);
        }
        (None, Some(last)) => {
            last.shown.push_str(line);
            last.shown.push('\n');
        }
        (None, None) => page
            .mistakes
            .push((number, format!("neither a command nor its output: {line}"))),
    }
}

/// The pages of the book, and the project's front page.
pub fn pages(sources: &[Source]) -> impl Iterator<Item = &Source> {
    sources.iter().filter(|it| {
        let is_book = it.path.starts_with("docs/") || it.path == "README.md";
        is_book && it.path.ends_with(".md")
    })
}

/// A shell script that runs a page's steps. It reports each in the file `.steps`: `LINE STATUS` when it has ended,
/// and keeps what each prints in `.out.LINE`.
#[must_use]
pub fn script(page: &Page) -> String {
    let mut script = String::from("set +m\n");
    script.push_str(&page.setup);
    script.push_str("\necho \"0 $?\" >> .steps\n");
    for step in page.steps.iter().filter(|step| step.not_run.is_none()) {
        let (line, command) = (step.line, step.command.trim_end());
        let out = format!(".out.{line}");
        let text = match command.strip_suffix('&').filter(|it| !it.ends_with('&')) {
            // It is ready when it has printed something; it may also have failed by then.
            Some(command) => format!(
                "{command} > {out} 2> {out}.err &\nuntil [ -s {out} ] || ! kill -0 $! 2>/dev/null; do sleep 0.05; done\n\
                 kill -0 $! 2>/dev/null\n"
            ),
            None => format!("{{ {command}\n}} > {out} 2>&1 < /dev/null\n"),
        };
        script.push_str(&text);
        script.push_str(&format!("echo \"{line} $?\" >> .steps\n"));
    }
    script
}
