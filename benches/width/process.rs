//! Counts of a process that do not depend on the load of the machine.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use miette::IntoDiagnostic;

/// State of a connection in the kernel's table: established.
const ESTABLISHED: &str = "01";

/// Number of entries of a directory of the process.
pub(crate) fn entries(pid: u32, directory: &str) -> miette::Result<usize> {
    let entries = fs::read_dir(format!("/proc/{pid}/{directory}"));
    Ok(entries.into_diagnostic()?.count())
}

/// Number of its connections over TCP.
pub(crate) fn connections(pid: u32) -> miette::Result<usize> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_diagnostic()?;
    // One may be closed meanwhile.
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let socket = |link: PathBuf| {
        let link = link.to_str()?;
        let inode = link.strip_prefix("socket:[")?.strip_suffix(']')?;
        Some(inode.to_owned())
    };
    let own: HashSet<String> = links.filter_map(socket).collect();
    let mut count = 0;
    for table in ["tcp", "tcp6"] {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).into_diagnostic()?;
        let is_own = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_open = fields.get(3) == Some(&ESTABLISHED);
            is_open && fields.get(9).is_some_and(|inode| own.contains(*inode))
        };
        count += table.lines().filter(is_own).count();
    }
    Ok(count)
}
