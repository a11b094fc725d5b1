//! Schedules: when a message is sent, and what becomes of each slot. Pure decisions over plain data:
//! no clock, no SQL, no file but the time zones, no dice.
//!
//! ```text
//! Definition ─▶ Spec ─▶ due(spec, cursor, clock, open) ─▶ Dispatch | Skip, the next cursor, when to wake
//!                └ Timing (Cron on a Wall, Every, At), Calendar, Misfire, Overlap
//! ```
//!
//! Beside them: `clock` (jumps of the wall clock), `auto_disable` (schedules that keep failing), `expect`
//! (what is overdue), `explain` (the next slots, and words), `template` (the body of a message), `crontab` (the files
//! of cron), and `milvaion` (its jobs).

pub mod auto_disable;
pub mod calendar;
pub mod clock;
pub mod cron;
pub mod crontab;
pub mod definition;
pub mod due;
pub mod expect;
pub mod explain;
pub mod milvaion;
pub mod occurrence;
pub mod overlap;
pub mod problem;
pub mod remark;
pub mod rules;
pub mod spec;
pub mod spread;
pub mod template;
pub mod timing;
pub mod wall;
mod words;
pub mod zone;
