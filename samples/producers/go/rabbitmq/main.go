// Sends a message to RabbitMQ and ends when the broker has it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"
)

func send(ctx context.Context, url, correlationID string) error {
	connection, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := channel.Confirm(false); err != nil {
		return err
	}
	returns := channel.NotifyReturn(make(chan amqp.Return, 1))
	const mandatory = true // without the queue it comes back, before it is confirmed
	confirmation, err := channel.PublishWithDeferredConfirmWithContext(ctx, "", "orders", mandatory, false,
		amqp.Publishing{
			DeliveryMode:  amqp.Persistent,
			ContentType:   "application/json",
			MessageId:     uuid.NewString(),
			CorrelationId: correlationID,
			ReplyTo:       "orders.replies",
			Headers:       amqp.Table{"tenant": "blue", "traceparent": os.Getenv("TRACEPARENT")},
			Body:          []byte(`{"order": 17}`),
		})
	if err != nil {
		return err
	}
	if taken, err := confirmation.WaitContext(ctx); err != nil {
		return err
	} else if !taken {
		return errors.New("the broker did not take it")
	}
	select {
	case returned := <-returns:
		return errors.New(returned.ReplyText)
	default:
		return nil
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	correlationID := uuid.NewString()
	if err := send(ctx, os.Getenv("AMQP_URL"), correlationID); err != nil {
		log.Fatal("not sent: ", err)
	}
	fmt.Println(correlationID)
}
