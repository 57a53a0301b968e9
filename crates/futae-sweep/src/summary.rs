//! What the seeds of a sweep come to: means, and how far they may be off.

use futae_sim::forecast::Estimate;
use futae_sim::run::{Column, Values};
use std::collections::HashMap;

/// Columns of figures, with the names of their mean and of half the width of its interval.
const FIGURES: [[&str; 3]; 8] = [
    ["hit_ratio", "hit_ratio_mean", "hit_ratio_half_width"],
    [
        "byte_miss_ratio",
        "byte_miss_ratio_mean",
        "byte_miss_ratio_half_width",
    ],
    [
        "all_miss_ratio",
        "all_miss_ratio_mean",
        "all_miss_ratio_half_width",
    ],
    [
        "all_byte_miss_ratio",
        "all_byte_miss_ratio_mean",
        "all_byte_miss_ratio_half_width",
    ],
    [
        "all_read_miss_ratio",
        "all_read_miss_ratio_mean",
        "all_read_miss_ratio_half_width",
    ],
    ["store_reads", "store_reads_mean", "store_reads_half_width"],
    [
        "store_writes",
        "store_writes_mean",
        "store_writes_half_width",
    ],
    [
        "mean_access_seconds",
        "mean_access_seconds_mean",
        "mean_access_seconds_half_width",
    ],
];
/// What the rows of a group have in common.
const COMMON: [&str; 6] = [
    "source",
    "hierarchy",
    "level",
    "policy",
    "capacity_blocks",
    "capacity_bytes",
];

/// A row for each level of each hierarchy on each source, over all seeds, from the table of a sweep: how many seeds
/// there are, and for each figure the mean and half the width of its 95 % confidence interval (Student's t), which
/// has no value for fewer than two seeds.
#[must_use]
pub fn summary(table: &[Column]) -> Vec<Column> {
    let common = table.iter().filter(|column| COMMON.contains(&column.name));
    let common: Vec<&Column> = common.collect();
    let rows = table.first().map_or(0, |first| first.values.len());
    // The capacity goes with the source and the hierarchy: a workload has as many blocks with each seed.
    let keys = ["source", "hierarchy", "level"];
    let keys = common.iter().filter(|column| keys.contains(&column.name));
    let keys: Vec<&&Column> = keys.collect();
    let mut numbers = HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for row in 0..rows {
        let key = keys.iter().map(|column| column.values.text(row));
        let number = *numbers
            .entry(key.collect::<Vec<_>>())
            .or_insert(groups.len());
        if number == groups.len() {
            groups.push(Vec::new());
        }
        groups[number].push(row);
    }
    let firsts: Vec<usize> = groups.iter().map(|group| group[0]).collect();
    let mut all: Vec<Column> = common
        .iter()
        .map(|column| Column {
            name: column.name,
            values: at_rows(&column.values, &firsts),
        })
        .collect();
    let seeds = groups.iter().map(|group| group.len() as u64);
    all.push(Column {
        name: "seeds",
        values: Values::Counts(seeds.collect()),
    });
    for [figure, mean, half_width] in FIGURES {
        let Some(column) = table.iter().find(|column| column.name == figure) else {
            continue;
        };
        let found: Vec<_> = groups
            .iter()
            .map(|group| of_group(&column.values, group))
            .collect();
        for (name, values) in [
            (mean, found.iter().map(|it| it.0).collect()),
            (half_width, found.iter().map(|it| it.1).collect()),
        ] {
            all.push(Column {
                name,
                values: Values::Numbers(values),
            });
        }
    }
    all
}

fn at_rows(values: &Values, rows: &[usize]) -> Values {
    match values {
        Values::Counts(counts) => Values::Counts(rows.iter().map(|&row| counts[row]).collect()),
        Values::Numbers(numbers) => Values::Numbers(rows.iter().map(|&row| numbers[row]).collect()),
        Values::Texts(texts) => Values::Texts(rows.iter().map(|&row| texts[row].clone()).collect()),
    }
}

/// The mean, and half the width of its interval. There is no mean if a run has no figure.
fn of_group(values: &Values, group: &[usize]) -> (Option<f64>, Option<f64>) {
    let figure = |&row: &usize| match values {
        Values::Counts(counts) => counts.get(row).map(|&count| count as f64),
        Values::Numbers(numbers) => numbers.get(row).copied().flatten(),
        Values::Texts(_) => None,
    };
    let Some(figures) = group.iter().map(figure).collect::<Option<Vec<f64>>>() else {
        return (None, None);
    };
    let mean = figures.iter().sum::<f64>() / figures.len() as f64;
    let half_width = (figures.len() > 1).then(|| Estimate::half_width_of_mean(&figures));
    (Some(mean), half_width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &'static str, values: Values) -> Column {
        Column { name, values }
    }

    fn texts(all: &[&str]) -> Values {
        Values::Texts(all.iter().map(|&text| text.to_owned()).collect())
    }

    #[test]
    fn seeds_are_a_mean_and_its_interval() {
        let table = [
            column("cell", Values::Counts((0..7).collect())),
            column("source", texts(&["a", "b", "a", "b", "a", "b", "a"])),
            column("hierarchy", texts(&["x", "x", "x", "x", "x", "x", "y"])),
            column("capacity_blocks", Values::Counts(vec![1, 2, 1, 2, 1, 2, 9])),
            column(
                "hit_ratio",
                Values::Numbers(vec![
                    Some(0.1),
                    Some(0.5),
                    Some(0.2),
                    None,
                    Some(0.6),
                    Some(0.5),
                    Some(0.7),
                ]),
            ),
            column("store_reads", Values::Counts(vec![4, 1, 4, 1, 4, 1, 8])),
        ];
        let found = summary(&table);
        let csv = Column::csv(&found);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(
            lines[0],
            "source,hierarchy,capacity_blocks,seeds,hit_ratio_mean,hit_ratio_half_width,store_reads_mean,store_reads_half_width"
        );
        assert_eq!(lines.len(), 4);
        // Three figures have 2 degrees of freedom: t = 4.303, s = 0.2646, so 4.303 * 0.2646 / sqrt(3) = 0.657.
        let first: Vec<&str> = lines[1].split(',').collect();
        assert_eq!(first[..4], ["a", "x", "1", "3"]);
        let half: f64 = first[5].parse().expect("a number");
        assert!((first[4].parse::<f64>().expect("a number") - 0.3).abs() < 1e-12);
        assert!((half - 0.657).abs() < 0.001, "{half}");
        assert_eq!(first[6..], ["4", "0"]);
        assert_eq!(lines[2], "b,x,2,3,,,1,0");
        assert_eq!(lines[3], "a,y,9,1,0.7,,8,");
    }
}
