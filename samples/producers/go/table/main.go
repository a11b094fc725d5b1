// Puts a message into a table queue, in the transaction of a row of its own.
package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/google/uuid"
	_ "modernc.org/sqlite"
)

// FULL, or a power cut may take back what was sent.
const settings = "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)"

func send(db *sql.DB, correlationID string) error {
	headers, err := json.Marshal(map[string]string{"tenant": "blue", "traceparent": os.Getenv("TRACEPARENT")})
	if err != nil {
		return err
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing, once it is committed
	if _, err := tx.Exec(`INSERT INTO orders (id, state) VALUES (17, 'new')`); err != nil {
		return err
	}
	_, err = tx.Exec(`
		INSERT INTO consumer_messages
		  (queue, body, headers, correlation_id, reply_to, message_id, content_type)
		VALUES ('orders', ?, ?, ?, 'orders.replies', ?, 'application/json')`,
		`{"order": 17}`, string(headers), correlationID, uuid.NewString())
	if err != nil {
		return err
	}
	return tx.Commit()
}

func main() {
	db, err := sql.Open("sqlite", "file:"+os.Getenv("DATABASE")+settings)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	correlationID := uuid.NewString()
	if err := send(db, correlationID); err != nil {
		log.Fatal("not sent: ", err)
	}
	fmt.Println(correlationID)
}
