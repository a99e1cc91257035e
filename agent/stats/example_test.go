package stats_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubeparts/kubeparts/agent/stats"
)

// A node is measured from files of its kernel, or from test files of the same format.
func Example() {
	root, err := os.MkdirTemp("", "node")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)
	for name, text := range map[string]string{
		"meminfo":                "MemTotal:  8000000 kB\nMemAvailable:  2000000 kB\n",
		"loadavg":                "0.10 0.20 0.30 2/300 4000\n",
		"sys/kernel/pid_max":     "32768\n",
		"sys/kernel/threads-max": "64000\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			fmt.Println(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			fmt.Println(err)
		}
	}
	stats, err := stats.New(stats.Config{ProcRoot: root, CgroupRoot: root, NodePath: "/nonexistent"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stats.Close()
	node, err := stats.Node(context.Background())
	for _, o := range node.Observations {
		fmt.Println(o.Signal, o.Available, "of", o.Capacity)
	}
	fmt.Println("all there:", err == nil) // the path does not exist, so there are no filesystem signals
	// Output:
	// memory.available 2048000000 of 8192000000
	// pid.available 32468 of 32768
	// all there: false
}
