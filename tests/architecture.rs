//! The house is as ARCHITECTURE.md draws it: Cargo keeps the crates apart, and this what Cargo can't: that their
//! manifests draw the picture, that no files of a crate import each other in a circle, that each file says what
//! it is for and is short enough to be read, that in one crate a type's name means one thing, and that its
//! methods are in few files.

#![expect(clippy::unwrap_used, reason = "what can not be read fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

/// The most lines that a file has.
const LINES_MAX: usize = 800;

/// What is imported by a file: the words of a path, from the root of the crate on.
type Import = Vec<String>;

/// The most files that hold inherent methods of one type.
const FILES_PER_TYPE_MAX: usize = 2;

/// The databases of ganger-table, each of which has a part of its own for what all of them do.
const DATABASES: [&str; 3] = ["mysql/", "postgres/", "sqlite/"];

/// The part that a file has in its crate. The same file of two databases has the same part in each.
fn part(path: &str) -> &str {
    let of_a_database = DATABASES.iter().find_map(|one| path.strip_prefix(one));
    of_a_database.unwrap_or(path)
}

/// A file of a crate.
struct Source {
    /// Its module, from the root of the crate on.
    module: Vec<String>,
    text: String,
    imports: BTreeSet<Import>,
    types: Vec<String>,
    /// The types that have inherent methods there.
    implemented: BTreeSet<String>,
}

/// A crate's files by their paths in its `src`.
type House = BTreeMap<String, Source>;

/// The crates by their names, without the program itself.
fn crates() -> Vec<String> {
    let all = fs::read_dir(root().join("crates")).unwrap();
    let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// All houses: the program's, and those of the crates.
fn houses() -> BTreeMap<String, House> {
    let own = [("ganger".to_owned(), house(&root().join("src")))];
    let crates = crates().into_iter().map(|name| {
        let house = house(&root().join("crates").join(&name).join("src"));
        (name, house)
    });
    own.into_iter().chain(crates).collect()
}

/// The crates as the first picture under "The crates" draws them: a line a storey, and on it those that must not
/// see each other.
fn storeys() -> Vec<Vec<String>> {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, page) = page
        .split_once("\n## The crates\n")
        .expect("a heading `The crates`");
    let (_, page) = page.split_once("```text\n").expect("a picture");
    let (picture, _) = page.split_once("```").expect("the end of the picture");
    let lines = picture.lines().map(|line| {
        let words = line.split_whitespace();
        let names = words.take_while(|word| *word == "src" || word.starts_with("ganger-"));
        names.map(str::to_owned).collect()
    });
    lines
        .filter(|line: &Vec<String>| !line.is_empty())
        .collect()
}

/// The crates of ours that a manifest names as dependencies.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let (_, of_package) = text.split_once("\n[dependencies]\n").unwrap();
    let own = of_package.split("\n[").next().unwrap();
    let names = own.lines().filter_map(|line| line.split([' ', '.']).next());
    let ours = names.filter(|name| name.starts_with("ganger-"));
    ours.map(str::to_owned).collect()
}

#[test]
fn crates_depend_on_what_is_drawn_below_them() {
    let storeys = storeys();
    let drawn: BTreeSet<&str> = storeys.iter().flatten().map(String::as_str).collect();
    let mut there: BTreeSet<String> = crates().into_iter().collect();
    there.insert("src".to_owned());
    let there: BTreeSet<&str> = there.iter().map(String::as_str).collect();
    assert_eq!(
        drawn, there,
        "ARCHITECTURE.md draws the crates that there are"
    );
    let storey = |name: &str| {
        let found = storeys
            .iter()
            .position(|line| line.iter().any(|other| other == name));
        found.unwrap()
    };
    for name in drawn {
        let folder = match name {
            "src" => root().to_owned(),
            name => root().join("crates").join(name),
        };
        for other in dependencies(&folder.join("Cargo.toml")) {
            assert!(storey(&other) > storey(name), "{name} depends on {other}");
        }
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    for (name, house) in houses() {
        let edges: BTreeMap<&str, BTreeSet<&str>> = house
            .iter()
            .map(|(file, source)| (file.as_str(), imported(&house, source).collect()))
            .collect();
        let found = circles(&edges);
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

#[test]
fn each_file_says_what_it_is_for() {
    for (name, house) in houses() {
        let mut silent = house
            .iter()
            .filter(|(_, source)| !source.text.starts_with("//!"));
        assert!(silent.next().is_none(), "{name}: without `//!`");
    }
}

/// Doc comments of a file, each as one line.
fn doc_comments(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines().map(str::trim_start) {
        let said = line.strip_prefix("///").or(line.strip_prefix("//!"));
        match (said, all.last_mut()) {
            (Some(said), Some(last)) if goes_on => last.push_str(said),
            (Some(said), _) => all.push(said.trim_start().to_owned()),
            (None, _) => {}
        }
        goes_on = said.is_some();
    }
    all
}

/// Words with which no doc comment begins: it names its subject, or says what a function does.
const NO_SUBJECT: [&str; 3] = ["What", "How", "Whether"];

#[test]
fn doc_comments_name_their_subject() {
    let mut wrong = Vec::new();
    for (name, house) in houses() {
        for (file, source) in house {
            let all = doc_comments(&source.text).into_iter();
            let without = all.filter(|said| NO_SUBJECT.iter().any(|word| begins(said, word)));
            wrong.extend(without.map(|said| format!("{name}/{file}: {said}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn begins(said: &str, word: &str) -> bool {
    let rest = said.strip_prefix(word);
    rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

/// Words before a letter that is one of the alphabet, besides `dead`.
const OF_THE_ALPHABET: [&str; 3] = ["capital", "neither", "type"];

#[test]
fn dead_letters_are_called_so() {
    let mut wrong = Vec::new();
    for (name, house) in houses() {
        for (file, source) in house {
            for said in doc_comments(&source.text) {
                let words: Vec<&str> = said.split_whitespace().collect();
                let bare = words.windows(2).filter(|pair| {
                    let word = pair[1].trim_matches(|c: char| !c.is_alphanumeric());
                    let is_known =
                        pair[0].eq_ignore_ascii_case("dead") || OF_THE_ALPHABET.contains(&pair[0]);
                    matches!(word, "letter" | "letters") && !pair[1].starts_with('`') && !is_known
                });
                wrong.extend(bare.map(|_| format!("{name}/{file}: {said}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_file_is_long() {
    let mut long = Vec::new();
    for folder in ["src", "crates"] {
        walk(&root().join(folder), &mut |path| {
            if fs::read_to_string(path).unwrap().lines().count() > LINES_MAX {
                long.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        });
    }
    assert!(long.is_empty(), "longer than {LINES_MAX} lines: {long:#?}");
}

#[test]
fn a_type_name_means_one_thing_in_a_crate() {
    let mut found = Vec::new();
    for (name, house) in &houses() {
        let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (path, source) in house {
            for own in &source.types {
                files.entry(own).or_default().insert(part(path));
            }
        }
        let several = files.into_iter().filter(|(_, files)| files.len() > 1);
        let several: Vec<&str> = several.map(|(own, _)| own).collect();
        if !several.is_empty() {
            found.push(format!("{name}: {}", several.join(" ")));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_methods_of_a_type_are_in_few_files() {
    let mut found = Vec::new();
    for (name, house) in &houses() {
        let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (path, source) in house {
            for own in &source.implemented {
                files.entry(own).or_default().insert(part(path));
            }
        }
        let count = files.into_iter().map(|(own, files)| (own, files.len()));
        let spread = count.filter(|(_, files)| *files > FILES_PER_TYPE_MAX);
        found.extend(spread.map(|(own, files)| format!("{name}: {own} in {files} files")));
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// How one of our libraries would be taken from a registry, and what in the line says that it is not. No
/// name there is ours: whoever takes one runs code on the machines of those who follow us.
const BY_NAME: [(&str, &str); 5] = [
    (
        r#"\b(pip3?|uv|pipx|poetry|npm|pnpm|yarn|bun|gem|composer|cargo|dotnet)\s.*\b(install|add|require|get)\b.*[\s"'`][Gg]anger([-_/.][Ww]orker)?([\s"'`@=<>~\[,;)]|$)"#,
        "--path",
    ),
    (r"^ganger[-_]worker\b\s*([=<>~!;\[]|$)", "path ="),
    (r#""ganger-worker"\s*:\s*""#, "file:"),
    (r#"\bgem ["']ganger-worker["']"#, "path:"),
    (r"PackageReference\s.*Ganger\.Worker", "\0"),
];

#[test]
fn nothing_installs_our_libraries_by_name() {
    let by_name = BY_NAME.map(|(found, excuse)| (regex_lite::Regex::new(found).unwrap(), excuse));
    let is_by_name = |line: &str| {
        let mut found = by_name.iter().filter(|_| line.contains("anger"));
        found.any(|(found, excuse)| found.is_match(line) && !line.contains(excuse))
    };
    for line in [
        "`pip install ganger-worker` (from a checkout: `pip install ./worker-sdk/python`)",
        "$ venv/bin/pip install ganger-worker pika",
        "ganger-worker>=0.1,<0.2",
        "gem \"ganger-worker\", \"~> 0.1\"",
        "`composer require ganger/worker`",
        "  \"dependencies\": { \"ganger-worker\": \"^0.1.0\" }",
        "ganger-worker = \"0.1\"",
        "    <PackageReference Include=\"Ganger.Worker\" Version=\"0.1.0\" />",
        "$ dotnet add package Ganger.Worker",
        "$ cargo install ganger",
    ] {
        assert!(is_by_name(line), "{line}");
    }
    let mut wrong = Vec::new();
    for place in [
        "README.md",
        "docs",
        "proto-spec",
        "samples",
        "templates",
        "worker-sdk",
    ] {
        texts(&root().join(place), &mut |path, text| {
            let lines = text.lines().filter(|line| is_by_name(line));
            wrong.extend(lines.map(|line| format!("{}: {line}", path.display())));
            // Composer looks for a package in the folders that are named first.
            let requires = path.ends_with("composer.json") && text.contains(r#""ganger/worker": "#);
            if requires && !text.contains(r#""type": "path""#) {
                wrong.push(format!("{}: ganger/worker", path.display()));
            }
        });
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What people read and copy there, without what has been made of it.
fn texts(path: &Path, each: &mut dyn FnMut(&Path, &str)) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let made = [
        "dist",
        "node_modules",
        "package-lock.json",
        "target",
        "vendor",
        "venv",
    ];
    if name.starts_with('.') || made.contains(&name) {
        return;
    }
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            texts(&entry.unwrap().path(), each);
        }
    } else if let Ok(text) = fs::read_to_string(path) {
        each(path, &text);
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn walk(folder: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, each);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            each(&path);
        }
    }
}

/// The files that a file imports from.
fn imported<'a>(
    house: &'a BTreeMap<String, Source>,
    source: &'a Source,
) -> impl Iterator<Item = &'a str> {
    let of = |import: &Import| {
        let inside = |other: &&(&String, &Source)| {
            !other.1.module.is_empty() && import.starts_with(&other.1.module)
        };
        let all: Vec<_> = house.iter().collect();
        let file = all
            .iter()
            .filter(inside)
            .max_by_key(|other| other.1.module.len());
        file.map(|other| other.0.as_str())
    };
    let files: BTreeSet<&str> = source.imports.iter().filter_map(of).collect();
    let own = house.iter().find(|other| other.1.module == source.module);
    let own = own.map(|(file, _)| file.as_str());
    files.into_iter().filter(move |file| Some(*file) != own)
}

/// All files of a crate but its own two faces and those that only tests have.
fn house(src: &Path) -> House {
    let mut modules = BTreeMap::new();
    walk(src, &mut |path| {
        let file = path.strip_prefix(src).unwrap().to_str().unwrap().to_owned();
        let mut module: Vec<String> = file
            .trim_end_matches(".rs")
            .split('/')
            .map(str::to_owned)
            .collect();
        if module.last().is_some_and(|last| last == "mod") {
            module.pop();
        }
        if module != ["lib"] && !module.iter().any(|word| word.starts_with("tests")) {
            modules.insert(file, module);
        }
    });
    let read = |(file, module): (&String, &Vec<String>)| {
        let text = fs::read_to_string(src.join(file)).unwrap();
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("src/{file}: {error}"));
        let mut reading = Reading {
            here: module.clone(),
            modules: modules.values().collect(),
            imports: BTreeSet::new(),
        };
        reading.visit_file(&parsed);
        let imports = reading.imports;
        let types = parsed.items.iter().filter_map(type_name).collect();
        let implemented = parsed.items.iter().filter_map(implemented).collect();
        let source = Source {
            module: module.clone(),
            text,
            imports,
            types,
            implemented,
        };
        // What only tests have is declared so by its parent.
        (file.clone(), source)
    };
    let mut house: BTreeMap<String, Source> = modules.iter().map(read).collect();
    let of_tests: BTreeSet<Vec<String>> = house.values().flat_map(declared_for_tests).collect();
    house.retain(|_, source| {
        !of_tests
            .iter()
            .any(|module| source.module.starts_with(module))
    });
    house
}

fn declared_for_tests(source: &Source) -> Vec<Vec<String>> {
    let parsed = syn::parse_file(&source.text).unwrap();
    let declared = parsed.items.iter().filter_map(|item| match item {
        Item::Mod(item) if item.content.is_none() && for_tests(&item.attrs) => Some(&item.ident),
        _ => None,
    });
    let below = |name: &syn::Ident| [source.module.as_slice(), &[name.to_string()]].concat();
    declared.map(below).collect()
}

fn for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|path| path.is_ident("test"))
    })
}

fn type_name(item: &Item) -> Option<String> {
    let (name, attributes) = match item {
        Item::Struct(item) => (&item.ident, &item.attrs),
        Item::Enum(item) => (&item.ident, &item.attrs),
        Item::Trait(item) => (&item.ident, &item.attrs),
        Item::Type(item) => (&item.ident, &item.attrs),
        Item::Union(item) => (&item.ident, &item.attrs),
        _ => return None,
    };
    (!for_tests(attributes)).then(|| name.to_string())
}

/// The type that an item gives inherent methods.
fn implemented(item: &Item) -> Option<String> {
    let Item::Impl(item) = item else { return None };
    let syn::Type::Path(of) = &*item.self_ty else {
        return None;
    };
    let is_inherent = item.trait_.is_none() && !for_tests(&item.attrs);
    let name = of.path.segments.last().filter(|_| is_inherent)?;
    Some(name.ident.to_string())
}

/// Collects what a file imports, its tests apart.
struct Reading<'a> {
    here: Vec<String>,
    modules: Vec<&'a Vec<String>>,
    imports: BTreeSet<Import>,
}

impl Reading<'_> {
    /// A path within the crate, from its root on.
    fn resolved(&self, path: &[String]) -> Option<Import> {
        let first = path.first()?;
        let ups = path.iter().take_while(|word| *word == "super").count();
        let absolute = match first.as_str() {
            "crate" => path[1..].to_vec(),
            "self" => [&self.here, &path[1..]].concat(),
            "super" => {
                let above = self.here.len().saturating_sub(ups);
                [&self.here[..above], &path[ups..]].concat()
            }
            _ => {
                let child = [self.here.as_slice(), &path[..1]].concat();
                if !self.modules.contains(&&child) {
                    return None;
                }
                [self.here.as_slice(), path].concat()
            }
        };
        Some(absolute)
    }

    fn import(&mut self, path: &[String]) {
        self.imports.extend(self.resolved(path));
    }

    fn tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) if name.ident == "self" => self.import(before),
            UseTree::Name(name) => self.import(&with(&name.ident)),
            UseTree::Rename(name) => self.import(&with(&name.ident)),
            UseTree::Glob(_) => self.import(before),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
        }
    }
}

impl<'a> Visit<'a> for Reading<'_> {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if !for_tests(&item.attrs) && item.content.is_some() {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if !for_tests(&item.attrs) {
            self.tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let words: Vec<String> = path
            .segments
            .iter()
            .map(|word| word.ident.to_string())
            .collect();
        if words.len() > 1 {
            self.import(&words);
        }
        visit::visit_path(self, path);
    }
}

/// The sets of files that reach each other.
fn circles<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<Vec<&'a str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = edges
        .keys()
        .map(|file| (*file, reached(edges, file)))
        .collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for file in edges.keys() {
        let with = reach[file]
            .iter()
            .filter(|other| reach[*other].contains(file));
        let circle: Vec<&str> = with.copied().collect();
        if !circle.is_empty() && circle.iter().all(|file| seen.insert(*file)) {
            found.push(circle);
        }
    }
    found
}

fn reached<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = edges[from].iter().copied().collect();
    while let Some(file) = next.pop() {
        if let Some(others) = edges.get(file)
            && reached.insert(file)
        {
            next.extend(others);
        }
    }
    reached
}
