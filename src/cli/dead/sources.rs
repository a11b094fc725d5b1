//! Sources of the selected dead letters. A source that can't be used is reported, never skipped silently, and
//! the others are still used. Nothing here prints a dead letter.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use miette::{IntoDiagnostic, miette};

use crate::cli::backend::Backend;
use crate::cli::output;
use crate::cli::usage::{names, wrong};
use ganger_queue::client::{Client, DeadFilter, Halted, Listed, Page};
use ganger_queue::dead_letter::DeadLetter;
use ganger_queue::fault::SourceFault;

/// A source's name, and the id of a dead letter in it.
type Place = (String, String);

/// Sources that could be opened, and the errors of the others.
#[derive(Debug)]
pub(super) struct Sources {
    clients: Vec<Client>,
    trouble: Vec<SourceFault>,
    /// Error about the requested pool, if none of these sources has such a pool.
    unknown_pool: Option<String>,
}

impl Sources {
    /// Opens the source of that name, or all, to search for the dead letters of that pool, or of all.
    pub(super) fn open(
        backend: &dyn Backend,
        only: Option<&str>,
        pool: Option<&str>,
    ) -> miette::Result<Self> {
        let wanted = |name: &str| only.is_none_or(|only| only == name);
        let mut sources = Self {
            clients: Vec::new(),
            trouble: Vec::new(),
            unknown_pool: None,
        };
        let all = backend.sources()?;
        for source in all.iter().filter(|source| wanted(&source.name)) {
            match backend.client(&source.name) {
                Ok(client) => sources.clients.push(client),
                Err(error) => sources.trouble.push(error),
            }
        }
        if sources.clients.is_empty() && sources.trouble.is_empty() {
            let known = names(all.iter().map(|source| source.name.as_str()));
            let only = only.unwrap_or_default();
            return Err(wrong(format!(
                "there is no source `{only}`; there is {known}"
            )));
        }
        let read = all.iter().filter(|source| wanted(&source.name));
        let pools = read.flat_map(|source| &source.pools);
        let known: Vec<&str> = pools.clone().map(|pool| pool.name.as_str()).collect();
        let unknown = pool.filter(|pool| !known.contains(pool));
        sources.unknown_pool = unknown.map(|pool| {
            let known = known.join(", ");
            match only {
                Some(only) => {
                    format!("no pool `{pool}` reads from source `{only}`; the pools are: {known}")
                }
                None => format!("there is no pool `{pool}`; the pools are: {known}"),
            }
        });
        for pool in pools {
            if pool.dead_letters_at_broker {
                output::note(format!(
                    "the dead letters of pool `{}` are routed by the broker's policy and not \
                     listed here",
                    pool.name
                ));
            }
        }
        Ok(sources)
    }

    /// Checks an empty result. A pool that was removed from the configuration may have left dead letters,
    /// so an unknown name is wrong only if none were found.
    ///
    /// # Errors
    /// If the pool that was asked for is unknown.
    pub(super) fn found_none(&self) -> miette::Result<()> {
        self.unknown_pool.as_ref().map_or(Ok(()), |why| {
            let why = format!("{why}, nor a dead letter of such a pool");
            Err(wrong(why))
        })
    }

    /// Returns whether dead letters need their source's name to be told apart.
    pub(super) fn are_several(&self) -> bool {
        self.clients.len() + self.trouble.len() > 1
    }

    /// Reads this page of each source, one after the other. Returns how each reading ended, except those that
    /// failed.
    pub(super) fn read(
        &mut self,
        page: &Page,
        mut each: impl FnMut(&str, DeadLetter) -> ControlFlow<()>,
    ) -> Vec<(String, Listed)> {
        let mut ends = Vec::new();
        let mut flow = ControlFlow::Continue(());
        for client in &mut self.clients {
            let name = client.name().to_owned();
            let read = client.dead_list(page, |letter| {
                flow = each(&name, letter);
                flow
            });
            match read {
                Ok(end) => ends.push((name, end)),
                Err(error) => self.trouble.push(error),
            }
            if flow.is_break() {
                break;
            }
        }
        ends
    }

    /// Returns the dead letters that match, at most one of a source.
    pub(super) fn find(&mut self, filter: DeadFilter) -> Vec<(String, DeadLetter)> {
        let mut found = Vec::new();
        self.read(&Page::all(filter), |source, letter| {
            found.push((source.to_owned(), letter));
            ControlFlow::Continue(())
        });
        found
    }

    /// Changes the selected dead letters in every source that has some. Returns their number.
    pub(super) fn change(
        &mut self,
        filter: &DeadFilter,
        mut change: impl FnMut(&mut Client, &DeadFilter) -> Result<usize, Halted>,
    ) -> miette::Result<usize> {
        let mut filters = self.filters(filter)?;
        let mut changed = 0;
        for client in &mut self.clients {
            let Some(filter) = filters.remove(client.name()) else {
                continue;
            };
            match change(client, &filter) {
                Ok(count) => changed += count,
                Err(halted) => {
                    changed += halted.done;
                    self.trouble.push(*halted.error);
                }
            }
        }
        Ok(changed)
    }

    /// Returns the filter for each source. If ids are given and there are several sources, each is asked for
    /// its own only: two tables may have a dead letter of the same number.
    fn filters(&mut self, filter: &DeadFilter) -> miette::Result<BTreeMap<String, DeadFilter>> {
        let Some(ids) = filter.ids.as_ref().filter(|_| self.clients.len() > 1) else {
            let name = |client: &Client| (client.name().to_owned(), filter.clone());
            return Ok(self.clients.iter().map(name).collect());
        };
        let mut found: Vec<Place> = Vec::new();
        self.read(&Page::all(filter.clone()), |source, letter| {
            found.push((source.to_owned(), letter.id));
            ControlFlow::Continue(())
        });
        let mut filters: BTreeMap<String, DeadFilter> = BTreeMap::new();
        for id in ids {
            if let Some(source) = only_source(&found, id)? {
                let asked = filters.entry(source.to_owned()).or_insert(DeadFilter {
                    ids: Some(BTreeSet::new()),
                    ..filter.clone()
                });
                asked.ids.get_or_insert_default().insert(id.clone());
            }
        }
        Ok(filters)
    }

    /// Ends the command.
    ///
    /// # Errors
    /// If a source could not be used.
    pub(super) fn end(&mut self) -> miette::Result<()> {
        let mut trouble = std::mem::take(&mut self.trouble);
        match trouble.len() {
            0 => Ok(()),
            1 => Err(trouble.remove(0)).into_diagnostic(),
            _ => {
                let all: Vec<_> = trouble.iter().map(ToString::to_string).collect();
                Err(miette!("{}", all.join("; ")))
            }
        }
    }
}

/// Returns the source of the dead letter with this id; none if there is no such dead letter.
///
/// # Errors
/// If there are several.
pub(super) fn only_source<'a>(found: &'a [Place], id: &str) -> miette::Result<Option<&'a str>> {
    let mut sources = found.iter().filter(|(_, other)| other == id);
    let first = sources.next().map(|(source, _)| source.as_str());
    if let (Some(first), Some((second, _))) = (first, sources.next()) {
        return Err(wrong(format!(
            "dead letter {id} is in `{first}` and in `{second}`: name one with --source"
        )));
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str, id: &str) -> Place {
        (source.to_owned(), id.to_owned())
    }

    #[test]
    fn an_id_in_two_sources_is_no_name() {
        let all = [found("a", "1"), found("b", "2"), found("b", "1")];
        assert_eq!(only_source(&all, "2").unwrap(), Some("b"));
        assert_eq!(only_source(&all, "3").unwrap(), None);
        let error = only_source(&all, "1").unwrap_err().to_string();
        assert!(error.contains("`a` and in `b`"), "{error}");
    }
}
