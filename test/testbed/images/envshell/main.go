// Command envshell is the shell of an image: busybox's shell, except that the script "env" runs the
// program env without a shell. Debian's busybox shell removes variables whose names are not
// identifiers, such as data-1, and Kubernetes' own specs expect them in the output of env.
package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

func main() {
	if err := syscall.Exec("/bin/busybox", command(os.Args), os.Environ()); err != nil {
		fmt.Fprintln(os.Stderr, "envshell: run /bin/busybox:", err)
		os.Exit(126)
	}
}

// command returns the arguments with which busybox is run in place of the shell with args.
func command(args []string) []string {
	if len(args) == 3 && args[1] == "-c" && strings.TrimSpace(args[2]) == "env" {
		return []string{"env"}
	}
	return args
}
