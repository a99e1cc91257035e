package commands

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/internal/printable"
)

func (p Program) logs() command {
	var conn connection
	var q api.LogsQuery
	return command{
		name: "logs", args: "POD [-c CONTAINER]", summary: "print the log of a container",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			f.StringVar(&q.Container, "c", "", "container of the pod; required if the pod has more than one regular container")
			f.BoolVar(&q.Follow, "f", false, "follow: also print new lines as they are written")
			f.BoolVar(&q.Previous, "previous", false, "print the log of the container's previous instance, before its last restart")
			f.BoolVar(&q.Timestamps, "timestamps", false, "print the time of each line before it")
			f.DurationVar(&q.Since, "since", 0, "only print lines that are not older than this duration, such as 5m (default: all)")
			f.Func("tail", "only print this number of lines at the end of the log; -1: all (default: all)", func(text string) error {
				n, err := strconv.ParseInt(text, 10, 64)
				if err != nil || n < -1 {
					return errors.New("must be a number of lines, or -1 for all")
				}
				if q.TailLines = &n; n == -1 {
					q.TailLines = nil
				}
				return nil
			})
		},
		complete: p.completePods(&conn),
		run: func(ctx context.Context, args []string) error {
			switch {
			case len(args) != 1:
				return usagef("logs requires exactly one pod: %s logs POD", p.Name)
			case q.Since < 0:
				return usagef("--since %s: must not be negative", q.Since)
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
			q.Namespace, q.Pod = pod.Namespace, pod.Name
			if q.Container, err = container(pod, q.Container); err != nil {
				return err
			}
			return p.copyLog(ctx, client, q)
		},
	}
}

func (p Program) copyLog(ctx context.Context, client *api.Client, q api.LogsQuery) error {
	log, err := client.Logs(ctx, q)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	_, err = io.Copy(p.Stdout, log)
	if q.Follow && ctx.Err() != nil {
		return nil // interrupted by the user
	}
	return err
}

// container returns the name of the container that arg names, or of the pod's only regular
// container if arg is empty.
func container(pod api.Pod, arg string) (string, error) {
	var all, main []string
	for _, c := range pod.Containers {
		if c.Name == arg {
			return arg, nil
		}
		all = append(all, printable.Line(c.Name))
		if c.Kind == "main" {
			main = append(main, c.Name)
		}
	}
	switch {
	case arg != "":
		return "", fmt.Errorf("pod %s has no container %q: its containers are %s", printable.Line(fullName(pod)), arg, strings.Join(all, ", "))
	case len(main) == 1:
		return main[0], nil
	}
	return "", usagef("pod %s has the containers %s: use -c to select one", printable.Line(fullName(pod)), strings.Join(all, ", "))
}
