package host

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
)

// processors returns the number of online CPUs of the machine. The agent's process may be
// restricted to fewer CPUs.
func (r *reader) processors() int {
	online, err := cpuset.Parse(r.firstText("/sys/devices/system/cpu/online"))
	if err != nil || online.IsEmpty() {
		return goruntime.NumCPU()
	}
	return online.Size()
}

// memory has sizes in bytes.
type memory struct{ total, swap int64 }

// readMemory returns the sizes in /proc/meminfo.
func (r *reader) readMemory() (memory, error) {
	path := r.machine.path("/proc/meminfo")
	data, err := os.ReadFile(path)
	if err != nil {
		return memory{}, fmt.Errorf("measure memory: %w", err)
	}
	m := parseMeminfo(string(data))
	if m.total == 0 {
		return m, fmt.Errorf("measure memory: %s has no MemTotal", path)
	}
	return m, nil
}

// parseMeminfo returns the sizes in the text of /proc/meminfo. A missing or malformed size is
// 0.
func parseMeminfo(text string) (m memory) {
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		switch name {
		case "MemTotal":
			m.total = kibibytes(rest)
		case "SwapTotal":
			m.swap = kibibytes(rest)
		}
	}
	return m
}

// kibibytes returns the number of bytes of a size such as "16 kB". It returns 0 if the size is
// malformed.
func kibibytes(size string) int64 {
	number, ok := strings.CutSuffix(strings.TrimSpace(size), "kB")
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if !ok || err != nil || n < 0 || n > math.MaxInt64>>10 {
		return 0
	}
	return n << 10
}

// addHugePages adds a resource for each size of huge pages that the kernel supports.
func (r *reader) addHugePages(capacity corev1.ResourceList) error {
	dir := r.machine.path("/sys/kernel/mm/hugepages")
	sizes, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, size := range sizes {
		page := kibibytes(strings.TrimPrefix(size.Name(), "hugepages-"))
		if page == 0 {
			continue
		}
		pages, err := readNumber(filepath.Join(dir, size.Name(), "nr_hugepages"))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		name := corev1.ResourceName(corev1.ResourceHugePagesPrefix + resource.NewQuantity(page, resource.BinarySI).String())
		capacity[name] = *resource.NewQuantity(page*min(pages, math.MaxInt64/page), resource.BinarySI)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("measure huge pages: %w", err)
	}
	return nil
}

// readNumber returns the non-negative number in a file.
func readNumber(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", path, err)
	}
	return int64(n), nil
}
