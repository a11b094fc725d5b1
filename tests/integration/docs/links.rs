//! Links within the repository, and the book's list of pages.

use super::page::{self, Page};

crate::harness::trials![every_link_leads_somewhere, the_book_lists_every_page];

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
