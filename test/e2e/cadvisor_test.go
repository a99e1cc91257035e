//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// busy is a pod whose containers use the CPU up to a limit, write and read a file on the disk, fill
// the page cache up to the memory limit, serve requests, and are killed by the kernel.
const busy = `
apiVersion: v1
kind: Pod
metadata: {name: busy, uid: 1b0ab1a4-6a4c-4b5e-93d4-0f0a3d7f6c01}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - name: load
    image: kubeparts.test/busybox:1
    command: [sh, -c, 'trap exit TERM; while :; do
      dd if=/dev/zero of=/data/x bs=1M count=48 conv=fsync; dd if=/data/x of=/dev/null bs=1M iflag=direct;
      i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; done 2>/dev/null']
    volumeMounts: [{name: data, mountPath: /data}]
    resources: {limits: {cpu: 100m, memory: 32Mi}} # is throttled on a busy machine, too
  - {name: web, image: kubeparts.test/testserver:1, args: [serve]}
  - {name: hog, image: kubeparts.test/testserver:1, args: [hog], resources: {limits: {memory: 32Mi}}}
`

// cgroupFile is the source of a series: a file of a cgroup in each version, and the key of a line.
type cgroupFile struct {
	metric         string
	v1, v2         string // CONTROLLER/FILE in version 1, FILE in version 2; empty: not in this version
	v1Key, v2Key   string
	v1Unit, v2Unit float64 // the value of the series is the number divided by this
}

func cgroupFiles() []cgroupFile {
	same := func(metric, v1, v2 string) cgroupFile { return cgroupFile{metric, v1, v2, "", "", 1, 1} }
	stat := func(metric, v1Key, v2Key string) cgroupFile {
		return cgroupFile{metric, "memory/memory.stat", "memory.stat", v1Key, v2Key, 1, 1}
	}
	pressure := func(metric, file, key string) cgroupFile { return cgroupFile{metric, "", file, "", key, 1, 1e6} }
	return []cgroupFile{
		{"container_cpu_usage_seconds_total", "cpuacct/cpuacct.usage", "cpu.stat", "", "usage_usec", 1e9, 1e6},
		{"container_cpu_user_seconds_total", "cpuacct/cpuacct.stat", "cpu.stat", "user", "user_usec", 100, 1e6},
		{"container_cpu_system_seconds_total", "cpuacct/cpuacct.stat", "cpu.stat", "system", "system_usec", 100, 1e6},
		{"container_cpu_cfs_periods_total", "cpu/cpu.stat", "cpu.stat", "nr_periods", "nr_periods", 1, 1},
		{"container_cpu_cfs_throttled_periods_total", "cpu/cpu.stat", "cpu.stat", "nr_throttled", "nr_throttled", 1, 1},
		{"container_cpu_cfs_throttled_seconds_total", "cpu/cpu.stat", "cpu.stat", "throttled_time", "throttled_usec", 1e9, 1e6},
		same("container_spec_cpu_quota", "cpu/cpu.cfs_quota_us", "cpu.max"),
		same("container_spec_cpu_period", "cpu/cpu.cfs_period_us", ""),
		same("container_spec_cpu_shares", "cpu/cpu.shares", ""),
		same("container_memory_usage_bytes", "memory/memory.usage_in_bytes", "memory.current"),
		same("container_memory_max_usage_bytes", "memory/memory.max_usage_in_bytes", "memory.peak"),
		same("container_memory_failcnt", "memory/memory.failcnt", ""),
		same("container_memory_kernel_usage", "memory/memory.kmem.usage_in_bytes", ""),
		same("container_spec_memory_limit_bytes", "memory/memory.limit_in_bytes", "memory.max"),
		stat("container_memory_rss", "total_rss", "anon"),
		stat("container_memory_cache", "total_cache", "file"),
		stat("container_memory_mapped_file", "total_mapped_file", "file_mapped"),
		stat("container_memory_total_active_file_bytes", "total_active_file", "active_file"),
		stat("container_memory_total_inactive_file_bytes", "total_inactive_file", "inactive_file"),
		same("container_threads", "pids/pids.current", "pids.current"),
		pressure("container_pressure_cpu_waiting_seconds_total", "cpu.pressure", "some"),
		pressure("container_pressure_cpu_stalled_seconds_total", "cpu.pressure", "full"),
		pressure("container_pressure_memory_waiting_seconds_total", "memory.pressure", "some"),
		pressure("container_pressure_memory_stalled_seconds_total", "memory.pressure", "full"),
		pressure("container_pressure_io_waiting_seconds_total", "io.pressure", "some"),
		pressure("container_pressure_io_stalled_seconds_total", "io.pressure", "full"),
	}
}

// read returns the current value. ok is false if the file does not exist in this cgroup version.
func (f cgroupFile) read(cgroup string) (value float64, ok bool) {
	path, key, unit := f.v2, f.v2Key, f.v2Unit
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		path, key, unit = f.v1, f.v1Key, f.v1Unit
		controller, name, _ := strings.Cut(path, "/")
		path = controller + "/" + cgroup + "/" + name
	} else {
		path = cgroup + "/" + path
	}
	data, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 0 && key == "":
			value, err = strconv.ParseFloat(fields[0], 64)
		case len(fields) > 1 && fields[0] == key:
			value, err = strconv.ParseFloat(strings.TrimPrefix(fields[len(fields)-1], "total="), 64)
		default:
			continue
		}
		return value / unit, err == nil
	}
	return 0, false
}

// cgroupOf returns the path of a process's cgroup.
func cgroupOf(t *testing.T, pid int) string {
	t.Helper()
	l, err := limitsOf(pid)
	require.NoError(t, err)
	return l.cgroup
}

// exposed has the values of a page by the text of the series.
type exposed map[string]float64

func (n *node) exposed(page string) exposed {
	code, body, err := n.agent.get(page)
	require.NoError(n.t, err)
	require.Equal(n.t, http.StatusOK, code)
	all := exposed{}
	for line := range strings.Lines(body) {
		if at := strings.LastIndexByte(strings.TrimSpace(line), ' '); !strings.HasPrefix(line, "#") && at > 0 {
			if v, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64); err == nil {
				all[line[:at]] = v
			}
		}
	}
	return all
}

// of returns the value of a metric's series that has all these labels.
func (e exposed) of(metric string, labels ...string) (float64, bool) {
	for series, v := range e {
		name, rest, _ := strings.Cut(series, "{")
		if name != metric {
			continue
		}
		has := true
		for _, l := range labels {
			has = has && strings.Contains("{,"+rest, ","+l) || strings.HasPrefix(rest, l)
			has = has && strings.Contains(rest, l)
		}
		if has {
			return v, true
		}
	}
	return 0, false
}

// TestCadvisorMetrics_MatchKernelValues compares the series of /metrics/cadvisor with cgroup files
// and interface counters that the test reads just before and just after the scrape. A series
// that is always 0 under load counts as missing. At the end, the queries of dashboards must
// have values.
func TestCadvisorMetrics_MatchKernelValues(t *testing.T) {
	n := newNode(t)
	parent := "/kpbed-" + n.hostname
	t.Cleanup(func() { removeCgroups(t, parent) })
	n.start("--cgroup-parent", parent)
	n.exposed("/metrics") // before the pod, so that rates include its start
	n.write("busy.yaml", busy)
	pod := n.waitPod(startTimeout, "busy", "to have its load running", func(pod *corev1.Pod) bool {
		ready := 0
		for _, c := range pod.Status.ContainerStatuses {
			if c.Ready && c.Name != "hog" {
				ready++
			}
		}
		return ready == 2
	})
	pids, ids := map[string]int{}, map[string]string{}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name != "hog" {
			ids[c.Name] = strings.TrimPrefix(c.ContainerID, "containerd://")
			pids[c.Name] = bed.pid(t, ids[c.Name])
		}
	}
	cgroup := cgroupOf(t, pids["load"])
	countDisks(t, cgroup)
	countFailures(t, cgroup)
	stop := requests(t, pod.Status.PodIP)
	defer stop()

	paths := map[string]string{"load": cgroup, "web": cgroupOf(t, pids["web"]), "pod": filepath.Dir(cgroup), "all pods": parent + "/kubepods", "root": "/"}
	open := map[string]bool{} // comparisons that have not succeeded yet
	positive := map[string]bool{}
	for _, f := range cgroupFiles() {
		if _, ok := f.read(cgroup); ok {
			positive[f.metric] = false
		}
		for of, path := range paths {
			if _, ok := f.read(path); ok && (of != "root" || !strings.HasPrefix(f.metric, "container_spec_memory")) {
				open[f.metric+" of "+of] = true
			}
		}
	}
	compare := func(metric, of string, before, v, after float64, ok bool) {
		what := metric + " of " + of
		// Between the two reads, a gauge may have had a smaller or a larger value.
		slack := 0.1 * max(before, after) * boolNumber(strings.HasPrefix(metric, "container_memory") || metric == "container_threads")
		if ok && v >= min(before, after)-slack-1e-6 && v <= max(before, after)+slack+1e-6 {
			delete(open, what)
		}
		if v > 0 {
			positive[metric] = true
		}
	}
	began := time.Now()
	seen := exposed{}
	waitFor(t, 90*time.Second, "each series to have the kernel's value", func() (string, bool) {
		before := map[string]float64{}
		for _, f := range cgroupFiles() {
			for of, path := range paths {
				v, _ := f.read(path)
				before[f.metric+" of "+of] = v
			}
		}
		networkBefore := interfaceCounters(t, pids["web"])
		seen = n.exposed("/metrics/cadvisor")
		networkAfter := interfaceCounters(t, pids["web"])
		for _, f := range cgroupFiles() {
			for of, path := range paths {
				if !open[f.metric+" of "+of] && positive[f.metric] {
					continue
				}
				after, _ := f.read(path)
				v, ok := seen.of(f.metric, `id="`+path+`"`)
				if !ok && strings.HasPrefix(f.metric, "container_cpu_cfs") || !ok && f.metric == "container_spec_cpu_quota" {
					quota, _ := cgroupFile{v1: "cpu/cpu.cfs_quota_us", v2: "cpu.max", v1Unit: 1, v2Unit: 1}.read(path)
					ok = quota <= 0 // the kernel has these counters only with a quota
					v = after
				}
				compare(f.metric, of, before[f.metric+" of "+of], limitOr0(v), limitOr0(after), ok)
			}
		}
		for metric, before := range networkBefore {
			v, ok := seen.of(metric, `pod="`+pod.Name+`"`, `interface="eth0"`, `image="pause"`)
			compare(metric, "sandbox", before, v, networkAfter[metric], ok)
			if _, known := open[metric+" of sandbox"]; !known && v == 0 && !strings.Contains(metric, "bytes") && !strings.Contains(metric, "packets_total") {
				positive[metric] = true // dropped packets and errors do not occur, so 0 is accepted
			}
		}
		for _, metric := range []string{"container_fs_reads_bytes_total", "container_fs_reads_total", "container_fs_writes_bytes_total", "container_fs_writes_total"} {
			v, _ := seen.of(metric, `container="load"`, `device="/dev/`)
			positive[metric] = v > 0
		}
		var zero []string
		for metric, is := range positive {
			if !is {
				zero = append(zero, metric)
			}
		}
		return fmt.Sprintf("differ: %v\nzero: %v", open, zero), len(open)+len(zero) == 0
	})
	t.Logf("%d series were compared in %v", len(cgroupFiles())*len(paths), time.Since(began).Round(time.Second))
	requireLabels(t, seen, pod, ids, cgroup)
	waitFor(t, 20*time.Second, "the OOM kill to be counted", func() (string, bool) {
		v, _ := n.exposed("/metrics").of("container_oom_events_total", `container="hog"`, `pod="`+pod.Name+`"`)
		return fmt.Sprint(v), v > 0
	})
	n.requireQueries(pod)
}

// requireQueries requires that the queries of dashboards have values while pods are started.
func (n *node) requireQueries(pod *corev1.Pod) {
	t := n.t
	t.Helper()
	program := filepath.Join(t.TempDir(), "dashboards")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = "../dashboards"
	text, err := build.CombinedOutput()
	require.NoError(t, err, string(text))
	queries := exec.CommandContext(t.Context(), program, "-url", "http://"+n.agent.addr, "-pod", pod.Name, "-period", "3s", "-scrapes", "60")
	var out output
	queries.Stdout, queries.Stderr = &out, &out
	require.NoError(t, queries.Start())
	ended := make(chan error, 1)
	go func() { ended <- queries.Wait() }()
	tick := time.NewTicker(3 * time.Second)
	defer tick.Stop()
	for i := 0; ; i++ {
		if i < 20 {
			n.write(fmt.Sprintf("more-%d.yaml", i), fmt.Sprintf(more, i, i))
		}
		select {
		case err := <-ended:
			t.Logf("%s", &out)
			require.NoError(t, err)
			return
		case <-tick.C:
		}
	}
}

// more is a pod that starts while others are running.
const more = `
apiVersion: v1
kind: Pod
metadata: {name: more-%d, uid: 1b0ab1a4-6a4c-4b5e-93d4-0f0a3d7f%04d}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: kubeparts.test/testserver:1, args: [sleep, "3600"]}]}
`

func boolNumber(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// limitOr0 returns 0 for the number that cgroup version 1 shows if there is no limit.
func limitOr0(v float64) float64 {
	if v >= 1<<62 {
		return 0
	}
	return v
}

// countDisks makes the kernel count the reads and writes of a cgroup of version 1. The kernel
// counts them only if some cgroup has a limit for the device, so countDisks sets a limit that
// is never reached.
func countDisks(t *testing.T, cgroup string) {
	t.Helper()
	dir := filepath.Join("/sys/fs/cgroup/blkio", cgroup)
	disks, err := os.ReadFile("/proc/diskstats")
	require.NoError(t, err)
	for line := range strings.Lines(string(disks)) {
		field := strings.Fields(line)
		if !regexp.MustCompile(`^([sv]d[a-z]+|xvd[a-z]+|nvme\d+n\d+)$`).MatchString(field[2]) {
			continue
		}
		for _, direction := range []string{"read", "write"} {
			file := filepath.Join(dir, "blkio.throttle."+direction+"_bps_device")
			if _, err := os.Stat(file); err != nil {
				return // version 2
			}
			require.NoError(t, os.WriteFile(file, []byte(field[0]+":"+field[1]+" 1099511627776"), 0))
		}
	}
}

// countFailures makes the kernel count how often a cgroup of version 1 reaches its memory
// limit. The kernel does not count if the limits of memory and of memory plus swap are equal.
func countFailures(t *testing.T, cgroup string) {
	t.Helper()
	file := filepath.Join("/sys/fs/cgroup/memory", cgroup, "memory.memsw.limit_in_bytes")
	if _, err := os.Stat(file); err == nil {
		require.NoError(t, os.WriteFile(file, []byte("-1"), 0))
	}
}

// requests sends a request to a pod every 50 ms until the test calls stop.
func requests(t *testing.T, ip string) (stop func()) {
	t.Helper()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			_, _, _ = httpGet("http://" + ip + ":8080/")
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(done); <-ended }
}

// interfaceCounters returns the counters of eth0 in the network of a process, by metric.
func interfaceCounters(t *testing.T, pid int) map[string]float64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/net/dev", pid))
	require.NoError(t, err)
	defer f.Close()
	counters := map[string]float64{}
	for s := bufio.NewScanner(f); s.Scan(); {
		field := strings.Fields(s.Text())
		if field[0] != "eth0:" {
			continue
		}
		for metric, i := range map[string]int{
			"receive_bytes": 1, "receive_packets": 2, "receive_errors": 3, "receive_packets_dropped": 4,
			"transmit_bytes": 9, "transmit_packets": 10, "transmit_errors": 11, "transmit_packets_dropped": 12,
		} {
			v, err := strconv.ParseFloat(field[i], 64)
			require.NoError(t, err)
			counters["container_network_"+metric+"_total"] = v
		}
	}
	require.Len(t, counters, 8)
	return counters
}

// requireLabels checks the labels of the series of a container, a sandbox and a pod.
func requireLabels(t *testing.T, seen exposed, pod *corev1.Pod, ids map[string]string, cgroup string) {
	t.Helper()
	series := func(container, id, image, name string) string {
		return fmt.Sprintf(`container_memory_working_set_bytes{container=%q,id=%q,image=%q,name=%q,namespace="default",pod=%q}`, container, id, image, name, pod.Name)
	}
	require.Contains(t, seen, series("load", cgroup, "kubeparts.test/busybox:1", ids["load"]))
	require.Contains(t, seen, series("", filepath.Dir(cgroup), "", ""))
	sandboxes := 0
	for s := range seen {
		if strings.HasPrefix(s, `container_memory_working_set_bytes{container="",id="`+filepath.Dir(cgroup)+`/`) {
			require.Contains(t, s, `image="pause"`)
			sandboxes++
		}
	}
	require.Equal(t, 1, sandboxes)
	for _, metric := range []string{"machine_cpu_cores", "machine_memory_bytes", "machine_cpu_physical_cores", "machine_cpu_sockets"} {
		v, _ := seen.of(metric)
		require.Positive(t, v, metric)
	}
	for _, path := range []string{"/", cgroup} {
		started, ok := seen.of("container_start_time_seconds", `id="`+path+`"`)
		require.True(t, ok, path)
		require.LessOrEqual(t, started, float64(time.Now().Unix()))
		require.Greater(t, started, 1.6e9)
	}
}
