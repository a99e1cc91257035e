package podlogs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mostOpen is the maximum number of files below a root that Copy may have open: the
// container's directory, the current file, the last file, and the file that a follower has
// read before.
const mostOpen = 4

// client is a writer that calls a function between the first and the second Write. Each Write
// counts the open files below a root.
type client struct {
	strings.Builder
	root  string
	first func()
	most  int
}

func (c *client) Write(p []byte) (int, error) {
	c.most = max(c.most, openBelow(c.root))
	if do := c.first; do != nil {
		c.first = nil
		do()
	}
	return c.Builder.Write(p)
}

// openBelow counts the descriptors of this process for files below root.
func openBelow(root string) (n int) {
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		if file, err := os.Readlink(link); err == nil && strings.HasPrefix(file, root) {
			n++
		}
	}
	return n
}

func rotatedName(attempt, n int) string {
	return fmt.Sprintf("%d.log.%s", attempt, at(n).Format("20060102-150405"))
}
