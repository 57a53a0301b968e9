//! No circle between the modules of one directory: what uses another is not used by it, directly or by a third.

use super::{Finding, Source, without_tests};
use std::collections::{BTreeMap, BTreeSet};

/// Crates in which modules must not use each other in a circle.
const WITHOUT_CIRCLES: [&str; 1] = ["futae-guest"];

/// A module by its names from the crate's root on.
type Module = Vec<String>;

/// Uses of each module, within one directory, by modules of the same.
type Uses = BTreeMap<Module, BTreeMap<String, BTreeSet<String>>>;

/// Circles in the crates that must not have any.
#[must_use]
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let of = |name: &&str| check_crate(sources, name);
    WITHOUT_CIRCLES.iter().flat_map(of).collect()
}

fn check_crate(sources: &[Source], name: &str) -> Vec<Finding> {
    let place = format!("crates/{name}/src/");
    let own = sources.iter().filter(|source| source.is_rust());
    let files: BTreeMap<Module, String> = own
        .filter_map(|source| {
            let file = source.path.strip_prefix(&place)?;
            let lines = without_tests(&source.text)
                .into_iter()
                .map(|(_, line)| line + "\n");
            Some((module_of(file), lines.collect()))
        })
        .collect();
    let shown = reexports(&files);
    let mut uses = Uses::new();
    for (module, code) in &files {
        for path in paths(code) {
            let Some(used) = resolve(&files, &shown, module, &path) else {
                continue;
            };
            let same = module.iter().zip(&used).take_while(|(a, b)| a == b).count();
            // A module and those within it are one to the others.
            if let (Some(from), Some(to)) = (module.get(same), used.get(same)) {
                let level = uses.entry(module[..same].to_vec()).or_default();
                level.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    let circles = uses.iter().filter_map(|(directory, uses)| {
        let circle = circle(uses)?.join(" uses ");
        let directory = directory.join("/");
        Some(Finding {
            path: format!("{place}{directory}"),
            line: 1,
            problem: format!("modules use each other in a circle: {circle}"),
        })
    });
    circles.collect()
}

fn module_of(file: &str) -> Module {
    let stem = file.trim_end_matches(".rs");
    let names = stem.split('/').map(str::to_owned);
    let mut module: Module = names.collect();
    if matches!(
        module.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        module.pop();
    }
    module
}

/// What modules show of those within them (`pub use inner::Item`): where each item really is.
fn reexports(files: &BTreeMap<Module, String>) -> BTreeMap<(Module, String), Module> {
    let mut found = BTreeMap::new();
    for (module, code) in files {
        for statement in code.split(';') {
            let Some((_, tree)) = statement.rsplit_once("use ") else {
                continue;
            };
            for mut path in trees(tree) {
                let Some(item) = path.pop() else { continue };
                let inner: Module = module.iter().cloned().chain(path).collect();
                if inner.len() > module.len() && files.contains_key(&inner) {
                    found.insert((module.clone(), item), inner);
                }
            }
        }
    }
    found
}

/// All paths of some code that begin at the crate's root or at the module above.
fn paths(code: &str) -> Vec<Vec<String>> {
    let starts = ["crate::", "super::"];
    let is_start = |at: usize| {
        let before = code[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':')
    };
    let all = starts.iter().flat_map(|start| code.match_indices(start));
    let begun = all.filter(|(at, _)| is_start(*at));
    begun.flat_map(|(at, _)| trees(&code[at..])).collect()
}

/// The paths of `a::b`, or of a tree such as `a::{b, c::d}`.
fn trees(text: &str) -> Vec<Vec<String>> {
    let text = text.trim_start();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let Some(rest) = rest.strip_prefix("::") else {
        return vec![vec![name.to_owned()]];
    };
    let below: Vec<Vec<String>> = match rest.strip_prefix('{') {
        Some(inner) => branches(inner).into_iter().flat_map(trees).collect(),
        None => trees(rest),
    };
    let with_name = |path: Vec<String>| std::iter::once(name.to_owned()).chain(path).collect();
    below.into_iter().map(with_name).collect()
}

/// What stands between commas before the brace that closes.
fn branches(text: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                found.push(&text[begin..at]);
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

/// The module that a path in `from` leads to.
fn resolve(
    files: &BTreeMap<Module, String>,
    shown: &BTreeMap<(Module, String), Module>,
    from: &Module,
    path: &[String],
) -> Option<Module> {
    let mut at = from.clone();
    for name in path {
        match name.as_str() {
            "crate" => at.clear(),
            "super" => drop(at.pop()?),
            _ => {
                let within: Module = at.iter().chain([name]).cloned().collect();
                if files.contains_key(&within) {
                    at = within;
                } else {
                    return Some(
                        shown
                            .get(&(at.clone(), name.clone()))
                            .cloned()
                            .unwrap_or(at),
                    );
                }
            }
        }
    }
    Some(at)
}

/// Modules of which each uses the next, and the last is the first again.
fn circle(uses: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn go_on(
        uses: &BTreeMap<String, BTreeSet<String>>,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        let last = way.last()?.clone();
        for next in uses.get(&last).into_iter().flatten() {
            if let Some(begin) = way.iter().position(|name| name == next) {
                way.push(next.clone());
                return Some(way.split_off(begin));
            }
            if done.contains(next) {
                continue;
            }
            way.push(next.clone());
            if let Some(circle) = go_on(uses, way, done) {
                return Some(circle);
            }
            way.pop();
        }
        done.insert(last);
        None
    }
    let mut done = BTreeSet::new();
    let begin = |name: &String| go_on(uses, &mut vec![name.clone()], &mut done);
    uses.keys().find_map(begin)
}
