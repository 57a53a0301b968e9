//! The report for people: a row for each way.

use super::outcome::{Figures, GuestsReport, GuestsRun};
use futae_terminal::table::{Table, count, percent};

impl GuestsReport {
    /// Text with a table.
    pub fn render(&self) -> String {
        let mib = |blocks: u64| (blocks * self.block_bytes) >> 20;
        let mut text = format!(
            "{} guests with Linux {}, each of which reads its disk of {} MiB ({}) by {} bytes:\n\
             {} reads each after {} of warm-up; {} MiB of the host's memory, used in each of these ways\n\n",
            self.guests,
            self.kernel,
            mib(self.image_blocks),
            self.choice,
            self.block_bytes,
            count(self.requests),
            count(self.warmup_requests),
            mib(u64::from(self.lower_blocks)),
        );
        let mut table = Table::new([
            "way",
            "page cache",
            "upper hit",
            "lower hit",
            "predicted",
            "store reads",
            "predicted",
            "reads/s",
        ]);
        let lower = |of: &Figures| {
            of.lower_hit
                .map_or("-".to_owned(), |_| percent(of.lower_hit))
        };
        for run in &self.runs {
            table.row([
                run.way.name().to_owned(),
                format!("{} MiB", mib(u64::from(run.page_cache_blocks))),
                percent(run.measured.upper_hit),
                lower(&run.measured),
                lower(&run.predicted),
                count(run.measured.store_reads),
                count(run.predicted.store_reads),
                count(run.guest_reads_per_second as u64),
            ]);
        }
        text.push_str(&table.render());
        for run in &self.runs {
            text.push_str(&handed_down(run));
        }
        text
    }
}

/// What came from the page caches, where anything could.
fn handed_down(run: &GuestsRun) -> String {
    if run.feed == "none" {
        return String::new();
    }
    format!(
        "\n{}: {} evicted blocks came with their data, {} by number; {} store reads were for the latter\n",
        run.way.name(),
        count(run.demotions),
        count(run.notices),
        count(run.measured.notice_reads),
    )
}
