//! The user's book: its commands run, its options exist, its generated pages are current.

use futae_tests::binary::{binary, futae, run, run_json};
use futae_tests::book::{Page, Step, page, pages, script};
use futae_tests::tidy::{Source, root, sources};
use futae_tests::tools::{Need, WITHOUT_OTHERS_MOUNTS, has, has_fuse, has_root, skip, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

/// Seconds that the commands of one page may take.
const LIMIT: &str = "300";
/// Pages whose commands run at a time.
const AT_A_TIME: usize = 3;

#[test]
fn every_command_of_the_book_runs() {
    let sources = sources();
    let work: Vec<(&str, Page)> = pages(&sources)
        .map(|it| (it.path.as_str(), page(&it.text)))
        .collect();
    assert!(
        work.iter().map(|(_, page)| page.steps.len()).sum::<usize>() > 50,
        "the book was not found"
    );
    let isolated = isolation();
    let next = Mutex::new(work.iter());
    let problems = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let Some((path, page)) = next.lock().expect("nobody panics with it").next()
                    else {
                        return;
                    };
                    let is_run = page.steps.iter().any(|step| step.not_run.is_none());
                    let Some(isolated) = isolated
                        .as_deref()
                        .filter(|_| is_run && has_all(&page.needs))
                    else {
                        continue;
                    };
                    let found = try_page(path, page, isolated);
                    problems
                        .lock()
                        .expect("nobody panics with it")
                        .extend(found);
                }
            });
        }
    });
    let problems = problems.into_inner().expect("nobody panicked with it");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// A command before the shell's, which gives it processes and mounts of its own that end with it.
fn isolation() -> Option<Vec<String>> {
    let mut command = vec![
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount",
        "--mount-proc",
    ];
    if !rustix::process::geteuid().is_root() {
        command.extend(["--user", "--map-root-user"]);
    }
    let tried = Command::new(command[0])
        .args(&command[1..])
        .arg("true")
        .output();
    if !tried.is_ok_and(|it| it.status.success()) {
        skip(Need::Root, "no namespaces for the commands of the book");
        return None;
    }
    let start = format!("{WITHOUT_OTHERS_MOUNTS}; exec \"$@\"");
    command.extend(["sh", "-c", &start, "sh"]);
    Some(command.into_iter().map(str::to_owned).collect())
}

fn has_all(needs: &[String]) -> bool {
    needs.iter().all(|need| match need.as_str() {
        "fuse" => has_fuse(),
        "root" => has_root(),
        tool => has(tool),
    })
}

/// Runs a page's commands; what went wrong.
fn try_page(path: &str, page: &Page, isolated: &[String]) -> Vec<String> {
    let directory = tempfile::Builder::new().prefix("futae-book-").tempdir();
    let directory = directory.expect("a directory can be made");
    let scratch = directory.path().join("scratch");
    let programs = directory.path().join("programs");
    fs::create_dir(&scratch).expect("a directory can be made");
    fs::create_dir(&programs).expect("a directory can be made");
    symlink(binary(), programs.join("futae")).expect("a link can be made");
    let old = env::var_os("PATH").unwrap_or_default();
    let paths = [programs].into_iter().chain(env::split_paths(&old));
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", LIMIT]).args(isolated);
    command
        .args(["bash", "-c", &script(page)])
        .current_dir(&scratch);
    command.env(
        "PATH",
        env::join_paths(paths).expect("paths without colons"),
    );
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().expect("timeout starts");
    let ended = fs::read_to_string(scratch.join(".steps")).unwrap_or_default();
    let status = |line: usize| {
        let mut all = ended.lines().filter_map(|it| it.split_once(' '));
        Some(all.find(|(at, _)| *at == line.to_string())?.1.to_owned())
    };
    if status(0).is_none_or(|it| it != "0") {
        return vec![format!("{path}: its setup fails: {:?}", status(0))];
    }
    let mut problems = Vec::new();
    for step in page.steps.iter().filter(|step| step.not_run.is_none()) {
        problems.extend(judge(path, step, status(step.line).as_deref(), &scratch));
    }
    problems
}

/// What is wrong with how a command ended.
fn judge(path: &str, step: &Step, status: Option<&str>, scratch: &Path) -> Option<String> {
    let place = format!("{path}:{}: {}", step.line, step.command);
    let read = |name: String| fs::read_to_string(scratch.join(name)).unwrap_or_default();
    let printed = read(format!(".out.{}", step.line)) + &read(format!(".out.{}.err", step.line));
    let Some(status) = status else {
        return Some(format!("{place}\n  did not end:\n{printed}"));
    };
    if (status == "0") == step.fails {
        return Some(format!("{place}\n  ended with {status}:\n{printed}"));
    }
    let same = |a: &str, b: &str| {
        a.trim_end()
            .lines()
            .map(str::trim_end)
            .eq(b.trim_end().lines().map(str::trim_end))
    };
    if step.is_exact && !same(&printed, &step.shown) {
        return Some(format!(
            "{place}\n  prints:\n{printed}  and not what the page says"
        ));
    }
    None
}

#[test]
fn marks_of_pages_are_right_and_options_exist() {
    let sources = sources();
    let find = |path: &str| sources.iter().find(|it| it.path == path);
    let commands = find("docs/reference/commands.md").expect("the reference of commands");
    let mut problems = Vec::new();
    for source in pages(&sources) {
        let page = page(&source.text);
        let mistakes = page.mistakes.iter();
        problems.extend(mistakes.map(|(line, what)| format!("{}:{line}: {what}", source.path)));
        for step in &page.steps {
            let unknown = unknown_options(&step.command, commands);
            problems
                .extend(unknown.map(|it| format!("{}:{}: no option {it}", source.path, step.line)));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Options of `futae` in a command that the reference does not have.
fn unknown_options(command: &str, reference: &Source) -> impl Iterator<Item = String> {
    let mut words = command
        .split_whitespace()
        .skip_while(|word| *word != "futae")
        .skip(1);
    let mut name = format!("futae {}", words.next().unwrap_or_default());
    let mut section = section(&reference.text, &name);
    let words: Vec<&str> = words
        .take_while(|word| !["|", "&", ";", "&&"].contains(word))
        .collect();
    if let Some(second) = words.first() {
        let deeper = format!("{name} {second}");
        if let Some(found) = self::section(&reference.text, &deeper) {
            (name, section) = (deeper, Some(found));
        }
    }
    let section = section.unwrap_or_default().to_owned();
    let options = words
        .into_iter()
        .filter(|word| word.starts_with("--") && word.len() > 2);
    let options: Vec<String> = options
        .map(|it| it.split('=').next().unwrap_or(it).to_owned())
        .collect();
    let is_known = move |option: &String| {
        let heads = section.lines().filter_map(|line| line.strip_prefix("- `"));
        let mut names =
            heads.flat_map(|head| head.split('`').next().unwrap_or(head).split([' ', ',']));
        names.any(|name| name == option) || ["--help", "--version"].contains(&option.as_str())
    };
    options
        .into_iter()
        .filter(move |option| !is_known(option))
        .map(move |option| format!("{name} {option}"))
}

/// The text below a heading.
fn section<'a>(text: &'a str, title: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("\n## {title}\n"))?;
    Some(rest.split("\n## ").next().unwrap_or(rest))
}

#[test]
fn generated_pages_are_current() {
    let mut laboratory = Command::new(binary().with_file_name("futae-lab"));
    laboratory.arg("reference");
    let pages = [
        ("commands", futae(&["reference", "commands"])),
        ("policies", futae(&["reference", "policies"])),
        ("metrics", futae(&["reference", "metrics"])),
        ("laboratory", laboratory),
    ];
    for (name, mut command) in pages {
        let path = root().join(format!("docs/reference/{name}.md"));
        let there = fs::read_to_string(&path).unwrap_or_default();
        let output = command.output().expect("the program starts");
        assert!(output.status.success(), "the page {name}");
        let generated = String::from_utf8(output.stdout).expect("text");
        assert!(
            there == generated,
            "{} is not current; run: make reference",
            text(&path)
        );
    }
}

#[test]
fn columns_and_keys_of_results_are_explained() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| text(&directory.path().join(name)).to_owned();
    let (trace, objects, plan, out) = (at("a.csv"), at("objects.csv"), at("plan.toml"), at("out"));
    let done = |arguments: &[&str]| {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).expect("text")
    };
    let workload = "zipf(1.0,writes=0.3):1MiB";
    done(&["trace", "convert", workload, &trace, "--requests", "2000"]);
    fs::write(&objects, "time,key,size\n0,a,100\n1,b,50\n").expect("room");
    fs::write(
        &plan,
        format!("workloads = ['{workload}']\npolicies = ['lru']\nsizes = ['10%']\n"),
    )
    .expect("room");
    done(&["sweep", &plan, "--out", &out]);
    let levels = ["--level", "lru:10%", "--level", "exclusive:20%"];
    let queued = ["--latency", "upper=1us,link=1us*1,store=exp(1ms)*4"];
    let guests = [&["sim", &*trace, &trace], &levels[..]].concat();
    let sized = [
        "sim",
        &objects,
        "--objects",
        "--policy",
        "lru",
        "--sizes",
        "120",
    ];
    let sampled = [
        "mrc",
        &trace,
        "--exact",
        "--shards",
        "0.5",
        "--repeats",
        "2",
    ];
    let mut names = BTreeSet::new();
    for (command, rest) in [
        (&guests[..], &["--windows", "2", "--bounds"][..]),
        (&guests, &[queued[0], queued[1], "--clients", "2"]),
        (&guests, &[queued[0], queued[1], "--think", "1ms"]),
        (&sized, &[]),
        (&sampled, &[]),
    ] {
        add_keys(
            &run_json(&[command, rest, &["--json"]].concat()),
            &mut names,
        );
    }
    let mut tables = vec![
        done(&[&guests[..], &["--csv"]].concat()),
        done(&[&guests[..], &["--csv", "--by-guest"]].concat()),
        done(&[&sized[..], &["--csv"]].concat()),
        done(&[&sampled[..], &["--csv"]].concat()),
    ];
    for name in ["results.csv", "summary.csv"] {
        let table = fs::read_to_string(directory.path().join("out").join(name));
        tables.push(table.expect("a table"));
    }
    for table in tables {
        let head = table.lines().next().expect("a head").to_owned();
        let figure = |name: &str| {
            let name = name.trim_end_matches("_mean");
            name.trim_end_matches("_half_width").to_owned()
        };
        names.extend(head.split(',').map(figure));
    }
    let page = fs::read_to_string(root().join("docs/reference/results.md")).expect("the page");
    names.retain(|name| !page.contains(&format!("`{name}`")));
    assert!(
        names.is_empty(),
        "docs/reference/results.md does not explain {names:?}"
    );
}

/// The keys of all objects in a value.
fn add_keys(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                names.insert(key.clone());
                add_keys(value, names);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| add_keys(value, names)),
        _ => {}
    }
}

#[test]
fn pages_are_taken_apart() {
    let page = page(
        "# A\n<!-- setup: true\nfalse -->\n<!-- needs: fuse, nbdinfo -->\n<!-- exact -->\n```console\n$ echo a \\\n  b\na b\n\
         $ sleep 9 &\n```\n\n<!-- not run: why -->\n\n```console\n$ rm x\n```\n\nIn prose.\n\n    futae serve --cache 1\n",
    );
    assert_eq!(page.setup, "true\nfalse");
    assert_eq!(page.needs, ["fuse", "nbdinfo"]);
    let [first, second, third] = &page.steps[..] else {
        panic!("{:?}", page.steps);
    };
    assert_eq!(
        (first.command.as_str(), first.shown.as_str()),
        ("echo a \\\n  b", "a b\n")
    );
    assert!(first.is_exact && first.not_run.is_none() && second.not_run.is_none());
    assert_eq!(third.not_run.as_deref(), Some("why"));
    assert_eq!(page.mistakes.len(), 1, "{:?}", page.mistakes);
}

#[test]
fn a_command_that_fails_or_prints_something_else_is_found() {
    let Some(isolated) = isolation() else {
        return;
    };
    let problems = |text: &str| try_page("a.md", &page(text), &isolated).len();
    assert_eq!(
        problems("```console\n$ true\n$ (echo ready; sleep 60) &\n$ test -e .steps\n```\n"),
        0
    );
    assert_eq!(problems("```console\n$ false\n$ (exit 3) &\n```\n"), 2);
    assert_eq!(
        problems("<!-- exact -->\n```console\n$ echo a\nb\n```\n"),
        1
    );
    assert_eq!(problems("<!-- fails -->\n```console\n$ true\n```\n"), 1);
    assert_eq!(
        problems("<!-- setup: false -->\n```console\n$ true\n```\n"),
        1
    );
    assert_eq!(problems("```console\n$ exit 0\n$ true\n```\n"), 2);
}

#[test]
fn an_unknown_option_is_found() {
    let reference = Source::new(
        "a.md",
        "# A\n\n## futae a\n\n- `-b, --b <C>`: x `--g`\n\n## futae a d\n\n- `--e`: y\n",
    );
    let unknown = |command: &str| unknown_options(command, &reference).count();
    assert_eq!(unknown("sudo futae a --b=1 x | grep --g"), 0);
    assert_eq!(unknown("futae a d --e --b 1"), 1);
    assert_eq!(unknown("futae a --g"), 1, "it is only spoken of");
    assert_eq!(unknown("futae z --b"), 1);
}
