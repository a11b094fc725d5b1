//! Schedules: when a message is sent. Pure decisions over plain data: no clock, no SQL, no file but
//! the time zones, no dice.

pub mod cron;
pub mod problem;
pub mod spread;
pub mod timing;
pub mod wall;
pub mod zone;
