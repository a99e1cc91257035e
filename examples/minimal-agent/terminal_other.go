//go:build !unix

package main

import "os"

// terminalSize reports that f is not a terminal: terminals are supported on Unix only.
func terminalSize(*os.File) (width, height int, ok bool) { return 0, 0, false }
