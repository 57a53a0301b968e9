//! Files that a user asks for: whole under their names, or not there at all.

use crate::plot::Plot;
use anyhow::{Context, anyhow};
use futae_sim::run::Column;
use futae_terminal::failure::Failure;
use futae_terminal::output::output;
use futae_trace::Destination;
use std::io::Write;
use std::path::{Path, PathBuf};

#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "parquet")]
pub use self::parquet::parquet;

/// Whether a file may be where an option names it: not a directory, and in one that is there.
///
/// # Errors
///
/// What is in its place, or missing.
pub fn check_place(option: &str, path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    if path.is_dir() {
        let problem = format!("{option} {shown}: it is a directory; name a file in it");
        return Err(Failure::usage(problem));
    }
    // A link that leads nowhere, such as one to itself, is for its reader or writer to name.
    let Ok(destination) = Destination::of(path) else {
        return Ok(());
    };
    let directory = destination.directory();
    if !directory.is_dir() {
        let directory = directory.display();
        return Err(anyhow!("{option} {shown}: there is no directory {directory}").into());
    }
    Ok(())
}

/// A file that can be written, found out before the work begins whose result it is to hold.
pub struct Output {
    path: PathBuf,
}

impl Output {
    /// Tries whether `path` can be written, and leaves it as it was.
    pub fn new(path: &Path) -> Result<Self, Failure> {
        let output = Self {
            path: path.to_owned(),
        };
        if path.is_dir() {
            let why = anyhow!("cannot write {}: it is a directory", path.display());
            return Err(why.into());
        }
        let checked = Destination::of(path).and_then(|destination| destination.check());
        checked.with_context(|| output.refusal())?;
        Ok(output)
    }

    fn refusal(&self) -> String {
        format!("cannot write {}", self.path.display())
    }

    /// Writes the file, in place of one that may be there.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        let written = Destination::of(&self.path).and_then(|to| to.write(bytes));
        written.with_context(|| self.refusal())?;
        Ok(())
    }
}

/// What a picture is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drawing {
    Svg,
    #[cfg(feature = "png")]
    Png,
    #[cfg(feature = "pdf")]
    Pdf,
}

/// A picture that can be written: SVG, PDF or PNG, as its name says.
pub struct Picture {
    output: Output,
    drawing: Drawing,
}

impl Picture {
    /// As [`Output::new`]; the name ends in `.svg`, `.pdf` or `.png`.
    pub fn new(path: &Path) -> Result<Self, Failure> {
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        let drawing = match ending.as_ref().and_then(|ending| ending.to_str()) {
            Some("svg") => Drawing::Svg,
            #[cfg(feature = "png")]
            Some("png") => Drawing::Png,
            #[cfg(feature = "pdf")]
            Some("pdf") => Drawing::Pdf,
            #[cfg(not(all(feature = "pdf", feature = "png")))]
            Some(ending @ ("png" | "pdf")) => {
                let name = ending.to_uppercase();
                let message =
                    format!("this futae was built without {name} (feature {ending}): take .svg");
                return Err(Failure::usage(message));
            }
            _ => {
                let shown = path.display();
                let message = format!("{shown} is not .svg, .pdf or .png, which are the pictures");
                return Err(Failure::usage(message));
            }
        };
        let output = Output::new(path)?;
        Ok(Self { output, drawing })
    }

    /// Draws and writes it.
    pub fn write(&self, plot: &Plot) -> Result<(), Failure> {
        self.write_svg(&plot.svg())
    }

    /// Writes a drawing that is SVG.
    pub fn write_svg(&self, svg: &str) -> Result<(), Failure> {
        match self.drawing {
            Drawing::Svg => self.output.write(svg.as_bytes()),
            #[cfg(feature = "png")]
            Drawing::Png => self.output.write(&crate::plot::png::png(svg)?),
            #[cfg(feature = "pdf")]
            Drawing::Pdf => self.output.write(&crate::plot::pdf::pdf(svg)?),
        }
    }
}

/// A table of results that can be written, as Parquet.
pub struct TableFile(
    #[cfg_attr(
        not(feature = "parquet"),
        expect(dead_code, reason = "there is never one")
    )]
    Output,
);

impl TableFile {
    /// As [`Output::new`].
    pub fn new(path: &Path) -> Result<Self, Failure> {
        #[cfg(feature = "parquet")]
        return Ok(Self(Output::new(path)?));
        #[cfg(not(feature = "parquet"))]
        Err(without_parquet(path))
    }

    /// Writes it.
    pub fn write(&self, columns: &[Column]) -> Result<(), Failure> {
        #[cfg(feature = "parquet")]
        return self.0.write(&parquet(columns)?);
        #[cfg(not(feature = "parquet"))]
        Err(without_parquet(columns))
    }
}

#[cfg(not(feature = "parquet"))]
fn without_parquet<T: ?Sized>(_asked: &T) -> Failure {
    let message = "this futae was built without Parquet (the cargo feature `parquet`); there is \
                   --csv";
    Failure::usage(message)
}

/// Prints; a reader that closed the pipe has read enough.
pub fn print(text: &str) -> Result<(), Failure> {
    Ok(output().write_all(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn a_file_is_whole_or_as_it_was() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a");
        let output = Output::new(&path).map_err(|e| e.to_string()).expect("new");
        assert!(!path.exists(), "trying leaves nothing");
        assert!(output.write(b"one").is_ok());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("a", &link).expect("a link");
        let output = Output::new(&link).map_err(|e| e.to_string()).expect("new");
        assert!(output.write(b"two").is_ok());
        assert_eq!(fs::read(&path).expect("there"), b"two");
        assert!(link.is_symlink());
        fs::remove_file(&path).expect("removed");
        let output = Output::new(&link).map_err(|e| e.to_string()).expect("new");
        assert!(output.write(b"three").is_ok());
        assert_eq!(fs::read(&path).expect("made"), b"three");
        assert!(link.is_symlink());
        fs::remove_file(&link).expect("removed");
        assert_eq!(fs::read_dir(&directory).expect("there").count(), 1);
    }

    #[test]
    fn a_file_that_is_replaced_keeps_who_may_read_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a");
        fs::write(&path, b"one").expect("room");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("mine");
        // Only root may give files to others.
        let owner = fs::metadata(&path).expect("there").uid();
        let other = if owner == 0 { 4711 } else { owner };
        std::os::unix::fs::chown(&path, Some(other), None).expect("allowed");
        let output = Output::new(&path).map_err(|e| e.to_string()).expect("new");
        assert!(output.write(b"two").is_ok());
        let found = fs::metadata(&path).expect("there");
        assert_eq!(fs::read(&path).expect("there"), b"two");
        assert_eq!((found.mode() & 0o7777, found.uid()), (0o640, other));
    }

    #[test]
    fn what_cannot_be_written_is_said_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        for path in [at.to_owned(), at.join("no/file"), "/proc/futae".into()] {
            let error = Output::new(&path).err().expect("refused").to_string();
            let shown = format!("cannot write {}", path.display());
            assert!(error.starts_with(&shown), "{error}");
            assert!(!error.contains(".futae-"), "{error}");
            let is_lost = path == at.join("no/file");
            assert_eq!(is_lost, error.contains("there is no directory"), "{error}");
        }
        assert!(matches!(
            Picture::new(&at.join("a.gif")),
            Err(Failure::Usage(_))
        ));
    }

    #[cfg(feature = "png")]
    #[test]
    fn a_png_has_its_labels_whatever_is_installed() {
        let plot = |title: &str| Plot {
            title: title.to_owned(),
            ..Plot::default()
        };
        let drawn = |title: &str| crate::plot::png::png(&plot(title).svg()).expect("a PNG");
        assert!(drawn("a title").starts_with(b"\x89PNG"));
        assert_ne!(drawn("a title"), drawn("another"));
    }
}
