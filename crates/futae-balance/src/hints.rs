//! What is missing to balance a guest, and the line that mends it.

use crate::actuator::Actuator;
use futae_agent_protocol::Source;
use futae_agent_protocol::receiver::AgentStatus;
use std::path::Path;

/// Pages read in a period of which an agent that samples would have sampled some.
const PAGES_MIN: u64 = 10_000;

/// What a guest lacks to be balanced, as a sentence; none if it lacks nothing.
///
/// `needs_curve` says whether the evaluator divides by curves, which are made of sampled reads; `accesses` are the
/// pages that the guest read in this period.
pub(crate) fn hint(
    name: &str,
    path: &Path,
    agent: &AgentStatus,
    needs_curve: bool,
    accesses: u64,
) -> Option<String> {
    let Some(seconds) = agent.last_frame_seconds else {
        return Some(format!(
            "{name}: no agent has reported at unix:{}; run in the guest: {}",
            path.display(),
            line(needs_curve)
        ));
    };
    if !agent.connected {
        return Some(format!(
            "{name}: its agent has been silent for {seconds:.0} s, or its connection is gone"
        ));
    }
    if !needs_curve || agent.sampled_reads > 0 || agent.samples == 0 {
        return None;
    }
    if agent.source == Some(Source::Vmstat) {
        return Some(format!(
            "{name}: its agent counts by /proc/vmstat and cannot sample reads, of which the miss-ratio curve is made; \
             it needs root (or CAP_BPF and CAP_PERFMON), and Linux 6.1 or later with BTF; \
             evaluator = \"paper\" does without"
        ));
    }
    (accesses >= PAGES_MIN).then(|| {
        format!(
            "{name}: its agent sends page counts, but no sampled reads, of which the miss-ratio curve is made; \
             run in the guest: {}",
            line(true)
        )
    })
}

/// What a guest's balloon lacks for a host that wants memory back.
pub(crate) fn keeps_freed_pages(name: &str, actuator: &Actuator) -> String {
    let mend = match actuator {
        Actuator::Virsh { .. } => "<memballoon model='virtio' freePageReporting='on'/>",
        _ => "-device virtio-balloon-pci,free-page-reporting=on",
    };
    format!("{name}: the host does not get the pages that the guest frees; start it with: {mend}")
}

fn line(samples: bool) -> &'static str {
    if samples {
        "futae agent --report /dev/virtio-ports/futae.0 --sample 0.01"
    } else {
        "futae agent --report /dev/virtio-ports/futae.0"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_the_line_that_mends_it() {
        let path = Path::new("/run/vm.agent");
        let hint = |agent: &AgentStatus, accesses| hint("vm", path, agent, true, accesses);
        let said = |agent: &AgentStatus, words: &str| {
            let said = hint(agent, PAGES_MIN).expect(words);
            assert!(said.starts_with("vm: ") && said.contains(words), "{said}");
        };
        let mut agent = AgentStatus::default();
        said(&agent, "no agent has reported at unix:/run/vm.agent");
        agent.last_frame_seconds = Some(20.0);
        said(&agent, "silent for 20 s");
        (agent.connected, agent.samples) = (true, 9);
        agent.source = Some(Source::Functions);
        said(&agent, "--sample 0.01");
        assert_eq!(hint(&agent, 10), None, "it may be idle");
        assert_eq!(super::hint("vm", path, &agent, false, PAGES_MIN), None);
        agent.source = Some(Source::Vmstat);
        said(&agent, "CAP_BPF");
        agent.sampled_reads = 1;
        assert_eq!(hint(&agent, PAGES_MIN), None);
    }
}
