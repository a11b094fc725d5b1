// Sends a record to Kafka and ends when all replicas in sync have it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
)

func header(name, value string) kgo.RecordHeader {
	return kgo.RecordHeader{Key: name, Value: []byte(value)}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	correlationID := uuid.NewString()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Getenv("KAFKA_BROKERS"), ",")...),
		kgo.RequiredAcks(kgo.AllISRAcks()), // the default, as is idempotence
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	record := &kgo.Record{
		Topic: "orders",
		Key:   []byte("customer-4"),
		Value: []byte(`{"order": 17}`),
		Headers: []kgo.RecordHeader{
			header("CorrelationId", correlationID),
			header("ReplyTo", "orders.replies"),
			header("MessageId", uuid.NewString()),
			header("content-type", "application/json"),
			header("tenant", "blue"),
			header("traceparent", os.Getenv("TRACEPARENT")),
		},
	}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		log.Fatal("not sent: ", err)
	}
	fmt.Println(correlationID)
}
