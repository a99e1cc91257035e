package host_test

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/agent/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newMachine returns a folder with the files of a small machine.
func newMachine(tb testing.TB) string {
	tb.Helper()
	root := tb.TempDir()
	for name, text := range map[string]string{
		"proc/meminfo":                           "MemTotal:        8000000 kB\nMemAvailable:    6000000 kB\nSwapTotal:       1000000 kB\n",
		"proc/loadavg":                           "0.10 0.20 0.30 2/300 4000\n",
		"proc/sys/kernel/pid_max":                "32768\n",
		"proc/sys/kernel/threads-max":            "64000\n",
		"proc/sys/kernel/osrelease":              "6.12.0-test\n",
		"proc/sys/kernel/random/boot_id":         "5a1e3c0b-0000-4000-8000-000000000001\n",
		"sys/devices/system/cpu/online":          "0-2,8\n",
		"sys/class/dmi/id/product_uuid":          "0d3b7f00-0000-4000-8000-000000000002\n",
		"sys/fs/cgroup/cgroup.controllers":       "cpu memory pids\n",
		"sys/module/apparmor/parameters/enabled": "Y\n",
		"sys/fs/selinux/enforce":                 "0",
		"sys/kernel/mm/hugepages/README":         "not a size\n",
		hugePages("2048kB"):                      "16\n",
		hugePages("1048576kB"):                   "0\n",
		"etc/machine-id":                         "0123456789abcdef0123456789abcdef\n",
		"etc/os-release":                         "ID=test\nPRETTY_NAME=\"Test Linux 1\"\n",
		"etc/resolv.conf":                        "nameserver 192.0.2.53\n",
		"etc/hosts":                              "127.0.0.1 localhost\n",
		"proc/vmstat":                            "oom_kill 0\n",
	} {
		write(tb, filepath.Join(root, name), text)
	}
	return root
}

func hugePages(size string) string {
	return "sys/kernel/mm/hugepages/hugepages-" + size + "/nr_hugepages"
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	require.NoError(tb, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(tb, os.WriteFile(path, []byte(text), 0o644))
}

// interfaces returns network interfaces with the given addresses, such as "192.0.2.1/24".
func interfaces(all ...string) func() ([]net.Addr, error) {
	return func() (addrs []net.Addr, err error) {
		for _, text := range all {
			ip, network, errParse := net.ParseCIDR(text)
			err = errors.Join(err, errParse)
			if errParse == nil {
				addrs = append(addrs, &net.IPNet{IP: ip, Mask: network.Mask})
			}
		}
		return addrs, err
	}
}

// local returns the machine below root as a Host.
func local(tb testing.TB, root string, c host.LocalConfig) *host.Host {
	tb.Helper()
	h, err := host.Local(c.On(root, interfaces("192.0.2.1/24")))
	require.NoError(tb, err)
	return h
}

// logger returns a logger, and a function that returns what was logged.
func logger() (*slog.Logger, func() string) {
	b := &lockedBuffer{}
	return slog.New(slog.NewTextHandler(b, nil)), b.String
}
