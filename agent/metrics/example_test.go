package metrics_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/pleg"
)

// The program's own observer is still called.
func Example() {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(metrics.Config{Registerer: registry})
	if err != nil {
		fmt.Println(err)
		return
	}
	observer := m.PLEG(pleg.Observer{
		RelistEnd: func(_ pleg.Result, err error) { fmt.Println("relisted:", err) },
	})
	observer.RelistEnd(pleg.Result{Took: time.Second}, errors.New("no answer")) // called by the generator

	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for s := bufio.NewScanner(w.Body); s.Scan(); {
		if strings.HasPrefix(s.Text(), "kubelet_pleg_relist_duration_seconds_sum") {
			fmt.Println(s.Text())
		}
	}
	// Output:
	// relisted: no answer
	// kubelet_pleg_relist_duration_seconds_sum 1
}

// Several agents of a program share one registry. Their gauges are added.
func ExampleMetrics_Add() {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(metrics.Config{Registerer: registry})
	if err != nil {
		fmt.Println(err)
		return
	}
	show := func() {
		families, err := registry.Gather()
		for _, f := range families {
			if f.GetName() == "kubelet_mirror_pods" {
				fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue(), err)
			}
		}
	}
	m.Add(metrics.Source{Mirrors: func() int { return 2 }})
	remove := m.Add(metrics.Source{Mirrors: func() int { return 3 }})
	show()
	remove()
	show()
	// Output:
	// kubelet_mirror_pods 5 <nil>
	// kubelet_mirror_pods 2 <nil>
}
