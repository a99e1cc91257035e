package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// classes returns all classes, in the order of the page.
func classes() []judge.Class {
	return []judge.Class{judge.Deliberate, judge.KubeletDefect, judge.ArbitraryOrder}
}

// page returns docs/how-we-know.md. The runs are a table of runs of Kubernetes' own specs.
func page(results []result, runs string) string {
	var b strings.Builder
	b.WriteString(`# How we know that a manager decides as the kubelet does

Read this page to learn which decisions of Kubeparts were compared with those of the kubelet, how often, and where they differ.

<!-- Written by "make peer-page" from the rules and from the last long run. Do not edit. -->

[test/peer](../test/peer) imports the kubelet's own packages (v1.36.3). For each manager, a generator makes a random world from a seed: pods, a
runtime's state, statistics, faults, clocks, restarts. The kubelet's package and ours each get a copy of that world and run through it step by step.
After each step, the test compares everything that a user can observe: decisions, statuses, calls, events, messages. Each single value that it compares
counts as a fact. For each difference there must be a rule that computes our value from the kubelet's, or the reverse. The doc.go of our package describes
the difference in one sentence. A difference that no rule explains fails the build.

`)
	b.WriteString("| comparison | scenarios | steps | facts |")
	for _, c := range classes() {
		fmt.Fprintf(&b, " %s |", c)
	}
	b.WriteString("\n|---|---:|---:|---:|" + strings.Repeat("---:|", len(classes())) + "\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s |", r.Name, anchor(r.Name), thousands(r.Scenarios), thousands(r.Steps), thousands(r.Facts))
		for _, c := range classes() {
			fmt.Fprintf(&b, " %s |", differences(r, c))
		}
		b.WriteByte('\n')
	}
	b.WriteString(`
The last three columns give the number of rules of each class, and how many differences they explained:

- *deliberate*: our package differs on purpose.
- *kubelet defect*: our package does not repeat a defect of the kubelet.
- *arbitrary order*: the kubelet's own result depends on chance, such as the order of a map.

## Kubernetes' own specs

Kubernetes has specs for nodes, with the label NodeConformance. ` + "`make conformance`" + ` starts a real cluster with cluster-agent as its only node, and runs
the specs with the unchanged program e2e.test of Kubernetes 1.36.3. It runs 249 of the 250 specs: all that pass with the kubelet on this machine
([list](../test/clusterbed/testdata/specs.txt)). The one other spec needs a kernel with dummy interfaces. ` + "`make conformance NODE=kubelet`" + ` runs the specs with
the kubelet as the node. On a machine of the same kind, two separate runs with the kubelet took 22 minutes for the 240 specs without the label Slow, and
28 minutes for the specs with this label.

` + runs + `
## How to repeat the comparisons

` + "    make peer                     # fixed seeds, about three minutes\n" +
		"    make peer-long N=200000       # hours; continues where it stopped\n" +
		"    cd test/peer/eviction && PEER_SEED=7 go test -v .    # one scenario, with every fact of both sides\n" + `
The comparisons are themselves tested: ` + "`make peer-mutate`" + ` changes one comparison, constant, return, assignment or field of our decision code at
a time. The comparison or our own tests must find each such mutation; our own tests also cover what the kubelet does not have. If both miss a mutation, it
survives, and the table must have a reason for this. ` + "`make peer-cover`" + ` reports which statements of the decision code the comparison reaches. Each of the
following sections begins with these two results for one comparison.

`)
	for _, r := range results {
		b.WriteString(section(r))
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// differences returns how many rules of a class a comparison has, and how many differences
// they explained.
func differences(r result, class judge.Class) string {
	rules, count := 0, 0
	for _, rule := range r.Rules {
		if rule.Class == class {
			rules++
			count += rule.Differences
		}
	}
	if rules == 0 {
		return "–"
	}
	return fmt.Sprintf("%d: %s", rules, thousands(count))
}

// section returns the part of the page about one comparison.
func section(r result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n", r.Name)
	if r.mutations != "" {
		fmt.Fprintf(&b, "%s ([table](../test/peer/%s/testdata/mutations.txt))", r.mutations, r.folder)
	}
	if r.coverage != "" {
		fmt.Fprintf(&b, " %s ([what is not reached](../test/peer/%s/testdata/coverage.txt))", r.coverage, r.folder)
	}
	if r.mutations+r.coverage != "" {
		b.WriteString("\n\n")
	}
	for _, c := range classes() {
		for _, rule := range r.Rules {
			if rule.Class == c {
				fmt.Fprintf(&b, "- **%s** (%s, %s): %s\n", rule.Name, rule.Class, times(rule.Differences), rule.Sentence)
			}
		}
	}
	if len(r.Rules) == 0 {
		b.WriteString("No difference.\n")
	}
	b.WriteByte('\n')
	return b.String()
}

// anchor returns the anchor of a heading in a link.
func anchor(heading string) string {
	return strings.NewReplacer("/", "", " ", "-").Replace(strings.ToLower(heading))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return thousands(n) + " times"
}

// thousands prints a number with thousands separators.
func thousands(n int) string {
	digits := []byte(fmt.Sprint(n))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = slices.Insert(digits, i, ',')
	}
	return string(digits)
}

// The marks around the generated line in README.md.
const (
	lineBegin = "<!-- peer -->"
	lineEnd   = "<!-- /peer -->"
)

// readmeLine returns the line of README.md about the comparisons.
func readmeLine(results []result) string {
	scenarios, facts := 0, 0
	for _, r := range results {
		scenarios += r.Scenarios
		facts += r.Facts
	}
	return fmt.Sprintf("Each decision is [compared with the kubelet's own packages](docs/how-we-know.md): %s compared values in %s random scenarios. Every difference is listed and explained.",
		thousands(facts), thousands(scenarios))
}

// withLine replaces the text between the marks. A text without marks is returned unchanged.
func withLine(text, line string) string {
	before, rest, ok := strings.Cut(text, lineBegin)
	if !ok {
		return text
	}
	_, after, ok := strings.Cut(rest, lineEnd)
	if !ok {
		return text
	}
	return before + lineBegin + line + lineEnd + after
}
