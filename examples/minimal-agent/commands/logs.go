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
		name: "logs", args: "POD [-c CONTAINER]", does: "what a container has written",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			f.StringVar(&q.Container, "c", "", "the container (default: the only one)")
			f.BoolVar(&q.Follow, "f", false, "go on while it writes")
			f.BoolVar(&q.Previous, "previous", false, "of the one before its last restart")
			f.BoolVar(&q.Timestamps, "timestamps", false, "with the time of each line")
			f.DurationVar(&q.Since, "since", 0, "lines that are not older, such as 5m")
			f.Func("tail", "the last lines, so many (default: all)", func(text string) error {
				n, err := strconv.ParseInt(text, 10, 64)
				if err != nil || n < -1 {
					return errors.New("want a number, or -1 for all")
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
				return usagef("logs wants one pod: %s logs POD", p.Name)
			case q.Since < 0:
				return usagef("--since %s: want how long ago", q.Since)
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
		return nil // somebody has seen enough
	}
	return err
}

// container is the one that is meant.
func container(pod api.Pod, meant string) (string, error) {
	var all, main []string
	for _, c := range pod.Containers {
		if c.Name == meant {
			return meant, nil
		}
		all = append(all, printable.Line(c.Name))
		if c.Kind == "main" {
			main = append(main, c.Name)
		}
	}
	switch {
	case meant != "":
		return "", fmt.Errorf("pod %s has no container %q: there are %s", printable.Line(fullName(pod)), meant, strings.Join(all, ", "))
	case len(main) == 1:
		return main[0], nil
	}
	return "", usagef("pod %s has the containers %s: -c names one", printable.Line(fullName(pod)), strings.Join(all, ", "))
}
