//! The kernel's verifier takes the programs.

use futae_page_cache::{Pages, Watch, kernel};
use futae_testkit::need::{Need, skip};
use std::path::Path;

#[test]
fn both_kinds_of_numbers_load() {
    let files = Pages::Of {
        first_inode: 2,
        files: &[10, 5000],
    };
    for pages in [files, Pages::AtMost(20_000)] {
        match Watch::load(pages) {
            Ok(watch) => {
                assert!(!watch.has_begun() && watch.pages_max() >= 5010);
                assert_eq!((watch.present_pages(), watch.is_present(2, 3)), (0, false));
                let has_mapped = watch.look_at_mapped().expect("no page is mapped");
                assert!(!has_mapped);
                if cfg!(target_arch = "x86_64") {
                    assert_eq!(watch.why_no_looks(), None);
                }
            }
            Err(error) => {
                let said = format!("{error:#}");
                let may_load = kernel::may_load_bpf() && Path::new(kernel::DESCRIPTION).exists();
                // A kernel that is older has no such tracepoint.
                assert!(!may_load || !said.contains("BPF_PROG_LOAD"), "{said}");
                return skip(Need::Ebpf, &said);
            }
        }
    }
}
