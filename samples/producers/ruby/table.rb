# Puts a message into a table queue, in the transaction of a row of its own.

require "json"
require "securerandom"
require "sqlite3"

correlation_id = SecureRandom.uuid
headers = { tenant: "blue", traceparent: ENV.fetch("TRACEPARENT") }
db = SQLite3::Database.new(ENV.fetch("DATABASE", "ganger.db"))
db.busy_timeout = 10_000
db.execute("PRAGMA synchronous = FULL") # or a power cut may take back what was sent
db.transaction(:immediate) do # commits at the end, rolls back at an exception
  db.execute("INSERT INTO orders (id, state) VALUES (17, 'new')")
  db.execute(<<~SQL, ['{"order": 17}', JSON.generate(headers), correlation_id, SecureRandom.uuid])
    INSERT INTO consumer_messages
      (queue, body, headers, correlation_id, reply_to, message_id, content_type)
    VALUES ('orders', ?, ?, ?, 'orders.replies', ?, 'application/json')
  SQL
end
puts correlation_id
