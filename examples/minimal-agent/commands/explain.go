package commands

import (
	"context"
	"flag"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/api"
)

func (p Program) explain() command {
	var conn connection
	var format output
	return command{
		name: "explain", args: "POD", does: "why a pod is as it is, and what comes next",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			format.register(f, formatJSON, formatYAML)
		},
		complete: p.completePods(&conn),
		run: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return usagef("explain wants one pod: %s explain POD", p.Name)
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			pod, err := find(ctx, client, args[0])
			if err != nil {
				return err
			}
			e, err := client.Explain(ctx, pod.Namespace, pod.Name)
			switch {
			case err != nil:
				return err
			case format.data():
				return p.print(format, e)
			}
			p.showExplanation(e)
			return nil
		},
	}
}

func (p Program) showExplanation(e api.Explanation) {
	paint := p.painter()
	head := fmt.Sprintf("%s is %s: %d of %d ready, %d restarts", fullName(e.Pod), e.Pod.State, e.Pod.Ready, containersOf(e.Pod), e.Pod.Restarts)
	fmt.Fprintln(p.Stdout, paint.paint(podColour(e.Pod), clean(head)))
	section := func(title string) { fmt.Fprintln(p.Stdout, paint.paint(bold, title)) }
	if len(e.Why) > 0 {
		section("Why")
		for _, why := range e.Why {
			fmt.Fprintln(p.Stdout, "  "+clean(why))
		}
	}
	if len(e.Next) > 0 {
		section("Next")
		t := newTable(p.Stdout, paint)
		for _, step := range e.Next {
			t.row(plain, "  "+until(p.Clock.Now(), step.At), step.What)
		}
		t.flush()
	}
	for _, more := range []struct{ title, text string }{{"Plan", e.Plan}, {"Eviction", e.Stays}} {
		if more.text != "" {
			section(more.title)
			fmt.Fprintln(p.Stdout, "  "+clean(more.text))
		}
	}
}

// until says when something is to happen.
func until(now time.Time, at *time.Time) string {
	switch {
	case at == nil, !at.After(now):
		return "now"
	default:
		return "in " + duration.HumanDuration(at.Sub(now))
	}
}
