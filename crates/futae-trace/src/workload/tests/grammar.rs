//! What can be written, and what is said about the rest.

use super::spec;
use crate::workload::{WorkloadSpec, workloads};
use crate::{BlockRequest, BlockStream};
use proptest::prelude::{
    Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

fn message(text: &str) -> String {
    text.parse::<WorkloadSpec>().expect_err(text).to_string()
}

#[test]
fn an_error_says_what_is_wrong_and_where_and_what_is_known() {
    let cases = [
        (
            "zipff(1.0):10GiB",
            1,
            "unknown workload `zipff` (did you mean `zipf`?)",
        ),
        (
            "Loop:1GiB",
            1,
            "unknown workload `Loop` (did you mean `loop`?)",
        ),
        ("sequential:1GiB", 1, "unknown workload `sequential`"),
        ("", 1, "unknown workload ``"),
        ("-", 1, "unknown workload `-` (did you mean `/dev/stdin`?)"),
        (
            "zipf:10GiB",
            1,
            "`zipf` needs its exponent, as in `zipf(1.0):10GiB`",
        ),
        (
            "zipf(x):10GiB",
            6,
            "`x` is not an exponent above 0 and up to 20",
        ),
        (
            "zipf(0):10GiB",
            6,
            "`0` is not an exponent above 0 and up to 20",
        ),
        (
            "zipf(NaN):10GiB",
            6,
            "`NaN` is not an exponent above 0 and up to 20",
        ),
        (
            "zipf(1, 2):10GiB",
            9,
            "found `2` instead of `)` or `key=value`",
        ),
        (
            "uniform(3):10GiB",
            9,
            "found `3` instead of `)` or `key=value`",
        ),
        ("uniform", 1, "`uniform` needs a size, as in `:10GiB`"),
        ("uniform:10%", 9, "`10%` is not a size in bytes or blocks"),
        (
            "uniform(write=0.1):1GiB",
            9,
            "`uniform` has no parameter `write` (did you mean `writes`?)",
        ),
        (
            "uniform(writes=2):1GiB",
            16,
            "`2` is not a share of writes from 0 to 1",
        ),
        (
            "uniform(writes=0, writes=1):1GiB",
            19,
            "`writes` is given twice",
        ),
        (
            "uniform(writes=0",
            8,
            "a bracket is not closed or not opened",
        ),
        ("uniform):1GiB", 8, "a bracket is not closed or not opened"),
        (
            "uniform()x:1GiB",
            10,
            "found `x:1GiB` instead of `:SIZE` or the end",
        ),
        ("0*loop:1GiB", 1, "`0` is not a rate above 0 and up to 1e6"),
        (
            "2*lop:1GiB",
            3,
            "unknown workload `lop` (did you mean `loop`?)",
        ),
        (
            "mix()",
            1,
            "`mix` needs at least one part, as in `3*uniform:1GiB`",
        ),
        (
            "mix(uniform:1GiB)",
            5,
            "found `uniform:1GiB` instead of a number, `*` and a workload",
        ),
        (
            "mix(1*loop:1GiB, 0*loop:1GiB)",
            18,
            "`0` is not a weight above 0 and up to 1e9",
        ),
        (
            "mix(1*loop:1GiB, 1*lop:1GiB)",
            20,
            "unknown workload `lop` (did you mean `loop`?)",
        ),
        (
            "mix(1*loop:1GiB):1GiB",
            18,
            "found `1GiB` instead of nothing: the parts have the sizes",
        ),
        (
            "mix(1*loop:1GiB, space=own)",
            24,
            "found `own` instead of `shared` or `apart`",
        ),
        (
            "phase(1.5*loop:1GiB)",
            7,
            "`1.5` is not a number of requests, at least 1",
        ),
        (
            "shift(loop:1GiB)",
            1,
            "`shift` needs the number of requests between shifts, `every=100000`",
        ),
        (
            "shift(every=3)",
            1,
            "`shift` needs a workload, as in `zipf(1.0):10GiB`",
        ),
    ];
    for (text, character, what) in cases {
        let start = format!("workload `{text}`: at character {character}: {what}");
        let message = message(text);
        assert!(
            message.starts_with(&start),
            "{message}\nshould begin with\n{start}"
        );
        for workload in workloads() {
            assert!(message.contains(workload.example), "{message}");
        }
    }
    assert!(message("uniform:10GB").contains("at character 9: `10GB` is not a size"));
    assert!(message("→(:1GiB").contains("at character 2: a bracket"));
    let deep = format!("{}loop:1GiB{}", "mix(1*".repeat(20), ")".repeat(20));
    assert!(message(&deep).contains("nested more than 8 deep"));
}

#[test]
fn a_workload_must_fit_its_blocks() {
    let message = |text| match spec(text).generator(4096, 1) {
        Ok(_) => panic!("{text}"),
        Err(e) => e.to_string(),
    };
    assert_eq!(
        message("uniform:6KiB"),
        "workload `uniform:6KiB`: 6KiB is not a multiple of the block size 4KiB"
    );
    assert_eq!(
        message("loop:0"),
        "workload `loop:0`: the workload has 0 blocks; it must have from 1 to 2^48"
    );
    assert!(message("loop:281474976710657blocks").contains("it must have from 1 to 2^48"));
    let sum = "mix(1*loop:281474976710656blocks, 1*loop:1blocks)";
    assert!(message(sum).contains("it must have from 1 to 2^48"));
}

fn any_simple() -> impl Strategy<Value = String> {
    let head = prop_oneof![
        Just(("uniform", None)),
        Just(("loop", None)),
        Just(("scan", None)),
        (1e-6..20.0).prop_map(|e: f64| ("zipf", Some(e))),
        (1e-6..4.0).prop_map(|s: f64| ("normal", Some(s))),
    ];
    (
        head,
        prop::option::of(0.0..=1.0),
        1u64..1 << 40,
        any::<bool>(),
    )
        .prop_map(
            |((name, parameter), writes, size, in_blocks): (_, Option<f64>, _, _)| {
                let arguments: Vec<String> = parameter
                    .map(|p: f64| p.to_string())
                    .into_iter()
                    .chain(writes.map(|w| format!("writes={w}")))
                    .collect();
                let unit = if in_blocks { "blocks" } else { "" };
                format!("{name}({}):{size}{unit}", arguments.join(","))
            },
        )
}

fn any_spec() -> impl Strategy<Value = String> {
    any_simple().prop_recursive(4, 12, 3, |inner| {
        let parts = prop::collection::vec((1u64..1_000_000, inner.clone()), 1..4);
        prop_oneof![
            (parts, any::<bool>(), any::<bool>()).prop_map(|(parts, shared, mix)| {
                let mut arguments: Vec<String> = parts
                    .iter()
                    .map(|(number, part)| format!("{number} * {part}"))
                    .collect();
                arguments.extend(shared.then(|| "space=shared".to_owned()));
                format!(
                    "{}({})",
                    if mix { "mix" } else { "phase" },
                    arguments.join(" , ")
                )
            }),
            (inner, 1u64..u64::MAX)
                .prop_map(|(part, every)| format!("shift({part}, every={every})")),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_shown_reads_back(text in any_spec(), rate in prop::option::of(0.001..1e6)) {
        let text = rate.map_or_else(|| text.clone(), |rate: f64| format!("{rate} * {text}"));
        let spec = spec(&text);
        prop_assert_eq!(spec.rate(), rate.unwrap_or(1.0));
        let again = spec.to_string().parse::<WorkloadSpec>();
        prop_assert_eq!(again.as_ref(), Ok(&spec));
        prop_assert_eq!(again.map(|s| s.to_string()), Ok(spec.to_string()));
    }

    #[test]
    fn requests_stay_within_the_footprint(text in any_spec(), seed in any::<u64>()) {
        let spec = spec(&text);
        if let (Ok(blocks), Ok(mut generator)) = (spec.blocks(1), spec.generator(1, seed)) {
            let mut batch = [BlockRequest::default(); 64];
            generator.fill(&mut batch);
            prop_assert!(batch.iter().all(|request| request.block() < blocks));
        }
    }

    #[test]
    fn garbage_is_refused_without_panic(
        text in "\\PC{0,40}|(mix|phase|shift|zipf|loop)?[(]{0,12}[-a-z0-9.,:=*() →]{0,40}",
    ) {
        if let Err(e) = text.parse::<WorkloadSpec>() {
            let _ = e.to_string();
        }
    }
}
