package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// row is a row of the table: one figure of each run.
type row struct {
	name  string
	value func(figures) (float64, bool)
}

func rows(results [][]figures) []row {
	all := []row{
		{"CPU, s a minute", func(f figures) (float64, bool) { return f.cpu, true }},
		{"RSS, MiB", func(f figures) (float64, bool) { return f.rss, true }},
		{"allocations, 1,000 a minute", func(f figures) (float64, bool) { return f.allocs / 1000, true }},
		{"garbage, MiB a minute", func(f figures) (float64, bool) { return f.bytes, true }},
		{"CRI calls a minute", func(f figures) (float64, bool) {
			total := 0.0
			for _, n := range f.calls {
				total += n
			}
			return total, true
		}},
	}
	methods := map[string]bool{}
	for _, runs := range results {
		for _, f := range runs {
			for method := range f.calls {
				methods[method] = true
			}
		}
	}
	for _, method := range slices.Sorted(maps.Keys(methods)) {
		all = append(all, row{"  " + method, func(f figures) (float64, bool) { return f.calls[method], true }})
	}
	return append(all,
		row{"manifest to status, median, ms", func(f figures) (float64, bool) { return quantile(f.delays, 0.5) }},
		row{"manifest to status, p99, ms", func(f figures) (float64, bool) { return quantile(f.delays, 0.99) }},
	)
}

// quantile returns the value at the quantile part, such as 0.99. It returns false if
// there are no values.
func quantile(values []float64, part float64) (float64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(part*float64(len(sorted)-1)+0.5)], true
}

// table returns a table with the median of each figure. If there are several runs, it
// also has the minimum and the maximum. With several programs, it has the difference
// between the last and the first program in percent.
func table(name string, agents []program, results [][]figures) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\t", name)
	for _, a := range agents {
		fmt.Fprintf(w, "%s\t\t", a.name)
	}
	fmt.Fprintln(w)
	for _, r := range rows(results) {
		if line, ok := line(r, results); ok {
			fmt.Fprintln(w, line)
		}
	}
	_ = w.Flush() // to memory: it can't fail
	return out.String() + "\n"
}

func line(r row, results [][]figures) (string, bool) {
	text, first, last := r.name+"\t", 0.0, 0.0
	for i, runs := range results {
		var values []float64
		for _, f := range runs {
			if v, ok := r.value(f); ok {
				values = append(values, v)
			}
		}
		if len(values) == 0 {
			return "", false
		}
		middle, least, most := median(values)
		if i == 0 {
			first = middle
		}
		last = middle
		text += fmt.Sprintf("%.4g\t", middle)
		if len(values) > 1 {
			text += fmt.Sprintf("%.4g–%.4g", least, most)
		}
		text += "\t"
	}
	if len(results) > 1 && first > 0 {
		text += fmt.Sprintf("%+.0f %%\t", 100*(last/first-1))
	}
	return text, true
}
