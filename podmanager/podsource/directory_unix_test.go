//go:build unix

package podsource_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDirectory_DoesNotOpenPipes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("a.yaml", yamlOf("a", "i:1"))
	require.NoError(t, syscall.Mkfifo(filepath.Join(b.path, "b.yaml"), 0o600))
	res := b.requirePods("a-node1 i:1")
	require.Equal(t, 1, res.FilesRead)
	b.requireTold("+ b.yaml: not a regular file (mode prw-------)")
}
