//go:build !linux

package ganger

import "os"

func takeStdin() (*os.File, error) { return os.Stdin, nil }
