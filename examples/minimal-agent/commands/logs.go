package commands

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/internal/printable"
)

// logFlags are the flags of the command logs.
type logFlags struct {
	scope
	query         api.LogsQuery
	selector      podSelector
	allContainers bool
	prefix        bool
	maxRequests   int
}

// selectedTail is the number of lines of each container that the command logs prints if the user
// selects pods by labels and sets no --tail, as in kubectl.
const selectedTail = 10

func (p Program) logs() command {
	var conn connection
	var o logFlags
	return command{
		name: "logs", args: "POD [CONTAINER] | -l SELECTOR", summary: "print the logs of containers",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			o.register(f)
		},
		complete: p.completePods(&conn),
		run: func(ctx context.Context, args []string) error {
			if err := o.check(p, args); err != nil {
				return err
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			all, err := o.find(ctx, p, client, args)
			switch {
			case err != nil:
				return err
			case len(all) == 0:
				fmt.Fprintln(p.Stderr, "no pods match the selector")
				return nil
			case o.query.Follow && len(all) > o.maxRequests:
				return usagef("-f would follow %d logs at once: set --max-log-requests to at least this number", len(all))
			}
			return p.copyLogs(ctx, client, all, o.prefix)
		},
	}
}

func (o *logFlags) register(f *flag.FlagSet) {
	o.scope.register(f)
	o.selector.register(f)
	both := func(short, long, usage string, into *bool) {
		f.BoolVar(into, short, false, usage)
		f.BoolVar(into, long, false, usage)
	}
	for _, name := range []string{"c", "container"} {
		f.StringVar(&o.query.Container, name, "", "container of the pod (default: the first regular container)")
	}
	both("f", "follow", "also print new lines as they are written, until interrupted", &o.query.Follow)
	both("p", "previous", "print the log of the container's previous instance, before its last restart", &o.query.Previous)
	f.BoolVar(&o.query.Timestamps, "timestamps", false, "print the time before each line")
	f.BoolVar(&o.allContainers, "all-containers", false, "print the logs of all containers of each pod, including init containers")
	f.BoolVar(&o.prefix, "prefix", false, "print the names of the pod and of the container before each line")
	f.IntVar(&o.maxRequests, "max-log-requests", 5, "maximum number of logs that -f follows at once")
	f.DurationVar(&o.query.Since, "since", 0, "only print lines that are not older than this duration, such as 5m (default: all)")
	f.Func("tail", "only print this number of lines at the end of each log; -1: all (default: all; with -l: 10)", func(text string) error {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < -1 {
			return errors.New("must be a number of lines, or -1 for all")
		}
		o.query.TailLines = &n
		return nil
	})
}

// check checks the arguments, and sets the defaults that depend on other flags.
func (o *logFlags) check(p Program, args []string) error {
	if len(args) == 2 && o.query.Container == "" && !o.selector.set() {
		o.query.Container, args = args[1], args[:1]
	}
	switch {
	case o.selector.set() && len(args) > 0:
		return usagef("a selector (-l) and the name of a pod can't be used together")
	case !o.selector.set() && len(args) != 1:
		return usagef("logs requires exactly one pod, or a selector: %s logs POD, or %s logs -l KEY=VALUE", p.Name, p.Name)
	case o.allContainers && o.query.Container != "":
		return usagef("--all-containers and the name of a container can't be used together")
	case o.query.Since < 0:
		return usagef("--since %s: must not be negative", o.query.Since)
	}
	if o.query.TailLines == nil && o.selector.set() {
		o.query.TailLines = new(int64(selectedTail))
	}
	if o.query.TailLines != nil && *o.query.TailLines == -1 {
		o.query.TailLines = nil
	}
	return nil
}

// find returns a query for each log to print.
func (o *logFlags) find(ctx context.Context, p Program, client *api.Client, args []string) (all []api.LogsQuery, err error) {
	status, err := client.Status(ctx)
	if err != nil {
		return nil, err
	}
	pods := status.Pods
	if o.selector.set() {
		if pods, err = o.selector.filter(ctx, client, pods); err != nil {
			return nil, err
		}
		pods = o.within(pods)
	} else {
		pod, err := pick(status, o.arg(args[0]))
		if err != nil {
			return nil, err
		}
		pods = []api.Pod{pod}
	}
	for _, pod := range pods {
		q := o.query
		q.Namespace, q.Pod = pod.Namespace, pod.Name
		if o.allContainers {
			for _, c := range pod.Containers {
				q.Container = c.Name
				all = append(all, q)
			}
			continue
		}
		if q.Container, err = p.container(pod, q.Container); err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	return all, nil
}

// copyLogs prints logs: one after the other or, if they are followed, all at once.
func (p Program) copyLogs(ctx context.Context, client *api.Client, all []api.LogsQuery, prefix bool) error {
	out := &sharedWriter{out: p.Stdout}
	one := func(q api.LogsQuery) error {
		switch {
		case prefix:
			return copyLog(ctx, client, q, out, fmt.Sprintf("[pod/%s/%s] ", printable.Line(q.Pod), printable.Line(q.Container)))
		case len(all) > 1 && q.Follow:
			return copyLog(ctx, client, q, out, "")
		}
		return copyUnchanged(ctx, client, q, p.Stdout)
	}
	if !all[0].Follow {
		for _, q := range all {
			if err := one(q); err != nil {
				return err
			}
		}
		return nil
	}
	errs := make([]error, len(all))
	var copies sync.WaitGroup
	for i, q := range all {
		copies.Go(func() { errs[i] = one(q) })
	}
	copies.Wait()
	return errors.Join(errs...)
}

// copyUnchanged prints a log.
func copyUnchanged(ctx context.Context, client *api.Client, q api.LogsQuery, out io.Writer) error {
	log, err := client.Logs(ctx, q)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	_, err = io.Copy(out, log)
	return endOfLog(ctx, q, err)
}

// copyLog prints a log line by line, with the prefix before each line.
func copyLog(ctx context.Context, client *api.Client, q api.LogsQuery, out *sharedWriter, prefix string) error {
	log, err := client.Logs(ctx, q)
	if err != nil {
		return fmt.Errorf("container %s of pod %s/%s: %w", q.Container, q.Namespace, q.Pod, err)
	}
	defer func() { _ = log.Close() }()
	for lines := bufio.NewReader(log); ; {
		line, err := lines.ReadString('\n')
		if line != "" {
			if failed := out.line(prefix, line); failed != nil {
				return failed
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return endOfLog(ctx, q, err)
		}
	}
}

// endOfLog returns the error of a log. It returns nil if the user has interrupted -f.
func endOfLog(ctx context.Context, q api.LogsQuery, err error) error {
	select {
	case <-ctx.Done():
		if q.Follow {
			return nil
		}
	default:
	}
	return err
}

// sharedWriter writes lines of several logs. Each line is written as a whole.
type sharedWriter struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *sharedWriter) line(prefix, line string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !strings.HasSuffix(line, "\n") {
		line += "\n"
	}
	_, err := io.WriteString(w.out, prefix+line)
	return err
}

// container returns the name of the container that arg names. If arg is empty, it returns the first
// regular container and, as kubectl does, prints its name if the pod has other containers.
func (p Program) container(pod api.Pod, arg string) (string, error) {
	var all []string
	first := ""
	for _, c := range pod.Containers {
		if c.Name == arg {
			return arg, nil
		}
		name := printable.Line(c.Name)
		if c.Kind != "main" {
			name += " (" + printable.Line(c.Kind) + ")"
		} else if first == "" {
			first = c.Name
		}
		all = append(all, name)
	}
	switch {
	case arg != "":
		return "", fmt.Errorf("pod %s has no container %q: its containers are %s", printable.Line(fullName(pod)), arg, strings.Join(all, ", "))
	case first == "":
		return "", fmt.Errorf("pod %s has no regular container", printable.Line(fullName(pod)))
	case len(all) > 1:
		fmt.Fprintf(p.Stderr, "Defaulted container %q out of: %s\n", printable.Line(first), strings.Join(all, ", "))
	}
	return first, nil
}
