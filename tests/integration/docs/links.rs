//! Links within the repository, and the book's list of pages.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use pulldown_cmark::{Event, Parser, Tag};
use serde_json::{Value, json};

use super::page::{self, Page};
use crate::python::python;

crate::harness::trials![
    every_link_leads_somewhere,
    the_book_lists_every_page,
    links_out_of_the_book_stay_in_it,
];

const SUMMARY: &str = "docs/SUMMARY.md";

fn every_link_leads_somewhere() {
    let pages = page::all();
    assert!(pages.iter().any(|page| page.path == "README.md"));
    let mut broken = Vec::new();
    for page in &pages {
        let local = page.links.iter().filter(|(_, link)| !link.contains("://"));
        let wrong = local.filter_map(|(line, link)| {
            let error = follow(&pages, &page.path, link).err()?;
            Some(format!("{}:{line}: {link}: {error}", page.path))
        });
        broken.extend(wrong);
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Whether there is what a link on that page names.
fn follow(pages: &[Page], from: &str, link: &str) -> Result<(), &'static str> {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() {
        from.to_owned()
    } else {
        resolve(from, file).ok_or("it leaves the repository")?
    };
    if !page::top().join(&target).exists() {
        return Err("there is no such file");
    }
    if anchor.is_empty() {
        return Ok(());
    }
    let page = pages.iter().find(|page| page.path == target);
    let page = page.ok_or("an anchor in what is no Markdown")?;
    let there = page.anchors.iter().any(|known| known == anchor);
    there.then_some(()).ok_or("there is no such heading")
}

/// The path from the top of the repository.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn the_book_lists_every_page() {
    let pages = page::all();
    let summary = pages.iter().find(|page| page.path == SUMMARY).unwrap();
    let mut listed: Vec<String> = summary
        .links
        .iter()
        .map(|(_, link)| resolve(SUMMARY, link).unwrap())
        .collect();
    listed.sort();
    let there = pages.iter().map(|page| page.path.clone());
    let there: Vec<String> = there
        .filter(|path| path.starts_with("docs/") && path != SUMMARY)
        .collect();
    assert_eq!(listed, there);
}

/// What mdBook asks of `docs/outside.py`: the pages go in, and come out with others.
fn links_out_of_the_book_stay_in_it() {
    let pages = page::all();
    let pages = pages
        .iter()
        .filter_map(|page| page.path.strip_prefix("docs/"));
    let chapter = |path: &str| {
        let content = page::text(&format!("docs/{path}"));
        let path = path.replace("README.md", "index.md");
        json!({"Chapter": {"content": content, "path": path, "sub_items": []}})
    };
    let chapters: Vec<Value> = pages.map(chapter).collect();
    let made = outside(&json!([{"root": page::top()}, {"items": chapters}]));
    let chapters = made["items"].as_array().unwrap().iter();
    let chapters: BTreeMap<&str, &str> = chapters
        .map(|item| &item["Chapter"])
        .map(|page| {
            (
                page["path"].as_str().unwrap(),
                page["content"].as_str().unwrap(),
            )
        })
        .collect();
    assert!(chapters.contains_key("repository/config/reference.md"));
    let mut broken = Vec::new();
    for (path, content) in &chapters {
        let links = Parser::new(content).filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. }) => Some(dest_url.to_string()),
            _ => None,
        });
        for link in links.filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let file = link.split('#').next().unwrap_or_default();
            let there = resolve(path, file).is_some_and(|page| chapters.contains_key(&*page));
            if !there {
                broken.push(format!("{path}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

fn outside(book: &Value) -> Value {
    let mut running = Command::new(python())
        .arg(page::top().join("docs/outside.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = running.stdin.take().unwrap();
    input.write_all(book.to_string().as_bytes()).unwrap();
    drop(input);
    let out = running.wait_with_output().unwrap();
    assert!(out.status.success(), "{out:?}");
    serde_json::from_slice(&out.stdout).unwrap()
}
