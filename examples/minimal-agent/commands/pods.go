package commands

import (
	"context"
	"flag"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/internal/printable"
)

func (p Program) pods() command {
	var conn connection
	var format output
	return command{
		name: "pods", args: "[POD]", summary: "list pods",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			format.register(f, formatJSON, formatYAML, formatWide)
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
			if format.data() {
				return p.printPods(ctx, client, format, args)
			}
			status, err := client.Status(ctx)
			if err != nil {
				return err
			}
			shown := status.Pods
			if len(args) > 0 {
				pod, err := pick(status, args[0])
				if err != nil {
					return err
				}
				shown = []api.Pod{pod}
			}
			if len(shown) == 0 {
				fmt.Fprintln(p.Stderr, "no pods")
				return nil
			}
			podTable(p.Stdout, p.style(), status, shown, format == formatWide)
			return nil
		},
	}
}

// printPods prints a PodList, or the pod that args[0] matches, as JSON or YAML.
func (p Program) printPods(ctx context.Context, client *api.Client, format output, args []string) error {
	list, err := client.Pods(ctx)
	if err != nil || len(args) == 0 {
		return joinPrint(err, func() error { return p.print(format, list) })
	}
	found, err := find(ctx, client, args[0])
	if err != nil {
		return err
	}
	for _, pod := range list.Items {
		if string(pod.UID) == found.UID {
			pod.APIVersion, pod.Kind = "v1", "Pod"
			return p.print(format, pod)
		}
	}
	return fmt.Errorf("pod %s is no longer defined: the agent is removing it", printable.Line(fullName(found)))
}

func joinPrint(err error, print func() error) error {
	if err != nil {
		return err
	}
	return print()
}

func podTable(out io.Writer, l style, s api.Status, pods []api.Pod, wide bool) {
	t := newTable(out, l)
	header := []string{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"}
	if wide {
		header = append(header, "IP", "CPU", "MEMORY", "MESSAGE")
	}
	t.row(bold, header...)
	for _, pod := range pods {
		cells := []string{
			pod.Namespace, pod.Name, fmt.Sprintf("%d/%d", pod.Ready, containersOf(pod)), pod.State, fmt.Sprint(pod.Restarts), age(s.Now, pod.Started),
		}
		if wide {
			cpu, memory := usage(pod.Usage)
			cells = append(cells, dash(pod.IP), cpu, memory, pod.Message)
		}
		t.row(podColour(pod), cells...)
	}
	t.flush()
}

func podColour(p api.Pod) colour {
	switch {
	case isHealthy(p):
		return plain
	case p.Phase == corev1.PodFailed:
		return red
	}
	return yellow
}

func usage(u *api.Usage) (cpu, memory string) {
	if u == nil {
		return "-", "-"
	}
	cpu = "-"
	if u.CPUCores != nil {
		cpu = cores(*u.CPUCores)
	}
	return cpu, size(int64(u.MemoryBytes))
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
