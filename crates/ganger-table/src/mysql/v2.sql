-- Version 2: what is published says itself that it has become messages, which `topics.sql` sees to. A daemon
-- of version 1 would remove it unseen.

INSERT IGNORE INTO ganger_version VALUES (2);
