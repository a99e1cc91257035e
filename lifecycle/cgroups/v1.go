package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kubeparts/kubeparts/internal/podlimits"
)

// v1 holds the root directories of the cgroup v1 hierarchies, by controller.
// Controllers of the same hierarchy have the same directory.
type v1 map[string]string

// findV1 returns the hierarchies below root.
func findV1(root string) (v1, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	found := v1{}
	for _, e := range entries {
		dir, err := filepath.EvalSymlinks(filepath.Join(root, e.Name()))
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
			continue
		}
		for controller := range strings.SplitSeq(e.Name(), ",") {
			found[controller] = dir
		}
	}
	return found, nil
}

func (h v1) roots() []string {
	var roots []string
	for _, dir := range h {
		roots = append(roots, dir)
	}
	slices.Sort(roots)
	return slices.Compact(roots)
}

func (h v1) make(name Name) (made []string, err error) {
	for _, root := range h.roots() {
		if root == h["systemd"] || root == h["unified"] {
			continue // has no controller; the runtime creates the pods' cgroups there
		}
		ready := func(string) error { return nil }
		if root == h["cpuset"] {
			ready = inheritCPUs
		}
		here, err := mkdirs(root, name, ready)
		made = append(made, here...)
		if err != nil {
			return made, err
		}
	}
	return made, nil
}

// inheritCPUs copies the lists of CPUs and memory nodes from the parent cgroup
// to dir if the lists of dir are empty. No process can enter a cgroup in which
// these lists are empty (cpusets(7)).
func inheritCPUs(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if len(bytes.TrimSpace(own)) > 0 {
			continue
		}
		above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if err != nil {
			return err
		}
		if err := write(dir, file, string(above)); err != nil {
			return err
		}
	}
	return nil
}

func (h v1) limit(name Name, l Limits) error {
	if err := h.shares(name, l.CPUShares); err != nil {
		return err
	}
	cpu, memory := h.dir("cpu", name), h.dir("memory", name)
	if err := limitCPU(cpu, l); err != nil {
		return err
	}
	if err := write(memory, "memory.limit_in_bytes", orUnlimited(l.MemoryBytes, "-1")); err != nil {
		return err
	}
	if h["pids"] != "" {
		if err := write(h.dir("pids", name), "pids.max", orUnlimited(l.Pids, "max")); err != nil {
			return err
		}
	}
	if h["hugetlb"] == "" && len(l.HugePages) > 0 {
		return fmt.Errorf("huge pages can't be limited: no cgroup v1 hierarchy of controller hugetlb")
	}
	for _, size := range sortedSizes(l.HugePages) {
		if err := write(h.dir("hugetlb", name), "hugetlb."+size+".limit_in_bytes", strconv.FormatInt(l.HugePages[size], 10)); err != nil {
			return err
		}
	}
	return nil
}

// limitCPU sets the CPU quota and the period of a cgroup. The CPU limit is the
// quota divided by the period. A longer period is written before the quota, and
// a shorter period after the quota. So the limit between the two writes is at
// most the higher of the old limit and the new limit.
func limitCPU(dir string, l Limits) error {
	const quotaFile, periodFile = "cpu.cfs_quota_us", "cpu.cfs_period_us"
	if l.CPUQuotaMicros <= 0 {
		return write(dir, quotaFile, "-1")
	}
	files := []struct {
		name  string
		value int64
	}{{periodFile, l.CPUPeriodMicros}, {quotaFile, l.CPUQuotaMicros}}
	text, err := os.ReadFile(filepath.Join(dir, periodFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if period, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil && period > l.CPUPeriodMicros {
		slices.Reverse(files)
	}
	for _, f := range files {
		if err := write(dir, f.name, strconv.FormatInt(f.value, 10)); err != nil {
			return err
		}
	}
	return nil
}

func (h v1) shares(name Name, shares int64) error {
	return write(h.dir("cpu", name), "cpu.shares", strconv.FormatInt(max(shares, podlimits.MinShares), 10))
}

func (h v1) dir(controller string, name Name) string {
	return filepath.Join(append([]string{h[controller]}, name...)...)
}

func orUnlimited(n int64, unlimited string) string {
	if n <= 0 {
		return unlimited
	}
	return strconv.FormatInt(n, 10)
}
