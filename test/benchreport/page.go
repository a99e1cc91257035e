package main

import (
	"fmt"
	"strconv"
	"strings"
)

// page returns docs/benchmarks.md. The text agent is the section about the costs of the example
// agent. The text beside is the comparison of a node of a cluster with the kubelet.
func page(machine string, found, nodes map[string]float64, agent, beside string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Benchmarks

Written by `+"`make bench-report`"+`. Do not edit. Measured on %s.

This page compares the costs of Kubeparts with those of the kubelet. **Bound** is the maximum that the package was designed for;
**kubelet** is the cost of the same operation in kubelet 1.36 on two cores of an AMD EPYC virtual machine. Each value is the minimum of a
few runs, because other work on the machine makes times longer. A value over its bound is marked.

`, machine)
	for _, s := range sections() {
		fmt.Fprintf(&b, "## %s\n\n| operation | measured | bound | kubelet |\n|---|---:|---:|---:|\n", s)
		for _, f := range figures() {
			if f.section() == s {
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.what, mark(found[f.key()], f.most, f.unit), bound(f.most, f.unit), or(f.kubelet))
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("## Checked by ordinary tests\n\n| operation | bound | kubelet | test |\n|---|---:|---:|---|\n")
	for _, f := range heldFigures() {
		fmt.Fprintf(&b, "| %s | %s | %s | `%s.%s` |\n", f.what, f.most, or(f.kubelet), f.pkg, f.test)
	}
	b.WriteString(`
## Whole nodes

On a real containerd with runc, by the end-to-end tests (` + "`make e2e`" + `); "–" means not measured. The kubelet
is version 1.36, standalone, on the same machine.

| operation | measured | bound | kubelet |
|---|---:|---:|---:|
`)
	for _, f := range nodeFigures() {
		measured := "–"
		if v, ok := nodes[f.name+" "+f.unit]; ok {
			measured = mark(v, f.most, f.unit)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.what, measured, bound(f.most, f.unit), or(f.kubelet))
	}
	b.WriteString("\n<!-- data of the table above\n")
	for _, f := range nodeFigures() {
		if v, ok := nodes[f.name+" "+f.unit]; ok {
			fmt.Fprintf(&b, "figure: %s %s %s\n", f.name, strconv.FormatFloat(v, 'f', -1, 64), f.unit)
		}
	}
	b.WriteString("-->\n\n" + agent)
	fmt.Fprintf(&b, `
## A node of a cluster

The real kubelet and cluster-agent in turn as the only node of the same cluster, with the same configuration and the same pods, by
`+"`make cluster-peer`. %s", beside)
	return b.String()
}

// mark returns a value as text. The text has a mark if the value is over the
// bound.
func mark(v, most float64, unit string) string {
	if most >= 0 && v > most {
		return show(v, unit) + " **over**"
	}
	return show(v, unit)
}

func bound(most float64, unit string) string {
	if most < 0 {
		return "–"
	}
	return "≤ " + show(most, unit)
}

func or(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// show returns a value as short text. It converts nanoseconds to a suitable
// unit.
func show(v float64, unit string) string {
	if unit == "ns/op" {
		for _, u := range []struct {
			name string
			ns   float64
		}{{"s", 1e9}, {"ms", 1e6}, {"µs", 1e3}} {
			if v >= u.ns {
				return number(v/u.ns) + " " + u.name
			}
		}
		return number(v) + " ns"
	}
	unit = strings.TrimPrefix(unit, "cpu-")
	unit, _, _ = strings.Cut(unit, "/")
	return number(v) + " " + unit
}

// number returns three significant digits, or all digits before the point.
func number(v float64) string {
	if v >= 100 || v == 0 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
