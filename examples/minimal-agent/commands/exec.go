package commands

import (
	"context"
	"errors"
	"flag"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api/stream"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// streamFlags are the flags of exec and attach.
type streamFlags struct {
	scope
	container  string
	stdin, tty bool
}

func (o *streamFlags) register(f *flag.FlagSet) {
	o.scope.register(f)
	for _, name := range []string{"c", "container"} {
		f.StringVar(&o.container, name, "", "container of the pod (default: the first regular container)")
	}
	for _, name := range []string{"i", "stdin"} {
		f.BoolVar(&o.stdin, name, false, "send standard input to the container")
	}
	for _, name := range []string{"t", "tty"} {
		f.BoolVar(&o.tty, name, false, "use a terminal in the container")
	}
	f.BoolFunc("it", "short for -i -t", func(string) error {
		o.stdin, o.tty = true, true
		return nil
	})
}

func (p Program) exec() command {
	var conn connection
	var o streamFlags
	return command{
		name: "exec", args: "POD [-c CONTAINER] [-i] [-t] -- COMMAND [ARGUMENT...]", summary: "run a command in a container",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			o.register(f)
		},
		complete: p.completePods(&conn),
		run: func(ctx context.Context, args []string) error {
			if len(args) < 2 {
				return usagef("exec requires a pod and a command: %s exec POD -- COMMAND", p.Name)
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			target, _, err := o.find(ctx, p, client, args[0])
			if err != nil {
				return err
			}
			return p.connect(ctx, o, func(ctx context.Context, s stream.Streams) error {
				return stream.Exec(ctx, client, target, args[1:], s)
			})
		},
	}
}

func (p Program) attach() command {
	var conn connection
	var o streamFlags
	return command{
		name: "attach", args: "POD [-c CONTAINER] [-i] [-t]", summary: "connect to the main process of a container",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			o.register(f)
		},
		complete: p.completePods(&conn),
		run: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return usagef("attach requires exactly one pod: %s attach POD", p.Name)
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			target, pod, err := o.find(ctx, p, client, args[0])
			if err != nil {
				return err
			}
			if o.tty, err = p.attachedTerminal(ctx, client, pod, o); err != nil {
				return err
			}
			if o.tty {
				fmt.Fprintln(p.Stderr, "If you don't see a command prompt, try pressing enter.")
			}
			err = p.connect(ctx, o, func(ctx context.Context, s stream.Streams) error { return stream.Attach(ctx, client, target, s) })
			if ctx.Err() != nil {
				return nil // the user has ended the connection, and the process keeps running
			}
			return err
		},
	}
}

// find returns the container of a stream and its pod.
func (o *streamFlags) find(ctx context.Context, p Program, client *api.Client, name string) (t stream.Target, pod api.Pod, err error) {
	if pod, err = find(ctx, client, o.arg(name)); err != nil {
		return t, pod, err
	}
	o.container, err = p.container(pod, o.container)
	return stream.Target{Namespace: pod.Namespace, Pod: pod.Name, Container: o.container}, pod, err
}

// attachedTerminal reports whether to attach with a terminal. The definition of the container
// decides, because the output of a container with a terminal has another format.
func (p Program) attachedTerminal(ctx context.Context, client *api.Client, pod api.Pod, o streamFlags) (bool, error) {
	list, err := client.Pods(ctx)
	if err != nil {
		return false, err
	}
	has := o.tty // for a pod that no source defines any more
	for i := range list.Items {
		if string(list.Items[i].UID) == pod.UID {
			if c := specOf(&list.Items[i].Spec, o.container); c != nil {
				has = c.TTY
			}
		}
	}
	if o.tty && !has {
		fmt.Fprintf(p.Stderr, "Unable to use a TTY - container %s did not allocate one\n", o.container)
	}
	return has, nil
}

// specOf returns the container with this name, or nil.
func specOf(spec *corev1.PodSpec, name string) *corev1.Container {
	for i := range spec.EphemeralContainers {
		if spec.EphemeralContainers[i].Name == name {
			return podspec.Ephemeral(&spec.EphemeralContainers[i])
		}
	}
	return podspec.Container(spec, name)
}

// connect calls run with the standard streams of this process. If the user requests a terminal
// and standard input, the terminal of this process is in raw mode until run returns.
func (p Program) connect(ctx context.Context, o streamFlags, run func(context.Context, stream.Streams) error) error {
	s := stream.Streams{Stdout: p.Stdout, Stderr: p.Stderr}
	if o.stdin {
		s.Stdin = p.stdin()
	}
	if o.tty && o.stdin {
		restore, err := p.rawTerminal()
		if err != nil {
			fmt.Fprintln(p.Stderr, "Unable to use a TTY - input is not a terminal or the right kind of file")
			o.tty = false
		} else {
			defer restore()
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.tty {
		s.TTY, s.Stderr, s.Sizes = true, nil, p.sizes(ctx)
	}
	return run(ctx, s)
}

func (p Program) rawTerminal() (restore func(), err error) {
	if p.RawTerminal == nil {
		return nil, errors.ErrUnsupported
	}
	return p.RawTerminal()
}

// sizes returns a channel with the size of the terminal, and each new size until ctx is done.
func (p Program) sizes(ctx context.Context) <-chan stream.Size {
	sizes := make(chan stream.Size)
	var resized <-chan struct{}
	if p.Resized != nil {
		resized = p.Resized(ctx)
	}
	go func() {
		defer close(sizes)
		for {
			if width, height, ok := p.terminal(); ok {
				select {
				case sizes <- stream.Size{Width: uint16(width), Height: uint16(height)}:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-resized:
			case <-ctx.Done():
				return
			}
		}
	}()
	return sizes
}
