//go:build !unix

package main

import (
	"context"
	"errors"
	"os"
)

// terminalSize reports that f is not a terminal: terminals are supported on Unix only.
func terminalSize(*os.File) (width, height int, ok bool) { return 0, 0, false }

// rawTerminal returns an error: terminals are supported on Unix only.
func rawTerminal(*os.File) (restore func(), err error) { return nil, errors.ErrUnsupported }

// resizes returns nil: the size never changes.
func resizes(context.Context) <-chan struct{} { return nil }
