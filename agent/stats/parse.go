package stats

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// The parsers return the values in the content of a kernel file. If a line is missing, truncated or
// not a number, its value is unknown, or 0 in a pressure file. Lines with unknown keys are skipped,
// because newer kernels add lines. Only the parsers for mounts, interfaces and the default route
// allocate.

// meminfo has values of /proc/meminfo, in bytes.
type meminfo struct {
	total, available, hugepages value
	swapTotal, swapFree         value
}

func parseMeminfo(b []byte) (m meminfo) {
	var pages, size value
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		key, rest := cutWord(line)
		switch string(key) {
		case "MemTotal:":
			m.total = kibibytes(rest)
		case "MemAvailable:":
			m.available = kibibytes(rest)
		case "SwapTotal:":
			m.swapTotal = kibibytes(rest)
		case "SwapFree:":
			m.swapFree = kibibytes(rest)
		case "Hugetlb:": // huge pages of all sizes
			m.hugepages = kibibytes(rest)
		case "HugePages_Total:":
			pages = number(rest)
		case "Hugepagesize:":
			size = kibibytes(rest)
		}
	}
	if !m.hugepages.ok && pages.ok && size.ok { // before Linux 4.15
		m.hugepages = pages.times(size.n)
	}
	if m.available.ok && m.total.ok && m.available.n > m.total.n {
		m.available = value{} // implausible, so treat it as unknown
	}
	return m
}

// zones has sums over all zones of /proc/zoneinfo, in bytes.
type zones struct {
	// low is the sum of the low watermarks. If free memory is below them, the kernel reclaims
	// memory, and an OOM kill is near.
	low value
	// perCPUFree are the free pages on the per-CPU lists.
	perCPUFree value
}

func parseZones(b []byte, pageSize int) (z zones) {
	sum := func(total *value, text []byte) {
		if n := number(text); n.ok {
			*total = known(total.n).plus(n.times(uint64(pageSize)))
		}
	}
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		switch key, rest := cutWord(line); string(key) {
		case "low":
			sum(&z.low, rest)
		case "count:":
			sum(&z.perCPUFree, rest)
		}
	}
	return z
}

// memoryStat has values of a cgroup's memory.stat, including the cgroups below. Memory is in
// bytes, faults are counts.
type memoryStat struct {
	anon, file, inactiveFile value
	faults, majorFaults      value
}

// parseMemoryStat parses the memory.stat of both cgroup versions. In version 1 only the values
// with the prefix total_ include the cgroups below.
func parseMemoryStat(b []byte) (m memoryStat) {
	var own memoryStat
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		key, rest := cutWord(line)
		switch string(key) {
		case "anon":
			own.anon = number(rest)
		case "file":
			own.file = number(rest)
		case "inactive_file":
			own.inactiveFile = number(rest)
		case "pgfault":
			own.faults = number(rest)
		case "pgmajfault":
			own.majorFaults = number(rest)
		case "total_rss":
			m.anon = number(rest)
		case "total_cache":
			m.file = number(rest)
		case "total_inactive_file":
			m.inactiveFile = number(rest)
		case "total_pgfault":
			m.faults = number(rest)
		case "total_pgmajfault":
			m.majorFaults = number(rest)
		}
	}
	return memoryStat{
		anon: m.anon.or(own.anon), file: m.file.or(own.file), inactiveFile: m.inactiveFile.or(own.inactiveFile),
		faults: m.faults.or(own.faults), majorFaults: m.majorFaults.or(own.majorFaults),
	}
}

// parseKey returns the number after a key in a file of "key number" lines.
func parseKey(b []byte, key string) value {
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		if word, rest := cutWord(line); string(word) == key {
			return number(rest)
		}
	}
	return value{}
}

// parseNumber returns the number in a file that contains one number. The result is unknown if the
// file shows that there is no limit. Files show this by "max" or, in version 1, by a number of at
// least 2^62.
func parseNumber(b []byte) value {
	if v := number(b); v.ok && v.n < 1<<62 {
		return v
	}
	return value{}
}

// parseTasks returns the number of existing tasks, the second number in the fourth field of
// /proc/loadavg.
func parseTasks(b []byte) value {
	for range 3 {
		_, b = cutWord(b)
	}
	field, _ := cutWord(b)
	_, total, ok := bytes.Cut(field, []byte("/"))
	if !ok {
		return value{}
	}
	return number(total)
}

// parsePressure returns the values of a file in /proc/pressure or of a cgroup's *.pressure. ok
// is false if the file has no values. Totals are in microseconds in the file and in nanoseconds
// in the result.
func parsePressure(b []byte) (psi statsapi.PSIStats, ok bool) {
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		kind, rest := cutWord(line)
		switch string(kind) {
		case "some":
			psi.Some = pressureLine(rest)
			ok = true
		case "full":
			psi.Full = pressureLine(rest)
		}
	}
	return psi, ok
}

func pressureLine(b []byte) (d statsapi.PSIData) {
	for len(b) > 0 {
		var word []byte
		word, b = cutWord(b)
		key, text, _ := bytes.Cut(word, []byte("="))
		switch string(key) {
		case "avg10":
			d.Avg10 = percent(text)
		case "avg60":
			d.Avg60 = percent(text)
		case "avg300":
			d.Avg300 = percent(text)
		case "total":
			d.Total = number(text).times(1000).n
		}
	}
	return d
}

// percent returns a value of the form "12.34"; anything else is 0.
func percent(b []byte) float64 {
	whole, fraction, _ := bytes.Cut(b, []byte("."))
	w, f := number(whole), number(fraction)
	if !w.ok || !f.ok || len(fraction) != 2 || w.n > 100 {
		return 0
	}
	return float64(w.n) + float64(f.n)/100
}

// mount is a line of /proc/self/mountinfo.
type mount struct {
	point, fstype, source string
}

func parseMounts(b []byte) (all []mount) {
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		left, right, ok := bytes.Cut(line, []byte(" - "))
		if !ok {
			continue
		}
		where, what := bytes.Fields(left), bytes.Fields(right)
		if len(where) < 6 || len(what) < 2 {
			continue
		}
		all = append(all, mount{unescape(where[4]), unescape(what[0]), unescape(what[1])})
	}
	return all
}

// unescape replaces the octal escapes of mountinfo, such as \040 for a blank.
func unescape(b []byte) string {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b)
	}
	var out strings.Builder
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+3 < len(b) {
			if n, err := strconv.ParseUint(string(b[i+1:i+4]), 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(b[i])
	}
	return out.String()
}

// parseInterfaces returns the counters in net/dev. It skips the loopback interface, and the
// host's ends of the pods' veth pairs, because the traffic of pods is also counted at the
// node's other interfaces.
func parseInterfaces(b []byte) (all []statsapi.InterfaceStats) {
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		name, counters, ok := bytes.Cut(line, []byte(":"))
		field := bytes.Fields(counters)
		name = bytes.TrimSpace(name)
		if !ok || len(field) < 11 || string(name) == "lo" || bytes.HasPrefix(name, []byte("veth")) {
			continue
		}
		all = append(all, statsapi.InterfaceStats{
			Name:    string(name),
			RxBytes: number(field[0]).ptr(), RxErrors: number(field[2]).ptr(),
			TxBytes: number(field[8]).ptr(), TxErrors: number(field[10]).ptr(),
		})
	}
	return all
}

// parseDefaultRoute returns the interface of the default route in net/route.
func parseDefaultRoute(b []byte) string {
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		name, rest := cutWord(line)
		if destination, _ := cutWord(rest); string(destination) == "00000000" {
			return string(name)
		}
	}
	return ""
}

func cutLine(b []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(b, []byte("\n"))
	return line, rest
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// cutWord returns the first word of b, and what follows the word.
func cutWord(b []byte) (word, rest []byte) {
	for len(b) > 0 && isBlank(b[0]) {
		b = b[1:]
	}
	for i, c := range b {
		if isBlank(c) {
			return b[:i], b[i:]
		}
	}
	return b, nil
}

// number returns the first word of b as a number. The result is unknown if the word is no
// number or too large.
func number(b []byte) value {
	word, _ := cutWord(b)
	if len(word) == 0 {
		return value{}
	}
	var n uint64
	for _, c := range word {
		digit := uint64(c - '0')
		if c < '0' || c > '9' || n > (math.MaxUint64-digit)/10 {
			return value{}
		}
		n = n*10 + digit
	}
	return known(n)
}

func kibibytes(b []byte) value {
	if v := number(b); v.ok && v.n <= math.MaxUint64>>10 {
		return known(v.n << 10)
	}
	return value{}
}
