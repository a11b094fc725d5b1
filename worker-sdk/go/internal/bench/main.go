// What the library costs: tasks that do nothing, beside a loop written by hand, in one run.
//
// go run ./internal/bench [ROUNDS] prints, for one message at a time and for 64, the median of the
// rounds' ratios of the processor time that a message takes: library / by hand. The two take turns.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"

	ganger "ganger.invalid/worker-sdk/go"
	"github.com/tinylib/msgp/msgp"
)

const messages = 100_000

func main() {
	if len(os.Args) == 4 && os.Args[1] == "worker" {
		worker(os.Args[2], number(os.Args[3]))
		return
	}
	rounds := 5
	if len(os.Args) > 1 {
		rounds = number(os.Args[1])
	}
	for _, ahead := range []int{1, 64} {
		costs := map[string][]float64{}
		var ratios []float64
		for round := 0; round < rounds; round++ {
			ways := []string{"library", "by hand"}
			if round%2 == 1 {
				ways[0], ways[1] = ways[1], ways[0]
			}
			for _, way := range ways {
				costs[way] = append(costs[way], measure(way, ahead))
			}
			ratios = append(ratios, costs["library"][round]/costs["by hand"][round])
		}
		fmt.Printf("%d at once: library %.1f µs, by hand %.1f µs, ratio %.2f\n",
			ahead, median(costs["library"]), median(costs["by hand"]), median(ratios))
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	must(err)
	return value
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func median(numbers []float64) float64 {
	sorted := append([]float64{}, numbers...)
	sort.Float64s(sorted)
	return sorted[len(sorted)/2]
}

func worker(way string, concurrency int) {
	if way == "library" {
		nothing := func(context.Context, *ganger.Task) (ganger.Outcome, error) { return ganger.Done(), nil }
		must(ganger.Run(nothing, ganger.Options{Concurrency: concurrency}))
		return
	}
	pipe, err := net.Dial("unix", os.Getenv("GANGER_PIPE"))
	must(err)
	from := bufio.NewReaderSize(pipe, 1<<16)
	to := &sync.Mutex{}
	send := func(output []byte) {
		binary.BigEndian.PutUint32(output, uint32(len(output)-4))
		to.Lock()
		defer to.Unlock()
		_, _ = pipe.Write(output)
	}
	hello := map[string]string{"sdk": "none", "version": "0", "concurrency": strconv.Itoa(concurrency)}
	b := msgp.AppendUint(msgp.AppendString(start(3, ""), "1"), 100)
	send(msgp.AppendMapStrStr(msgp.AppendString(b, "2"), hello))
	work := func(frame []byte) {
		task, _, err := msgp.ReadMapStrIntfBytes(frame, nil)
		must(err)
		b := msgp.AppendUint(msgp.AppendString(start(3, ""), "1"), 200)
		b, err = msgp.AppendIntf(msgp.AppendString(b, "4"), task["4"])
		must(err)
		send(b)
	}
	frames := make(chan []byte)
	if concurrency > 1 {
		for n := 0; n < concurrency; n++ {
			go func() {
				for frame := range frames {
					work(frame)
				}
			}()
		}
	}
	for {
		var length [4]byte
		if _, err := io.ReadFull(from, length[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err := io.ReadFull(from, frame); err != nil {
			return
		}
		if concurrency > 1 {
			frames <- frame
		} else {
			work(frame)
		}
	}
}

// start is a frame with that message in its map of so many keys; its length is set later.
func start(keys uint32, message string) []byte {
	b := msgp.AppendMapHeader(make([]byte, 4, 256), keys)
	return msgp.AppendString(msgp.AppendString(b, "0"), message)
}

// measure returns the microseconds of processor time a message, the start not counted.
func measure(way string, ahead int) float64 {
	path := filepath.Join(os.TempDir(), fmt.Sprint("ganger-bench-", os.Getpid()))
	listener, err := net.Listen("unix", path)
	must(err)
	defer listener.Close()
	process := exec.Command(os.Args[0], "worker", way, strconv.Itoa(ahead))
	process.Env = append(os.Environ(), "GANGER_PROTOCOL=2", "GANGER_PIPE="+path)
	process.Stderr = os.Stderr
	stdin, err := process.StdinPipe()
	must(err)
	must(process.Start())
	_, err = io.WriteString(stdin, "pipe\n")
	must(err)
	pipe, err := listener.Accept()
	must(err)
	exchange(pipe, 1000, ahead)
	before := processorNanos(process.Process.Pid)
	exchange(pipe, messages, ahead)
	used := processorNanos(process.Process.Pid) - before
	must(pipe.Close())
	must(stdin.Close())
	must(process.Wait())
	return float64(used) / messages / 1000
}

// processorNanos is that of all threads, which have a clock finer than ticks.
func processorNanos(pid int) (sum int64) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	must(err)
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		must(err)
		nanos, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		must(err)
		sum += nanos
	}
	return sum
}

func exchange(pipe net.Conn, count, ahead int) {
	from := bufio.NewReaderSize(pipe, 1<<16)
	var heap []byte
	for sent, answered := 0, 0; answered < count; {
		for heap = heap[:0]; sent < count && sent < answered+ahead; sent++ {
			heap = append(heap, input(uint64(sent))...)
		}
		if len(heap) > 0 {
			_, err := pipe.Write(heap)
			must(err)
		}
		for first := true; first || from.Buffered() > 0; first = false {
			var length [4]byte
			_, err := io.ReadFull(from, length[:])
			must(err)
			frame := make([]byte, binary.BigEndian.Uint32(length[:]))
			_, err = io.ReadFull(from, frame)
			must(err)
			if strings.Contains(string(frame), "\xa11\xcc\xc8") {
				answered++
			}
		}
	}
}

func input(id uint64) []byte {
	b := start(8, "hello")
	b = msgp.AppendString(msgp.AppendString(b, "1"), "")
	b = msgp.AppendString(msgp.AppendString(b, "2"), "work")
	b = msgp.AppendMapHeader(msgp.AppendString(b, "3"), 0)
	b = msgp.AppendUint64(msgp.AppendString(b, "4"), id)
	b = msgp.AppendInt(msgp.AppendString(b, "5"), 1)
	b = msgp.AppendNil(msgp.AppendString(b, "6"))
	b = msgp.AppendMapHeader(msgp.AppendString(b, "7"), 1)
	b = msgp.AppendUint64(msgp.AppendString(b, "row_id"), id)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}
