//! The folder of a sweep: its manifest, a file for each cell that is done, and the table of all.

use crate::whole_file::{remove_unfinished, write};
use crate::{Cell, Plan, Rows, Source, SweepError, Table, summary, traces};
use futae_sim::run::Column;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The results of a sweep, cell by cell.
pub struct Folder<'a> {
    path: PathBuf,
    plan: &'a Plan,
}

impl<'a> Folder<'a> {
    /// Opens the folder, or makes it. What a sweep of this plan that was killed has left unfinished is removed.
    ///
    /// # Errors
    ///
    /// It cannot be made, another plan made it, or a trace or a plug-in was changed since then.
    pub fn open(path: &Path, plan: &'a Plan) -> Result<Self, SweepError> {
        fs::create_dir_all(path.join("cells"))
            .map_err(|why| SweepError::file("cannot make the folder", path, &why))?;
        let manifest = path.join("manifest");
        match fs::read_to_string(&manifest) {
            Ok(text) if text == plan.manifest => {}
            Ok(text) => return Err(SweepError::Plan(another(path, &text, &plan.manifest))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                write(&manifest, plan.manifest.as_bytes())?;
            }
            Err(why) => return Err(SweepError::file("cannot read", &manifest, &why)),
        }
        for folder in [path, &path.join("cells")] {
            remove_unfinished(folder)
                .map_err(|why| SweepError::file("cannot read the folder", folder, &why))?;
        }
        let folder = Self {
            path: path.to_owned(),
            plan,
        };
        traces::hold(&path.join("traces"), plan, |name| folder.has_results(name))?;
        Ok(folder)
    }

    /// Whether a cell of this trace file, or of this plug-in, is done.
    fn has_results(&self, file: &str) -> bool {
        let is_of_it = |cell: &Cell| {
            let is_its_trace = match &self.plan.sources[cell.source] {
                Source::Traces(names, _) => names.iter().any(|name| name == file),
                Source::Workload(..) => false,
            };
            is_its_trace || cell.libraries().any(|name| name == file)
        };
        let mut cells = self.plan.cells.iter().enumerate();
        cells.any(|(at, cell)| is_of_it(cell) && self.file(at).exists())
    }

    fn file(&self, cell: usize) -> PathBuf {
        self.path.join(format!("cells/{cell:06}.json"))
    }

    /// Whether a cell is done: its file is there and whole.
    ///
    /// # Errors
    ///
    /// The file is there and cannot be read.
    pub fn is_done(&self, cell: usize) -> Result<bool, SweepError> {
        self.add(cell, &mut Table::new(self.plan))
    }

    /// Keeps what came of a cell.
    ///
    /// # Errors
    ///
    /// Its file cannot be written.
    pub fn keep(&self, cell: usize, rows: &Rows) -> Result<(), SweepError> {
        self.keep_text(cell, &rows.text())
    }

    /// As [`keep`](Self::keep), of rows that came as text.
    ///
    /// # Errors
    ///
    /// Its file cannot be written.
    pub fn keep_text(&self, cell: usize, text: &str) -> Result<(), SweepError> {
        write(&self.file(cell), text.as_bytes())
    }

    fn add(&self, cell: usize, table: &mut Table<'_>) -> Result<bool, SweepError> {
        let file = self.file(cell);
        match fs::read_to_string(&file) {
            Ok(text) => Ok(table.add(cell, &text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(why) => Err(SweepError::file("cannot read", &file, &why)),
        }
    }

    /// The table of all cells that are done, in the order of the plan.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or a trace was changed between two of its cells.
    pub fn table(&self) -> Result<Vec<Column>, SweepError> {
        let mut table = Table::new(self.plan);
        for cell in 0..self.plan.cells.len() {
            self.add(cell, &mut table)?;
        }
        table.columns()
    }

    /// Writes another file of the table.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), SweepError> {
        write(&self.path.join(name), bytes)
    }

    /// Writes the table as `results.csv`, and its [`summary()`] as `summary.csv`. Returns where the table is.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write_csv(&self, columns: &[Column]) -> Result<PathBuf, SweepError> {
        let summed = Column::csv(&summary(columns));
        write(&self.path.join("summary.csv"), summed.as_bytes())?;
        let path = self.path.join("results.csv");
        write(&path, Column::csv(columns).as_bytes())?;
        Ok(path)
    }
}

/// Says where two manifests part.
fn another(folder: &Path, there: &str, asked: &str) -> String {
    let shown = folder.display();
    let lines = there.lines().zip(asked.lines());
    let differs = lines.into_iter().find(|(a, b)| a != b);
    let what = match differs {
        Some((there, asked)) => format!("there: {there}; asked for: {asked}"),
        None => format!(
            "there are {} lines in its manifest, and {} are asked for",
            there.lines().count(),
            asked.lines().count()
        ),
    };
    format!(
        "{shown} holds the sweep of another plan ({what}); take another folder, or the plan that made it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_was_gone_is_not_taken_for_another() {
        let place = tempfile::tempdir().expect("a directory");
        let trace = place.path().join("a.csv");
        let text = "traces = ['a.csv']\npolicies = ['lru']\nsizes = ['2blocks']";
        let plan = Plan::of_toml(text, place.path()).expect("a plan");
        let out = place.path().join("out");
        let open = || {
            Folder::open(&out, &plan)
                .map(drop)
                .map_err(|why| why.to_string())
        };
        fs::write(&trace, "offset,length\n0,4096\n").expect("a trace");
        assert_eq!(open(), Ok(()));
        fs::write(out.join("cells/000000.json"), "[]").expect("a cell");
        fs::remove_file(&trace).expect("it is gone");
        assert_eq!(open(), Ok(()), "what is done can be read without it");
        fs::write(&trace, "offset,length\n8192,4096\n").expect("another trace");
        let refused = open().expect_err("results are of the first one");
        assert!(
            refused.contains("a.csv was changed since the sweep began"),
            "{refused}"
        );
        fs::write(&trace, "offset,length\n0,4096\n").expect("the first one");
        assert_eq!(open(), Ok(()));
    }

    #[test]
    fn a_plug_in_that_was_built_anew_is_not_taken_for_the_one_that_has_results() {
        let place = tempfile::tempdir().expect("a directory");
        let text = "workloads = ['loop:1MiB']\nlevels = [['lru:1%', 'exclusive:2%']]";
        let mut plan = Plan::of_toml(text, place.path()).expect("a plan");
        let library = place.path().join("libmine.so");
        let inside = format!("exclusive({}(depth=2))", library.display());
        plan.cells[0].levels[1].policy = inside.parse().expect("a policy");
        let open = || {
            let opened = Folder::open(&place.path().join("out"), &plan);
            opened.map(drop).map_err(|why| why.to_string())
        };
        // Longer than what is looked at of a trace, and changed in the middle.
        let mut built = vec![0; 1 << 20];
        fs::write(&library, &built).expect("a library");
        assert_eq!(open(), Ok(()));
        built[1 << 19] = 1;
        fs::write(&library, &built).expect("another one, before there are results");
        assert_eq!(open(), Ok(()));
        fs::write(place.path().join("out/cells/000000.json"), "[]").expect("a cell");
        assert_eq!(open(), Ok(()));
        built[1 << 19] = 2;
        fs::write(&library, &built).expect("another one");
        let refused = open().expect_err("results are of the one before");
        assert!(
            refused.contains("libmine.so was changed since the sweep began"),
            "{refused}"
        );
    }

    #[test]
    fn a_folder_of_another_plan_is_left_as_it_is() {
        let place = tempfile::tempdir().expect("a directory");
        let text = "traces = ['a.csv']\npolicies = ['lru']\nsizes = ['2blocks']";
        fs::write(place.path().join("a.csv"), "offset,length\n0,4096\n").expect("a trace");
        let plan = Plan::of_toml(text, place.path()).expect("a plan");
        let unfinished = place.path().join(".futae-sweep-AbCdEf");
        let of_another = place.path().join(".futae-AbCdEf");
        for file in [&unfinished, &of_another] {
            fs::write(file, "half").expect("half a file");
        }
        fs::write(place.path().join("manifest"), "another").expect("a manifest");
        assert!(Folder::open(place.path(), &plan).is_err());
        assert!(unfinished.exists() && of_another.exists());
        fs::remove_file(place.path().join("manifest")).expect("there is none");
        assert!(Folder::open(place.path(), &plan).is_ok());
        assert!(!unfinished.exists());
        assert!(of_another.exists(), "no sweep made it");
    }
}
