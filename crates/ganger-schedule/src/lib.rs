//! Schedules: when a message is sent, and what becomes of each slot. Pure decisions over plain data:
//! no clock, no SQL, no file but the time zones, no dice.

pub mod auto_disable;
pub mod calendar;
pub mod clock;
pub mod cron;
pub mod expect;
pub mod problem;
pub mod spread;
pub mod timing;
pub mod wall;
pub mod zone;
