package stats

import (
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func TestValue_ArithmeticSaturates(t *testing.T) {
	t.Parallel()
	most := known(math.MaxUint64)
	var unknown value
	require.Equal(t, known(0), known(1).minus(known(2)), "kubernetes#52386: the difference must not wrap around")
	require.Equal(t, known(3), known(5).minus(known(2)))
	require.Equal(t, most, most.plus(known(1)))
	require.Equal(t, most, known(1<<60).times(1<<10))
	require.Equal(t, known(0), known(7).times(0))
	for name, v := range map[string]value{
		"minus unknown": known(5).minus(unknown), "unknown minus": unknown.minus(known(5)),
		"plus unknown": known(5).plus(unknown), "times": unknown.times(5), "least of none": unknown.least(unknown),
	} {
		require.False(t, v.ok, name)
		require.Nil(t, v.ptr(), name)
	}
	require.Equal(t, known(2), known(3).least(known(2)))
	require.Equal(t, known(3), known(3).least(unknown))
	require.Equal(t, known(3), unknown.least(known(3)))
	require.Equal(t, known(3), unknown.or(known(3)))
	require.Equal(t, known(3), fromPtr(known(3).ptr()))
	require.Equal(t, unknown, fromPtr(nil))
}

func TestParseMeminfo(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string
		want meminfo
	}{
		"nothing": {},
		"all that counts": {
			"MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable:  50 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\nHugetlb: 8 kB\n",
			meminfo{known(102400), known(51200), known(8192), known(10240), known(4096)},
		},
		"huge pages before Linux 4.15": {
			"HugePages_Total: 3\nHugepagesize: 2048 kB\n", meminfo{hugepages: known(3 * 2 << 20)},
		},
		"more available than there is":    {"MemTotal: 1 kB\nMemAvailable: 2 kB\n", meminfo{total: known(1024)}},
		"cut off in the middle":           {"MemTotal: 12 kB\nMemAvail", meminfo{total: known(12288)}},
		"a number that does not fit":      {"MemTotal: 99999999999999999999 kB\n", meminfo{}},
		"a number whose bytes do not fit": {"MemTotal: 18446744073709551615 kB\n", meminfo{}},
		"a negative number":               {"MemTotal: -5 kB\nMemAvailable: 5x kB", meminfo{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, parseMeminfo([]byte(tt.text)))
		})
	}
}

func TestParseZones(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/proc/zoneinfo")
	require.NoError(t, err)
	require.Equal(t, zones{low: known((20 + 3750 + 16250) * 4096), perCPUFree: known((23 + 40000 + 10000) * 4096)}, parseZones(b, 4096))
	require.Equal(t, zones{}, parseZones(nil, 4096), "an unreadable file must be unknown, not zero")
	require.Equal(t, zones{low: known(0)}, parseZones([]byte("  low 0\n"), 4096))
	require.Equal(t, zones{}, parseZones([]byte("low x\nlow: 5\nlowest 6\ncount 7\ncount: y"), 4096))
}

func TestMemAvailable_IncludesPerCPUPages(t *testing.T) {
	t.Parallel()
	m := meminfo{total: known(100), available: known(40)}
	for kept, want := range map[value]value{{}: known(40), known(0): known(40), known(25): known(65), known(70): known(100)} {
		require.Equal(t, want, MemAvailable.available(m, cgroupMemory{}, zones{perCPUFree: kept}))
	}
	require.Equal(t, value{}, MemAvailable.available(meminfo{total: known(100)}, cgroupMemory{}, zones{perCPUFree: known(25)}))
}

func TestParseMemoryStat(t *testing.T) {
	t.Parallel()
	v2 := "anon 10\nfile 20\ninactive_file 5\npgfault 7\npgmajfault 1\nslab 99\n"
	require.Equal(t, memoryStat{known(10), known(20), known(5), known(7), known(1)}, parseMemoryStat([]byte(v2)))
	v1 := "cache 1\nrss 2\ninactive_file 3\npgfault 4\npgmajfault 5\ntotal_cache 20\ntotal_rss 10\ntotal_inactive_file 5\ntotal_pgfault 7\n"
	require.Equal(t, memoryStat{known(10), known(20), known(5), known(7), known(5)}, parseMemoryStat([]byte(v1)))
	require.Equal(t, memoryStat{}, parseMemoryStat([]byte("anon\nfile x\n")))
}

func TestParseNumbers(t *testing.T) {
	t.Parallel()
	require.Equal(t, known(42), parseNumber([]byte("42\n")))
	require.Equal(t, known(0), parseNumber([]byte("0\n")))
	for _, none := range []string{"", "\n", "max\n", "9223372036854771712\n", "-1", "0x10", "18446744073709551616"} {
		require.Equal(t, value{}, parseNumber([]byte(none)), "%q", none)
	}
	require.Equal(t, known(1234), parseTasks([]byte("0.42 0.31 0.25 3/1234 98765\n")))
	for _, none := range []string{"", "0.42 0.31", "1 2 3 4 5", "1 2 3 4/x 5"} {
		require.Equal(t, value{}, parseTasks([]byte(none)), "%q", none)
	}
	require.Equal(t, known(7), parseKey([]byte("a 1\nusage_usec 7\n"), "usage_usec"))
	require.Equal(t, value{}, parseKey([]byte("usage_usecs 7\n"), "usage_usec"))
}

func TestParsePressure(t *testing.T) {
	t.Parallel()
	text := "some avg10=1.25 avg60=100.00 avg300=0.01 total=123456\nfull avg10=0.75 avg60=0.25 avg300=0.00 total=7\n"
	psi, ok := parsePressure([]byte(text))
	require.True(t, ok)
	require.Equal(t, statsapi.PSIStats{
		Some: statsapi.PSIData{Total: 123456000, Avg10: 1.25, Avg60: 100, Avg300: 0.01},
		Full: statsapi.PSIData{Total: 7000, Avg10: 0.75, Avg60: 0.25},
	}, psi)
	psi, ok = parsePressure([]byte("some avg10=1.5 avg60=900.00 avg300=x total=-1 more=1\n"))
	require.True(t, ok, "before Linux 5.13 the CPU has no full pressure")
	require.Zero(t, psi)
	_, ok = parsePressure([]byte("half avg10=1.00\n"))
	require.False(t, ok)
}

func TestParseMounts(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/proc/self/mountinfo")
	require.NoError(t, err)
	mounts := parseMounts(b)
	require.Equal(t, []mount{
		{"/proc", "proc", "proc"},
		{"/", "ext4", "/dev/vda"},
		{"/var/lib/containerd", "xfs", "/dev/vdb"},
		{"/mnt/with blank", "btrfs", "/dev/vdc"},
	}, mounts)
	require.Empty(t, parseMounts([]byte("1 2 3 4 - ext4 x\n1 2 0:1 / /a rw\n1 2 0:1 / /a rw - ext4\n")), "truncated lines must be ignored")
	require.Equal(t, `a\09b\`, unescape([]byte(`a\09b\`)), "invalid octal escapes must be kept")

	for path, want := range map[string]string{
		"/": "/dev/vda", "/var/lib/kubelet": "/dev/vda", "/var/lib/containerd": "/dev/vdb",
		"/var/lib/containerd/x": "/dev/vdb", "/var/lib/containerd2": "/dev/vda", "/mnt/with blank/pods": "/dev/vdc",
	} {
		require.Equal(t, want, mountOf(path, mounts).source, path)
	}
	require.Zero(t, mountOf("relative", mounts))
	covered := append(mounts, mount{"/", "btrfs", "/dev/new"})
	require.Equal(t, "/dev/new", mountOf("/etc", covered).source, "the last mount on a mount point must be used")
	require.Equal(t, identify(45, "/mnt/with blank/a", mounts), identify(46, "/mnt/with blank/b", mounts),
		"two subvolumes of one btrfs are one filesystem")
	require.NotEqual(t, identify(1, "/etc", mounts), identify(2, "/var/lib/containerd", mounts))
}

func TestParseInterfaces(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/proc/self/net/dev")
	require.NoError(t, err)
	all := parseInterfaces(b)
	require.Len(t, all, 2)
	require.Equal(t, "eth0", all[0].Name)
	require.EqualValues(t, 673093184, *all[0].RxBytes)
	require.EqualValues(t, 7, *all[0].RxErrors)
	require.EqualValues(t, 4365801, *all[0].TxBytes)
	require.EqualValues(t, 3, *all[0].TxErrors)
	require.Empty(t, parseInterfaces([]byte("eth0: 1 2 3\nno colon\n")))
	b, err = os.ReadFile("testdata/proc/self/net/route")
	require.NoError(t, err)
	require.Equal(t, "eth0", parseDefaultRoute(b))
	require.Empty(t, parseDefaultRoute([]byte("Iface\tDestination\neth0\t0000000A\n")))
}

func FuzzMeminfo(f *testing.F) {
	seed(f, "testdata/proc/meminfo")
	f.Fuzz(func(t *testing.T, b []byte) {
		m := parseMeminfo(b)
		if m.available.ok && m.total.ok {
			require.LessOrEqual(t, m.available.n, m.total.n)
		}
		for _, e := range []Estimator{MemAvailable, WorkingSet, KubeletWorkingSet} {
			v := e.available(m, cgroupMemory{usage: known(1 << 30), memoryStat: memoryStat{inactiveFile: known(1 << 20)}}, zones{known(1 << 20), known(1 << 30)})
			if v.ok && m.total.ok {
				require.LessOrEqual(t, v.n, m.total.n, e)
			}
		}
	})
}

func FuzzZones(f *testing.F) {
	seed(f, "testdata/proc/zoneinfo")
	f.Fuzz(func(t *testing.T, b []byte) {
		z := parseZones(b, 4096)
		for _, v := range []value{z.low, z.perCPUFree} {
			if !v.ok {
				require.Zero(t, v.n)
			}
		}
	})
}

func FuzzMemoryStat(f *testing.F) {
	seed(f, "testdata/v2-systemd/memory.stat", "testdata/v1-cgroupfs/memory/memory.stat")
	f.Fuzz(func(t *testing.T, b []byte) {
		m := cgroupMemory{usage: known(1 << 30), memoryStat: parseMemoryStat(b)}
		require.LessOrEqual(t, m.workingSet().n, uint64(1<<30))
		require.Equal(t, m.inactiveFile.ok, m.workingSet().ok)
		_ = parseKey(b, "anon")
	})
}

func FuzzMounts(f *testing.F) {
	seed(f, "testdata/proc/self/mountinfo")
	f.Fuzz(func(t *testing.T, b []byte) {
		mounts := parseMounts(b)
		for _, m := range mounts {
			if got := mountOf(m.point, mounts); got.point != m.point {
				require.Greater(t, len(got.point), len(m.point)-1)
			}
		}
	})
}

func FuzzPressure(f *testing.F) {
	seed(f, "testdata/proc/pressure/memory")
	f.Fuzz(func(t *testing.T, b []byte) {
		psi, ok := parsePressure(b)
		for _, d := range []statsapi.PSIData{psi.Some, psi.Full} {
			for _, avg := range []float64{d.Avg10, d.Avg60, d.Avg300} {
				require.True(t, avg >= 0 && avg < 101, avg)
			}
		}
		if !ok {
			require.Zero(t, psi.Some)
		}
	})
}

func FuzzInterfaces(f *testing.F) {
	seed(f, "testdata/proc/self/net/dev", "testdata/proc/self/net/route", "testdata/proc/loadavg")
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, i := range parseInterfaces(b) {
			require.NotEqual(t, "lo", i.Name)
		}
		_, _ = parseDefaultRoute(b), parseTasks(b)
		if v := parseNumber(b); v.ok {
			require.Less(t, v.n, uint64(1<<62))
		}
	})
}

func seed(f *testing.F, files ...string) {
	f.Helper()
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
}
