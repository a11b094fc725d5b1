// Package ganger is for writing workers of ganger: process pools that consume RabbitMQ, Kafka or a
// table in SQLite.
//
// A worker is a [Handler] and a call of [Run]. A handler returns an [Outcome], made by [Done], [Reply],
// [Retry], [Reject] or [Requeue]; the zero Outcome is the same as Done. One that returns an error or
// panics has failed: the message is tried again by the pool's rules, and the worker goes on.
//
// Package gangertest runs a handler without a daemon.
package ganger
