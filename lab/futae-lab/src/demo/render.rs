//! The report for people: a row for each run.

use super::outcome::{Figures, GuestsReport, GuestsRun};
use futae_terminal::table::{Table, count, percent};
use std::time::Duration;

impl GuestsReport {
    /// Text with a table.
    pub fn render(&self) -> String {
        let mib = |blocks: u64| (blocks * self.block_bytes) >> 20;
        let target = if self.files {
            "a file of ext4"
        } else {
            "its disk"
        };
        let mut text = format!(
            "{} guests, each of which works on {target} of {} MiB by {} bytes, {} of it writes:\n\
             {} operations each after {} of warm-up; {} MiB of the host's memory are used in each of these ways\n\n",
            self.guests,
            mib(self.image_blocks),
            self.block_bytes,
            percent(Some(self.writes)),
            count(self.requests),
            count(self.warmup_requests),
            mib(u64::from(self.lower_blocks)),
        );
        let mut table = Table::new([
            "Linux",
            "choice",
            "store",
            "way",
            "page cache",
            "upper hit",
            "lower hit",
            "predicted",
            "store reads",
            "predicted",
            "reads/s",
        ]);
        for run in &self.runs {
            table.row([
                run.linux(),
                run.choice.clone(),
                run.latency(),
                run.label(),
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
            text.push_str(&demotions(run));
        }
        text
    }
}

impl GuestsRun {
    /// What came of it, in a line that says where it belongs.
    pub fn line(&self) -> String {
        format!(
            "Linux {}, {}, store {}, {}: {} store reads, predicted {}; lower hit {}, predicted {}; {} reads/s{}",
            self.linux(),
            self.choice,
            self.latency(),
            self.label(),
            count(self.measured.store_reads),
            count(self.predicted.store_reads),
            lower(&self.measured),
            lower(&self.predicted),
            count(self.guest_reads_per_second as u64),
            demotions(self).trim_end().replace('\n', "; "),
        )
    }

    /// The first two numbers of the kernel's release.
    fn linux(&self) -> String {
        let numbers: Vec<&str> = self.kernel.splitn(3, '.').take(2).collect();
        numbers.join(".")
    }

    fn latency(&self) -> String {
        match self.store_latency_us {
            0 => "at once".to_owned(),
            us => format!("+{:?}", Duration::from_micros(us)),
        }
    }

    /// The way, and how it has its disks.
    fn label(&self) -> String {
        match self.disk {
            Some(disk) => format!("{}, {disk}", self.way),
            None => self.way.to_string(),
        }
    }
}

fn lower(of: &Figures) -> String {
    of.lower_hit
        .map_or("-".to_owned(), |_| percent(of.lower_hit))
}

/// What came from the page caches, where anything could.
fn demotions(run: &GuestsRun) -> String {
    if run.feed == "none" {
        return String::new();
    }
    format!(
        "\n{} below Linux {} ({}): {} of the evicted blocks came with their data, {} by number; {} were refused; \
         {} of {} that were compared with the store were wrong; {} store reads were for notices\n",
        run.label(),
        run.linux(),
        run.choice,
        percent(run.with_data),
        count(run.notices),
        count(run.refused),
        count(run.wrong),
        count(run.compared),
        count(run.measured.notice_reads),
    )
}
