package host_test

import (
	"bytes"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/fakecri"
)

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestValidate_ReportsEveryProblem(t *testing.T) {
	require.NoError(t, host.LocalConfig{}.Validate())
	c := host.LocalConfig{
		Root: "root", PodLogs: "logs", PodsCgroup: "kubepods", ResolvConf: "resolv.conf", NoLookups: true, VolumePeriod: -time.Second,
	}
	err := c.Validate()
	require.EqualError(t, err, `field Root: path "root" is not absolute
field PodLogs: path "logs" is not absolute
field PodsCgroup: path "kubepods" is not absolute
field ResolvConf: path "resolv.conf" is not absolute
field NoLookups: can't be combined with ResolvConf "resolv.conf"
field VolumePeriod: -1s is negative`)
	_, fromLocal := host.Local(c)
	require.EqualError(t, fromLocal, "host: invalid config: "+err.Error())
}

func TestLocal_OpensNothing(t *testing.T) {
	// The machine's files are missing. Each capability returns an error when it is used.
	h := local(t, filepath.Join(t.TempDir(), "missing"), host.LocalConfig{})
	_, err := h.Facts(t.Context())
	require.ErrorContains(t, err, "meminfo")
}

func TestLocal_HasTheCapabilitiesOfItsSystem(t *testing.T) {
	node, err := fakecri.New(fakecri.Config{})
	require.NoError(t, err)
	h := local(t, newMachine(t), host.LocalConfig{Runtime: node, Images: node})
	linux := runtime.GOOS == "linux"
	require.Equal(t, linux, h.Stats != nil)
	require.Equal(t, linux, h.Waker != nil)
	require.Equal(t, linux, h.ImageFS != nil)
	require.Equal(t, linux, h.Mounter != nil)
	require.Equal(t, linux, h.Run != nil)
	require.Equal(t, linux, len(h.OOM) > 0)
}
