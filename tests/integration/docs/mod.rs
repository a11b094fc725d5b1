//! What the Markdown of this repository promises: every link leads somewhere, and every block of code
//! is tried, or says why not.
//!
//! `console` is typed into one shell a page, and so are `sql` and `python`, in the order of the page.
//! The lines after a command are what it prints, in which `…` stands for anything. `toml` is given to
//! `ganger check`, `json` is parsed, `sqlite` makes tables, `text` is a picture or output. An HTML
//! comment right above a block says what else is to be known of it:
//!
//! - `<!-- not run: REASON -->`
//! - `<!-- file: PATH -->`: the block is what that file holds, which has a test of its own.
//! - `<!-- figures vary -->`: numbers in the output need not be the same.
//! - `<!-- worker: BODY gives REPLY -->`: a worker, which a daemon starts and asks that.
//!
//! `<!-- setup: COMMANDS -->`, anywhere, is typed into the page's shell unseen (`shell.sh` says what
//! it finds there).

mod blocks;
mod links;
mod page;
mod session;

use libtest_mimic::Trial;

/// The longest that these may be: the README is for someone who has five minutes, and
/// ARCHITECTURE.md is two pages.
const LINES_MAX: [(&str, usize); 2] = [("README.md", 180), ("ARCHITECTURE.md", 130)];

/// The tests of this folder.
pub(crate) fn trials() -> Vec<Trial> {
    let rooms = [
        own::trials(),
        blocks::trials(),
        links::trials(),
        session::trials(),
    ];
    rooms.into_iter().flatten().collect()
}

/// What is true of single files.
mod own {
    use std::process::Command;

    use super::{LINES_MAX, page};
    use crate::python::python;

    crate::harness::trials![
        what_is_to_be_short_is,
        the_picture_is_what_its_text_draws,
        the_pictures_of_the_readme_are_there,
        pictures_are_small,
    ];

    fn what_is_to_be_short_is() {
        for (path, most) in LINES_MAX {
            let lines = page::text(path).lines().count();
            assert!(lines <= most, "{path} has {lines} lines, {most} at most");
        }
    }

    fn the_picture_is_what_its_text_draws() {
        let drawing = page::top().join("docs/shape.py");
        let drawn = Command::new(python()).arg(drawing).output().unwrap();
        assert!(drawn.status.success(), "{drawn:?}");
        let drawn = String::from_utf8(drawn.stdout).unwrap();
        let hint = "python3 docs/shape.py > docs/shape.svg";
        assert!(drawn == page::text("docs/shape.svg"), "run: {hint}");
    }

    /// They are named in HTML, for it takes the one that fits the reader's colours.
    fn the_pictures_of_the_readme_are_there() {
        let readme = page::text("README.md");
        let named: Vec<&str> = readme
            .split('"')
            .filter(|word| word.ends_with(".webp"))
            .collect();
        assert_eq!(named.len(), 2, "{named:?}");
        for file in named {
            let picture = std::fs::read(page::top().join(file)).unwrap();
            assert!(picture.starts_with(b"RIFF"), "{file}");
        }
    }

    /// A clone has all of them, in each version that there was.
    fn pictures_are_small() {
        let pictures = std::fs::read_dir(page::top().join("docs/pictures")).unwrap();
        let pictures = pictures.map(|picture| picture.unwrap().metadata().unwrap().len());
        let bytes: u64 = pictures.sum();
        assert!(bytes <= 400_000, "{bytes} bytes");
    }
}
