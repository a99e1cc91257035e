package metrics_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// shown returns the labels of all metrics by name. A histogram has an entry for each name that
// queries use, such as kubelet_pleg_relist_duration_seconds_bucket.
func shown(t *testing.T) map[string]map[string]bool {
	t.Helper()
	b := newFullBed(t)
	// The program also registers the metrics of the Go runtime and of the process.
	b.all.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	all := map[string]map[string]bool{}
	name, label := regexp.MustCompile(`^\w+`), regexp.MustCompile(`(\w+)="`)
	for _, line := range values(b.page() + b.probes() + b.slis() + b.resource() + b.cadvisor()) {
		n := name.FindString(line)
		if all[n] == nil {
			all[n] = map[string]bool{}
		}
		for _, m := range label.FindAllStringSubmatch(line, -1) {
			all[n][m[1]] = true
		}
	}
	require.Contains(t, all, "kubelet_pleg_relist_duration_seconds_bucket")
	return all
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	require.NoError(t, err)
	return data
}

var (
	selector = regexp.MustCompile(`([a-z][a-z0-9_:]*)(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"`)
	grouping = regexp.MustCompile(`\b(by|on|without|ignoring)\s*\(([^)]*)\)`)
	duration = regexp.MustCompile(`\[[^\]]*\]`)
)

// requireQuery checks that a query uses only existing metrics and labels. It does not parse
// PromQL completely.
func requireQuery(t *testing.T, query string, all map[string]map[string]bool) (metrics []string) {
	t.Helper()
	words := []string{
		"sum", "max", "topk", "rate", "increase", "histogram_quantile", "time", "unless", "label_values", "instance", "up",
	}
	labels := map[string]bool{"instance": true, "job": true, "le": true}
	require.Equal(t, strings.Count(query, "("), strings.Count(query, ")"), query)
	require.Equal(t, strings.Count(query, "{"), strings.Count(query, "}"), query)
	rest := grouping.ReplaceAllString(duration.ReplaceAllString(query, ""), "")
	for _, m := range selector.FindAllStringSubmatch(rest, -1) {
		name := m[1]
		if name == "up" || !slices.Contains(words, name) {
			if name != "up" {
				require.Contains(t, all, name, query)
				metrics = append(metrics, name)
			}
			for l := range all[name] {
				labels[l] = true
			}
			for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
				require.True(t, all[name][l[1]] || l[1] == "instance" || l[1] == "job", "%s has no label %s: %s", name, l[1], query)
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(query, -1) {
		for l := range strings.SplitSeq(g[2], ",") {
			require.True(t, labels[strings.TrimSpace(l)], "no metric has the label %s: %s", l, query)
		}
	}
	return metrics
}

func TestDocs_AlertsUseExistingMetrics(t *testing.T) {
	t.Parallel()
	all, guide := shown(t), string(read(t, "operating.md"))
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.UnmarshalStrict(read(t, "alerts.yaml"), &file))
	names := map[string]bool{}
	for _, g := range file.Groups {
		require.NotEmpty(t, g.Name)
		for _, r := range g.Rules {
			require.Regexp(t, `^[A-Z]\w+$`, r.Alert)
			require.False(t, names[r.Alert], "duplicate alert %s", r.Alert)
			names[r.Alert] = true
			require.Regexp(t, `^(\d+[smh])?$`, r.For, r.Alert)
			require.Contains(t, []string{"warning", "critical"}, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.Contains(t, guide, r.Alert, "the guide must describe this alert")
			requireQuery(t, r.Expr, all)
			// The query must not remove labels that the summary uses.
			for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations["summary"], -1) {
				if by := grouping.FindStringSubmatch(r.Expr); by != nil && by[1] == "by" {
					require.Contains(t, by[2], m[1], r.Alert)
				}
			}
		}
	}
	require.Greater(t, len(names), 15)
}

func TestDocs_DashboardUsesExistingMetrics(t *testing.T) {
	t.Parallel()
	all := shown(t)
	var board struct {
		Title, UID    string
		SchemaVersion int
		Templating    struct {
			List []struct{ Name, Type, Definition string }
		}
		Panels []struct {
			ID          int
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ RefID, Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(read(t, "grafana.json"), &board))
	require.NotEmpty(t, board.Title)
	require.Positive(t, board.SchemaVersion)
	ids, taken := map[int]bool{}, map[[2]int]int{}
	for i, p := range board.Panels {
		require.False(t, ids[p.ID], "duplicate panel ID %d", p.ID)
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				other, is := taken[cell]
				require.False(t, is, "panel %s overlaps %s", p.Title, board.Panels[other].Title)
				require.Less(t, cell[0], 24, p.Title)
				taken[cell] = i
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			require.NotEmpty(t, requireQuery(t, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"), all), p.Title)
		}
	}
	for _, v := range board.Templating.List {
		if v.Type == "query" {
			requireQuery(t, v.Definition, all)
		}
	}
}

// TestDocs_GuideNamesEveryMetric checks that docs/operating.md documents all metrics with all
// their labels, and no other metrics.
func TestDocs_GuideNamesEveryMetric(t *testing.T) {
	t.Parallel()
	all, told := shown(t), map[string]bool{}
	base := func(name string) string {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if b := strings.TrimSuffix(name, suffix); all[b+"_bucket"] != nil {
				return b
			}
		}
		return name
	}
	for _, m := range regexp.MustCompile("`((?:kubelet|kubeparts|kubernetes|prober|container|machine|node|pod|storage|volume|go|process)_[a-z0-9_]+|(?:resource_)?scrape_error)(\\{[^`]*\\})?`").
		FindAllStringSubmatch(string(read(t, "operating.md")), -1) {
		name := m[1]
		if all[name] == nil {
			name += "_bucket"
		}
		require.Contains(t, all, name)
		told[base(name)] = true
		for l := range strings.SplitSeq(strings.Trim(m[2], "{}"), ",") {
			l, _, _ = strings.Cut(l, "=")
			require.True(t, l == "" || all[name][l], "%s has no label %s", name, l)
		}
	}
	for name := range all {
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			require.True(t, told[base(name)], "the guide does not describe %s", base(name))
		}
	}
}

func TestRequireQuery_FindsTheMetricsOfAQuery(t *testing.T) {
	t.Parallel()
	all := shown(t)
	require.Equal(t, []string{"kubelet_evictions"},
		requireQuery(t, `sum by (eviction_signal) (rate(kubelet_evictions{instance=~"x"}[5m])) > 0`, all))
	require.NotContains(t, all, "kubelet_evictions_total")
	require.False(t, all["kubelet_evictions"]["reason"])
}
