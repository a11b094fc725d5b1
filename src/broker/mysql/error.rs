//! What MySQL and MariaDB may say, in sentences, and whether it speaks of the message or of the world.

/// Why a database of MySQL or MariaDB can't serve as a table queue.
#[derive(Debug, thiserror::Error)]
pub enum MysqlError {
    /// No server is reached, or none that may be written to. It is waited for.
    #[error("{server} can't be reached: {why}")]
    Away {
        /// Where it should be.
        server: String,
        /// What was tried and failed.
        why: String,
    },
}
