// Command dashboards checks that the queries of public dashboards get values from an agent.
// It scrapes the metrics of a running agent until all queries have values, or a given number
// of times. It evaluates the queries with the engine of Prometheus, and prints each query
// without a value:
//
//	go run . -url http://127.0.0.1:10255 -namespace default -pod web-node1
//
// It is a separate Go module, so that the other modules do not depend on Prometheus.
//
// The queries are in testdata: the queries of the kubernetes-mixin's dashboards "Compute
// Resources / Pod" and "Kubelet" with their recording rules, and the series that
// metrics-server reads. A query that needs another component, such as kube-state-metrics,
// names the component.
package main
