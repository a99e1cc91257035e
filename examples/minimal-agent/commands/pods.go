package commands

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/internal/printable"
)

func (p Program) pods() command {
	var conn connection
	var format output
	var in scope
	var selector podSelector
	return command{
		name: "pods", args: "[POD]", summary: "list pods",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			in.register(f)
			selector.register(f)
			format.register(f, formatJSON, formatYAML, formatWide, formatName)
		},
		complete: p.completePods(&conn),
		run: func(ctx context.Context, args []string) error {
			switch {
			case len(args) > 1:
				return usagef("unexpected argument %q", args[1])
			case len(args) == 1 && selector.set():
				return usagef("a selector (-l) and the name of a pod can't be used together")
			case len(args) == 1:
				args[0] = in.arg(args[0])
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			if format.data() {
				return p.printPods(ctx, client, format, args, func(pod *corev1.Pod) bool {
					return (in.namespace == "" || pod.Namespace == in.namespace) && (!selector.set() || selector.selector.Matches(labels.Set(pod.Labels)))
				})
			}
			return p.listPods(ctx, client, format, args, func(pods []api.Pod) ([]api.Pod, error) {
				return selector.filter(ctx, client, in.within(pods))
			})
		},
	}
}

// listPods prints a line for each of the selected pods, or for the pod that args[0] matches.
func (p Program) listPods(ctx context.Context, client *api.Client, format output, args []string, selected func([]api.Pod) ([]api.Pod, error)) error {
	status, err := client.Status(ctx)
	if err != nil {
		return err
	}
	shown, err := selected(status.Pods)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		pod, err := pick(status, args[0])
		if err != nil {
			return err
		}
		shown = []api.Pod{pod}
	}
	switch {
	case len(shown) == 0:
		fmt.Fprintln(p.Stderr, "no pods")
	case format == formatName:
		for _, pod := range shown {
			fmt.Fprintln(p.Stdout, printable.Line("pod/"+pod.Name))
		}
	default:
		podTable(p.Stdout, p.style(), status, shown, format == formatWide)
	}
	return nil
}

// printPods prints a PodList of the selected pods, or the pod that args[0] matches, as JSON or YAML.
func (p Program) printPods(ctx context.Context, client *api.Client, format output, args []string, selected func(*corev1.Pod) bool) error {
	list, err := client.Pods(ctx)
	if err != nil || len(args) == 0 {
		list.Items = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !selected(&pod) })
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
