//! Every rule fires on a tree that breaks it, and only there.

use super::*;
use futae_tests::tidy::mask;

fn one(path: &str, text: &str) -> Vec<Source> {
    vec![Source::new(path, text)]
}

#[test]
fn comments_and_literals_are_not_code() {
    let text =
        "a /* b /* c */ d */ e // f\n\"g\\\" h\" i r#\"j\" k\"# l 'm' '\\'' 'n b\"o\" br\"p\"";
    let code = mask(text);
    let left: Vec<_> = code.split_whitespace().collect();
    assert_eq!(left, ["a", "e", "i", "l", "'n"]);
    assert_eq!(code.len(), text.len());
    assert_eq!(
        mask("for b in r { '\\u{1F600}' }").trim_end(),
        "for b in r {             }"
    );
}

#[test]
fn a_library_that_prints_is_found() {
    let prints = |path: &str, text: &str| {
        let library = Source::new(path, text);
        let root = Source::new(
            "crates/futae-host/src/lib.rs",
            "#[cfg(test)]\nmod golden;\n",
        );
        leftovers::check_printing(&[library, root]).len()
    };
    let bad = "fn f() {\n    eprintln!(\"a\");\n    println!(\"b\");\n}\n";
    assert_eq!(prints("crates/futae-host/src/stop.rs", bad), 2);
    assert_eq!(prints("crates/futae-host/src/stop.rs", "// println!\n"), 0);
    assert_eq!(prints("crates/futae-host/src/golden.rs", bad), 0);
    assert_eq!(prints("crates/futae-cli/src/table.rs", bad), 0);
    assert_eq!(prints("crates/futae-agent/src/main.rs", bad), 0);
    assert_eq!(prints("crates/futae-host/tests/stop.rs", bad), 0);
    let test = format!("#[cfg(test)]\nmod tests {{\n{bad}}}\n");
    assert_eq!(prints("crates/futae-host/src/stop.rs", &test), 0);
}

#[test]
fn a_manifest_against_the_order_is_found() {
    let kind = |from: &str, to: &str, kind: Option<&str>| {
        let on = serde_json::json!({ "name": to, "kind": kind });
        let packages = serde_json::json!([{ "name": from, "dependencies": [on] }]);
        dependencies::check_manifests(&serde_json::json!({ "packages": packages })).len()
    };
    let on = |from: &str, to: &str| kind(from, to, None);
    assert_eq!(on("futae-policy", "futae-sim"), 1);
    assert_eq!(on("futae-host", "futae-guest"), 1);
    assert_eq!(on("futae-guest", "futae-host"), 1);
    assert_eq!(on("futae-new", "serde"), 1);
    assert_eq!(on("futae-cli", "futae-tests"), 1);
    assert_eq!(on("futae-bench", "futae-sim"), 0);
    assert_eq!(on("futae-sim", "futae-policy"), 0);
    assert_eq!(on("futae-cli", "futae-guest"), 0);
    for laboratory in ["futae-lab", "futae-papers", "futae-machine"] {
        assert_eq!(on("futae-cli", laboratory), 1);
        assert_eq!(kind("futae-engine", laboratory, Some("dev")), 1);
        assert_eq!(kind("futae-agent", laboratory, Some("build")), 1);
    }
    assert_eq!(on("futae-lab", "futae-cli"), 0);
    assert_eq!(kind("futae-agent", "futae-machine", Some("dev")), 0);
    assert_eq!(kind("futae-agent", "futae-papers", Some("dev")), 1);
    assert_eq!(kind("futae-engine", "futae-testkit", Some("dev")), 0);
    assert_eq!(on("futae-engine", "futae-testkit"), 1);
}

#[test]
fn a_use_against_the_order_is_found() {
    let uses = |path: &str, text: &str| dependencies::check_uses(&one(path, text)).len();
    let policy = "crates/futae-policy/src/lib.rs";
    assert_eq!(uses(policy, "use futae_sim::Hierarchy;"), 1);
    assert_eq!(uses(policy, "fn f() { ::futae_engine::run() }"), 1);
    assert_eq!(
        uses("crates/futae-engine/tests/x.rs", "use futae_nbd as w;"),
        1
    );
    assert_eq!(uses("lab/papers/src/lib.rs", "use futae_tests::BLOCK;"), 1);
    let of_machine = "use futae_machine::Plan;";
    assert_eq!(uses("crates/futae-agent/src/run.rs", of_machine), 1);
    assert_eq!(
        uses("crates/futae-agent/tests/counts/main.rs", of_machine),
        0
    );
    assert_eq!(
        uses("crates/futae-guest/src/lib.rs", "use futae_host::Server;"),
        1
    );
    assert_eq!(
        uses(
            policy,
            "//! See [`futae_sim::Run`].\nuse futae_policy::Slot;"
        ),
        0
    );
    assert_eq!(
        uses("crates/futae-cli/src/main.rs", "use futae_host::Server;"),
        0
    );
}

#[test]
fn a_policy_that_looks_at_a_clock_is_found() {
    let check = |text: &str| {
        dependencies::check_policies(&one("crates/futae-policy/src/replace/x.rs", text)).len()
    };
    assert_eq!(check("use std::time::Instant;"), 1);
    assert_eq!(check("let file = std::fs::read(path);"), 1);
    assert_eq!(check("use std::collections::VecDeque; // not std::time"), 0);
    assert_eq!(check("#[cfg(test)]\nmod tests {\n    use std::fs;\n}"), 0);
    let golden = "use std::fs;";
    let of = |root: &str| {
        let place = "crates/futae-policy/src";
        dependencies::check_policies(&[
            Source::new(&format!("{place}/lib.rs"), root),
            Source::new(&format!("{place}/golden.rs"), golden),
        ])
        .len()
    };
    assert_eq!(of("mod golden;"), 1);
    assert_eq!(of("#[cfg(test)]\nmod golden;"), 0);
}

#[test]
fn a_long_file_is_found_and_its_tests_do_not_count() {
    let length = |text: &str| sizes::check(&one("crates/a/src/lib.rs", text)).len();
    let code = "fn f() {}\n".repeat(sizes::LINES_MAX);
    let tests = "#[cfg(test)]\nmod tests {\n    fn g() { '}'; }\n}\n";
    assert_eq!(length(&code), 0);
    assert_eq!(length(&format!("{code}{}", tests.repeat(30))), 0);
    assert_eq!(length(&format!("{code}#[cfg(test)]\nmod reference;\n")), 0);
    assert_eq!(length(&format!("{tests}{code}fn h() {{}}\n")), 1);
    assert_eq!(length(&format!("{code}// a comment is a line\n")), 1);
}

#[test]
fn unsafe_in_the_wrong_place_or_unexplained_is_found() {
    let check = |path: &str, text: &str| unsafety::check(&one(path, text)).len();
    let named = unsafety::NAMED[0];
    let explained = "// SAFETY: it is sound,\n// really.\n#[expect(x)]\nlet a = unsafe { b() };";
    assert_eq!(check(named, explained), 0);
    assert_eq!(check(named, "let a = unsafe { b() };"), 1);
    let foreign = "type A = unsafe extern \"C\" fn(u32);\n";
    assert_eq!(check(named, &format!("{foreign}{explained}")), 0);
    let function = "unsafe extern \"C\" fn a() {}";
    assert_eq!(check(named, &format!("{explained}\n{function}")), 1);
    let far = format!("{explained}\nlet c = 1;\nlet a = unsafe {{ b() }};");
    assert_eq!(check(named, &far), 1);
    assert_eq!(check("crates/futae-sim/src/lib.rs", explained), 1);
    let in_words = "// unsafe\n#![forbid(unsafe_code)]\nlet a = \"unsafe\";";
    assert_eq!(check("crates/futae-sim/src/lib.rs", in_words), 0);
    assert_eq!(
        check(named, "fn safe() {}"),
        1,
        "a list that is out of date"
    );
}

const CARD: &str = "//! Goes first.\n//!\n//! # Source\n//! a\n//! # Picture\n//! b\n\
    //! # Transitions\n//! c\n//! # Parameters\n//! none\n//! # Deviations\n//! none\n\
    //! # Cost\n//! O(1)\n\n#[cfg(test)]\nmod reference {}\n#[cfg(test)]\nmod tests {}\n";

#[test]
fn an_incomplete_policy_is_found() {
    let registry = Source::new(
        "crates/futae-policy/src/registry.rs",
        "policies! {\n    good = \"good\",\n}",
    );
    let check = |name: &str, text: &str| {
        let path = format!("crates/futae-policy/src/replace/{name}.rs");
        cards::check(&[Source::new(&path, text), registry.clone()]).len()
    };
    assert_eq!(check("good", CARD), 0);
    assert_eq!(
        check("good", &CARD.replace("mod ref", "pub(super) mod ref")),
        0
    );
    assert_eq!(check("mod", "pub mod good;"), 0);
    assert_eq!(check("other", CARD), 1);
    assert_eq!(check("good", &CARD.replace("//! # Cost\n", "")), 1);
    assert_eq!(check("good", &CARD.replace("//! O(1)\n", "")), 1);
    assert_eq!(check("good", &CARD.replace("//! Goes first.\n", "")), 1);
    assert_eq!(
        check("good", &CARD.replace("mod reference", "mod model")),
        1
    );
    assert_eq!(
        check(
            "good",
            &CARD.replace("#[cfg(test)]\nmod tests", "mod tests")
        ),
        1
    );
    assert_eq!(check("good", &CARD.replace("mod tests", "// mod tests")), 1);
}

#[test]
fn a_policy_by_name_is_found() {
    let names = ["lru", "two-handed-clock"];
    let check = |path: &str, text: &str| policy_names::check(&one(path, text), &names).len();
    let product = "crates/futae-cli/src/main.rs";
    assert_eq!(check(product, "if policy.name == \"lru\" {}"), 1);
    assert_eq!(check(product, "\n\nparse(\"lru(depth=2)\");"), 1);
    assert_eq!(check(product, "// \"lru\"\nlet a = \"use lru\";"), 0);
    assert_eq!(
        check(
            product,
            "#[cfg(test)]\nmod tests { const A: &str = \"lru\"; }"
        ),
        0
    );
    let own = "crates/futae-policy/src/replace/two_handed_clock.rs";
    assert_eq!(check(own, "f(\"two-handed-clock\"); g(\"lru\");"), 1);
    assert_eq!(check("papers/src/lib.rs", "f(\"lru\");"), 0);
    let golden = Source::new("crates/futae-policy/src/golden.rs", "f(\"lru\");");
    let root = |text: &str| Source::new("crates/futae-policy/src/lib.rs", text);
    let both = |text: &str| policy_names::check(&[root(text), golden.clone()], &names).len();
    assert_eq!(both("mod golden;"), 1);
    assert_eq!(both("#[cfg(test)]\nmod golden;"), 0);
    let (path, text, _) = policy_names::OTHER_MEANINGS[2];
    let listed = |code: &str| policy_names::check(&one(path, code), &[text]).len();
    assert_eq!(listed(&format!("json!({{ \"{text}\": 1 }})")), 0);
    assert_eq!(listed("nothing"), 1, "a list that is out of date");
}

#[test]
fn unfinished_work_is_found() {
    let check = |path: &str, text: String| leftovers::check_unfinished(&one(path, &text)).len();
    for mark in [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ] {
        assert_eq!(check("a.rs", format!("// {mark}: later")), 1);
        assert_eq!(check("README.md", format!("{mark}: write this")), 1);
        assert_eq!(check("a.sh", format!("mktemp {mark}{mark}")), 0);
    }
    assert_eq!(check("a.rs", format!("fn f() {{ {}!() }}", "todo")), 1);
    assert_eq!(
        check("a.rs", format!("fn f() {{ {}!(\"x\") }}", "unimplemented")),
        1
    );
    assert_eq!(
        check("a.rs", "// unimplemented so far\nlet todo = 1;".to_owned()),
        0
    );
}

#[test]
fn an_ignored_test_is_found() {
    let check = |text: &str| leftovers::check_ignored(&one("a.rs", text)).len();
    assert_eq!(check("#[test]\n#[ignore]\nfn f() {}"), 1);
    assert_eq!(check("#[test]\n    #[ignore = \"slow\"]\nfn f() {}"), 1);
    assert_eq!(check("// #[ignore]\n#[ignored_by(x)]\nfn f() {}"), 0);
}

#[test]
fn a_path_of_one_machine_is_found() {
    let check = |text: &str| leftovers::check_workplaces(&one("a.md", text)).len();
    for place in ["wo:rk", "ho:me", "ro:ot", "Us:ers"].map(|name| name.replace(':', "")) {
        assert_eq!(check(&format!("see /{place}/x/y")), 1);
        assert_eq!(check(&format!("\"/{place}/x\"")), 1);
        assert_eq!(
            check(&format!("net/{place}/x, ../{place}/x, $D/{place}/x")),
            0
        );
    }
}

#[test]
fn a_reference_to_an_absent_document_is_found() {
    let check = |text: &str| leftovers::check_absent(&one("a.rs", text)).len();
    for name in ["SP:EC", "HO:USE", "FI:ELD"].map(|name| name.replace(':', "")) {
        assert_eq!(check(&format!("//! as the paper has it ({name} 1.2c)")), 1);
        assert_eq!(check(&format!("// {name} E2 at 1/16 of its size")), 1);
        assert_eq!(
            check(&format!("//! touches ({name}\n//! 3.2d); a review")),
            1
        );
        assert_eq!(check(&format!("See {name}.md.")), 1);
        assert_eq!(
            check(&format!("const {name}: u32 = 4;\nlet x = {name};\n1")),
            0
        );
    }
}

#[test]
fn a_phrase_that_must_be_read_twice_is_found() {
    let check = |path: &str, text: &str| english::check(&one(path, text)).len();
    for phrase in [
        "Who:ever asks",
        "reads of so: many bytes",
        "for want: of memory",
        "it is no: use",
    ] {
        let text = phrase.replace(':', "");
        assert_eq!(check("a.rs", &format!("/// {text}")), 1, "{text}");
        assert_eq!(check("a.md", &text), 1, "{text}");
        assert_eq!(check("lab/results/2026-11-22-a.md", &text), 0, "{text}");
    }
    assert_eq!(check("a.md", &"What is no: program".replace(':', "")), 1);
    assert_eq!(check("a.rs", "what is not a program, is no user"), 0);
}

#[test]
fn a_second_title_is_found() {
    let check = |text: &str| documents::check_titles(&one("a.md", text)).len();
    assert_eq!(check("# A\n\n## B\n\n```sh\n# a comment\n```\n"), 0);
    assert_eq!(check("# A\n\n# B\n"), 1);
    assert_eq!(check("A\n"), 1);
}

#[test]
fn a_change_log_out_of_shape_is_found() {
    let check = |text: &str| documents::check_changelog(&Source::new("CHANGELOG.md", text)).len();
    let good = "# Changelog\n\nWords.\n\n## Unreleased\n\n### Added\n\n- a\n  b\n\n\
                ## 0.2.0 - 2030-01-31\n\n- c\n\n## 0.1.0 - 2029-01-31\n\n- d\n";
    assert_eq!(check(good), 0);
    assert_eq!(check(&good.replace("# Changelog", "# Changes")), 1);
    assert_eq!(check(&good.replace("0.2.0 -", "0.0.9 -")), 1);
    assert_eq!(check(&good.replace("2030-01-31", "soon")), 1);
    assert_eq!(check(&good.replace("- c", "c")), 1);
    assert_eq!(check(&good.replace("Words.", "- word")), 1);
    assert_eq!(check("# Changelog\n"), 1);
}
