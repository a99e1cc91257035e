package podlogs_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/podlogs"
)

// bytesRead returns how many bytes the current thread has read from files.
func bytesRead(t *testing.T) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/io")
	require.NoError(t, err)
	_, err = fmt.Sscanf(string(text), "rchar: %d", &n)
	require.NoError(t, err)
	return n
}

func TestCopy_TailDoesNotReadTheStartOfTheFile(t *testing.T) {
	t.Parallel()
	src := logs(t, map[string]string{"0.log": strings.Repeat(line("1 out F some text"), 200_000) + line("2 out F last")})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	last := int64(1)
	before := bytesRead(t)
	require.Equal(t, "last\n", read(t, src, podlogs.Options{TailLines: &last}))
	require.Less(t, bytesRead(t)-before, 1<<20)
}
