package main

import (
	"context"
	"embed"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

//go:embed testdata
var files embed.FS

// dashboard has the queries of a dashboard, with the recording rules that they use.
type dashboard struct {
	Title   string
	Rules   []rule
	Queries []query
}

// rule is a recording rule.
type rule struct{ Record, Expr string }

// query is a query of a panel.
type query struct {
	Panel, Expr string
	// Needs is the component that exports a series of the query, if it is not the agent.
	Needs string
	// Zero is the situation in which the value is 0, although the series exists.
	Zero string
}

// dashboards returns the dashboards of testdata.
func dashboards() (all []dashboard, err error) {
	for _, name := range []string{"pod.yaml", "kubelet.yaml", "metrics-server.yaml"} {
		text, err := files.ReadFile("testdata/" + name)
		if err != nil {
			return nil, err
		}
		var d dashboard
		if err := yaml.UnmarshalStrict(text, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// variables are the values of a dashboard's variables.
type variables struct{ namespace, pod, instance, interval string }

// expand replaces the variables of a query. The label cluster does not exist in a single cluster.
func (v variables) expand(expr string) string {
	return strings.NewReplacer(
		"$__rate_interval", v.interval, "$cluster", "", "$namespace", v.namespace, "$pod", v.pod, "$instance", v.instance,
	).Replace(expr)
}

// evaluator evaluates queries on a store at the given time.
type evaluator struct {
	engine *promql.Engine
	store  *store
	at     time.Time
	v      variables
}

func newEvaluator(s *store, at time.Time, v variables) *evaluator {
	return &evaluator{promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute}), s, at, v}
}

// close releases the engine.
func (e *evaluator) close() error { return e.engine.Close() }

// eval returns the values of a query.
func (e *evaluator) eval(ctx context.Context, expr string) (promql.Vector, error) {
	q, err := e.engine.NewInstantQuery(ctx, e.store, nil, e.v.expand(expr), e.at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	defer q.Close()
	result := q.Exec(ctx)
	if result.Err != nil {
		return nil, fmt.Errorf("%s: %w", expr, result.Err)
	}
	vector, err := result.Vector()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	return append(promql.Vector{}, vector...), nil
}

// record evaluates recording rules and adds their results to the store.
func (e *evaluator) record(ctx context.Context, rules []rule) error {
	for _, r := range rules {
		vector, err := e.eval(ctx, r.Expr)
		if err != nil {
			return err
		}
		for _, v := range vector {
			b := labels.NewBuilder(v.Metric)
			b.Set(model.MetricNameLabel, r.Record)
			e.store.add(b.Labels(), v.T, v.F)
		}
	}
	return nil
}

// missing returns why a query has no useful value, or an empty text if it has a useful value.
func (e *evaluator) missing(ctx context.Context, q query) (string, error) {
	vector, err := e.eval(ctx, q.Expr)
	switch {
	case err != nil:
		return "", err
	case len(vector) == 0:
		return "no value", nil
	}
	for _, v := range vector {
		if v.F > 0 || q.Zero != "" && v.F == 0 {
			return "", nil
		}
		if !math.IsNaN(v.F) && v.F != 0 {
			return fmt.Sprintf("the value is %v", v.F), nil
		}
	}
	return "all values are 0 or NaN", nil
}

// metricsOf returns the names of the metrics that a query reads.
func metricsOf(expr string) (names []string, err error) {
	parsed, err := parser.ParseExpr(variables{interval: "1m"}.expand(expr))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			names = append(names, s.Name)
		}
		return nil
	})
	return names, nil
}
