// River with that many periodic jobs, all due at the same instant of each second. It works another queue, so it
// leaves their jobs in the table.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type nothing struct{}

func (nothing) Kind() string { return "nothing" }

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	schedules, err := strconv.Atoi(os.Getenv("SCHEDULES"))
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE"))
	if err != nil {
		return err
	}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New[pgx.Tx](driver, nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	var first sync.Once
	job := func() (river.JobArgs, *river.InsertOpts) {
		first.Do(func() { fmt.Println("up") })
		return nothing{}, &river.InsertOpts{Queue: "periodic"}
	}
	jobs := make([]*river.PeriodicJob, schedules)
	for number := range jobs {
		jobs[number] = river.NewPeriodicJob(river.PeriodicInterval(time.Second), job, nil)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[nothing]) error { return nil }))
	client, err := river.NewClient(driver, &river.Config{
		PeriodicJobs: jobs,
		Queues:       map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
		Workers:      workers,
	})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	<-client.Stopped()
	return nil
}
