package podlogs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/podlogs"
)

// Copy writes the last lines of a log with one rotated file.
func Example() {
	root, err := os.MkdirTemp("", "logs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(root) }()
	const dir = "default_web_1/server"
	for name, text := range map[string]string{
		"0.log.20260102-030405": "2026-01-02T03:04:03Z stdout F one\n2026-01-02T03:04:04Z stdout F two\n",
		"0.log":                 "2026-01-02T03:04:06Z stdout F three\n2026-01-02T03:04:07Z stderr F failed\n",
	} {
		path := filepath.Join(root, dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			fmt.Println(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			fmt.Println(err)
		}
	}
	source := podlogs.Source{Root: root, Dir: dir}
	fmt.Println(podlogs.Copy(context.Background(), os.Stdout, source, podlogs.Options{TailLines: new(int64(2)), Stream: podlogs.Stdout}))
	fmt.Println(podlogs.Copy(context.Background(), os.Stdout, podlogs.Source{Root: root, Dir: "default_db_2/server"}, podlogs.Options{}))
	// Output:
	// two
	// three
	// <nil>
	// the log does not exist: it was not written yet, or it was deleted
}
