// Puts a message into a table queue, in the transaction of a row of its own.

using System.Text.Json;
using Microsoft.Data.Sqlite;

static class Table
{
    public static string Send(string database)
    {
        var correlationId = Guid.NewGuid().ToString();
        var headers = JsonSerializer.Serialize(new Dictionary<string, string?>
        {
            ["tenant"] = "blue",
            ["traceparent"] = Environment.GetEnvironmentVariable("TRACEPARENT"),
        });
        // Commands wait for the lock as long as DefaultTimeout says.
        using var db = new SqliteConnection($"Data Source={database};Default Timeout=10");
        db.Open();
        Execute("PRAGMA synchronous = FULL"); // or a power cut may take back what was sent
        using var transaction = db.BeginTransaction(); // immediate; rolled back unless it is committed
        Execute("INSERT INTO orders (id, state) VALUES (17, 'new')");
        Execute("""
            INSERT INTO consumer_messages
              (queue, body, headers, correlation_id, reply_to, message_id, content_type)
            VALUES ('orders', $body, $headers, $correlation_id, 'orders.replies', $message_id, 'application/json')
            """,
            ("$body", """{"order": 17}"""), ("$headers", headers), ("$correlation_id", correlationId),
            ("$message_id", Guid.NewGuid().ToString()));
        transaction.Commit();
        return correlationId;

        void Execute(string sql, params (string Name, string Value)[] parameters)
        {
            using var command = db.CreateCommand();
            command.CommandText = sql;
            foreach (var (name, value) in parameters) command.Parameters.AddWithValue(name, value);
            command.ExecuteNonQuery();
        }
    }
}
