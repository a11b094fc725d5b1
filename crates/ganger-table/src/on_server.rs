//! What PostgreSQL and MySQL have in common: connections that last, owners and their leases, when to look and
//! whose turn it is to write. No SQL.

pub(crate) mod cut_off;
pub(crate) mod delays;
pub(crate) mod lasting;
pub(crate) mod lease;
pub(crate) mod names;
pub(crate) mod passed_over;
pub(crate) mod patience;
pub(crate) mod registry;
pub(crate) mod rhythm;
pub(crate) mod seldom;
pub(crate) mod sleep;
pub(crate) mod take_back;
mod tidying;
pub(crate) mod turns;
pub(crate) mod vigil;
