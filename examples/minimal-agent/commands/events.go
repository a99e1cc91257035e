package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

func (p Program) events() command {
	var conn connection
	var format output
	var q api.EventsQuery
	var in scope
	return command{
		name: "events", args: "[POD]", summary: "list events; -w also prints new events as they occur",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			in.register(f)
			format.register(f, formatJSON, formatYAML)
			f.BoolVar(&q.Watch, "w", false, "watch: also print new events as they occur, until interrupted")
		},
		complete: p.completePods(&conn),
		run: func(ctx context.Context, args []string) error {
			if len(args) > 1 {
				return usagef("unexpected argument %q", args[1])
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			matches := func(api.Event) bool { return true }
			if len(args) > 0 {
				pod, err := find(ctx, client, in.arg(args[0]))
				if err != nil {
					return err
				}
				matches = func(e api.Event) bool {
					return e.Kind == "Pod" && e.Namespace == pod.Namespace && e.Name == pod.Name
				}
			}
			if q.Watch {
				return p.watchEvents(ctx, client, q, format, matches)
			}
			return p.listEvents(ctx, client, q, format, matches)
		},
	}
}

func (p Program) listEvents(ctx context.Context, client *api.Client, q api.EventsQuery, format output, matches func(api.Event) bool) error {
	all := []api.Event{}
	for e, err := range client.Events(ctx, q) {
		if err != nil {
			return err
		}
		if matches(e) {
			all = append(all, e)
		}
	}
	switch {
	case format.data():
		return p.print(format, all)
	case len(all) == 0:
		fmt.Fprintln(p.Stderr, "no events")
		return nil
	}
	eventTable(p.Stdout, p.style(), p.Clock.Now(), all)
	return nil
}

// watchEvents prints each event when the event arrives, on one line unless the format
// is YAML.
func (p Program) watchEvents(ctx context.Context, client *api.Client, q api.EventsQuery, format output, matches func(api.Event) bool) error {
	l := p.style()
	for e, err := range client.Events(ctx, q) {
		if err != nil {
			return err
		}
		if !matches(e) {
			continue
		}
		switch format {
		case formatJSON:
			err = json.NewEncoder(p.Stdout).Encode(e)
		case formatYAML:
			fmt.Fprintln(p.Stdout, "---")
			err = p.print(format, e)
		default:
			line := fmt.Sprintf("%s  %-7s  %-22s  %s  %s", e.Time.Local().Format(time.TimeOnly), e.Type, e.Reason, object(e), text(e))
			_, err = fmt.Fprintln(p.Stdout, l.line(eventColour(e), line))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func eventTable(out io.Writer, l style, now time.Time, all []api.Event) {
	t := newTable(out, l)
	t.row(bold, "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
	for _, e := range all {
		t.row(eventColour(e), age(now, &e.Time), e.Type, e.Reason, object(e), text(e))
	}
	t.flush()
}

func eventColour(e api.Event) colour {
	if e.Type == corev1.EventTypeWarning {
		return yellow
	}
	return plain
}

func object(e api.Event) string {
	if e.Namespace == "" {
		return e.Name
	}
	return e.Namespace + "/" + e.Name
}

func text(e api.Event) string {
	if e.Count > 1 {
		return fmt.Sprintf("%s (x%d)", e.Message, e.Count)
	}
	return e.Message
}

func sortNewestFirst(all []api.Event) {
	slices.SortStableFunc(all, func(a, b api.Event) int { return cmp.Compare(b.Number, a.Number) })
}
