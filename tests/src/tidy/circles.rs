//! No circle between the files of a crate: each can be read with what it uses, and nothing else.

use super::{Finding, Source, without_tests};
use std::collections::{BTreeMap, BTreeSet};

/// The module whose files may use each other in a circle: a workload has workloads as its parts, so each family uses the
/// grammar, which uses the list of all families.
const RECURSIVE: (&str, &str) = ("crates/futae-trace", "workload");

/// Where a file stands among the modules of its crate; the root has no names.
type Module = Vec<String>;

/// The files of a crate, what they use, and what they export again.
struct Crate<'a> {
    files: BTreeMap<Module, (&'a Source, String)>,
    exports: BTreeMap<Module, Vec<Vec<String>>>,
}

/// Circles between the files of each crate.
#[must_use]
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let root_of = |source: &Source| {
        let (root, _) = source.path.split_once("/src/")?;
        Some(root.to_owned())
    };
    let roots: BTreeSet<String> = sources.iter().filter_map(root_of).collect();
    let found = roots.iter().map(|root| check_crate(root, sources));
    found.flatten().collect()
}

fn check_crate(root: &str, sources: &[Source]) -> Vec<Finding> {
    let whole = Crate::of(root, sources);
    let uses_of = |module| {
        let mut uses = whole.uses(module);
        uses.retain(|other| !(is_recursive(root, module) && is_recursive(root, other)));
        (module, uses)
    };
    let uses: BTreeMap<&Module, BTreeSet<Module>> = whole.files.keys().map(uses_of).collect();
    let mut findings = Vec::new();
    for (module, (source, _)) in &whole.files {
        let Some(way) = way_back(module, &uses) else {
            continue;
        };
        // A circle is named once, at the first of its files.
        if way.iter().all(|other| module <= other) {
            let names: Vec<_> = way.iter().map(|module| module.join("::")).collect();
            let problem = format!("uses {}, which uses it", names.join(", which uses "));
            findings.push(source.finding(0, problem));
        }
    }
    findings
}

/// Whether a file is in the module whose files may use each other in a circle.
fn is_recursive(root: &str, module: &Module) -> bool {
    root == RECURSIVE.0 && module.first().is_some_and(|first| first == RECURSIVE.1)
}

/// The shortest way from a module over others back to it: those others.
fn way_back<'a>(
    from: &'a Module,
    uses: &BTreeMap<&'a Module, BTreeSet<Module>>,
) -> Option<Vec<Module>> {
    let mut ways = vec![Vec::new()];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in uses.get(way.last().unwrap_or(from)).into_iter().flatten() {
                if next == from {
                    return Some(way);
                }
                if seen.insert(next.clone()) {
                    longer.push([way.as_slice(), std::slice::from_ref(next)].concat());
                }
            }
        }
        ways = longer;
    }
    None
}

impl<'a> Crate<'a> {
    fn of(root: &str, sources: &'a [Source]) -> Self {
        let root = format!("{root}/src/");
        let mut whole = Self {
            files: BTreeMap::new(),
            exports: BTreeMap::new(),
        };
        for source in sources {
            let Some(path) = source.path.strip_prefix(&root) else {
                continue;
            };
            let Some(path) = path.strip_suffix(".rs") else {
                continue;
            };
            let mut module: Module = path.split('/').map(str::to_owned).collect();
            module.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
            let lines: Vec<String> = without_tests(&source.text)
                .into_iter()
                .map(|(_, line)| line)
                .collect();
            // Of a library with a program: the program uses the library by its name, as another crate does.
            let is_root_of_program = module.is_empty() && path == "main";
            if is_root_of_program && whole.files.contains_key(&module) {
                continue;
            }
            whole.files.insert(module, (source, lines.join("\n")));
        }
        for (module, (_, code)) in &whole.files {
            let of = imports(code).filter(|(is_public, _)| *is_public);
            let of = of.flat_map(|(_, tree)| paths(&tree)).collect();
            whole.exports.insert(module.clone(), of);
        }
        whole
    }

    /// The other files that a file uses. What it only exports again it does not use.
    fn uses(&self, module: &Module) -> BTreeSet<Module> {
        let code = &self.files[module].1;
        let imported = imports(code).filter(|(is_public, _)| !is_public);
        let mut named: Vec<_> = imported.flat_map(|(_, tree)| paths(&tree)).collect();
        named.extend(inline_paths(code));
        let targets = named.iter().filter_map(|path| self.resolve(module, path));
        targets.filter(|target| target != module).collect()
    }

    /// The file in which a path ends, followed through exports.
    fn resolve(&self, module: &Module, path: &[String]) -> Option<Module> {
        let mut rest = path;
        let mut at = module.clone();
        match rest.first()?.as_str() {
            "crate" => (at, rest) = (Module::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {}
            first => {
                let child = [module.as_slice(), &[first.to_owned()]].concat();
                self.files.get(&child)?;
            }
        }
        while rest.first().is_some_and(|name| name == "super") {
            at.pop();
            rest = &rest[1..];
        }
        while let Some(name) = rest.first() {
            let child = [at.as_slice(), std::slice::from_ref(name)].concat();
            if !self.files.contains_key(&child) {
                break;
            }
            (at, rest) = (child, &rest[1..]);
        }
        let export = rest.first().and_then(|name| {
            let exports = self.exports.get(&at)?;
            exports.iter().find(|path| path.last() == Some(name))
        });
        match export {
            Some(path) if at != *module => self.resolve(&at, path),
            _ => Some(at),
        }
    }
}

/// The trees of `use`, and whether each is public.
fn imports(code: &str) -> impl Iterator<Item = (bool, String)> {
    code.split(';').filter_map(|item| {
        let at = import_in(item)?;
        let before = item[..at].trim_end();
        let line = before.lines().next_back().unwrap_or_default().trim_start();
        Some((line.starts_with("pub"), item[at + USE.len()..].to_owned()))
    })
}

const USE: &str = "use ";

/// Where the word `use` is in what stands before a semicolon, if that is an import.
fn import_in(item: &str) -> Option<usize> {
    let at = item.rfind(USE)?;
    let line = item[..at].lines().next_back().unwrap_or_default().trim();
    let is_alone = item[..at].is_empty() || item[..at].ends_with(['\n', ' ']);
    (is_alone && (line.is_empty() || line.starts_with("pub"))).then_some(at)
}

/// The paths of a tree of `use`.
fn paths(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let Some((stem, branches)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or_default();
        return vec![
            name.split("::")
                .map(|part| part.trim().to_owned())
                .collect(),
        ];
    };
    let branches = branches.trim_end().strip_suffix('}').unwrap_or(branches);
    let (mut found, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, c) in branches.char_indices().chain([(branches.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let branch = branches[begin..at].trim();
                if !branch.is_empty() {
                    found.extend(paths(&format!("{stem}{branch}")));
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// Paths of two names and more that stand in code.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let paths = code.split(';').flat_map(|item| {
        let code = import_in(item).map_or(item, |at| &item[..at]);
        code.split(move |c| !is_part(c))
    });
    paths
        .filter(|word| word.contains("::"))
        .map(|word| word.split("::").map(str::to_owned).collect())
        .collect()
}
