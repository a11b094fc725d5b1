//! A Markdown file as the tests see it: its links, its anchors and its blocks of code.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Folders in which no page is ours, or none that stands by itself.
const PASSED_OVER: [&str; 6] = [".git", "target", "venv", "corpus", "src", "node_modules"];

/// One file.
#[derive(Debug)]
pub(super) struct Page {
    /// From the top of the repository.
    pub(super) path: String,
    /// Where links go, each with its line.
    pub(super) links: Vec<(usize, String)>,
    /// What `#…` in a link may name.
    pub(super) anchors: Vec<String>,
    pub(super) parts: Vec<Part>,
}

/// What is tried of a page, in its order.
#[derive(Debug)]
pub(super) enum Part {
    Block(Block),
    /// Commands that nobody sees.
    Setup(String),
}

/// A block of code.
#[derive(Debug, Default, Clone)]
pub(super) struct Block {
    /// `path:line`, for whoever has to mend it.
    pub(super) place: String,
    pub(super) language: String,
    pub(super) text: String,
    /// Why it is not tried.
    pub(super) not_run: Option<String>,
    pub(super) figures_vary: bool,
    /// It is a worker: what it is asked, what it answers.
    pub(super) worker: Option<(String, String)>,
    /// The file that it shows, which a test of its own runs.
    pub(super) file: Option<String>,
}

impl Block {
    /// Whether it is not to be typed into the page's shell.
    pub(super) fn is_for_others(&self) -> bool {
        self.not_run.is_some() || self.worker.is_some() || self.file.is_some()
    }
}

/// The top of the repository.
pub(super) fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a file of the repository holds.
pub(super) fn text(path: &str) -> String {
    fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every page of the repository.
pub(super) fn all() -> Vec<Page> {
    let paths = files("").into_iter();
    let pages = paths.filter(|path| path.ends_with(".md"));
    pages.map(Page::read).collect()
}

/// Every file below a folder, from the top of the repository and in order.
pub(super) fn files(folder: &str) -> Vec<String> {
    let mut paths = Vec::new();
    find(&top().join(folder), &mut paths);
    paths.sort();
    let path = |path: &PathBuf| {
        path.strip_prefix(top())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    paths.iter().map(path).collect()
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            if !PASSED_OVER.iter().any(|other| name == *other) {
                find(&path, found);
            }
        } else {
            found.push(path);
        }
    }
}

/// All blocks of these pages that are to be tried.
pub(super) fn blocks(pages: &[Page]) -> impl Iterator<Item = &Block> {
    pages.iter().flat_map(Page::blocks)
}

impl Page {
    fn read(path: String) -> Self {
        let text = text(&path);
        Reader::new(path, &text).read()
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.parts.iter().filter_map(|part| match part {
            Part::Block(block) => Some(block),
            Part::Setup(_) => None,
        })
    }
}

/// Goes through a page from its first event to its last.
struct Reader<'a> {
    text: &'a str,
    page: Page,
    /// How often each heading's anchor has been there.
    headings: HashMap<String, u32>,
    /// What the comment right above says of the block to come.
    next: Block,
    /// The heading or the block that is being read.
    inside: Option<String>,
}

impl<'a> Reader<'a> {
    fn new(path: String, text: &'a str) -> Self {
        let page = Page {
            path,
            links: Vec::new(),
            anchors: Vec::new(),
            parts: Vec::new(),
        };
        Self {
            text,
            page,
            headings: HashMap::new(),
            next: Block::default(),
            inside: None,
        }
    }

    fn read(mut self) -> Page {
        for (event, range) in Parser::new_ext(self.text, Options::ENABLE_TABLES).into_offset_iter()
        {
            self.event(event, &range);
        }
        self.page
    }

    fn event(&mut self, event: Event<'_>, range: &Range<usize>) {
        let line = self.text[..range.start].lines().count() + 1;
        match event {
            Event::InlineHtml(html) => self.html(line, &html),
            Event::Start(Tag::HtmlBlock) => self.inside = Some(String::new()),
            Event::End(TagEnd::HtmlBlock) => {
                let html = self.inside.take().unwrap_or_default();
                self.html(line, &html);
            }
            Event::Start(Tag::Heading { .. }) => {
                self.next = Block::default();
                self.inside = Some(String::new());
            }
            Event::End(TagEnd::Heading(_)) => self.heading(),
            Event::Start(Tag::CodeBlock(kind)) => self.block_begins(line, &kind),
            Event::End(TagEnd::CodeBlock) => self.block_ends(),
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                self.page.links.push((line, dest_url.to_string()));
            }
            Event::Text(text) | Event::Code(text) | Event::Html(text) => {
                if let Some(inside) = &mut self.inside {
                    inside.push_str(&text);
                }
            }
            Event::Start(_) => self.next = Block::default(),
            Event::End(_)
            | Event::SoftBreak
            | Event::HardBreak
            | Event::Rule
            | Event::TaskListMarker(_)
            | Event::FootnoteReference(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_) => {}
        }
    }

    fn heading(&mut self) {
        let anchor = anchor(&self.inside.take().unwrap_or_default());
        let count = self.headings.entry(anchor.clone()).or_insert(0);
        let numbered = format!("{anchor}-{count}");
        self.page
            .anchors
            .push(if *count == 0 { anchor } else { numbered });
        *count += 1;
    }

    fn block_begins(&mut self, line: usize, kind: &CodeBlockKind<'_>) {
        self.inside = Some(String::new());
        self.next.place = format!("{}:{line}", self.page.path);
        self.next.language = match kind {
            CodeBlockKind::Fenced(language) => language.to_string(),
            CodeBlockKind::Indented => String::new(),
        };
    }

    fn block_ends(&mut self) {
        let mut block = std::mem::take(&mut self.next);
        block.text = self.inside.take().unwrap_or_default();
        self.page.parts.push(Part::Block(block));
    }

    fn html(&mut self, line: usize, html: &str) {
        let comment = html
            .trim()
            .strip_prefix("<!--")
            .and_then(|html| html.strip_suffix("-->"));
        if let Some(comment) = comment {
            self.comment(line, comment.trim());
        }
        for attribute in ["src=\"", "srcset=\"", "href=\""] {
            let values = html.split(attribute).skip(1);
            let values = values.filter_map(|rest| rest.split('"').next());
            self.page
                .links
                .extend(values.map(|value| (line, value.to_owned())));
        }
    }

    fn comment(&mut self, line: usize, comment: &str) {
        let (word, rest) = comment.split_once(':').unwrap_or((comment, ""));
        let rest = rest.trim();
        match word {
            "not run" => {
                assert!(!rest.is_empty(), "{}:{line}: no reason", self.page.path);
                self.next.not_run = Some(rest.to_owned());
            }
            "file" => self.next.file = Some(rest.to_owned()),
            "figures vary" => self.next.figures_vary = true,
            "worker" => {
                let (body, reply) = rest.split_once(" gives ").unwrap();
                self.next.worker = Some((body.to_owned(), reply.to_owned()));
            }
            "setup" => self.page.parts.push(Part::Setup(rest.to_owned())),
            other => panic!(
                "{}:{line}: a comment that nothing reads: {other}",
                self.page.path
            ),
        }
    }
}

/// The anchor that GitHub and mdBook make of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept
        .chars()
        .map(|letter| if letter == ' ' { '-' } else { letter });
    kept.filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter))
        .collect()
}
