package logrotate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/containergc/logrotate"
)

// BenchmarkQuietPass checks logs below the size limit. The kubelet also requests the status
// of each container from the runtime.
func BenchmarkQuietPass(b *testing.B) {
	const containers = 220
	b.Run(fmt.Sprintf("containers=%d", containers), func(b *testing.B) {
		root := b.TempDir()
		var logs []logrotate.Log
		for i := range containers {
			path := filepath.Join(root, fmt.Sprintf("ns_pod-%d_uid-%d", i, i), "app", "0.log")
			require.NoError(b, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(b, os.WriteFile(path, []byte("line\n"), 0o640))
			logs = append(logs, logrotate.Log{ContainerID: fmt.Sprint(i), Path: path})
		}
		r, err := logrotate.New(logrotate.Config{
			Runtime: reopener{}, PodLogs: root,
			Running: func(context.Context) ([]logrotate.Log, error) { return logs, nil },
		})
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			_, err := r.Rotate(b.Context())
			require.NoError(b, err)
		}
	})
}
