//! User that a worker runs as: looked up before the fork, applied after it.

use std::ffi::CString;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User};

use super::error::SpawnError;

/// Account that the worker runs as.
#[derive(Debug, Clone)]
pub(super) struct Account {
    /// Its user.
    pub(super) uid: Uid,
    /// Change of user; `None` where it stays the daemon's.
    pub(super) change: Option<Change>,
}

#[derive(Debug, Clone)]
pub(super) struct Change {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Account {
    /// Looks up a configured user.
    pub(super) fn find(name: Option<&str>) -> Result<Self, SpawnError> {
        let own = Uid::effective();
        let Some(name) = name else {
            return Ok(Self {
                uid: own,
                change: None,
            });
        };
        let failed = |cause| SpawnError::UserLookup {
            name: name.to_owned(),
            cause,
        };
        let user =
            User::from_name(name)
                .map_err(failed)?
                .ok_or_else(|| SpawnError::UnknownUser {
                    name: name.to_owned(),
                })?;
        if user.uid == own && !own.is_root() {
            return Ok(Self {
                uid: own,
                change: None,
            });
        }
        Ok(Self {
            uid: user.uid,
            change: Some(Change {
                uid: user.uid,
                gid: user.gid,
                groups: groups_of(name, user.gid).map_err(failed)?,
            }),
        })
    }
}

fn groups_of(name: &str, gid: Gid) -> Result<Vec<Gid>, Errno> {
    let name = CString::new(name).map_err(|_| Errno::EINVAL)?;
    nix::unistd::getgrouplist(&name, gid)
}

impl Change {
    /// Returns the user and the group that must own the files that the worker may reopen.
    pub(super) fn owner(&self) -> (Uid, Gid) {
        (self.uid, self.gid)
    }

    /// Changes the user. Runs in the child.
    pub(super) fn apply(&self) -> Result<(), Errno> {
        nix::unistd::setgroups(&self.groups)?;
        nix::unistd::setgid(self.gid)?;
        nix::unistd::setuid(self.uid)
    }
}
