//! No files of a crate stand in a circle, and the rule that says so finds circles, and only those.

use futae_tests::tidy::{Source, circles, sources};

#[test]
fn no_files_stand_in_a_circle() {
    let found = circles::check(&sources());
    let list: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "\n{}", list.join("\n"));
}

#[test]
fn a_circle_between_files_is_found() {
    let check = |files: &[(&str, &str)]| {
        let of = |&(path, text): &(&str, &str)| {
            Source::new(&format!("crates/futae-engine/src/{path}"), text)
        };
        let files: Vec<_> = files.iter().map(of).collect();
        let found = circles::check(&files);
        found.into_iter().map(|finding| finding.problem).collect()
    };
    let none: [String; 0] = [];
    let found: Vec<_> = check(&[
        ("a.rs", "use super::b::B;\nstruct A;"),
        ("b.rs", "use crate::c::{D, E as F};\nstruct B;"),
        ("c.rs", "pub fn f() {\n    let a = super::a::A::new();\n}\n"),
        ("d.rs", "use super::a::A;"),
    ]);
    assert_eq!(found, ["uses b, which uses c, which uses it"]);
    // Through what a module exports, and between a module and its own parts.
    let found: Vec<_> = check(&[
        ("lib.rs", "mod a;\nmod b;\npub use a::{A, x::X};\n"),
        ("a.rs", "mod x;\nuse x::X;\npub struct A(X);"),
        ("a/x.rs", "use crate::A;\npub struct X;"),
        ("b.rs", "use crate::X;"),
    ]);
    assert_eq!(found, ["uses a::x, which uses it"]);
    let found: Vec<_> = check(&[
        (
            "lib.rs",
            "mod a;\nmod b;\npub use a::A;\npub(crate) use b::B;\n",
        ),
        (
            "a.rs",
            "use super::b::B;\n//! use super::a::A;\n#[cfg(test)]\nmod tests {\n    use crate::B;\n}",
        ),
        (
            "b.rs",
            "use std::fs;\n// use super::a::A;\n#[cfg(test)]\nmod tests {\n    use crate::A;\n}",
        ),
    ]);
    assert_eq!(found, none, "tests may use what they test");
}

#[test]
fn every_crate_is_looked_at() {
    for root in [
        "crates/futae-engine",
        "lab/vm",
        "python",
        "tests",
        "tests/vopr",
    ] {
        let of = |path: &str, text: &str| Source::new(&format!("{root}/src/{path}"), text);
        // A library with a program has two roots.
        let files = [
            of("lib.rs", "mod a;\nuse a::A;\npub struct L(A);"),
            of("a.rs", "use crate::L;\npub struct A(L);"),
            of("main.rs", "fn main() {}"),
        ];
        let found = circles::check(&files);
        let found: Vec<_> = found.into_iter().map(|finding| finding.problem).collect();
        assert_eq!(found, ["uses a, which uses it"], "{root}");
    }
}

#[test]
fn only_the_grammar_of_workloads_is_recursive() {
    let check = |files: &[(&str, &str)]| -> Vec<String> {
        let of = |&(path, text): &(&str, &str)| {
            Source::new(&format!("crates/futae-trace/src/{path}"), text)
        };
        let files: Vec<_> = files.iter().map(of).collect();
        let found = circles::check(&files);
        found.into_iter().map(|finding| finding.problem).collect()
    };
    let inside = [
        ("workload/a.rs", "use super::b::B;\nstruct A;"),
        ("workload/b.rs", "use super::a::A;\nstruct B;"),
    ];
    assert!(check(&inside).is_empty());
    let outside = ("write.rs", "use crate::workload::a::A;\nstruct W;");
    assert!(check(&[inside[0], inside[1], outside]).is_empty());
    let found = check(&[
        ("workload/mod.rs", "pub mod a;"),
        ("workload/a.rs", "use crate::write::W;\nstruct A;"),
        outside,
    ]);
    assert_eq!(found, ["uses write, which uses it"]);
}
