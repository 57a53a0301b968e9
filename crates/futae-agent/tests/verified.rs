//! The kernel checks the programs without much work: what it keeps meanwhile is memory that a small guest may not have in
//! large enough pieces, and then somebody in it is killed.

use clap::Parser;
use futae_agent::args::Args;
use futae_agent::probe::Probe;
use futae_agent_protocol::Source;
use futae_testkit::need::{Need, skip};
use std::io::{Write, stderr};

/// A loop over the pages of a read took 61 921 on Linux 6.18; without it the most is 1 254.
const INSTRUCTIONS_MAX: u32 = 4000;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

#[test]
fn no_program_is_much_work_to_check() {
    let mut refused = Vec::new();
    let families = [
        &["agent", "--sample", "0.25", "--notices", "--top", "5"][..],
        &["agent", "--sample", "0.25", "--notices", "--functions"],
    ];
    for words in families {
        let args = Line::parse_from(words).args.check().expect("good");
        let (probe, why) = Probe::start(&args);
        let said = match (probe.source(), probe.verified_instructions()) {
            (Source::Vmstat, _) => {
                refused.push(why.unwrap_or_default().to_string());
                continue;
            }
            (_, None) => {
                skip(
                    Need::Ebpf,
                    "this kernel does not tell how it checks programs",
                );
                continue;
            }
            (source, Some(most)) => {
                assert!(most <= INSTRUCTIONS_MAX, "{source:?}: {most}");
                format!("{source:?}: {most} instructions at most")
            }
        };
        // A message that nobody can read is nobody's loss.
        let _ = writeln!(stderr(), "{said}");
    }
    // Kernels take one family of programs or both.
    match refused.as_slice() {
        [] => {}
        [one] => drop(writeln!(
            stderr(),
            "this kernel takes one family of programs: {one}"
        )),
        all => skip(Need::Ebpf, &all.join("; ")),
    }
}
