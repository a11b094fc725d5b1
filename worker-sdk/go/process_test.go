package ganger_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ganger "ganger.invalid/worker-sdk/go"
	"github.com/tinylib/msgp/msgp"
)

// Real worker processes, with a daemon by hand on the other side. The test binary is the worker, too.

const (
	asWorker = "GANGER_TEST_AS_WORKER"
	deadline = time.Minute
	mib      = 1 << 20
)

func TestMain(m *testing.M) {
	if limits := strings.Fields(os.Getenv(asWorker)); len(limits) > 0 {
		concurrency, _ := strconv.Atoi(limits[0])
		frameBytesMax, _ := strconv.Atoi(limits[1])
		together.Add(concurrency)
		options := ganger.Options{Concurrency: concurrency, FrameBytesMax: frameBytesMax, WarmUp: warmUp}
		var ctx context.Context
		ctx, stop = context.WithCancel(context.Background())
		if err := ganger.RunContext(ctx, modes, options); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var (
	together sync.WaitGroup
	stop     context.CancelFunc
	last     *ganger.Task
)

// warmUp ends as the environment says.
func warmUp() error {
	if why := os.Getenv("GANGER_TEST_COLD"); why != "" {
		return errors.New(why)
	}
	return nil
}

// modes does what a body's first word says.
func modes(ctx context.Context, task *ganger.Task) (ganger.Outcome, error) {
	verb, rest, _ := strings.Cut(task.Text(), " ")
	number, _ := strconv.Atoi(rest)
	switch verb {
	case "":
		return ganger.Outcome{}, nil
	case "done":
		return ganger.Done(), nil
	case "echo":
		return ganger.Reply(rest), nil
	case "headers":
		return ganger.Reply(fmt.Sprint(task.Headers)).To(rest).WithHeader("n", 7).WithHeader("ü", "é"), nil
	case "about":
		about := fmt.Sprintln(task.CorrelationID, task.Queue, task.Attempt, task.MillisecondsLeft, task.Properties)
		return ganger.Reply(about), nil
	case "retry":
		return ganger.Retry("later").After(1500 * time.Millisecond), nil
	case "reject":
		return ganger.Reject("never"), nil
	case "requeue":
		return ganger.Requeue(""), nil
	case "fail":
		return ganger.Outcome{}, errors.New("no good: \xff " + rest)
	case "panic":
		panic("no good: " + rest)
	case "unspeakable":
		return unspeakable(rest)
	case "status":
		return ganger.Outcome{Status: number, Message: []byte("odd")}, nil
	case "names":
		return names(task), nil
	case "last":
		last = task
	case "late":
		return ganger.Reply(fmt.Sprint(late())), nil
	case "child":
		child := exec.Command("/bin/cat")
		child.Stdin = os.Stdin
		seen, err := child.CombinedOutput()
		return ganger.ReplyBytes(seen), err
	case "exit":
		os.Exit(7)
	case "goexit":
		runtime.Goexit()
	case "stop":
		stop()
	case "large":
		return ganger.Reply(strings.Repeat("x", number)), nil
	case "together":
		together.Done()
		together.Wait()
	case "sleep":
		time.Sleep(time.Duration(number) * time.Millisecond)
	case "stuck":
		task.Progress("begun")
		<-ctx.Done()
		return ganger.Retry("gave up"), nil
	case "uncaught", "sleepy":
		if verb == "sleepy" {
			time.Sleep(2 * time.Millisecond)
		}
		task.Progress("begun")
		<-ctx.Done()
		return ganger.Outcome{}, fmt.Errorf("while it waited: %w", ctx.Err())
	case "emit":
		for n := 0; n < number; n++ {
			if err := task.Emit("parts", fmt.Sprint("part ", n), ganger.Header{Name: "n", Value: n}); err != nil {
				return ganger.Outcome{}, err
			}
		}
	case "progress":
		task.Progress("1 of 2")
	case "log":
		task.Log("debug", "noted", ganger.Header{Name: "target", Value: "tests"}, ganger.Header{Name: "n", Value: 1},
			ganger.Header{Name: "at", Value: struct{ X int }{5}})
	case "logger":
		task.Logger("warn").Print("hot stuff")
	default:
		return ganger.ReplyBytes(task.Message), nil
	}
	return ganger.Done(), nil
}

// A speechless panics when it is nil.
type speechless struct{ word string }

func (s *speechless) String() string { return s.word }

// What the daemon would refuse, or what has no end.
func unspeakable(what string) (ganger.Outcome, error) {
	var nobody *speechless
	var nothing *os.PathError
	itself := map[string]any{}
	itself["itself"] = itself
	many := ganger.Reply("x")
	many.Headers = make([]ganger.Header, 10_001)
	outcomes := map[string]ganger.Outcome{
		"type":   ganger.Reply("x").WithHeader("f", func() {}),
		"name":   ganger.Reply("x").WithHeader("\xff", 1),
		"value":  ganger.Reply("x").WithHeader("v", []string{"\xff"}),
		"queue":  ganger.Reply("x").To("\xff"),
		"itself": ganger.Reply("x").WithHeader("itself", itself),
		"names":  ganger.Reply("x").WithHeader("m", map[int]int{1: 1}),
		"nil":    ganger.Reply("x").WithHeader("nobody", nobody),
		"many":   many,
	}
	if what == "error" {
		return ganger.Outcome{}, nothing // a nil in an error, whose text panics
	}
	return outcomes[what], nil
}

var builtIns = []string{"constructor", "__proto__", "toString", "length", "hasOwnProperty", ""}

// names has headers and fields with names that are something else in other languages.
func names(task *ganger.Task) ganger.Outcome {
	reply := ganger.Reply("named")
	for _, name := range builtIns {
		task.Log("info", "named", ganger.Header{Name: name, Value: task.Headers[name]})
		reply = reply.WithHeader(name, task.Headers[name])
	}
	return reply
}

// late says what can't be said any more.
func late() error {
	last.Log("warn", "too late", ganger.Header{Name: "n", Value: 1})
	last.Progress("too late")
	return last.Emit("parts", "too late")
}

// An output as it is compared: numbers as int64, or uint64 beyond that.
type output map[string]any

type peer struct {
	*testing.T
	process *exec.Cmd
	stdin   io.WriteCloser
	pipe    *net.UnixConn
	from    *bufio.Reader
	stderr  bytes.Buffer
}

func start(t *testing.T, concurrency, version int, frameBytesMax ...int) *peer {
	t.Helper()
	p := &peer{T: t}
	var random [16]byte
	_, err := rand.Read(random[:])
	p.must(err)
	name := hex.EncodeToString(random[:])
	path := "/tmp/CoreFxPipe_" + name
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	p.must(err)
	defer listener.Close()
	p.process = exec.Command(os.Args[0])
	p.process.Env = []string{asWorker + "=" + fmt.Sprint(concurrency, " ", append(frameBytesMax, 0)[0])}
	if len(frameBytesMax) > 1 {
		p.process.Env = append(p.process.Env, fmt.Sprint("GANGER_FRAME_BYTES_MAX=", frameBytesMax[1]))
	}
	if version == 2 {
		p.process.Env = append(p.process.Env, "GANGER_PROTOCOL=2", "GANGER_PIPE="+path)
	}
	p.process.Stderr = &p.stderr
	p.stdin, err = p.process.StdinPipe()
	p.must(err)
	p.must(p.process.Start())
	// What is next on stdin is not part of the first line, though it comes with it.
	p.tell(name + "\n__of_a_newer_daemon__ 1")
	p.must(listener.SetDeadline(time.Now().Add(deadline)))
	p.pipe, err = listener.AcceptUnix()
	p.must(err)
	p.must(p.pipe.SetDeadline(time.Now().Add(deadline)))
	p.from = bufio.NewReaderSize(p.pipe, mib)
	t.Cleanup(func() {
		_ = p.process.Process.Kill()
		_ = p.process.Wait()
		p.pipe.Close()
	})
	if version == 2 {
		hello := p.receive()
		headers := hello["2"].(map[string]any)
		if hello["1"] != int64(100) || hello["0"] != "" || headers["sdk"] != "ganger-go" ||
			headers["concurrency"] != strconv.Itoa(concurrency) {
			t.Fatalf("%v", hello)
		}
	}
	return p
}

func (p *peer) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatalf("%v: %s", err, p.stderr.String())
	}
}

func (p *peer) tell(line string) {
	_, err := io.WriteString(p.stdin, line+"\n")
	p.must(err)
}

func task(body any, id uint64, fields map[string]any) map[string]any {
	whole := map[string]any{
		"0": body, "1": "", "2": "q", "3": map[string]any{}, "4": id, "5": 1, "6": nil, "7": map[string]any{},
	}
	for key, value := range fields {
		whole[key] = value
	}
	return whole
}

func frame(task map[string]any) []byte {
	data, err := msgp.AppendMapStrIntf([]byte{0, 0, 0, 0}, task)
	if err != nil {
		panic(err)
	}
	binary.BigEndian.PutUint32(data, uint32(len(data)-4))
	return data
}

func (p *peer) write(data []byte) {
	_, err := p.pipe.Write(data)
	p.must(err)
}

func (p *peer) send(body any, id uint64) { p.write(frame(task(body, id, nil))) }

func (p *peer) receive() output {
	p.Helper()
	var length [4]byte
	_, err := io.ReadFull(p.from, length[:])
	p.must(err)
	data := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err = io.ReadFull(p.from, data)
	p.must(err)
	found, _, err := msgp.ReadMapStrIntfBytes(data, nil)
	p.must(err)
	return normal(found)
}

func normal(values map[string]any) output {
	for key, value := range values {
		switch value := value.(type) {
		case uint64:
			if value < 1<<63 {
				values[key] = int64(value)
			}
		case map[string]any:
			values[key] = map[string]any(normal(value))
		}
	}
	return values
}

func (p *peer) ask(body any, id uint64) output {
	p.Helper()
	p.send(body, id)
	return p.receive()
}

// begin sends one that says when it is in hand.
func (p *peer) begin(body string, id uint64) {
	p.Helper()
	if begun := p.ask(body, id); begun["0"] != "begun" {
		p.Fatal(begun)
	}
}

func (p *peer) expect(wanted output) {
	p.Helper()
	p.same(p.receive(), wanted)
}

func (p *peer) same(found, wanted output) {
	p.Helper()
	for key, value := range wanted {
		if number, is := value.(int); is {
			wanted[key] = int64(number)
		}
	}
	if !reflect.DeepEqual(found, wanted) {
		p.Errorf("%v, not %v", found, wanted)
	}
}

// ended sees that nothing more was said, and how the process has ended.
func (p *peer) ended(code int) {
	p.Helper()
	rest, _ := io.ReadAll(p.from)
	_ = p.process.Wait()
	if found := p.process.ProcessState.ExitCode(); found != code || len(rest) > 0 {
		p.Errorf("ended with %d, not %d: %q, %s", found, code, rest, p.stderr.String())
	}
}

func (p *peer) contains(value any, part string) {
	p.Helper()
	if !strings.Contains(fmt.Sprint(value), part) {
		p.Errorf("no %q in %v", part, value)
	}
}

func TestOutcomes(t *testing.T) {
	p := start(t, 1, 2)
	for body, wanted := range map[string]output{
		"":               {"0": "", "1": 200},
		"done":           {"0": "", "1": 200},
		"echo Grüße 漢 🦀": {"0": "Grüße 漢 🦀", "1": 201},
		"retry":          {"0": "later", "1": 429, "5": 1500},
		"reject":         {"0": "never", "1": 400},
		"requeue":        {"0": "", "1": 300},
	} {
		wanted["4"] = 9
		p.same(p.ask(body, 9), wanted)
	}
	p.write(frame(task("headers answers", 0, map[string]any{"3": map[string]any{"a": "ä", "b": ""}})))
	p.expect(output{
		"0": "map[a:ä b:]", "1": 201, "2": map[string]any{"n": int64(7), "ü": "é"}, "3": "answers", "4": 0,
	})
	const last = 1<<64 - 1
	fields := map[string]any{"1": "c", "5": 3, "6": 5000, "7": map[string]any{"key": []byte{255}}}
	p.write(frame(task("about", last, fields)))
	p.expect(output{"0": "c q 3 5000 map[key:[255]]\n", "1": 201, "4": uint64(last)})
}

func TestAHandlerThatFailsOrPanicsAnswersAndGoesOn(t *testing.T) {
	for _, concurrency := range []int{1, 2} {
		p := start(t, concurrency, 2)
		p.same(p.ask("fail x", 1), output{"0": "no good: \uFFFD x", "1": 500, "4": 1})
		answer := p.ask("panic x", 2)
		p.same(output{"1": answer["1"], "4": answer["4"]}, output{"1": 500, "4": 2})
		p.contains(answer["0"], "panic: no good: x\n")
		p.contains(answer["0"], "process_test.go")
		for what, why := range map[string]string{
			"unspeakable type":   `the header "f" can't be sent: MessagePack has no func()`,
			"unspeakable name":   `a header's name can't be sent: it must be UTF-8: "\xff"`,
			"unspeakable value":  `the header "v" can't be sent: it must be UTF-8: "\xff"`,
			"unspeakable queue":  `a queue's name can't be sent: it must be UTF-8: "\xff"`,
			"unspeakable itself": `the header "itself" can't be sent: it must be nested at most 62 deep`,
			"unspeakable names":  `a map's names must be texts: map[int]int`,
			"unspeakable nil":    "its value panics: ",
			"unspeakable many":   "at most 10000 headers: 10001",
			"unspeakable error":  "an error of the type *fs.PathError, whose text panics",
			"status -1":          "one that ends a message: -1",
			"status 103":         "one that ends a message: 103",
			"status 150":         "one that ends a message: 150",
		} {
			answer = p.ask(what, 3)
			p.same(output{"1": answer["1"], "4": answer["4"]}, output{"1": 500, "4": 3})
			p.contains(answer["0"], why)
		}
		p.same(p.ask("status 404", 3), output{"0": "odd", "1": 404, "4": 3})
		p.same(p.ask("echo on", 4), output{"0": "on", "1": 201, "4": 4})
	}
}

func TestAReplyThatTheDaemonWouldRefuseIsAFailure(t *testing.T) {
	p := start(t, 1, 2, 4096)
	answer := p.ask("large 5000", 1)
	p.contains(answer["1"], "500")
	p.contains(answer["0"], "at most 4096 bytes: 50")
	p.same(p.ask("large 4000", 2), output{"0": strings.Repeat("x", 4000), "1": 201, "4": 2})
	p = start(t, 1, 2, 0, 4096)
	p.contains(p.ask("large 5000", 1)["0"], "at most 4096 bytes: 50")
	p = start(t, 1, 2, 4096, 8192) // the daemon's own word counts
	p.contains(p.ask("large 5000", 1)["1"], "201")
}

func TestNamesThatAreBuiltInElsewhere(t *testing.T) {
	p := start(t, 1, 2)
	headers, echoed := map[string]any{}, map[string]any{}
	for _, name := range builtIns {
		headers[name], echoed[name] = "of "+name, "of "+name
	}
	p.write(frame(task("names", 1, map[string]any{"3": headers})))
	for _, name := range builtIns {
		p.expect(output{"0": "named", "1": 101, "2": map[string]any{"level": "info", name: "of " + name}, "4": 1})
	}
	p.expect(output{"0": "named", "1": 201, "2": echoed, "4": 1})
}

func TestWhatComesLateIsSaidOnStderrOrRefused(t *testing.T) {
	p := start(t, 2, 2)
	p.same(p.ask("last", 1), output{"0": "", "1": 200, "4": 1})
	p.same(p.ask("late", 2), output{"0": "its message is answered already", "1": 201, "4": 2})
	p.tell("__quit__")
	p.ended(0)
	p.contains(p.stderr.String(), "warn: too late n=1\n")
}

func TestAChildHasNothingOnStdin(t *testing.T) {
	p := start(t, 2, 2)
	p.begin("stuck", 1)
	p.same(p.ask("child", 2), output{"0": "", "1": 201, "4": 2})
	p.tell("__cancel__ 1")
	p.expect(output{"0": "gave up", "1": 429, "4": 1})
	p.tell("__quit__")
	p.ended(0)
}

func TestAnExitInOneHandlerEndsTheProcessAtOnce(t *testing.T) {
	p := start(t, 2, 2)
	p.begin("stuck", 1)
	p.send("exit", 2)
	p.ended(7)
	p = start(t, 2, 2)
	var heap []byte
	for n := uint64(1); n < 4; n++ {
		heap = append(heap, frame(task("goexit", n, nil))...)
	}
	p.write(heap)
	_, _ = io.ReadAll(p.from)
	p.ended(1)
	p.contains(p.stderr.String(), "a handler has called runtime.Goexit")
}

func TestAContextThatEndsLeavesWhenAllIsAnswered(t *testing.T) {
	p := start(t, 2, 2)
	p.begin("stuck", 1)
	p.same(p.ask("stop", 2), output{"0": "", "1": 200, "4": 2})
	p.tell("__cancel__ 1")
	p.expect(output{"0": "gave up", "1": 429, "4": 1})
	p.ended(0)
}

func TestWhatComesAfterTheStopIsGivenBack(t *testing.T) {
	const reason = "the worker is about to end"
	for verb, code := range map[string]int{"stop": 0, "goexit": 1} {
		p := start(t, 2, 2)
		p.begin("stuck", 1)
		p.send(verb, 2)
		p.receive()
		// The places of those that are answered are filled again; a cancelled one is given back at once.
		p.send("echo x", 3)
		p.tell("__cancel__ 3")
		p.expect(output{"0": reason, "1": 300, "4": 3})
		p.tell("__cancel__ 4")
		p.send("echo x", 4)
		p.expect(output{"0": reason, "1": 300, "4": 4})
		p.send("echo x", 5)
		p.tell("__cancel__ 1")
		p.expect(output{"0": "gave up", "1": 429, "4": 1})
		p.expect(output{"0": reason, "1": 300, "4": 5})
		p.ended(code)
	}
}

func TestAWarmUpThatFailsConnectsNowhere(t *testing.T) {
	path := "/tmp/CoreFxPipe_" + strconv.Itoa(os.Getpid()) + "-cold"
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	process := exec.Command(os.Args[0])
	process.Env = []string{asWorker + "=1 0", "GANGER_TEST_COLD=no model", "GANGER_PIPE=" + path}
	process.Stdin = strings.NewReader("pipe\n")
	said, _ := process.CombinedOutput()
	if process.ProcessState.ExitCode() != 1 || !strings.Contains(string(said), "the warm-up has failed: no model") {
		t.Errorf("%v: %s", process.ProcessState, said)
	}
	if err := listener.SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := listener.Accept(); err == nil {
		t.Error("it has connected")
	}
}

func TestLargeEmptyAndBinaryBodies(t *testing.T) {
	p := start(t, 1, 2)
	large := strings.Repeat("ü", 5*mib)
	if answer := p.ask("echo "+large, 1); answer["0"] != large {
		t.Error("another text")
	}
	binary := bytes.Repeat([]byte{0, 1, 2, 253, 254, 255}, 10*mib/6)
	if answer := p.ask(binary, 2); !reflect.DeepEqual(answer["0"], binary) {
		t.Error("other bytes")
	}
	p.same(p.ask([]byte{}, 3), output{"0": "", "1": 200, "4": 3})
	p.same(p.ask("echo ", 4), output{"0": "", "1": 201, "4": 4})
}

func TestFramesInDribblesAndHeaps(t *testing.T) {
	p := start(t, 100, 2)
	for _, each := range frame(task("echo slow", 1, nil)) {
		p.write([]byte{each})
	}
	p.expect(output{"0": "slow", "1": 201, "4": 1})
	var heap []byte
	for n := uint64(0); n < 100; n++ {
		heap = append(heap, frame(task(fmt.Sprint("echo ", n), n, nil))...)
	}
	p.write(heap[:len(heap)-5])
	p.write(heap[len(heap)-5:])
	seen := map[any]bool{}
	for n := 0; n < 100; n++ {
		answer := p.receive()
		seen[answer["4"]] = answer["0"] == fmt.Sprint(answer["4"])
	}
	for n := int64(0); n < 100; n++ {
		if !seen[n] {
			t.Errorf("no answer to %d", n)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	p := start(t, 8, 2)
	for n := uint64(0); n < 8; n++ {
		p.send("together", n)
	}
	seen := map[any]bool{}
	for n := 0; n < 8; n++ {
		seen[p.receive()["4"]] = true
	}
	if len(seen) != 8 {
		t.Error(seen)
	}
}

func TestASlowOneHoldsUpNoOther(t *testing.T) {
	p := start(t, 2, 2)
	p.begin("stuck", 1)
	for n := uint64(2); n < 200; n++ {
		p.same(p.ask("echo x", n), output{"0": "x", "1": 201, "4": int(n)})
	}
	p.tell("__cancel__ 1")
	p.expect(output{"0": "gave up", "1": 429, "4": 1})
}

func TestNotesGoOutBeforeTheAnswer(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		p := start(t, concurrency, 2)
		p.send("emit 300", 5)
		for n := int64(0); n < 300; n++ {
			headers := map[string]any{"n": n}
			p.expect(output{"0": fmt.Sprint("part ", n), "1": 103, "2": headers, "3": "parts", "4": 5})
		}
		p.expect(output{"0": "", "1": 200, "4": 5})
		p.same(p.ask("progress", 1), output{"0": "1 of 2", "1": 102, "4": 1})
		p.expect(output{"0": "", "1": 200, "4": 1})
		fields := map[string]any{"level": "debug", "target": "tests", "n": "1", "at": "{5}"}
		p.same(p.ask("log", 1), output{"0": "noted", "1": 101, "2": fields, "4": 1})
		p.expect(output{"0": "", "1": 200, "4": 1})
		fields = map[string]any{"level": "warn"}
		p.same(p.ask("logger", 1), output{"0": "hot stuff", "1": 101, "2": fields, "4": 1})
		p.expect(output{"0": "", "1": 200, "4": 1})
	}
}

func TestCancel(t *testing.T) {
	p := start(t, 1, 2)
	p.begin("stuck", 3)
	p.tell("__cancel__ 77\n__cancel__ \n__cancel__ x\n__cancel__ 3")
	p.expect(output{"0": "gave up", "1": 429, "4": 3})
	// One that overtakes its message: stdin and the pipe have no common order.
	p.tell("__cancel__ 4")
	p.begin("stuck", 4)
	p.expect(output{"0": "gave up", "1": 429, "4": 4})
	p.begin("uncaught", 5)
	p.tell("__cancel__ 5")
	p.expect(output{"0": "cancelled\nwhile it waited: context canceled", "1": 429, "4": 5})
	p.same(p.ask("echo on", 6), output{"0": "on", "1": 201, "4": 6})
	limit := map[string]any{"3": map[string]any{"TimeoutMilliseconds": "1"}}
	p.write(frame(task("sleepy", 8, limit)))
	p.expect(output{"0": "begun", "1": 102, "4": 8})
	p.tell("__cancel__ 8")
	p.expect(output{"0": "timed out: the limit is 1 ms\nwhile it waited: context canceled", "1": 429, "4": 8})
}

func TestQuitWhenIdle(t *testing.T) {
	for _, concurrency := range []int{1, 3} {
		p := start(t, concurrency, 2)
		p.ask("echo x", 1)
		p.tell("__quit__")
		p.ended(0)
	}
}

func TestQuitWhenBusy(t *testing.T) {
	p := start(t, 2, 2)
	p.begin("stuck", 1)
	p.send("sleep 200", 2)
	p.tell("__quit__")
	p.expect(output{"0": "", "1": 200, "4": 2})
	p.tell("__cancel__ 1")
	p.expect(output{"0": "gave up", "1": 429, "4": 1})
	p.ended(0)
}

func TestTheEndOfThePipeAndOfStdin(t *testing.T) {
	p := start(t, 1, 2)
	p.send("sleep 100", 1)
	p.must(p.pipe.CloseWrite())
	p.expect(output{"0": "", "1": 200, "4": 1})
	p.ended(0)
	p = start(t, 1, 2)
	p.send("sleep 100", 1)
	p.must(p.stdin.Close())
	p.expect(output{"0": "", "1": 200, "4": 1})
	p.ended(0)
}

func TestADaemonThatIsGoneIsNoError(t *testing.T) {
	p := start(t, 1, 2)
	p.send("sleep 100", 1)
	p.must(p.pipe.Close())
	p.must(p.process.Wait())
}

func TestWhatAWorkerDoesNotKnowItIgnores(t *testing.T) {
	p := start(t, 1, 2)
	p.tell("__context_switch__\n\n__unheard__ of")
	more := map[string]any{"8": map[string]any{"new": []any{1}}, "more": []byte{255}}
	p.write(frame(task("echo x", 1, more)))
	p.expect(output{"0": "x", "1": 201, "4": 1})
}

func TestAHostileInputEndsTheConnection(t *testing.T) {
	for _, concurrency := range []int{1, 2} {
		p := start(t, concurrency, 2)
		p.write(frame(map[string]any{"0": "m"}))
		p.ended(1)
		p.contains(p.stderr.String(), `no "1"`)
		p = start(t, concurrency, 2)
		p.write([]byte{0x7f, 0xff, 0xff, 0xff})
		p.ended(1)
		p.contains(p.stderr.String(), "at most 67108864 bytes")
	}
}

func TestVersion1(t *testing.T) {
	p := start(t, 8, 1)
	// Ahead of the answers, as `pipeline` does it; the answers are in order.
	var heap []byte
	for n := 0; n < 200; n++ {
		heap = append(heap, frame(map[string]any{
			"0": fmt.Sprint("echo ", n), "1": "", "2": "q", "3": map[string]any{},
		})...)
	}
	p.write(heap)
	for n := 0; n < 200; n++ {
		p.expect(output{"0": strconv.Itoa(n), "1": 201})
	}
	p.same(p.ask("progress", 1), output{"0": "1 of 2", "1": -1})
	p.expect(output{"0": "", "1": 200})
	p.same(p.ask("log", 1), output{"0": "", "1": 200})
	answer := p.ask("emit 1", 1)
	p.contains(answer["1"], "500")
	p.contains(answer["0"], "version 2")
	p.tell("__quit__")
	p.ended(0)
	p.contains(p.stderr.String(), "debug: noted target=tests n=1")
}

func TestVersion1GivesUpByItselfAndYieldsWhenTold(t *testing.T) {
	p := start(t, 1, 1)
	timeout := func(text string) map[string]any {
		return map[string]any{"3": map[string]any{"TimeoutMilliseconds": text}}
	}
	p.write(frame(task("stuck", 1, timeout("100"))))
	p.expect(output{"0": "begun", "1": -1})
	p.expect(output{"0": "gave up", "1": 429})
	p.write(frame(task("uncaught", 1, timeout("100"))))
	p.expect(output{"0": "begun", "1": -1})
	why := "timed out: the limit is 100 ms\nwhile it waited: context deadline exceeded"
	p.expect(output{"0": why, "1": 429})
	for _, text := range []string{"-1", "soon"} {
		p.write(frame(task("echo x", 1, timeout(text))))
		p.expect(output{"0": "x", "1": 201})
	}
	p.begin("stuck", 1)
	p.tell("__context_switch__")
	p.expect(output{"0": "gave up", "1": 429})
}
