package ganger

import (
	"os"
	"syscall"
)

// takeStdin moves stdin to a descriptor that no child inherits, and puts /dev/null in its place: a child
// that reads stdin would wait there for ever, and swallow the daemon's lines.
func takeStdin() (*os.File, error) {
	syscall.ForkLock.RLock()
	moved, err := syscall.Dup(0)
	if err == nil {
		syscall.CloseOnExec(moved)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, err
	}
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer nothing.Close()
	return os.NewFile(uintptr(moved), "control"), syscall.Dup3(int(nothing.Fd()), 0, 0)
}
