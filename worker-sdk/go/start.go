package ganger

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const version = "0.1.0"

const (
	quitLine   = "__quit__"
	yieldLine  = "__context_switch__"
	cancelLine = "__cancel__ "
)

// control is the pipe's name, which stdin begins with, and the control lines that follow.
func control() (string, *bufio.Reader, error) {
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return "", nil, errors.New("this is a worker of ganger, which starts it and writes a pipe's name to " +
			"its stdin: put it into a [[pools]] section, or try it with package gangertest")
	}
	stdin, err := takeStdin()
	if err != nil {
		return "", nil, fmt.Errorf("stdin can't be moved: %w", err)
	}
	control := bufio.NewReader(stdin)
	line, err := control.ReadString('\n')
	name := strings.TrimRight(line, "\r\n")
	if name == "" {
		return "", nil, fmt.Errorf("stdin must begin with a line that names the pipe: %w", err)
	}
	return name, control, nil
}

func pathOf(name string) string {
	if told := os.Getenv("GANGER_PIPE"); told != "" {
		return told
	}
	if below := os.Getenv("TMPDIR"); below != "" {
		there := filepath.Join(below, "CoreFxPipe_"+name)
		if _, err := os.Stat(there); err == nil {
			return there
		}
	}
	return "/tmp/CoreFxPipe_" + name
}

// spoken is 2, unless the daemon is one that knows version 1 only.
func spoken() int {
	if number, err := strconv.Atoi(os.Getenv("GANGER_PROTOCOL")); err == nil && number >= 2 {
		return 2
	}
	return 1
}
