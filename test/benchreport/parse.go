package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
)

// parseBench returns the values in the output of `go test -bench`. A key is the
// package, the benchmark and the unit, joined as by [figure.key]. If a benchmark
// ran more than once, parseBench returns the least value.
func parseBench(output string) map[string]float64 {
	found, pkg := map[string]float64{}, ""
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "pkg:":
			pkg = strings.TrimPrefix(fields[1], "github.com/kubeparts/kubeparts/")
		case len(fields) >= 4 && strings.HasPrefix(fields[0], "Benchmark"):
			name := regexp.MustCompile(`-\d+$`).ReplaceAllString(fields[0], "")
			for i := 2; i+1 < len(fields); i += 2 {
				v, err := strconv.ParseFloat(fields[i], 64)
				k := key(pkg, strings.TrimPrefix(name, "Benchmark"), fields[i+1])
				if old, known := found[k]; err == nil && (!known || v < old) {
					found[k] = v
				}
			}
		}
	}
	return found
}

func key(pkg, bench, unit string) string { return pkg + "." + bench + " " + unit }

// readFigures returns the figures of nodes in a file. The file is the output of
// the end-to-end tests, or a page that benchreport made from that output.
func readFigures(file string) (map[string]float64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseFigures(string(data)), nil
}

func parseFigures(output string) map[string]float64 {
	found := map[string]float64{}
	for _, m := range regexp.MustCompile(`figure: (\S+) (\S+) (\S+)`).FindAllStringSubmatch(output, -1) {
		if v, err := strconv.ParseFloat(m[2], 64); err == nil {
			found[m[1]+" "+m[3]] = v
		}
	}
	return found
}
