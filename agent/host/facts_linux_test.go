package host_test

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/host"
)

// quantities returns the amounts of a resource list as text.
func quantities(list corev1.ResourceList) map[corev1.ResourceName]string {
	out := map[corev1.ResourceName]string{}
	for name, q := range list {
		out[name] = q.String()
	}
	return out
}

func TestFacts_AreThoseOfTheMachine(t *testing.T) {
	root := newMachine(t)
	f, err := local(t, root, host.LocalConfig{Root: root}).Facts(t.Context())
	require.NoError(t, err)

	disk := f.Capacity[corev1.ResourceEphemeralStorage]
	require.Positive(t, disk.Value())
	delete(f.Capacity, corev1.ResourceEphemeralStorage)
	require.Equal(t, map[corev1.ResourceName]string{
		"cpu": "4", "memory": "8000000Ki", "hugepages-2Mi": "32Mi", "hugepages-1Gi": "0",
	}, quantities(f.Capacity))

	f.Capacity = nil
	require.Equal(t, host.Facts{
		SwapBytes: 1000000 << 10,
		Info: corev1.NodeSystemInfo{
			MachineID:       "0123456789abcdef0123456789abcdef",
			SystemUUID:      "0d3b7f00-0000-4000-8000-000000000002",
			BootID:          "5a1e3c0b-0000-4000-8000-000000000001",
			KernelVersion:   "6.12.0-test",
			OSImage:         "Test Linux 1",
			OperatingSystem: runtime.GOOS,
			Architecture:    runtime.GOARCH,
		},
		Addresses:  []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		ResolvConf: []byte("nameserver 192.0.2.53\n"),
		Hosts:      []byte("127.0.0.1 localhost\n"),
		CgroupV2:   true, AppArmor: true, SELinux: true,
	}, f)
}

func TestFacts_ChangingFactsAreReadEachTime(t *testing.T) {
	root := newMachine(t)
	h := local(t, root, host.LocalConfig{Root: root})
	before, err := h.Facts(t.Context())
	require.NoError(t, err)

	write(t, filepath.Join(root, "proc/meminfo"), "MemTotal: 9000000 kB\nSwapTotal: 0 kB\n")
	write(t, filepath.Join(root, hugePages("2048kB")), "1\n")
	write(t, filepath.Join(root, "etc/resolv.conf"), "nameserver 192.0.2.54\n")
	write(t, filepath.Join(root, "etc/hosts"), "::1 localhost\n")
	for _, constant := range []string{"etc/machine-id", "etc/os-release", "proc/sys/kernel/osrelease", "sys/devices/system/cpu/online"} {
		write(t, filepath.Join(root, constant), "7\n")
	}
	after, err := h.Facts(t.Context())
	require.NoError(t, err)
	require.Equal(t, "9000000Ki", quantities(after.Capacity)["memory"])
	require.Equal(t, "2Mi", quantities(after.Capacity)["hugepages-2Mi"])
	require.Zero(t, after.SwapBytes)
	require.Equal(t, "nameserver 192.0.2.54\n", string(after.ResolvConf))
	require.Equal(t, "::1 localhost\n", string(after.Hosts))

	require.Equal(t, before.Info, after.Info)
	require.Equal(t, "4", quantities(after.Capacity)["cpu"])
}

func TestFacts_BelongToTheCaller(t *testing.T) {
	root := newMachine(t)
	h := local(t, root, host.LocalConfig{Root: root})
	f, err := h.Facts(t.Context())
	require.NoError(t, err)
	clear(f.Capacity)
	again, err := h.Facts(t.Context())
	require.NoError(t, err)
	require.Equal(t, "4", quantities(again.Capacity)["cpu"])
}

func TestFacts_PartialFactsWithAnError(t *testing.T) {
	root := newMachine(t)
	require.NoError(t, os.Remove(filepath.Join(root, "proc/meminfo")))
	write(t, filepath.Join(root, hugePages("2048kB")), "many\n")
	require.NoError(t, os.Remove(filepath.Join(root, hugePages("1048576kB"))))
	require.NoError(t, os.Remove(filepath.Join(root, "etc/hosts")))
	require.NoError(t, os.Mkdir(filepath.Join(root, "etc/hosts"), 0o755))
	c := host.LocalConfig{Root: root}.On(root, func() ([]net.Addr, error) { return nil, errors.New("no netlink") })
	h, err := host.Local(c)
	require.NoError(t, err)

	f, err := h.Facts(t.Context())
	for _, part := range []string{
		"measure memory: open ", "meminfo", "measure huge pages: ", "hugepages-2048kB/nr_hugepages", "hugepages-1048576kB/nr_hugepages",
		"list the addresses of the machine: no netlink", "etc/hosts",
	} {
		require.ErrorContains(t, err, part)
	}
	require.Equal(t, "4", quantities(f.Capacity)["cpu"])
	require.NotContains(t, f.Capacity, corev1.ResourceMemory)
	require.NotContains(t, f.Capacity, corev1.ResourceName("hugepages-2Mi"))
	require.Equal(t, []netip.Addr{netip.MustParseAddr("127.0.0.1")}, f.Addresses)
	require.NoError(t, f.ResolvConfErr)
}

func TestFacts_OptionalFilesMayBeMissing(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "proc/meminfo"), "MemTotal: 1024 kB\n")
	f, err := local(t, root, host.LocalConfig{Root: root}).Facts(t.Context())
	require.NoError(t, err)
	require.Equal(t, corev1.NodeSystemInfo{OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH}, f.Info)
	cpus := f.Capacity[corev1.ResourceCPU]
	require.EqualValues(t, runtime.NumCPU(), cpus.Value())
	require.Len(t, f.Capacity, 3, "no huge pages in the capacity")
	require.Empty(t, f.Hosts)
	require.ErrorIs(t, f.ResolvConfErr, fs.ErrNotExist)
	require.False(t, f.CgroupV2 || f.AppArmor || f.SELinux || f.NoLookups)
}

func TestFacts_EphemeralStorageIsTheFilesystemOfRoot(t *testing.T) {
	root := newMachine(t)
	exists, err := local(t, root, host.LocalConfig{Root: root}).Facts(t.Context())
	require.NoError(t, err)
	missing, err := local(t, root, host.LocalConfig{Root: filepath.Join(root, "not", "yet")}).Facts(t.Context())
	require.NoError(t, err)
	require.Equal(t, exists.Capacity, missing.Capacity)

	_, err = local(t, root, host.LocalConfig{Root: filepath.Join(root, "etc/hosts/below-a-file")}).Facts(t.Context())
	require.ErrorContains(t, err, "measure ephemeral storage: ")

	ofSlash, err := local(t, root, host.LocalConfig{}).Facts(t.Context())
	require.NoError(t, err)
	require.Contains(t, ofSlash.Capacity, corev1.ResourceEphemeralStorage)
}

func TestFacts_ResolvConf(t *testing.T) {
	root := newMachine(t)
	other := filepath.Join(root, "other.conf")
	h := local(t, root, host.LocalConfig{Root: root, ResolvConf: other})
	f, err := h.Facts(t.Context())
	require.NoError(t, err, "a missing resolv.conf must not fail: only pods need it")
	require.ErrorIs(t, f.ResolvConfErr, fs.ErrNotExist)
	require.ErrorContains(t, f.ResolvConfErr, other)

	write(t, other, "search example\n")
	f, err = h.Facts(t.Context())
	require.NoError(t, err)
	require.NoError(t, f.ResolvConfErr)
	require.Equal(t, "search example\n", string(f.ResolvConf))
	require.False(t, f.NoLookups)

	f, err = local(t, root, host.LocalConfig{Root: root, NoLookups: true}).Facts(t.Context())
	require.NoError(t, err)
	require.True(t, f.NoLookups)
	require.Empty(t, f.ResolvConf)
	require.NoError(t, f.ResolvConfErr)
}

func TestFacts_InfoFallsBackAsInCAdvisor(t *testing.T) {
	for _, test := range []struct {
		name, file, text string
		remove           []string
		want             corev1.NodeSystemInfo
	}{
		{
			name: "machine ID of D-Bus", file: "var/lib/dbus/machine-id", text: "dbus\n", remove: []string{"etc/machine-id"},
			want: corev1.NodeSystemInfo{MachineID: "dbus", SystemUUID: "0d3b7f00-0000-4000-8000-000000000002", OSImage: "Test Linux 1"},
		},
		{
			name: "system ID of the device tree", file: "proc/device-tree/system-id", text: "IBM,0123\x00", remove: []string{"sys/class/dmi/id/product_uuid"},
			want: corev1.NodeSystemInfo{MachineID: "0123456789abcdef0123456789abcdef", SystemUUID: "IBM,0123", OSImage: "Test Linux 1"},
		},
		{
			name: "UUID of a virtual machine", file: "proc/device-tree/vm,uuid", text: "abcd\x00", remove: []string{"sys/class/dmi/id/product_uuid"},
			want: corev1.NodeSystemInfo{MachineID: "0123456789abcdef0123456789abcdef", SystemUUID: "abcd", OSImage: "Test Linux 1"},
		},
		{
			name: "machine ID as system UUID, system in /usr", file: "usr/lib/os-release", text: "PRETTY_NAME='Stateless 2'", remove: []string{"sys/class/dmi/id/product_uuid", "etc/os-release"},
			want: corev1.NodeSystemInfo{MachineID: "0123456789abcdef0123456789abcdef", SystemUUID: "0123456789abcdef0123456789abcdef", OSImage: "Stateless 2"},
		},
		{
			name: "system without a name", file: "etc/os-release", text: "ID=test\n",
			want: corev1.NodeSystemInfo{MachineID: "0123456789abcdef0123456789abcdef", SystemUUID: "0d3b7f00-0000-4000-8000-000000000002", OSImage: "Linux"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := newMachine(t)
			for _, name := range test.remove {
				require.NoError(t, os.Remove(filepath.Join(root, name)))
			}
			write(t, filepath.Join(root, test.file), test.text)
			f, err := local(t, root, host.LocalConfig{Root: root}).Facts(t.Context())
			require.NoError(t, err)
			test.want.BootID, test.want.KernelVersion = f.Info.BootID, f.Info.KernelVersion
			test.want.OperatingSystem, test.want.Architecture = runtime.GOOS, runtime.GOARCH
			require.Equal(t, test.want, f.Info)
		})
	}
}

func TestFacts_Addresses(t *testing.T) {
	for _, test := range []struct {
		name      string
		addresses []string
		want      []string
	}{
		{"IPv4 first", []string{"127.0.0.1/8", "::1/128", "2001:db8::1/64", "192.0.2.1/24"}, []string{"192.0.2.1", "2001:db8::1"}},
		{"the first of each family", []string{"192.0.2.1/24", "192.0.2.2/24", "fd00::1/64", "fd00::2/64"}, []string{"192.0.2.1", "fd00::1"}},
		{"no link-local ones", []string{"169.254.0.1/16", "fe80::1/64", "2001:db8::1/64"}, []string{"2001:db8::1"}},
		{"no network", []string{"127.0.0.1/8"}, []string{"127.0.0.1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := newMachine(t)
			h, err := host.Local(host.LocalConfig{}.On(root, func() ([]net.Addr, error) {
				all, err := interfaces(test.addresses...)()
				return append([]net.Addr{&net.UnixAddr{Name: "no IP address"}}, all...), err
			}))
			require.NoError(t, err)
			f, err := h.Facts(t.Context())
			require.NoError(t, err)
			var got []string
			for _, ip := range f.Addresses {
				got = append(got, ip.String())
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestFacts_OfThisMachine(t *testing.T) {
	h, err := host.Local(host.LocalConfig{Root: t.TempDir()})
	require.NoError(t, err)
	f, err := h.Facts(t.Context())
	require.NoError(t, err)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		q := f.Capacity[name]
		require.Positive(t, q.Value(), name)
	}
	require.NotEmpty(t, f.Info.KernelVersion)
	require.NotEmpty(t, f.Info.BootID)
	require.NotEmpty(t, f.Addresses)
	require.True(t, f.Addresses[0].IsValid())
}

func BenchmarkFacts(b *testing.B) {
	h, err := host.Local(host.LocalConfig{Root: b.TempDir()})
	require.NoError(b, err)
	for b.Loop() {
		if _, err := h.Facts(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
