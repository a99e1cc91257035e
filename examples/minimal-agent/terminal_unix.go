//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminalSize returns the size of the terminal f. ok is false if f is not a terminal.
func terminalSize(f *os.File) (width, height int, ok bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(size.Col), int(size.Row), true
}

// rawTerminal switches a terminal to raw mode, in which it passes each key, also Ctrl-C, to the
// program. restore restores the previous mode. The error is not nil if f is not a terminal.
func rawTerminal(f *os.File) (restore func(), err error) {
	state, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	return func() { _ = term.Restore(int(f.Fd()), state) }, nil // can only fail if the terminal no longer exists
}

// resizes returns a channel that receives a message when the size of the terminal has changed,
// until ctx is done.
func resizes(ctx context.Context) <-chan struct{} {
	signals, changed := make(chan os.Signal, 1), make(chan struct{}, 1)
	signal.Notify(signals, unix.SIGWINCH)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-signals:
				select {
				case changed <- struct{}{}:
				default: // a message is pending
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return changed
}
