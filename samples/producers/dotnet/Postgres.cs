// Puts a message into a table queue in PostgreSQL, in the transaction of a row of its own.

using System.Text.Json;
using Npgsql;
using NpgsqlTypes;

static class Postgres
{
    public static async Task<string> Send(string connectionString)
    {
        var correlationId = Guid.NewGuid().ToString();
        var headers = JsonSerializer.Serialize(new Dictionary<string, string?>
        {
            ["tenant"] = "blue",
            ["traceparent"] = Environment.GetEnvironmentVariable("TRACEPARENT"),
        });
        await using var db = new NpgsqlConnection(connectionString);
        await db.OpenAsync();
        await using var transaction = await db.BeginTransactionAsync(); // rolled back unless it is committed
        await using var order = new NpgsqlCommand("INSERT INTO orders (id, state) VALUES (17, 'new')", db, transaction);
        await order.ExecuteNonQueryAsync();
        await using var message = new NpgsqlCommand(
            """
            INSERT INTO consumer_messages
              (queue, body, headers, correlation_id, reply_to, message_id, content_type)
            VALUES ('orders', @body, @headers, @correlation_id, 'orders.replies', @message_id, 'application/json')
            """,
            db,
            transaction);
        message.Parameters.AddWithValue("body", """{"order": 17}""");
        message.Parameters.AddWithValue("headers", NpgsqlDbType.Json, headers); // a text is no json there
        message.Parameters.AddWithValue("correlation_id", correlationId);
        message.Parameters.AddWithValue("message_id", Guid.NewGuid().ToString());
        await message.ExecuteNonQueryAsync();
        await transaction.CommitAsync();
        return correlationId;
    }
}
