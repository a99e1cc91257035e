package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"time"
)

// pages are the pages that Prometheus scrapes.
func pages() []string { return []string{"/metrics", "/metrics/cadvisor", "/metrics/resource"} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

// run scrapes an agent until all queries have values, and prints the queries without a value.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("dashboards", flag.ContinueOnError)
	url := flags.String("url", "http://127.0.0.1:10255", "URL of the agent")
	namespace := flags.String("namespace", "default", "namespace of a pod that uses CPU, memory, network and a disk")
	pod := flags.String("pod", "", "name of the pod")
	scrapes := flags.Int("scrapes", 12, "maximum number of scrapes: scraping ends earlier if all queries have values")
	period := flags.Duration("period", 5*time.Second, "time between scrapes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *pod == "" {
		return errors.New("-pod is required")
	}
	s, v := newStore(), variables{*namespace, *pod, ".*", "1m"}
	var r result
	for i := range *scrapes {
		if i > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(*period):
			}
		}
		at := time.Now()
		for _, page := range pages() {
			if err := scrape(ctx, s, *url, page, at); err != nil {
				return err
			}
		}
		var err error
		if r, err = evaluate(ctx, s, at, v); err != nil {
			return err
		}
		if len(r.missing) == 0 {
			break
		}
	}
	for _, line := range append(r.needs, r.missing...) {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "%d queries have values\n", r.passed)
	if n := len(r.missing); n > 0 {
		return fmt.Errorf("%d queries have no value", n)
	}
	return nil
}

// scrape gets a page and adds it to the store.
func scrape(ctx context.Context, s *store, url, page string, at time.Time) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+page, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s%s: %w", url, page, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s: %s", url, page, response.Status)
	}
	return s.scraped(text, at, target(page))
}

// target returns the labels that Prometheus adds to the series of a page.
func target(page string) map[string]string {
	return map[string]string{"job": "kubelet", "metrics_path": page, "instance": "agent"}
}

// result is the result of all queries. needs has the queries that need another component. missing
// has the queries that have no value although they need only the agent. passed is the number of
// queries with a value.
type result struct {
	needs, missing []string
	passed         int
}

// evaluate evaluates all queries at the given time.
func evaluate(ctx context.Context, s *store, at time.Time, v variables) (r result, err error) {
	all, err := dashboards()
	if err != nil {
		return r, err
	}
	e := newEvaluator(s, at, v)
	defer func() { err = errors.Join(err, e.close()) }()
	for _, d := range all {
		for _, q := range d.Queries {
			if q.Needs != "" {
				r.needs = append(r.needs, fmt.Sprintf("%s / %s: needs %s", d.Title, q.Panel, q.Needs))
				continue
			}
			why, err := e.missing(ctx, q)
			switch {
			case err != nil:
				return r, err
			case why != "":
				r.missing = append(r.missing, fmt.Sprintf("%s / %s: %s: %s", d.Title, q.Panel, why, v.expand(q.Expr)))
			default:
				r.passed++
			}
		}
	}
	return r, nil
}
