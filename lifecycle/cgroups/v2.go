package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// v2 is the root directory of the cgroup v2 hierarchy.
type v2 string

func (h v2) roots() []string { return []string{string(h)} }

func (h v2) make(name Name) (made []string, err error) {
	if err := enableControllers(string(h)); err != nil {
		return nil, err
	}
	return mkdirs(string(h), name, enableControllers)
}

// enableControllers enables controllers for the cgroups below dir: all
// controllers that dir has and that containers need (cgroup-v2.rst,
// "Controlling Controllers"). It is also called for the pod's own cgroup, in
// which the runtime creates the cgroups of containers.
func enableControllers(dir string) error {
	has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not a cgroup, for example in a test
	}
	if err != nil {
		return err
	}
	now, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	var add []string
	for controller := range strings.FieldsSeq(string(has)) {
		wanted := slices.Contains([]string{"cpu", "cpuset", "hugetlb", "io", "memory", "pids"}, controller)
		if wanted && !slices.Contains(strings.Fields(string(now)), controller) {
			add = append(add, "+"+controller)
		}
	}
	if len(add) == 0 {
		return nil
	}
	return write(dir, "cgroup.subtree_control", strings.Join(add, " "))
}

func (h v2) limit(name Name, l Limits) error {
	dir := h.dir(name)
	if err := h.shares(name, l.CPUShares); err != nil {
		return err
	}
	if err := write(dir, "cpu.max", cpuMax(l)); err != nil {
		return err
	}
	if err := write(dir, "memory.max", orUnlimited(l.MemoryBytes, "max")); err != nil {
		return err
	}
	if err := write(dir, "pids.max", orUnlimited(l.Pids, "max")); err != nil {
		return err
	}
	for _, size := range sortedSizes(l.HugePages) {
		if err := write(dir, "hugetlb."+size+".max", strconv.FormatInt(l.HugePages[size], 10)); err != nil {
			return err
		}
	}
	return nil
}

func cpuMax(l Limits) string {
	if l.CPUQuotaMicros <= 0 {
		return "max"
	}
	return fmt.Sprintf("%d %d", l.CPUQuotaMicros, l.CPUPeriodMicros)
}

func (h v2) shares(name Name, shares int64) error {
	return write(h.dir(name), "cpu.weight", strconv.FormatInt(Weight(shares), 10))
}

func (h v2) dir(name Name) string { return filepath.Join(append([]string{string(h)}, name...)...) }
